package catalog_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/core/overlay"
)

// dollar is a provider that sells one type for a dollar.
type dollar struct {
	provider
	catalog *cloud.Catalog
}

func (d dollar) Catalog(context.Context, *v1.NodePool) (*cloud.Catalog, error) { return d.catalog, nil }

func sold() *cloud.Catalog {
	return &cloud.Catalog{Types: []*cloud.InstanceType{{
		Name: "t", Labels: map[string][]string{corev1.LabelInstanceTypeStable: {"t"}},
		Offerings: []cloud.Offering{{Labels: map[string]string{corev1.LabelTopologyZone: "a"}, Price: 1e9, Available: true}},
	}}}
}

func overlayOf(name, price, pool string) *v1alpha1.NodeOverlay {
	o := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	o.Spec.Price = &price
	o.Spec.Requirements = []v1alpha1.NodeSelectorRequirement{{Key: v1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{pool}}}
	return o
}

func TestOverlaysCorrectWhatPoolsCanLaunch(t *testing.T) {
	store := cluster.NewStore()
	put := func(o *v1alpha1.NodeOverlay) { store.Update(func(d *cluster.Draft) { cluster.Overlays.Put(d, o) }) }
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool("one", "Class", metav1.ConditionTrue))
		cluster.Pools.Put(d, pool("two", "Class", metav1.ConditionTrue))
	})
	base := sold()
	s := catalog.New(dollar{catalog: base}).WithOverlays(store, label.NewVocabulary(v1.Labels()))
	of := func(pool string) *cloud.Catalog {
		pools, _ := s.Pools(t.Context(), store.Snapshot())
		return pools[pool].Catalog
	}
	price := func(c *cloud.Catalog) float64 { return c.Types[0].Offerings[0].Price.Dollars() }

	if of("one") != base {
		t.Error("another catalogue though there is no overlay")
	}
	o := overlayOf("o", "0.5", "one")
	put(o)
	corrected := of("one")
	if price(corrected) != 0.5 || price(of("two")) != 1 || price(base) != 1 {
		t.Errorf("one $%v, two $%v, the provider's $%v", price(corrected), price(of("two")), price(base))
	}
	if got := s.Corrected(t.Context(), "one", base); got != corrected {
		t.Error("a launch sees another catalogue than plans")
	}
	for name, pool := range map[string]string{"no pool": "", "a pool that is gone": "three", "a pool that no overlay means": "two"} {
		if s.Corrected(t.Context(), pool, base) != base {
			t.Errorf("%s: the catalogue was changed", name)
		}
	}
	judged := o.DeepCopy()
	judged.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
	put(judged)
	if of("one") != corrected {
		t.Error("a new status of the overlay made another catalogue, so everything would be planned anew")
	}
	counted := pool("one", "Class", metav1.ConditionTrue)
	counted.Status.Nodes = 7
	store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, counted) })
	if of("one") != corrected {
		t.Error("a node more in the pool made another catalogue, so everything would be planned anew")
	}
	clash := overlayOf("p", "0.7", "one")
	put(clash)
	if got := price(of("one")); got != 0.7 {
		t.Errorf("$%v after an overlay came that wins", got)
	}
	overlays, verdicts := s.Verdicts(t.Context(), store.Snapshot())
	if len(overlays) != 2 || verdicts[0].Conflict == nil || verdicts[0].Conflict.With != "p" || verdicts[1] != (overlay.Verdict{}) {
		t.Errorf("%v %+v", overlays, verdicts)
	}
	store.Update(func(d *cluster.Draft) { cluster.Overlays.Delete(d, "o"); cluster.Overlays.Delete(d, "p") })
	if of("one") != base {
		t.Error("overlays that are gone still count")
	}
}

func TestALaunchSeesOverlaysThatNobodyPlannedWith(t *testing.T) {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool("one", "Class", metav1.ConditionTrue))
		cluster.Overlays.Put(d, overlayOf("o", "0.5", "one"))
	})
	base := sold()
	s := catalog.New(dollar{catalog: base}).WithOverlays(store, label.NewVocabulary(v1.Labels()))
	if got := s.Corrected(t.Context(), "one", base).Types[0].Offerings[0].Price.Dollars(); got != 0.5 {
		t.Errorf("the first launch after a restart reckons with $%v", got)
	}
	plain := catalog.New(dollar{catalog: base})
	if plain.Corrected(t.Context(), "one", base) != base {
		t.Error("an overlay counts without the feature gate")
	}
}
