package lifecycle_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

// TestADecisionHasTheNameOfItsPicture: made again on the same picture it has the same one, of another loop or beside another claim it has another.
func TestADecisionHasTheNameOfItsPicture(t *testing.T) {
	s := cluster.NewStore()
	put := func(name string) {
		s.Update(func(d *cluster.Draft) {
			d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}})
		})
	}
	put("a")
	first := lifecycle.Seed("provisioning", s.Snapshot())
	s.Update(func(*cluster.Draft) {})
	if again := lifecycle.Seed("provisioning", s.Snapshot()); again != first {
		t.Errorf("the same decision is %q, and %q once more", first, again)
	}
	if other := lifecycle.Seed("buffers", s.Snapshot()); other == first {
		t.Errorf("those of two loops are %q", other)
	}
	put("b")
	if later := lifecycle.Seed("provisioning", s.Snapshot()); later == first {
		t.Errorf("with another claim it is still %q", later)
	}
}
