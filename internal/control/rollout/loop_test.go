package rollout_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/control/rollout"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// An image is what is wrong with new machines.
type image string

const (
	good         image = "good"
	neverJoins   image = "never joins"
	joinsLate    image = "joins late"
	dies         image = "kubelet dies after an hour"
	podsCrash    image = "pods crash"
	podsSlow     image = "pods are slow to get ready"
	networkFails image = "network is broken for some pods"
)

var badImages = []image{neverJoins, joinsLate, dies, podsCrash, podsSlow, networkFails}

const (
	workloads, replicas = 10, 3
	canary, wave        = 1, 3
	ready               = 5 * time.Minute
)

// shop sells one type, on which two pods of the bench have room.
var shop = &cloud.Catalog{Types: []*cloud.InstanceType{sim.Kind("medium", 4, 0.2)}}

// A bench has a fleet of nodes with a few workloads, and a Karpenter that keeps a RolloutPolicy.
type bench struct {
	*sim.World
	t        *testing.T
	k        *sim.Karpenter
	random   *rand.Rand
	image    image        // of machines that boot now
	serial   int          // of templates
	ami      atomic.Int32 // the number of the image that the class has found; the cloud reads it at any time
	evidence time.Time    // when there was evidence first of the fault of the present image, see evident; zero while there was none
	releases int
	opened   map[string]bool // machines of the present template that were opened to replace others
	starts   int             // of pods on machines with a broken network
}

// evident notes that there is evidence now: a machine or pod with the fault of the present image has failed by the limits of the policy. A
// pod that a release removes before it is late is no evidence, and neither is its machine: until then it did as a good one may.
func (b *bench) evident() {
	if b.evidence.IsZero() {
		b.evidence = time.Now()
	}
}

// whenLate calls failed a second before the time that machines and pods may take is over, and notes evidence if it returns true. Later, a
// gate may have tripped in the same instant, and the machine be gone for that.
func (b *bench) whenLate(failed func() bool) {
	limit := time.Now().Truncate(time.Second).Add(ready) // as conditions have whole seconds
	time.AfterFunc(time.Until(limit)-time.Second, func() {
		if failed() {
			b.evident()
		}
	})
}

// lateMachine notes evidence if a machine is still there when it is late, and is not ready.
func (b *bench) lateMachine(m cloud.Machine) {
	b.whenLate(func() bool {
		c, ok := sim.Find[*v1.NodeClaim](b.World, m.ClaimName)
		return ok && c.DeletionTimestamp == nil && !condition.IsTrue(c, v1.ConditionTypeInitialized)
	})
}

// latePod notes evidence if a pod is still there when it is late, and is not ready.
func (b *bench) latePod(pod *corev1.Pod) {
	b.whenLate(func() bool {
		p, ok := sim.Find[*corev1.Pod](b.World, pod.Name)
		return ok && p.UID == pod.UID && p.DeletionTimestamp == nil && !podReady(p)
	})
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (b *bench) options() sim.Options {
	return sim.Options{
		Cloud: fakecloud.Options{Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return shop, nil }, Boot: func(m cloud.Machine) time.Duration {
			switch b.faultOf(m) {
			case neverJoins:
				b.lateMachine(m)
			case joinsLate:
				b.lateMachine(m)
				return 8 * time.Minute
			}
			return 40 * time.Second
		}, Image: b.class},
		Joins: func(m cloud.Machine) bool {
			if b.faultOf(m) == dies {
				time.AfterFunc(time.Hour, func() {
					memapi.Edit(b.API, "", sim.NodeName(m), func(n *corev1.Node) {
						b.evident()
						sim.SetReady(n, corev1.ConditionUnknown)
					})
				})
			}
			return b.faultOf(m) != neverJoins
		},
		Sick: func(p *corev1.Pod, n *corev1.Node) bool {
			if p.Annotations["release"] == "fails" {
				return true
			}
			if p.Annotations["release"] == "crashes" {
				b.crash(p, 3*time.Minute)
				return false
			}
			if n.Labels["image"] != strconv.Itoa(b.serial) {
				return false
			}
			switch b.image {
			case podsCrash:
				b.crash(p, 20*time.Second)
			case podsSlow:
				b.latePod(p)
				key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
				time.AfterFunc(9*time.Minute, func() { b.setReady(key, corev1.ConditionTrue) })
				return true
			case networkFails: // for every second pod
				if b.starts++; b.starts%2 == 0 {
					b.latePod(p)
					return true
				}
			}
			return false
		},
	}
}

