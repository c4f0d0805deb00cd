package buffer_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

var gated = sim.KarpenterOptions{Provision: true, Disrupt: true, Buffers: true}

// shapeOf is a PodTemplate of pods that ask for so much CPU.
func shapeOf(name, cpus string, edits ...func(*corev1.PodSpec)) *corev1.PodTemplate {
	t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1}}
	t.Template.Labels = map[string]string{"app": name}
	t.Template.Spec.Containers = sim.Pod(name, cpus).Spec.Containers
	for _, edit := range edits {
		edit(&t.Template.Spec)
	}
	return t
}

// bufferOf is a buffer of n pods of a template.
func bufferOf(name, template string, n int32, edits ...func(*autoscalingv1beta1.CapacityBufferSpec)) *autoscalingv1beta1.CapacityBuffer {
	b := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1}}
	b.Spec.PodTemplateRef, b.Spec.Replicas = &autoscalingv1beta1.LocalObjectRef{Name: template}, &n
	for _, edit := range edits {
		edit(&b.Spec)
	}
	return b
}

// buffered runs a test with a buffer of n pods of one CPU, two to a small machine and eight to a large one, once it has its room.
func buffered(t *testing.T, n int32, o sim.Options, ko sim.KarpenterOptions, test func(t *testing.T, w *sim.World, k *sim.Karpenter)) {
	t.Helper()
	sim.Bubble(t, o, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, shapeOf("web", "1"))
		sim.Create(t, w, bufferOf("spare", "web", n))
		time.Sleep(time.Minute)
		test(t, w, k)
	})
}

func claims(w *sim.World) (out []*v1.NodeClaim) {
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if c.DeletionTimestamp == nil {
			out = append(out, c)
		}
	}
	return out
}

// cpus adds up what the machines have that stay.
func cpus(w *sim.World) (sum int64) {
	for _, c := range claims(w) {
		sum += c.Status.Capacity.Cpu().Value()
	}
	return sum
}

func want(t *testing.T, w *sim.World, name, kind string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	b := sim.Get[*autoscalingv1beta1.CapacityBuffer](t, w, name)
	c := condition.Get(b, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
		t.Errorf("buffer %s: condition %s is %+v, want %s %s with %q", name, kind, c, status, reason, message)
	}
}

func wantFed(t *testing.T, w *sim.World) {
	t.Helper()
	want(t, w, "spare", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionTrue, autoscalingv1beta1.ReasonResolved, "")
	want(t, w, "spare", autoscalingv1beta1.ConditionTypeProvisioning, metav1.ConditionTrue, autoscalingv1beta1.ReasonFitsExistingCapacity, "")
}

// wantUnseen fails the test if anybody took the pods of a buffer for pods of users.
func wantUnseen(t *testing.T, k *sim.Karpenter) {
	t.Helper()
	for key, plan := range k.Store.Snapshot().Plans() {
		if strings.HasPrefix(key.Name, "capacity-buffer") {
			t.Errorf("%s is planned for %s", key.Name, plan.Target)
		}
	}
	for p := range k.Store.Snapshot().Pods() {
		if p.Spare != nil {
			t.Errorf("%s is a pod of the cluster", p.Name)
		}
	}
	for _, e := range k.Events() {
		if e.InvolvedObject.Kind == "Pod" && strings.HasPrefix(e.InvolvedObject.Name, "capacity-buffer") {
			t.Errorf("event %s of %s", e.Reason, e.InvolvedObject.Name)
		}
	}
}

