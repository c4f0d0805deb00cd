package crashtest

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestExpiryIsNamedInTheEventsOfAllItConcerns reads them as somebody would who asks where the node has gone.
func TestExpiryIsNamedInTheEventsOfAllItConcerns(t *testing.T) {
	sim.Bubble(t, sim.Options{}, everything, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.After(time.Hour) })
		w.API.Put(sim.Pod("web", "1", sim.OwnedBy("web")))
		time.Sleep(time.Minute)
		claim := memapi.All[*v1.NodeClaim](w.API)[0]
		time.Sleep(time.Hour)
		told := func(kind, name, message string) bool {
			return slices.ContainsFunc(k.Events(), func(e *corev1.Event) bool {
				return e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Message == message
			})
		}
		why := "disrupting the node: Expired, it is older than expireAfter (1h0m0s)"
		if !told("NodeClaim", claim.Name, why) || !told("Node", claim.Status.NodeName, why) || !told("Pod", "web", "Evicted pod: Expired") {
			for _, e := range k.Events() {
				t.Log(e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
			}
			t.Error("not all of claim, node and pod are told that the node has expired")
		}
	})
}
