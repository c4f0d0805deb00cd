package observe

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// BenchmarkConditions is a look at 1,000 nodes of which one has changed.
func BenchmarkConditions(b *testing.B) {
	s := cluster.NewStore()
	node := func(i, version int) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), UID: types.UID(fmt.Sprint("n", i)), ResourceVersion: fmt.Sprint(version)}}
		n.Spec.ProviderID = fmt.Sprint("id", i)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return n
	}
	s.Update(func(d *cluster.Draft) {
		for i := range 1000 {
			c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), UID: types.UID(fmt.Sprint("c", i))}}
			c.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
			c.Status.ProviderID = fmt.Sprint("id", i)
			for _, kind := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized} {
				c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind})
			}
			d.PutClaim(c)
			d.PutNode(node(i, 1))
		}
	})
	kinds := telemetry.ConditionKinds()
	m := telemetry.NewMetrics(prometheus.NewRegistry(), kinds)
	events := telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, m)
	o := New(Deps{Store: s, Metrics: m, Events: events, Kinds: kinds, Times: telemetry.NewPodTimes()})
	last := s.Snapshot()
	o.conditions(nil, last)
	b.ReportAllocs()
	for i := 2; b.Loop(); i++ {
		s.Update(func(d *cluster.Draft) { d.PutNode(node(i%1000, i)) })
		snap := s.Snapshot()
		o.conditions(last, snap)
		last = snap
	}
}