func TestABufferHasItsRoomBeforeAnybodyComes(t *testing.T) {
	buffered(t, 8, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		wantFed(t, w)
		if got := cpus(w); got != 8 {
			t.Errorf("there are %d CPUs, want 8", got)
		}
		b := sim.Get[*autoscalingv1beta1.CapacityBuffer](t, w, "spare")
		if s := b.Status; s.Replicas == nil || *s.Replicas != 8 || s.PodTemplateRef == nil || s.PodTemplateRef.Name != "web" ||
			s.PodTemplateGeneration == nil || *s.PodTemplateGeneration != 1 || s.ProvisioningStrategy == nil || *s.ProvisioningStrategy != autoscalingv1beta1.ActiveCapacityStrategy {
			t.Errorf("status = %+v", s)
		}
		time.Sleep(5 * time.Hour) // nobody consolidates it away, and nobody adds to it
		wantFed(t, w)
		if got := cpus(w); got != 8 {
			t.Errorf("five hours later there are %d CPUs, want 8", got)
		}
		wantUnseen(t, k)
	})
}

// Whoever may make buffers may make many.
func TestAThousandBuffersDoNotFillTheMemory(t *testing.T) {
	sim.Bubble(t, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, shapeOf("web", "1000")) // which nobody sells
		for i := range 12 {
			sim.Create(t, w, bufferOf(fmt.Sprintf("spare-%02d", i), "web", 10_000))
		}
		time.Sleep(time.Minute)
		count := func() (pods int) {
			for s := range k.Store.Snapshot().Spares() {
				pods += len(s.Pods)
			}
			return pods
		}
		if got := count(); got != 100_000 {
			t.Errorf("room is looked for for %d pods, want 100000", got)
		}
		want(t, w, "spare-11", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionTrue, autoscalingv1beta1.ReasonResolved, "together have 100000 at most")
		sim.Delete(t, w, sim.Get[*autoscalingv1beta1.CapacityBuffer](t, w, "spare-00"))
		time.Sleep(time.Minute)
		if got := count(); got != 100_000 {
			t.Errorf("room is looked for for %d pods after one of the buffers went, want 100000", got)
		}
	})
}

func TestPodsBindAtOnceAndTheBufferIsRefilled(t *testing.T) {
	buffered(t, 8, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		before := len(claims(w))
		for i := range 8 {
			sim.Create(t, w, sim.Pod(fmt.Sprintf("web-%d", i), "1", func(p *corev1.Pod) { p.Labels["app"] = "web" }))
		}
		time.Sleep(500 * time.Millisecond)
		for i := range 8 {
			if p := sim.Get[*corev1.Pod](t, w, fmt.Sprintf("web-%d", i)); p.Spec.NodeName == "" {
				t.Errorf("pod %s is not bound", p.Name)
			}
		}
		if got := len(claims(w)); got != before {
			t.Errorf("%d nodes for pods that have room, want the %d that there were", got, before)
		}
		time.Sleep(time.Minute)
		wantFed(t, w)
		if got := cpus(w); got != 16 {
			t.Errorf("there are %d CPUs, want 16", got)
		}
		wantUnseen(t, k)
	})
}

// While pods bind one after the other, the buffer does not buy a machine for each.
func TestWhatIsMissingIsBoughtAtOnce(t *testing.T) {
	buffered(t, 8, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		before := len(claims(w))
		for i := range 8 {
			sim.Create(t, w, sim.Pod(fmt.Sprintf("web-%d", i), "1"))
			time.Sleep(900 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if got := len(claims(w)); got != before+1 {
			t.Errorf("%d nodes, want %d", got, before+1)
		}
	})
}

func TestPodsOfUsersComeFirst(t *testing.T) {
	limited := func(p *v1.NodePool) { p.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("8")} }
	sim.Bubble(t, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		memapi.Edit(w.API, "", "default", limited)
		sim.Create(t, w, shapeOf("web", "1"))
		sim.Create(t, w, bufferOf("spare", "web", 8))
		time.Sleep(time.Minute)
		wantFed(t, w)
		for i := range 5 { // of the least priority that there is, and without tolerance for waiting
			sim.Create(t, w, sim.Pod(fmt.Sprintf("user-%d", i), "1", func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1 << 31)) }))
		}
		time.Sleep(time.Minute)
		for i := range 5 {
			if sim.Get[*corev1.Pod](t, w, fmt.Sprintf("user-%d", i)).Spec.NodeName == "" {
				t.Errorf("pod %d waits while a buffer has room", i)
			}
		}
		want(t, w, "spare", autoscalingv1beta1.ConditionTypeProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonRequiresNewCapacity, "3 of 8 pods have room on nodes that run; 5 have none: ")
		want(t, w, "spare", autoscalingv1beta1.ConditionTypeProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonRequiresNewCapacity, "limit")
		sim.WantEvent(t, k, "BufferWithoutRoom", "spare")
		if got := cpus(w); got > 8 {
			t.Errorf("%d CPUs, more than the limit", got)
		}
	})
}