// class returns the image that the node class has found.
func (b *bench) class() string { return fmt.Sprintf("ami-%d", b.ami.Load()) }

// faultOf returns what is wrong with a machine that boots. Only machines of the present template and image have the present fault.
func (b *bench) faultOf(m cloud.Machine) image {
	claim, ok := sim.Find[*v1.NodeClaim](b.World, m.ClaimName)
	if m.ImageID != b.class() || ok && claim.Labels["image"] != strconv.Itoa(b.serial) {
		return good
	}
	return b.image
}

func (b *bench) setReady(key types.NamespacedName, status corev1.ConditionStatus) {
	memapi.Edit(b.API, key.Namespace, key.Name, func(p *corev1.Pod) {
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
				c.Status, c.LastTransitionTime = status, metav1.NewTime(time.Now())
			}
		}
	})
}

// crash restarts a pod again and again. It is ready for a while each time, as a pod without a probe.
func (b *bench) crash(p *corev1.Pod, every time.Duration) {
	release := p.Annotations["release"] != ""
	var again func()
	again = func() {
		there := false
		memapi.Edit(b.API, p.Namespace, p.Name, func(p *corev1.Pod) {
			there = p.DeletionTimestamp == nil
			if len(p.Status.ContainerStatuses) == 0 {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c"}}
			}
			p.Status.ContainerStatuses[0].RestartCount++
			if p.Status.ContainerStatuses[0].RestartCount == 2 && !release {
				b.evident()
			}
		})
		if there {
			time.AfterFunc(every, again)
		}
	}
	time.AfterFunc(every, again)
}

// inBench runs tests one after the other with one fleet, each with a Karpenter of its own.
func inBench(t *testing.T, seed uint64, edit func(*v1alpha1.RolloutPolicy), tests ...func(*bench)) {
	t.Helper()
	b := &bench{t: t, image: good, random: rand.New(rand.NewPCG(seed, 1))}
	sim.BubbleAlone(t, b.options(), func(t *testing.T, w *sim.World) {
		b.World, b.t = w, t
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Labels = map[string]string{"team": "a"}
			p.Spec.Template.Labels = map[string]string{"image": "0"}
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "4"}}
			p.Spec.Disruption.ConsolidateAfter = v1.NillableDuration{}
		})
		policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful", UID: "careful", Generation: 1}}
		policy.Spec.NodePoolSelector.MatchLabels = map[string]string{"team": "a"}
		policy.Spec.Steps = []v1alpha1.RolloutStep{
			{Nodes: intstr.FromInt32(canary), Bake: metav1.Duration{Duration: 20 * time.Minute}},
			{Nodes: intstr.FromString("25%"), Bake: metav1.Duration{Duration: 45 * time.Minute}},
		}
		if edit != nil {
			edit(policy)
		}
		for i := range workloads {
			for j := range replicas {
				w.API.Put(sim.Pod(fmt.Sprintf("web-%d-%d", i, j), "1500m", of(i, 0, "")))
			}
		}
		for i, test := range tests {
			b.run(func() {
				if i == 0 {
					time.Sleep(10 * time.Minute)
					b.API.Put(policy)
					time.Sleep(10 * time.Minute)
				}
				test(b)
			})
		}
	})
}

// run runs a Karpenter while do does something.
func (b *bench) run(do func()) {
	b.k = b.Karpenter(sim.KarpenterOptions{Name: "karpenter", Lag: 10 * time.Millisecond, Provision: true, Disrupt: true})
	b.k.Add(rollout.New(rollout.Deps{Store: b.k.Store, Client: b.k.Client, Metrics: b.k.Metrics, Events: b.k.Sink(),
		Known: b.k.Known()}).Run)
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { b.k.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	do()
}

// of makes a pod one of a workload's release.
func of(workload, release int, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		sim.OwnedBy(fmt.Sprintf("web-%d-r%d", workload, release))(p)
		p.Labels = map[string]string{"app": fmt.Sprintf("web-%d", workload)}
		if kind != "" {
			p.Annotations = map[string]string{"release": kind}
		}
	}
}

