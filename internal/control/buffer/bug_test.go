package buffer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/buffer"
	corebuffer "karpenter.sh/karpenter/internal/core/buffer"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A stage is the loop alone, on a node with room for all, before an engine and workloads that fail.
type stage struct {
	api      *memapi.Server
	store    *cluster.Store
	world    *sim.World
	panics   func(p *cluster.Pod) bool // what the engine panics over
	broken   atomic.Bool               // workloads cannot be read
	template *corev1.PodTemplateSpec
	events   []*corev1.Event
}

func (s *stage) Plan(in engine.Question) *engine.Plan {
	plan := &engine.Plan{}
	for _, p := range in.Pods {
		if s.panics != nil && s.panics(p) {
			panic("engine on fire")
		}
		plan.Place = append(plan.Place, engine.Placement{Pod: p, Node: "n"})
	}
	return plan
}

func (s *stage) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	return nil, nil
}

func (s *stage) Open(context.Context, string, string, []engine.Opening) ([]*v1.NodeClaim, error) {
	return nil, errors.New("nothing is to be opened")
}

func (s *stage) Read(context.Context, string, *autoscalingv1beta1.ScalableRef) (corebuffer.Source, *corebuffer.Flaw, error) {
	if s.broken.Load() {
		return corebuffer.Source{}, nil, errors.New("the API server is away")
	}
	return corebuffer.Source{Template: s.template, Replicas: 2}, nil, nil
}

func alone(t *testing.T, spoil func(*stage), test func(t *testing.T, w *sim.World, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{api: memapi.New(memapi.Scheme()), store: cluster.NewStore(), template: &shapeOf("web", "1").Template}
		spoil(s)
		s.world = &sim.World{API: s.api}
		s.api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		ctx, stop := context.WithCancel(t.Context())
		m := telemetry.NewMetrics(prometheus.NewRegistry(), nil)
		events := telemetry.NewEvents(func(_ context.Context, e *corev1.Event) error { s.events = append(s.events, e); return nil }, m)
		l := buffer.New(buffer.Deps{
			Store: s.store, Client: s.api.Client("karpenter"), Workloads: s, Catalogs: s, Opener: s, Engine: s, Metrics: m, Events: events,
		}, buffer.Settings{Idle: time.Second, Max: 10 * time.Second})
		done := make(chan struct{}, 3)
		for _, run := range []func(){
			func() { s.api.Feed(ctx, s.store, time.Millisecond) },
			func() { _ = events.Run(ctx) },
			func() { _ = l.Run(ctx) },
		} {
			go func() { run(); done <- struct{}{} }()
		}
		test(t, s.world, s)
		stop()
		for range 3 {
			<-done
		}
	})
}

func scaled(name string) *autoscalingv1beta1.CapacityBuffer {
	return bufferOf(name, "", 2, func(s *autoscalingv1beta1.CapacityBufferSpec) {
		s.PodTemplateRef, s.ScalableRef = nil, &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "shop"}
	})
}

func TestABufferOverWhichTheEnginePanicsIsLeftOut(t *testing.T) {
	bug.Expect(t)
	spoil := func(s *stage) {
		s.panics = func(p *cluster.Pod) bool { return p.Spare != nil && p.Spare.Buffer == "bad" }
	}
	alone(t, spoil, func(t *testing.T, w *sim.World, s *stage) {
		sim.Create(t, w, scaled("bad"))
		sim.Create(t, w, scaled("spare"))
		time.Sleep(time.Minute)
		wantFed(t, w)
		want(t, w, "bad", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonResolutionFailed, "bug of its own over this buffer")
		left := false
		for _, e := range s.events {
			left = left || e.Reason == "LeftOut" && e.InvolvedObject.Name == "bad" && e.InvolvedObject.Kind == "CapacityBuffer"
		}
		if !left {
			t.Error("its owner is not told")
		}
		if !s.store.Snapshot().SparesPlaced() {
			t.Error("disruption waits for a buffer that nobody looks after")
		}
		s.panics = nil
		time.Sleep(bug.AsideFor + time.Minute)
		want(t, w, "bad", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionTrue, autoscalingv1beta1.ReasonResolved, "")
	})
}

// Where it panics over a pod of a user, buffers have no part in it: they keep the room that there is.
func TestAPanicOverAPodLeavesNoBufferOut(t *testing.T) {
	bug.Expect(t)
	spoil := func(s *stage) { s.panics = func(p *cluster.Pod) bool { return p.Spare == nil } }
	alone(t, spoil, func(t *testing.T, w *sim.World, s *stage) {
		s.api.Put(sim.Pod("user", "1", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		}))
		sim.Create(t, w, scaled("spare"))
		time.Sleep(time.Minute)
		wantFed(t, w)
	})
}

func TestATemplateOverWhichItPanicsIsNamed(t *testing.T) {
	bug.Expect(t)
	alone(t, func(s *stage) { s.template = nil }, func(t *testing.T, w *sim.World, s *stage) {
		sim.Create(t, w, scaled("bad"))
		time.Sleep(time.Minute)
		want(t, w, "bad", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonResolutionFailed, "resolving CapacityBuffer default/bad panicked")
		if !s.store.Snapshot().SparesPlaced() {
			t.Error("disruption waits for a buffer that nobody can read")
		}
	})
}

// What is known of a workload counts while it cannot be read.
func TestAWorkloadThatCannotBeReadStaysAsItWas(t *testing.T) {
	alone(t, func(*stage) {}, func(t *testing.T, w *sim.World, s *stage) {
		sim.Create(t, w, scaled("spare"))
		time.Sleep(time.Minute)
		s.broken.Store(true)
		sim.Create(t, w, scaled("late"))
		time.Sleep(5 * time.Minute)
		wantFed(t, w)
		want(t, w, "late", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonResolutionFailed, "the API server is away")
		if got := s.store.Snapshot().SparesOf("default", "spare"); got == nil || len(got.Pods) != 2 || !s.store.Snapshot().SparesPlaced() {
			t.Errorf("spares = %+v", got)
		}
		s.broken.Store(false)
		time.Sleep(time.Minute)
		want(t, w, "late", autoscalingv1beta1.ConditionTypeProvisioning, metav1.ConditionTrue, autoscalingv1beta1.ReasonFitsExistingCapacity, "2 of 2")
	})
}
