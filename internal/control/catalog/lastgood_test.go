package catalog_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// A stopped pool is planned with the template that passed last. It stays the same pointer while pool and policy do, so that what was derived
// from it stays too. Without the feature gate it is planned as it is.
func TestAStoppedPoolIsPlannedWithItsLastGoodState(t *testing.T) {
	store := cluster.NewStore()
	p := pool("one", "Class", metav1.ConditionTrue)
	p.Spec.Template.Labels = map[string]string{"image": "2"}
	store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, p) })
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
	policy.Spec.OnFailure = v1alpha1.RolloutLastGood
	policy.Status.Pools = []v1alpha1.RolloutPool{{Name: "one", Revision: rollout.Revision(store.Snapshot(), p), Tripped: &metav1.Time{},
		LastGood: &v1alpha1.RolloutState{Images: []string{"ami-1"},
			Template: `{"metadata":{"labels":{"image":"1"}},"spec":{"nodeClassRef":{"group":"g","kind":"Class","name":"c"}}}`}}}
	put := func() *cluster.Snapshot {
		store.Update(func(d *cluster.Draft) { cluster.Rollouts.Put(d, policy) })
		return store.Snapshot()
	}
	snap := put()
	of := func(s *catalog.Service, snap *cluster.Snapshot) *v1.NodePool {
		pools, _ := s.Pools(t.Context(), snap)
		return pools["one"].Pool
	}
	on, off := catalog.New(provider{}).WithRollouts(label.NewVocabulary(v1.Labels())), catalog.New(provider{})
	last := of(on, snap)
	if last.Spec.Template.Labels["image"] != "1" || last.Annotations[v1.LastGoodImagesAnnotationKey] != "ami-1" {
		t.Errorf("%v, %v", last.Spec.Template.Labels, last.Annotations)
	}
	if of(on, snap) != last {
		t.Error("another pointer though nothing changed")
	}
	if of(off, snap) != p {
		t.Error("without the gate it is another pool")
	}
	policy = policy.DeepCopy()
	policy.Status.Pools[0].Tripped = nil
	if of(on, put()) != p {
		t.Error("it is not planned as it is once it is resumed")
	}
}

// The annotation by which a stopped pool chooses images is not read from the pool: its author could choose them otherwise.
func TestAnAuthorOfPoolsChoosesNoImages(t *testing.T) {
	p := pool("one", "Class", metav1.ConditionTrue)
	p.Annotations = map[string]string{v1.LastGoodImagesAnnotationKey: "ami-1", "kept": "yes"}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, p) })
	s := catalog.New(provider{})
	pools, _ := s.Pools(t.Context(), store.Snapshot())
	got := pools["one"].Pool
	if _, ok := got.Annotations[v1.LastGoodImagesAnnotationKey]; ok || got.Annotations["kept"] != "yes" || len(p.Annotations) != 2 {
		t.Errorf("%v, the pool has %v", got.Annotations, p.Annotations)
	}
	if again, _ := s.Pools(t.Context(), store.Snapshot()); again["one"].Pool != got {
		t.Error("another pointer though nothing changed")
	}
}
