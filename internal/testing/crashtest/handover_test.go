package crashtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// The fleet that another Karpenter v1 leaves behind: its hash, its version of it, its order of conditions.
const (
	theirHash    = "9876543210987654321"
	theirVersion = "v3"
	fleet        = 10
)

func TestHandover(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		before := leaveFleet(t, w)
		w.With(t, sim.KarpenterOptions{Provision: true, Disrupt: true}, func(*sim.Karpenter) { time.Sleep(time.Hour) })
		wantUntouched(t, w, before)
	})
}

// wantUntouched compares the fleet with what it was, after an hour in our hands.
func wantUntouched(t *testing.T, w *sim.World, before map[string]*v1.NodeClaim) {
	t.Helper()
	if n := w.Cloud.Launches(); n != fleet {
		t.Errorf("%d machines were launched, the fleet had %d", n, fleet)
	}
	present := drift.Stored(sim.Get[*v1.NodePool](t, w, "default").Annotations)
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		was := before[c.Name]
		if c.DeletionTimestamp != nil || len(w.Cloud.Machines()) != fleet {
			t.Fatalf("claim %s was deleted", c.Name)
		}
		for _, cond := range c.Status.Conditions {
			if cond.Type == v1.ConditionTypeDrifted {
				t.Errorf("claim %s has drifted: %s", c.Name, cond.Reason)
			}
		}
		if got := drift.Stored(c.Annotations); got != present || got.Version == theirVersion {
			t.Errorf("claim %s carries the stamp %v, its pool %v", c.Name, got, present)
		}
		if diff := cmp.Diff(was.Spec, c.Spec) + cmp.Diff(was.Labels, c.Labels) + cmp.Diff(was.Finalizers, c.Finalizers) + cmp.Diff(was.OwnerReferences, c.OwnerReferences); diff != "" {
			t.Errorf("claim %s was changed: %s", c.Name, diff)
		}
		// What the other needs to take it back: its conditions stand as they stood.
		for _, cond := range was.Status.Conditions {
			if got := conditionNamed(c, cond.Type); got == nil || got.Status != cond.Status || !got.LastTransitionTime.Equal(&cond.LastTransitionTime) {
				t.Errorf("claim %s: condition %s was %+v and is %+v", c.Name, cond.Type, cond, got)
			}
		}
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if n.DeletionTimestamp != nil || len(n.Spec.Taints) > 0 {
			t.Errorf("node %s: deleted %v, taints %v", n.Name, n.DeletionTimestamp, n.Spec.Taints)
		}
	}
}

func conditionNamed(c *v1.NodeClaim, name string) *metav1.Condition {
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == name {
			return &c.Status.Conditions[i]
		}
	}
	return nil
}

// leaveFleet makes full nodes with everything that another Karpenter v1 puts on them.
func leaveFleet(t *testing.T, w *sim.World) map[string]*v1.NodeClaim {
	t.Helper()
	stamp := map[string]string{v1.NodePoolHashAnnotationKey: theirHash, v1.NodePoolHashVersionAnnotationKey: theirVersion}
	memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = stamp })
	out := map[string]*v1.NodeClaim{}
	for i := range fleet {
		name := fmt.Sprintf("default-x%d", i)
		c := sim.Claim(name, func(c *v1.NodeClaim) {
			c.UID = types.UID("their-" + name)
			c.Annotations = stamp
			c.Finalizers = []string{v1.TerminationFinalizer}
			c.Generation = 1
			c.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			c.Spec.ExpireAfter = v1.MustParseNillableDuration("720h")
		})
		m, err := w.Cloud.Launch(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range m.Labels {
			c.Labels[k] = v
		}
		c.Status = v1.NodeClaimStatus{
			ProviderID: m.ProviderID, ImageID: m.ImageID, NodeName: sim.NodeName(m), Capacity: m.Capacity, Allocatable: m.Allocatable,
			Conditions: theirConditions(c.CreationTimestamp),
		}
		out[name] = c.DeepCopy()
	}
	time.Sleep(5 * time.Second) // the kubelets are there
	for name, c := range out {
		memapi.Edit(w.API, "", c.Status.NodeName, func(n *corev1.Node) {
			for k, v := range c.Labels {
				n.Labels[k] = v
			}
			n.Labels[v1.NodeRegisteredLabelKey], n.Labels[v1.NodeInitializedLabelKey] = "true", "true"
			n.Annotations, n.Finalizers, n.Spec.Taints = stamp, []string{v1.TerminationFinalizer}, nil
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: name, UID: c.UID, BlockOwnerDeletion: new(true)}}
		})
		w.API.Put(c)
		w.API.Put(sim.Pod("pod-"+name, "1800m", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("15Gi")
		}))
	}
	memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = stamp })
	time.Sleep(10 * time.Second)
	return out
}

// theirConditions stand in the order and with the reasons that another Karpenter v1 writes.
func theirConditions(at metav1.Time) []metav1.Condition {
	var out []metav1.Condition
	for _, name := range []string{"Consolidatable", "Initialized", "Launched", "Registered", "Ready"} {
		out = append(out, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: name, ObservedGeneration: 1, LastTransitionTime: at})
	}
	return out
}