func TestABufferThatGoesLetsItsNodesGo(t *testing.T) {
	buffered(t, 8, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		memapi.Edit(w.API, "default", "spare", func(b *autoscalingv1beta1.CapacityBuffer) { b.Spec.Replicas, b.Generation = new(int32(2)), 2 })
		time.Sleep(5 * time.Minute)
		wantFed(t, w)
		if got := cpus(w); got != 2 {
			t.Errorf("there are %d CPUs for two pods", got)
		}
		memapi.Edit(w.API, "default", "spare", func(b *autoscalingv1beta1.CapacityBuffer) { b.Spec.Replicas, b.Generation = new(int32(0)), 3 })
		time.Sleep(5 * time.Minute)
		sim.WantNothing(t, w)
		want(t, w, "spare", autoscalingv1beta1.ConditionTypeProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonBufferEmpty, "asks for no pods")
		memapi.Edit(w.API, "default", "spare", func(b *autoscalingv1beta1.CapacityBuffer) { b.Spec.Replicas, b.Generation = new(int32(2)), 4 })
		time.Sleep(time.Minute)
		wantFed(t, w)
		sim.Delete(t, w, sim.Get[*autoscalingv1beta1.CapacityBuffer](t, w, "spare"))
		time.Sleep(5 * time.Minute)
		sim.WantNothing(t, w)
	})
}

func TestABufferFollowsItsTemplateAndItsWorkload(t *testing.T) {
	sim.Bubble(t, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Create(t, w, shapeOf("web", "1"))
		sim.Create(t, w, bufferOf("spare", "web", 2))
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}}
		d.Spec.Replicas, d.Spec.Template.Spec = new(int32(0)), shapeOf("shop", "1").Template.Spec
		sim.Create(t, w, d)
		b := bufferOf("share", "", 0)
		b.Spec.PodTemplateRef, b.Spec.Replicas, b.Spec.Percentage = nil, nil, new(int32(50))
		b.Spec.ScalableRef = &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "shop"}
		sim.Create(t, w, b)
		time.Sleep(time.Minute)
		want(t, w, "share", autoscalingv1beta1.ConditionTypeProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonBufferEmpty, "no replicas")
		memapi.Edit(w.API, "default", "shop", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)) })
		memapi.Edit(w.API, "default", "web", func(p *corev1.PodTemplate) {
			p.Generation, p.Template = 2, shapeOf("web", "2").Template
		})
		time.Sleep(2 * time.Minute)
		wantFed(t, w)
		if s := sim.Get[*autoscalingv1beta1.CapacityBuffer](t, w, "share").Status; s.Replicas == nil || *s.Replicas != 3 || s.PodTemplateRef != nil {
			t.Errorf("half of five: status = %+v", s)
		}
		if got := cpus(w); got < 7 {
			t.Errorf("%d CPUs, want room for 2×2 and 3×1", got)
		}
	})
}

