package breaker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/control/breaker"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

var settings = breaker.Settings{Percent: 20, Window: 30 * time.Minute, Pause: time.Hour, Ready: 5 * time.Minute}

// A bench has eight nodes with one pod each, of pools "default" and "idle", and a Karpenter with a breaker.
type bench struct {
	*sim.World
	k    *sim.Karpenter
	late time.Time // machines and pods that start later are as the test wants them
}

// changed returns whether the test has changed the template.
func (b *bench) changed() bool { return !b.late.IsZero() && !time.Now().Before(b.late) }

func inBench(t *testing.T, o func(*bench) sim.Options, test func(*bench)) {
	t.Helper()
	b := &bench{}
	sim.BubbleAlone(t, o(b), func(t *testing.T, w *sim.World) {
		b.World = w
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}} })
		w.API.Put(sim.Pool("idle"))
		memapi.Edit(w.API, "", "idle", func(p *v1.NodePool) { p.Spec.Weight = new(int32(1)) })
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Weight = new(int32(10)) })
		for i := range 8 {
			w.API.Put(sim.Pod(fmt.Sprintf("web-%d", i), "1500m", sim.OwnedBy(fmt.Sprintf("web-%d", i))))
		}
		b.k = w.Karpenter(sim.KarpenterOptions{Name: "karpenter", Lag: 10 * time.Millisecond, Provision: true, Disrupt: true})
		b.k.Add(breaker.New(breaker.Deps{Store: b.k.Store, Client: b.k.Client, Metrics: b.k.Metrics, Events: b.k.Sink()}, settings).Run)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.k.Run(ctx); close(done) }()
		defer func() { stop(); <-done }()
		time.Sleep(40 * time.Minute) // the first machines are not new any more
		test(b)
	})
}

// roll changes the template, so that all nodes drift.
func (b *bench) roll() {
	b.late = time.Now()
	memapi.Edit(b.API, "", "default", func(p *v1.NodePool) {
		p.Generation++
		p.Spec.Template.Labels = map[string]string{"image": b.late.String()[:10]}
	})
}

// stopped names the pools that the breaker has stopped.
func (b *bench) stopped() (names []string) {
	for _, p := range memapi.All[*v1.NodePool](b.API) {
		if c := condition.Get(p, v1.ConditionTypeDisruptionPaused); c != nil && c.Reason == v1.ReasonBreakerTripped {
			names = append(names, p.Name)
		}
	}
	return names
}

func (b *bench) old() (n int) {
	for _, node := range memapi.All[*corev1.Node](b.API) {
		if node.Labels["image"] == "" && node.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

func TestMachinesThatDoNotGetReadyStopDisruption(t *testing.T) {
	inBench(t, func(b *bench) sim.Options {
		return sim.Options{NeverReady: func(cloud.Machine) bool { return b.changed() }}
	}, func(b *bench) {
		before := b.old()
		b.roll()
		time.Sleep(4 * time.Minute)
		if got := b.stopped(); got != nil {
			t.Errorf("%q are stopped while the machines may still get ready", got)
		}
		time.Sleep(3 * time.Minute)
		if got := b.stopped(); len(got) != 2 {
			t.Errorf("%q are stopped, want both pools", got)
		}
		if got := b.old(); got != before {
			t.Errorf("%d of %d old nodes are left, want all", got, before)
		}
		message := condition.Get(sim.Get[*v1.NodePool](t, b.World, "default"), v1.ConditionTypeDisruptionPaused).Message
		if !strings.Contains(message, "4 of 4 new machines are not ready (") {
			t.Errorf("the condition says %q", message)
		}
		sim.WantEvent(t, b.k, "DisruptionStopped", "idle")
	})
}

func TestMovedPodsThatDoNotGetReadyStopDisruption(t *testing.T) {
	inBench(t, func(b *bench) sim.Options {
		return sim.Options{Sick: func(*corev1.Pod, *corev1.Node) bool { return b.changed() }}
	}, func(b *bench) {
		b.roll()
		time.Sleep(8 * time.Minute)
		message := condition.Get(sim.Get[*v1.NodePool](t, b.World, "default"), v1.ConditionTypeDisruptionPaused)
		if message == nil || !strings.Contains(message.Message, "of 8 moved pods are not ready again (default/web-0-again-") {
			t.Errorf("the condition says %v", message)
		}
	})
}

func TestWhatWorksStopsNothing(t *testing.T) {
	inBench(t, func(*bench) sim.Options { return sim.Options{} }, func(b *bench) {
		b.roll()
		time.Sleep(30 * time.Minute)
		if got := b.stopped(); got != nil {
			t.Errorf("%q are stopped", got)
		}
		if got := b.old(); got != 0 {
			t.Errorf("%d old nodes are left", got)
		}
	})
}

// When a user resumes, what failed before is forgotten, and what fails afterwards is not.
func TestResumeForgivesThePast(t *testing.T) {
	inBench(t, func(b *bench) sim.Options {
		return sim.Options{NeverReady: func(cloud.Machine) bool { return b.changed() }}
	}, func(b *bench) {
		b.roll()
		time.Sleep(7 * time.Minute)
		for _, name := range []string{"default", "idle"} {
			memapi.Edit(b.API, "", name, func(p *v1.NodePool) { delete(p.Annotations, v1.PausedAnnotationKey) })
		}
		time.Sleep(4 * time.Minute)
		if got := b.stopped(); got != nil {
			t.Errorf("%q are stopped again by what failed before", got)
		}
		time.Sleep(20 * time.Minute)
		if got := b.stopped(); got == nil {
			t.Error("new failures do not stop it again")
		}
	})
}

// Time ends the stop, and a pool that a user paused or resumed is left alone.
func TestWhoseSwitchItIs(t *testing.T) {
	inBench(t, func(b *bench) sim.Options {
		return sim.Options{NeverReady: func(cloud.Machine) bool { return b.changed() && time.Since(b.late) < 20*time.Minute }}
	}, func(b *bench) {
		memapi.Edit(b.API, "", "idle", func(p *v1.NodePool) { p.Annotations = map[string]string{v1.PausedAnnotationKey: "true"} })
		b.roll()
		time.Sleep(7 * time.Minute)
		if got := b.stopped(); fmt.Sprint(got) != "[default]" {
			t.Errorf("%q are stopped, want the pool that the user has not paused", got)
		}
		memapi.Edit(b.API, "", "idle", func(p *v1.NodePool) { p.Annotations = nil })
		time.Sleep(time.Minute)
		if got := b.stopped(); len(got) != 2 {
			t.Errorf("%q are stopped, want the other pool too, since it is not paused any more", got)
		}
		memapi.Edit(b.API, "", "idle", func(p *v1.NodePool) { delete(p.Annotations, v1.PausedAnnotationKey) })
		time.Sleep(time.Minute)
		if got := b.stopped(); fmt.Sprint(got) != "[default]" {
			t.Errorf("%q are stopped, want the pool that the user has not resumed", got)
		}
		time.Sleep(time.Hour + 10*time.Minute)
		if got := b.stopped(); got != nil {
			t.Errorf("%q are stopped after the time", got)
		}
		if got := b.old(); got != 0 {
			t.Errorf("%d old nodes are left an hour later", got)
		}
	})
}
