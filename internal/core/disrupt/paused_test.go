package disrupt

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// A pass over a cluster that is paused finds nothing, and says when to look again.
func TestNothingIsProposedWhilePaused(t *testing.T) {
	until := noon.Add(90 * time.Second)
	f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default").node("n", "default", "m", v1.CapacityTypeOnDemand)
	if out := newPlanner(nil).Propose(f.world()); len(out.Steps) != 1 {
		t.Fatalf("%d steps before anything is paused, want the empty node to go", len(out.Steps))
	}
	f.store.Update(func(d *cluster.Draft) {
		cluster.Namespaces.Put(d, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1.PausedNamespace, Annotations: map[string]string{v1.PausedAnnotationKey: until.Format(time.RFC3339)}}})
	})
	w := f.world()
	out := newPlanner(nil).Propose(w)
	if len(out.Steps) != 0 || len(out.Blocks) != 1 || out.Blocks[0].Code != Paused || !out.Next.Equal(until) {
		t.Errorf("steps %v, blocks %v, next look %v; want none, %s, %v", out.Steps, out.Blocks, out.Next, Paused, until)
	}
	w.Now = until
	if out := newPlanner(nil).Propose(w); len(out.Steps) != 1 {
		t.Error("nothing is proposed when the pause is over")
	}
}