func TestABufferRecoversWhenItsWorkloadIsCreatedAfterIt(t *testing.T) {
	sim.Bubble(t, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		b := bufferOf("share", "", 0)
		b.Spec.PodTemplateRef, b.Spec.Replicas, b.Spec.Percentage = nil, nil, new(int32(100))
		b.Spec.ScalableRef = &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "shop"}
		sim.Create(t, w, b)
		time.Sleep(5 * time.Second)
		want(t, w, "share", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonScalableRefNotFound, "shop")
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}}
		d.Spec.Replicas, d.Spec.Template.Spec = new(int32(2)), shapeOf("shop", "1").Template.Spec
		sim.Create(t, w, d)
		time.Sleep(5 * time.Second)
		want(t, w, "share", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionTrue, autoscalingv1beta1.ReasonResolved, "")
	})
}

func TestABadBufferIsToldAndStopsNobody(t *testing.T) {
	ready, provisioning := autoscalingv1beta1.ConditionTypeReadyForProvisioning, autoscalingv1beta1.ConditionTypeProvisioning
	type spec = autoscalingv1beta1.CapacityBufferSpec
	for name, tc := range map[string]struct {
		edit            func(*spec)
		kind            string
		reason, message string
	}{
		"without a template": {func(s *spec) { s.PodTemplateRef.Name = "gone" }, ready, autoscalingv1beta1.ReasonPodTemplateNotFound, `no PodTemplate "gone"`},
		"without a workload": {func(s *spec) {
			s.PodTemplateRef, s.ScalableRef = nil, &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "gone"}
		}, ready, autoscalingv1beta1.ReasonScalableRefNotFound, "gone"},
		"of nothing":           {func(s *spec) { s.PodTemplateRef = nil }, ready, autoscalingv1beta1.ReasonResolutionFailed, "spec.podTemplateRef"},
		"of minus one pod":     {func(s *spec) { s.Replicas = new(int32(-1)) }, ready, autoscalingv1beta1.ReasonResolutionFailed, "negative"},
		"of less than a pod":   {func(s *spec) { s.Limits = limits("cpu", "500m") }, provisioning, autoscalingv1beta1.ReasonBufferEmpty, "raise it"},
		"of pods nobody sells": {func(s *spec) { s.PodTemplateRef.Name = "huge" }, provisioning, autoscalingv1beta1.ReasonRequiresNewCapacity, "2 have none: "},
		"of pods with devices": {func(s *spec) { s.PodTemplateRef.Name = "devices" }, provisioning, autoscalingv1beta1.ReasonRequiresNewCapacity, "resource claims"},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Bubble(t, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				sim.Create(t, w, bufferOf("bad", "web", 2, tc.edit))
				sim.Create(t, w, shapeOf("web", "1"))
				sim.Create(t, w, shapeOf("huge", "100"))
				sim.Create(t, w, shapeOf("devices", "1", func(s *corev1.PodSpec) {
					s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
				}))
				sim.Create(t, w, bufferOf("spare", "web", 2))
				time.Sleep(time.Minute)
				wantFed(t, w)
				want(t, w, "bad", tc.kind, metav1.ConditionFalse, tc.reason, tc.message)
				if tc.kind == ready {
					want(t, w, "bad", provisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonNotReadyForProvisioning, "")
				}
				if tc.reason != autoscalingv1beta1.ReasonBufferEmpty {
					sim.WantEvent(t, k, "BufferWithoutRoom", "bad")
				}
				sim.Create(t, w, sim.Pod("user", "2"))
				time.Sleep(time.Minute)
				if sim.Get[*corev1.Pod](t, w, "user").Spec.NodeName == "" {
					t.Error("a pod waits because of a bad buffer")
				}
			})
		})
	}
}

func limits(name autoscalingv1beta1.ResourceName, amount string) autoscalingv1beta1.ResourceList {
	return autoscalingv1beta1.ResourceList{name: resource.MustParse(amount)}
}

