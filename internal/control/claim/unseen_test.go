package claim_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A process that has never heard of the Node of a claim, which another one registered before it died, does not stop the machine under the pods of
// that Node: before it stops a machine without a Node it asks the API server for it.
func TestANodeThatOurPictureLacksKeepsItsMachine(t *testing.T) {
	grace := func(d time.Duration) func(*v1.NodeClaim) {
		return func(c *v1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: d} }
	}
	nodes := func(e memapi.Event) bool {
		_, is := e.Object.(*corev1.Node)
		return is
	}
	for name, tc := range map[string]struct {
		claim       func(*v1.NodeClaim)
		world       func(w *sim.World) // before the claim is deleted
		first, last int                // machines that run a minute after the claim was deleted, and a minute after the Node is gone
	}{
		"while the Node is there": {func(*v1.NodeClaim) {}, func(*sim.World) {}, 1, 0},
		"while nobody knows":      {func(*v1.NodeClaim) {}, func(w *sim.World) { readsFail(w) }, 1, 0},
		"while the Node is there and a crash kept its name from the claim": {func(*v1.NodeClaim) {}, forgetNode, 1, 0},
		"while nobody knows, and the claim says no name": {func(*v1.NodeClaim) {}, func(w *sim.World) {
			forgetNode(w)
			readsFail(w)
		}, 1, 0},
		"but not beyond its deadline":      {grace(30 * time.Second), func(*sim.World) {}, 0, 0},
		"nor beyond it without a name":     {grace(30 * time.Second), forgetNode, 0, 0},
		"nor when nobody knows until then": {grace(30 * time.Second), func(w *sim.World) { readsFail(w) }, 0, 0},
		"nor for a Node that was never registered": {func(*v1.NodeClaim) {}, func(w *sim.World) {
			forgetNode(w)
			memapi.Edit(w.API, "", memapi.All[*corev1.Node](w.API)[0].Name, func(n *corev1.Node) { delete(n.Labels, v1.NodeRegisteredLabelKey) })
		}, 0, 0},
		"nor when the cloud takes the machine anyway": {func(*v1.NodeClaim) {}, func(w *sim.World) {
			memapi.Edit(w.API, "", "c", func(c *v1.NodeClaim) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1.EvictAfterAnnotationKey, time.Now().Add(30*time.Second).UTC().Format(time.RFC3339))
			})
		}, 0, 0},
		"nor for a Node of the same name that is another machine's": {func(*v1.NodeClaim) {}, func(w *sim.World) {
			n := memapi.All[*corev1.Node](w.API)[0]
			w.API.Remove(n)
			other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: "other", Labels: n.Labels}}
			other.Spec.ProviderID = "fake:///another"
			w.API.Put(other)
		}, 0, 0},
		"nor for one of the same labels that is another machine's": {func(*v1.NodeClaim) {}, func(w *sim.World) {
			forgetNode(w)
			memapi.Edit(w.API, "", memapi.All[*corev1.Node](w.API)[0].Name, func(n *corev1.Node) { n.Spec.ProviderID = "fake:///another" })
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			sim.BubbleAlone(t, sim.Options{PodStop: 2 * time.Second}, func(t *testing.T, w *sim.World) {
				w.With(t, sim.KarpenterOptions{Name: "deaf", Deaf: nodes}, func(*sim.Karpenter) {
					w.With(t, sim.KarpenterOptions{Name: "hears"}, func(*sim.Karpenter) {
						sim.Create(t, w, sim.Claim("c", tc.claim))
						time.Sleep(30 * time.Second)
						w.API.Put(sim.Pod("p", "1", func(p *corev1.Pod) { p.Spec.NodeName = sim.Get[*v1.NodeClaim](t, w, "c").Status.NodeName }))
						time.Sleep(5 * time.Second)
					})
					tc.world(w)
					sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
					time.Sleep(time.Minute)
					if n := len(w.Cloud.Machines()); n != tc.first {
						t.Errorf("%d machines a minute after the claim was deleted, want %d", n, tc.first)
					}
					for _, n := range memapi.All[*corev1.Node](w.API) {
						if strings.HasPrefix(name, "while the Node is there") && n.DeletionTimestamp == nil {
							t.Error("the Node is not deleted: nobody would drain it")
						}
					}
					w.API.SetFault(nil)
					for _, n := range memapi.All[*corev1.Node](w.API) {
						w.API.Remove(n)
					}
					time.Sleep(time.Minute)
					if n := len(w.Cloud.Machines()); n != tc.last {
						t.Errorf("%d machines a minute after the Node is gone, want %d", n, tc.last)
					}
				})
			})
		})
	}
}

// forgetNode makes the claim what it is when Karpenter died after it had registered the Node, and before it wrote so on the claim.
func forgetNode(w *sim.World) {
	memapi.Edit(w.API, "", "c", func(c *v1.NodeClaim) {
		c.Status.NodeName = ""
		for _, is := range []string{v1.ConditionTypeRegistered, v1.ConditionTypeInitialized} {
			condition.SetUnknown(c, is, v1.ReasonNodeNotFound, "", time.Now())
		}
	})
}

func readsFail(w *sim.World) {
	w.API.SetFault(func(r memapi.Request) error {
		if (r.Verb == "get" || r.Verb == "list") && r.Kind == "Node" {
			return errors.New("no answer")
		}
		return nil
	})
}
