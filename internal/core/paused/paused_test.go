package paused_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// annotated returns the annotations of a paused object.
func annotated(value string) map[string]string {
	return map[string]string{v1.PausedAnnotationKey: value}
}

func TestOf(t *testing.T) {
	because := annotated("true")
	because[v1.PausedReasonAnnotationKey] = "black friday"
	for name, tc := range map[string]struct {
		cluster, pool map[string]string
		want          string
	}{
		"nobody has paused anything":                {nil, nil, ""},
		"a reason alone pauses nothing":             {nil, map[string]string{v1.PausedReasonAnnotationKey: "x"}, ""},
		"a pool until it is resumed":                {nil, because, "its NodePool is paused until karpenter resume ends it: black friday"},
		"a pool for a time":                         {nil, annotated("2026-05-01T12:00:01Z"), "its NodePool is paused until 2026-05-01T12:00:01Z"},
		"a time in another zone":                    {nil, annotated("2026-05-01T14:30:00+02:00"), "its NodePool is paused until 2026-05-01T12:30:00Z"},
		"the time is over":                          {nil, annotated("2026-05-01T12:00:00Z"), ""},
		"false is no pause":                         {nil, annotated("false"), ""},
		"what nobody understands is a pause":        {nil, annotated("2h"), `its NodePool is paused until karpenter resume ends it (the annotation karpenter.sh/paused says "2h", which is neither true nor a time)`},
		"nothing at all is a pause":                 {nil, annotated(""), "its NodePool is paused until karpenter resume ends it"},
		"the whole cluster":                         {annotated("true"), nil, "disruption is paused in the whole cluster until karpenter resume ends it"},
		"a pool cannot leave a pause of all":        {annotated("true"), annotated("false"), "disruption is paused in the whole cluster until karpenter resume ends it"},
		"of two pauses the longer one is told":      {annotated("2026-05-01T13:00:00Z"), annotated("2026-05-01T14:00:00Z"), "its NodePool is paused until 2026-05-01T14:00:00Z"},
		"one without end is longer":                 {annotated("2026-05-01T13:00:00Z"), annotated("true"), "its NodePool is paused until karpenter resume ends it"},
		"of two equal ones the cluster's is told":   {annotated("2026-05-01T13:00:00Z"), annotated("2026-05-01T13:00:00Z"), "disruption is paused in the whole cluster until 2026-05-01T13:00:00Z"},
		"the cluster's is told while it has no end": {annotated("true"), annotated("2026-05-01T13:00:00Z"), "disruption is paused in the whole cluster until karpenter resume ends it"},
		"one that is over does not hide the other":  {annotated("2026-05-01T11:00:00Z"), annotated("true"), "its NodePool is paused until karpenter resume ends it"},
	} {
		t.Run(name, func(t *testing.T) {
			h, halted := paused.Of(world(tc.cluster, tc.pool), "p", now)
			got := ""
			if halted {
				got = sentence.Halt(h)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// world has two pools, of which one is annotated.
func world(cluster_, pool map[string]string) *cluster.Snapshot {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		cluster.Namespaces.Put(d, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", Annotations: cluster_}})
		cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: pool}})
		cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	})
	return s.Snapshot()
}

func TestNode(t *testing.T) {
	node := func(claim, label string) *cluster.Node {
		n := &cluster.Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.NodePoolLabelKey: label}}}}
		if claim != "" {
			n.Claim = &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.NodePoolLabelKey: claim}}}
		}
		return n
	}
	for name, tc := range map[string]struct {
		node *cluster.Node
		want bool
	}{
		"a node of the pool":                          {node("p", "p"), true},
		"a node of another one":                       {node("other", "other"), false},
		"a node that says it is of another one":       {node("p", "other"), true},
		"a node that says so and has another's claim": {node("other", "p"), true},
		"a node without claim":                        {node("", "p"), true},
		"a node of a pool that is gone":               {node("gone", "gone"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := paused.Node(world(nil, annotated("true")), tc.node, now); got != tc.want {
				t.Errorf("halted = %v, want %v", got, tc.want)
			}
			if _, got := paused.Node(world(annotated("true"), nil), tc.node, now); !got {
				t.Error("it goes on although all pools are paused")
			}
		})
	}
}

// One pool of two is paused; nodes of both are asked about in turns.
func TestSwitchesTellPoolsApart(t *testing.T) {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "still", Annotations: annotated("true")}})
		cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "moving"}})
	})
	of := func(pool string) *cluster.Node {
		return &cluster.Node{Claim: &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.NodePoolLabelKey: pool}}}}
	}
	s := paused.Switches{Snap: store.Snapshot(), Now: now}
	for i, pool := range []string{"still", "moving", "", "still", "moving", ""} {
		if _, halted := s.Node(of(pool)); halted != (pool == "still") {
			t.Errorf("question %d: pool %q stands still: %v", i, pool, halted)
		}
	}
}