// A buffer of another strategy is somebody else's.
func TestBuffersOfOthersAreLeftAlone(t *testing.T) {
	sim.Bubble(t, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Create(t, w, shapeOf("web", "1"))
		sim.Create(t, w, bufferOf("theirs", "web", 2, func(s *autoscalingv1beta1.CapacityBufferSpec) { s.ProvisioningStrategy = new("example.com/standby") }))
		time.Sleep(time.Minute)
		sim.WantNothing(t, w)
		if c := sim.Get[*autoscalingv1beta1.CapacityBuffer](t, w, "theirs").Status.Conditions; len(c) > 0 {
			t.Errorf("it was told %v", c)
		}
	})
}

// stopped runs a test in a world in which a buffer of eight pods has its node, and the process that bought it is gone.
func stopped(t *testing.T, test func(*testing.T, *sim.World)) {
	t.Helper()
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		w.With(t, gated, func(*sim.Karpenter) {
			sim.Create(t, w, shapeOf("web", "1"))
			sim.Create(t, w, bufferOf("spare", "web", 8))
			time.Sleep(time.Minute)
		})
		test(t, w)
	})
}

// A process that has just started does not know yet what buffers rest on. It takes no node for empty before it does, although the workload
// cannot be read for a while.
func TestARestartForgetsNoBuffer(t *testing.T) {
	stopped(t, func(t *testing.T, w *sim.World) {
		before := claims(w)
		for range 5 {
			w.With(t, gated, func(*sim.Karpenter) { time.Sleep(time.Minute) })
		}
		after := claims(w)
		if len(before) != 1 || len(after) != 1 || before[0].UID != after[0].UID {
			t.Errorf("%d nodes before, %d after, want the same one", len(before), len(after))
		}
	})
}

// Drift replaces what a buffer rests on, and the buffer has its room afterwards.
func TestDriftGoesOn(t *testing.T) {
	buffered(t, 8, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		old := claims(w)[0].Name
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Generation, p.Spec.Template.Labels = 2, map[string]string{"team": "b"}
		})
		time.Sleep(20 * time.Minute)
		if _, there := sim.Find[*v1.NodeClaim](w, old); there {
			t.Error("the drifted node is still there")
		}
		wantFed(t, w)
	})
}

// When a node goes by force, the buffer is fed again.
func TestANodeThatGoesIsReplaced(t *testing.T) {
	buffered(t, 8, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Delete(t, w, claims(w)[0])
		time.Sleep(time.Minute)
		wantFed(t, w)
	})
}

// A create that fails is tried again, later and later.
func TestAClaimThatCannotBeCreatedIsTriedAgain(t *testing.T) {
	sim.Bubble(t, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		var tries atomic.Int32
		w.API.SetFault(func(r memapi.Request) error {
			if r.Verb == "create" && r.Kind == "NodeClaim" && tries.Add(1) <= 6 {
				return context.DeadlineExceeded
			}
			return nil
		})
		sim.Create(t, w, shapeOf("web", "1"))
		sim.Create(t, w, bufferOf("spare", "web", 2))
		time.Sleep(5 * time.Minute)
		wantFed(t, w)
		if got := len(claims(w)); got != 1 {
			t.Errorf("%d nodes, want one", got)
		}
	})
}

// As long as nobody has said what a buffer rests on, no node goes because it looks empty.
func TestNoNodeIsTakenForEmptyBeforeBuffersArePlaced(t *testing.T) {
	stopped(t, func(t *testing.T, w *sim.World) {
		slow := gated
		slow.Buffers = false
		w.With(t, slow, func(k *sim.Karpenter) {
			time.Sleep(5 * time.Minute)
			if len(claims(w)) != 1 {
				t.Errorf("%d nodes, want the one that the buffer rests on", len(claims(w)))
			}
		})
	})
}

// In the one question that holds both, pods of users come first.
func TestSparesHaveTheLeastPriority(t *testing.T) {
	buffered(t, 1, sim.Options{}, gated, func(t *testing.T, _ *sim.World, k *sim.Karpenter) {
		if p := k.Store.Snapshot().SparesOf("default", "spare").Pods[0]; p.Priority != math.MinInt32 {
			t.Errorf("priority %d", p.Priority)
		}
	})
}