// roll gives the pool a new template, whose machines have an image.
func (b *bench) roll(i image) {
	b.image, b.evidence, b.opened = i, time.Time{}, map[string]bool{}
	b.serial++
	memapi.Edit(b.API, "", "default", func(p *v1.NodePool) {
		p.Generation++
		p.Spec.Template.Labels = map[string]string{"image": strconv.Itoa(b.serial)}
	})
}

// machines counts the claims of the present template, and the others.
func (b *bench) machines() (fresh, old int) {
	for _, c := range memapi.All[*v1.NodeClaim](b.API) {
		switch {
		case c.DeletionTimestamp != nil:
		case c.Labels["image"] == strconv.Itoa(b.serial):
			fresh++
		default:
			old++
		}
	}
	return fresh, old
}

func (b *bench) policy() *v1alpha1.RolloutPolicy {
	return sim.Get[*v1alpha1.RolloutPolicy](b.t, b.World, "careful")
}

func (b *bench) entry() v1alpha1.RolloutPool {
	if pools := b.policy().Status.Pools; len(pools) == 1 {
		return pools[0]
	}
	return v1alpha1.RolloutPool{}
}

// wait looks every ten seconds, until a condition holds or the time is over. It returns how many machines of the present template it saw
// that were opened to replace others.
func (b *bench) wait(most time.Duration, until func() bool) (machines int, held bool) {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(10 * time.Second) {
		for _, c := range memapi.All[*v1.NodeClaim](b.API) {
			if c.Annotations[v1.DisruptionCommandAnnotationKey] != "" && c.Labels["image"] == strconv.Itoa(b.serial) {
				b.opened[c.Name] = true
			}
		}
		if until() {
			return len(b.opened), true
		}
	}
	return len(b.opened), false
}

// release gives a workload new pods one after the other, as a Deployment that may have one pod more and one fewer. A bad release is taken
// back after ten minutes.
func (b *bench) release(workload int, kind string) {
	b.releases++
	next := b.releases
	var old []*corev1.Pod
	for _, p := range memapi.All[*corev1.Pod](b.API) {
		if p.Labels["app"] == fmt.Sprintf("web-%d", workload) && p.DeletionTimestamp == nil {
			old = append(old, p)
		}
	}
	end := func(p *corev1.Pod) {
		memapi.Edit(b.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
		if _, ok := sim.Find[*corev1.Pod](b.World, p.Name); ok {
			sim.Delete(b.t, b.World, p)
		}
	}
	for i, p := range old {
		fresh := sim.Pod(fmt.Sprintf("web-%d-r%d-%d", workload, next, i), "1500m", of(workload, next, kind))
		end(p)
		time.Sleep(5 * time.Second)
		b.API.Put(fresh)
		time.Sleep(20 * time.Second)
	}
	if kind == "" {
		return
	}
	time.Sleep(10 * time.Minute)
	for _, p := range memapi.All[*corev1.Pod](b.API) {
		if strings.HasPrefix(p.Name, fmt.Sprintf("web-%d-r%d-", workload, next)) {
			end(p)
		}
	}
	b.releases++
	for i := range replicas {
		b.API.Put(sim.Pod(fmt.Sprintf("web-%d-r%d-%d", workload, b.releases, i), "1500m", of(workload, b.releases, "")))
	}
}

// releasing releases workloads again and again until stop is called.
func (b *bench) releasing() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(time.Duration(3+b.random.IntN(12)) * time.Minute):
			}
			b.release(b.random.IntN(workloads), []string{"", "", "fails", "crashes"}[b.random.IntN(4)])
		}
	}()
	return func() { close(quit); <-done }
}

