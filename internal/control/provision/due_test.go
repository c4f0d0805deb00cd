package provision

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// What was planned in a burst must not hold on to rows of nodes until the next burst.
func TestALookKeepsNoRows(t *testing.T) {
	now := time.Unix(1000, 0)
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}})
		for i := range 10 {
			name := fmt.Sprint("p", i)
			d.PutPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
			d.Plan(cluster.PodKey{Namespace: "default", Name: name}, "c", now)
		}
	})
	var m memory
	m.due(store.Snapshot(), nil, now)
	if len(m.places) != 10 {
		t.Fatalf("%d places, want 10", len(m.places))
	}
	for _, p := range m.places[:cap(m.places)] {
		if p.target != nil {
			t.Fatalf("the row of %s is kept", p.target.Name)
		}
	}
}
