package static_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// If a node of a static pool goes while the rollout is stopped, its replacement starts with the state that passed last.
func TestAStoppedPoolReplacesNodesWithItsLastGoodState(t *testing.T) {
	fixed(t, 2, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		memapi.Edit(w.API, "", "fixed", func(p *v1.NodePool) { p.Generation++; p.Spec.Template.Labels = map[string]string{"image": "2"} })
		time.Sleep(time.Second)
		policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful", UID: "careful"}}
		policy.Spec.OnFailure = v1alpha1.RolloutLastGood
		policy.Status.Pools = []v1alpha1.RolloutPool{{Name: "fixed", Tripped: &metav1.Time{Time: time.Now()},
			Revision: rollout.Revision(k.Store.Snapshot(), sim.Get[*v1.NodePool](t, w, "fixed")),
			LastGood: &v1alpha1.RolloutState{Images: []string{"ami-fake"}, Template: `{"metadata":{"labels":{"image":"1"}},"spec":{"nodeClassRef":` +
				`{"group":"karpenter.k8s.aws","kind":"EC2NodeClass","name":"default"}}}`}}}
		memapi.Edit(w.API, "", "fixed", func(p *v1.NodePool) { p.Annotations[v1.PausedAnnotationKey] = "true" }) // as the loop of rollouts does
		w.API.Put(policy)
		time.Sleep(time.Second)
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			if c.Labels[v1.NodePoolLabelKey] == "fixed" {
				sim.Delete(t, w, c)
			}
		}
		time.Sleep(5 * time.Minute)
		wantAlive(t, w, 2)
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			if c.Labels["image"] != "1" || c.Annotations[v1.LastGoodImagesAnnotationKey] != "ami-fake" {
				t.Errorf("%s: labels %v, annotations %v", c.Name, c.Labels, c.Annotations)
			}
		}
	})
}
