package cli

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A pod that a budget holds can move by restart once its owner agrees, and "why node" says how.
func TestWhyNodeNamesTheRestart(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	d.Spec.Selector, d.Spec.Replicas = selector, new(int32(1))
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1, ObservedGeneration: 9}
	pod := sim.Pod("web-1", "1", sim.OwnedBy("web-h"), func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web", "pod-template-hash": "h"}
		p.Spec.NodeName, p.Status.Phase = "b", corev1.PodRunning
	})
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	budget.Spec.Selector = selector
	w := twoNodes(t, "")
	s := cluster.NewStore()
	s.Update(func(draft *cluster.Draft) {
		for n := range w.Snap.Nodes() {
			claim := n.Claim.DeepCopy()
			claim.Spec.NodeClassRef = sim.Ref("default")
			draft.PutClaim(claim)
			draft.PutNode(n.Node)
			pod.Spec.NodeName = n.Node.Name
		}
		cluster.PDBs.Put(draft, budget)
		draft.PutPod(pod)
	})
	w.Pools["p"].Pool.Spec.Template.Spec.NodeClassRef = sim.Ref("default")
	w.Snap, w.Now, w.Engine = s.Snapshot(), time.Now(), engine.New()
	for want, annotations := range map[string]map[string]string{
		"allows no disruption of pod default/web-1 now; it can move by restart: add the annotation karpenter.sh/surge: restart": nil,
		"": {v1.SurgeAnnotationKey: v1.SurgeRestart},
	} {
		api := memapi.New(memapi.Scheme())
		d.Spec.Template.Annotations = annotations
		api.Put(d.DeepCopy())
		readSurge(t.Context(), api.Client("user"), w)
		got := ""
		for _, r := range disrupt.WhyStays(w, disrupt.Memory{}, pod.Spec.NodeName) {
			if r.Code == disrupt.PodBudget {
				got = sentence.Refusal(r)
			}
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("why = %q, want %q", got, want)
		}
	}
}