// TestRollouts rolls bad and good images in turns, while workloads are released. ROLLOUTS is how many bad and how many good ones.
func TestRollouts(t *testing.T) {
	n := len(badImages)
	if text := os.Getenv("ROLLOUTS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	var missed, damaged, late, inError, stuck, slowest = 0, 0, 0, 0, 0, time.Duration(0)
	for i := range n {
		bad := badImages[i%len(badImages)]
		inBench(t, uint64(i), nil, func(b *bench) {
			nodes, _ := b.machines()
			allowed := canary + (nodes+3)/4
			stop := b.releasing()
			defer func() { stop() }()
			b.roll(bad)
			most, stopped := b.wait(4*time.Hour, func() bool { return b.entry().Tripped != nil })
			entry := b.entry()
			switch {
			case !stopped:
				missed++
			case b.evidence.IsZero():
				inError++
			default:
				after := entry.Tripped.Sub(b.evidence)
				slowest = max(slowest, after)
				if after > 5*time.Minute {
					late++
				}
			}
			t.Logf("%d: %s: %v, most %d of %d, evidence at %v, stopped at %v, %s", i, bad, stopped, most, allowed, b.evidence, entry.Tripped,
				entry.Evidence)
			if most, _ = b.wait(30*time.Minute, func() bool { return false }); most > allowed {
				damaged++
			}
			b.roll(good)
			b.wait(6*time.Hour, func() bool {
				entry := b.entry()
				_, old := b.machines()
				if entry.Tripped != nil && entry.Revision != "" && time.Since(entry.Tripped.Time) < time.Minute {
					t.Logf("%d: stopped in error: %s", i, entry.Evidence)
					inError++
				}
				return entry.Tripped != nil || old == 0 && entry.Since == nil
			})
			if _, old := b.machines(); old > 0 && b.entry().Tripped == nil {
				stuck++
				t.Logf("%d: %d old machines are left, %+v", i, old, b.entry())
			}
		})
	}
	t.Logf("%d bad images: %d missed, %d with more than canary and wave damaged, %d stopped later than five minutes after the evidence "+
		"(slowest %v); %d good ones: %d stopped in error, %d not finished", n, missed, damaged, late, slowest, n, inError, stuck)
	if missed+damaged+late+stuck > 0 || inError*1000 > n && inError > 1 {
		t.Error("that is too much")
	}
}

// A trip stands in conditions, events and a metric, and a user who resumes the pool lets the rollout go on.
func TestATripIsToldAndResumed(t *testing.T) {
	inBench(t, 1, nil, func(b *bench) {
		b.roll(neverJoins)
		if _, tripped := b.wait(time.Hour, func() bool { return b.entry().Tripped != nil }); !tripped {
			t.Fatal("nothing tripped")
		}
		time.Sleep(time.Minute)
		pool := sim.Get[*v1.NodePool](t, b.World, "default")
		if c := condition.Get(b.policy(), v1alpha1.ConditionTypeGatesPassed); c.Reason != v1alpha1.ReasonGateTripped ||
			!strings.Contains(c.Message, "gate nodesReady: 1 of 1 new machines are not ready (default-") {
			t.Errorf("the policy says %v", c)
		}
		if c := condition.Get(pool, v1.ConditionTypeDisruptionPaused); c == nil || c.Reason != v1.ReasonRolloutTripped {
			t.Errorf("the pool says %v", c)
		}
		sim.WantEvent(t, b.k, "RolloutStopped", "careful")
		sim.WantEvent(t, b.k, "DisruptionStopped", "default")
		if n := testutil.ToFloat64(b.k.Metrics.RolloutTrips.WithLabelValues("careful", "nodesReady")); n != 1 {
			t.Errorf("%v trips are counted", n)
		}
		b.image = good
		memapi.Edit(b.API, "", "default", func(p *v1.NodePool) { delete(p.Annotations, v1.PausedAnnotationKey) })
		if _, over := b.wait(6*time.Hour, func() bool { _, old := b.machines(); return old == 0 && b.entry().Since == nil }); !over {
			t.Errorf("the rollout does not go on: %+v", b.entry())
		}
		if c := condition.Get(b.policy(), v1alpha1.ConditionTypeReady); c.Status != metav1.ConditionTrue {
			t.Errorf("the policy says %v", c)
		}
	})
}

// Another leader goes on with the step of the last one.
func TestAnotherLeaderGoesOn(t *testing.T) {
	var before v1alpha1.RolloutPool
	inBench(t, 1, nil, func(b *bench) {
		b.roll(good)
		if _, baking := b.wait(time.Hour, func() bool { return b.entry().Step == 1 && b.entry().BakingSince != nil }); !baking {
			t.Fatalf("%+v", b.entry())
		}
		before = b.entry()
	}, func(b *bench) {
		time.Sleep(40 * time.Minute)
		if got := b.entry(); !got.Since.Equal(before.Since) || got.Step != 1 || !got.BakingSince.Equal(before.BakingSince) {
			t.Errorf("the wave is %+v, was %+v", got, before)
		}
		if n, _ := b.machines(); n != canary+4 {
			t.Errorf("%d new machines while the wave is watched", n)
		}
		if _, over := b.wait(4*time.Hour, func() bool { return b.entry().Since == nil }); !over {
			t.Errorf("the rollout does not end: %+v", b.entry())
		}
	})
}

// A gate that does not answer stops no rollout and lets it not go on either.
func TestASilentGateMakesARolloutWait(t *testing.T) {
	inBench(t, 1, func(p *v1alpha1.RolloutPolicy) {
		p.Spec.Gates.Webhook = &v1alpha1.WebhookGate{URL: "https://127.0.0.1:1/", CABundle: []byte("x")}
	}, func(b *bench) {
		b.roll(good)
		time.Sleep(3 * time.Hour)
		if e, c := b.entry(), condition.Get(b.policy(), v1alpha1.ConditionTypeGatesAnswered); e.Tripped != nil || e.Step != 0 ||
			c.Reason != v1alpha1.ReasonNoAnswer || !strings.Contains(c.Message, "webhook: caBundle has no certificate") {
			t.Errorf("%+v, %v", e, c)
		}
	})
}

// TestExpiryKeepsToBudgetsAndWindows lets all nodes of a day expire. NODES is how many.
func TestExpiryKeepsToBudgetsAndWindows(t *testing.T) {
	nodes, budget := 30, 5
	if text := os.Getenv("NODES"); text != "" {
		nodes, _ = strconv.Atoi(text)
		budget = nodes / 10
	}
	b := &bench{t: t, image: good}
	sim.BubbleAlone(t, b.options(), func(t *testing.T, w *sim.World) {
		b.World, b.t = w, t
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Spec.Template.Spec.ExpireAfter = v1.After(24 * time.Hour)
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: strconv.Itoa(budget)}}
			p.Spec.Disruption.ConsolidateAfter = v1.NillableDuration{}
		})
		policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful", UID: "careful", Generation: 1}}
		policy.Spec.Windows = []v1alpha1.RolloutWindow{{Schedule: "0 1 * * *", Duration: metav1.Duration{Duration: 4 * time.Hour}}}
		policy.Spec.Expiry = &v1alpha1.RolloutExpiry{WithinBudgets: true, HardAfter: metav1.Duration{Duration: 10 * time.Hour}}
		w.API.Put(policy)
		for i := range nodes {
			pod := sim.Pod(fmt.Sprintf("web-%d", i), "3", sim.OwnedBy(fmt.Sprintf("web-%d", i)))
			if i == 0 {
				pod.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
			}
			w.API.Put(pod)
		}
		b.run(func() {
			begun := time.Now()
			time.Sleep(5 * time.Minute)
			first := map[string]time.Time{}
			for _, c := range memapi.All[*v1.NodeClaim](w.API) {
				first[c.Name] = c.CreationTimestamp.Time
			}
			if len(first) != nodes {
				t.Fatalf("%d nodes, want %d", len(first), nodes)
			}
			went := map[string]time.Time{}
			most := 0
			time.Sleep(time.Until(begun.Add(23*time.Hour + 50*time.Minute)))
			for ; time.Since(begun) < 35*time.Hour; time.Sleep(10 * time.Second) {
				going := 0
				there := map[string]bool{}
				for _, c := range memapi.All[*v1.NodeClaim](w.API) {
					there[c.Name] = c.DeletionTimestamp == nil
					if c.DeletionTimestamp != nil {
						going++
					}
				}
				most = max(most, going)
				for name := range first {
					if !there[name] && went[name].IsZero() {
						went[name] = time.Now()
					}
				}
			}
			hard := 0
			for name, at := range went {
				expired := first[name].Add(24 * time.Hour)
				switch inWindow := at.Hour() >= 1 && at.Hour() < 5; {
				case inWindow && at.Sub(expired) < 10*time.Hour:
				case at.Sub(expired) >= 10*time.Hour && at.Sub(expired) < 10*time.Hour+time.Minute:
					hard++
				default:
					t.Errorf("%s went at %v, expired at %v", name, at, expired)
				}
			}
			if len(went) != nodes || hard != 1 || most > budget {
				t.Errorf("%d of %d went, %d of them by force, at most %d at a time of %d", len(went), nodes, hard, most, budget)
			}
			t.Logf("%d nodes expired on a day: %d were replaced in the window, %d went by force; at most %d went at a time, the budget is %d",
				nodes, len(went)-hard, hard, most, budget)
		})
	})
}
