package looptest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestANodeThatAKubeletMadeAnewIsNoLessOurs takes a Node away by force, as nobody should, while its machine goes on. The kubelet makes it anew when it is
// heard of again: bare, and with the taint that keeps pods away. It joins again, and goes like any other when the template changes.
func TestANodeThatAKubeletMadeAnewIsNoLessOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 5, Types: []string{"m5.*"}})
		defer w.start()()
		w.deploy(1, "900m", "1Gi")
		w.eventually("the pod runs", 5*time.Minute, w.allRun(1))
		node := memapi.All[*corev1.Node](w.API)[0]
		claim := memapi.All[*v1.NodeClaim](w.API)[0].Name
		time.Sleep(5 * time.Minute)

		w.API.Remove(node)
		w.faults(func(f *awsmodel.Faults) { f.ZonesDown = []string{node.Labels[corev1.LabelTopologyZone]} })
		w.faults(func(f *awsmodel.Faults) { f.ZonesDown = nil })
		w.eventually("the Node has joined again", time.Minute, func() string {
			n, ok := sim.Find[*corev1.Node](w.World, node.Name)
			switch {
			case !ok || n.UID == node.UID:
				return "the kubelet has not made it"
			case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return v1.IsUnregisteredTaint(&t) }), n.Labels[v1.NodeInitializedLabelKey] != "true", len(n.Finalizers) == 0:
				return "it is bare"
			}
			return ""
		})
		if c := sim.Get[*v1.NodeClaim](t, w.World, claim); !condition.IsTrue(c, v1.ConditionTypeInitialized) {
			t.Error("the claim was taken back")
		}

		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Spec.Template.Labels = map[string]string{"release": "2"}
			p.Generation++
		})
		w.eventually("the node is replaced", 30*time.Minute, func() string {
			if _, ok := sim.Find[*v1.NodeClaim](w.World, claim); ok {
				return "it is still there"
			}
			return w.unequal()
		})
		w.eventually("the pod runs again", 5*time.Minute, w.allRun(1))
	})
}
