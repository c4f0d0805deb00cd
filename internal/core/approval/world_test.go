package approval_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func pool(name, value string) *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if value != "" {
		p.Annotations = map[string]string{v1.ApprovalAnnotationKey: value}
	}
	return p
}

// world has the claims a and b with Nodes, the pools asked and asked-too, which want to be asked, and free, which does not.
func world() *cluster.Snapshot {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool("asked", "manual"))
		cluster.Pools.Put(d, pool("asked-too", "manual"))
		cluster.Pools.Put(d, pool("free", ""))
		for _, name := range []string{"a", "b"} {
			claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
			claim.Status.ProviderID = "test:///" + name
			d.PutClaim(claim)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}}
			node.Spec.ProviderID = claim.Status.ProviderID
			d.PutNode(node)
		}
		d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "booting", UID: "uid-booting"}})
		d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "going", UID: "uid-going", DeletionTimestamp: &metav1.Time{Time: noon}, Finalizers: []string{"f"}}, Status: v1.NodeClaimStatus{ProviderID: "test:///going"}})
		d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-going"}, Spec: corev1.NodeSpec{ProviderID: "test:///going"}})
	})
	return s.Snapshot()
}

func TestManual(t *testing.T) {
	for value, want := range map[string]bool{"": false, "manual": true, "automatic": false, "Automatic": true, "no": true, "false": true} {
		if got := pool("p", value).AsksApproval(); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if empty := (&v1.NodePool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.ApprovalAnnotationKey: ""}}}); !empty.AsksApproval() {
		t.Error("an annotation that says nothing is taken for no annotation")
	}
}

func TestPools(t *testing.T) {
	candidate := func(pool, label string) *disrupt.Candidate {
		return &disrupt.Candidate{
			Pool: &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool}},
			Node: &cluster.Node{Claim: &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.NodePoolLabelKey: label}}}},
		}
	}
	for name, tc := range map[string]struct {
		nodes []*disrupt.Candidate
		want  []string
	}{
		"no node of a pool that wants to be asked": {[]*disrupt.Candidate{candidate("free", "free")}, nil},
		"a node of one":                        {[]*disrupt.Candidate{candidate("asked", "asked")}, []string{"asked"}},
		"the last of several nodes":            {[]*disrupt.Candidate{candidate("free", "free"), candidate("asked", "asked")}, []string{"asked"}},
		"its Node says so, its claim does not": {[]*disrupt.Candidate{candidate("asked", "free")}, []string{"asked"}},
		"its claim says so, its Node does not": {[]*disrupt.Candidate{candidate("free", "asked")}, []string{"asked"}},
		"each says another":                    {[]*disrupt.Candidate{candidate("asked-too", "asked")}, []string{"asked", "asked-too"}},
		"two nodes of one pool":                {[]*disrupt.Candidate{candidate("asked", "asked"), candidate("asked", "asked")}, []string{"asked"}},
		"the pool is gone":                     {[]*disrupt.Candidate{candidate("gone", "gone")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range approval.Pools(world(), &disrupt.Step{Remove: tc.nodes}) {
				got = append(got, p.Name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestHold(t *testing.T) {
	plan := func(phase v1alpha1.DisruptionPhase, pool string) *v1alpha1.DisruptionPlan {
		p := approval.PlanOf(&v1alpha1.DisruptionStep{Reason: v1.DisruptionReasonEmpty, Remove: []v1alpha1.DisruptedNode{{NodeClaim: "a", UID: "uid-a", NodePool: pool}}}, noon)
		p.Status.Phase = phase
		return p
	}
	deleted := func(phase v1alpha1.DisruptionPhase) *v1alpha1.DisruptionPlan {
		p := plan(phase, "asked")
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon}, []string{"f"}
		return p
	}
	own := plan(v1alpha1.DisruptionPending, "asked")
	other := plan(v1alpha1.DisruptionPending, "asked")
	other.Name = "other"
	for name, tc := range map[string]struct {
		plan, but *v1alpha1.DisruptionPlan
		busy      bool
		promised  int
	}{
		"a plan that waits":                       {own, nil, true, 1},
		"of a pool that no longer is asked":       {plan(v1alpha1.DisruptionPending, "free"), nil, true, 0},
		"of a pool that is gone":                  {plan(v1alpha1.DisruptionPending, "gone"), nil, true, 0},
		"one that is confirmed at this moment":    {own, own, false, 0},
		"another one is confirmed at this moment": {own, other, true, 1},
		"one that was denied":                     {plan(v1alpha1.DisruptionRefused, "asked"), nil, true, 0},
		"one that was carried out":                {plan(v1alpha1.DisruptionCarriedOut, "asked"), nil, false, 0},
		"one that has expired":                    {plan(v1alpha1.DisruptionExpired, "asked"), nil, false, 0},
		"one that was superseded":                 {plan(v1alpha1.DisruptionSuperseded, "asked"), nil, false, 0},
		"one that waits and is deleted":           {deleted(v1alpha1.DisruptionPending), nil, false, 0},
		"one that was denied and is deleted":      {deleted(v1alpha1.DisruptionRefused), nil, false, 0},
		"one that says nothing":                   {&v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: "nothing"}}, nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			s.Update(func(d *cluster.Draft) {
				cluster.Pools.Put(d, pool("asked", "manual"))
				cluster.Pools.Put(d, pool("free", ""))
				d.PutDisruptionPlan(tc.plan)
			})
			w := &disrupt.World{Snap: s.Snapshot(), Busy: map[types.UID]bool{}, Promised: map[string]int{}}
			approval.Hold(w, tc.but)
			promised := 0
			for _, n := range w.Promised {
				promised += n
			}
			if w.Busy["uid-a"] != tc.busy || promised != tc.promised {
				t.Errorf("held %v, promised %v; want %v and %d", w.Busy, w.Promised, tc.busy, tc.promised)
			}
		})
	}
}

func TestRestore(t *testing.T) {
	node := func(claim, uid string) v1alpha1.DisruptedNode {
		return v1alpha1.DisruptedNode{NodeClaim: claim, UID: types.UID(uid), NodePool: "asked"}
	}
	a := node("a", "uid-a")
	for name, tc := range map[string]struct {
		remove []v1alpha1.DisruptedNode
		want   bool
	}{
		"both nodes are there":                {[]v1alpha1.DisruptedNode{a, node("b", "uid-b")}, true},
		"no node at all":                      {nil, false},
		"one is gone":                         {[]v1alpha1.DisruptedNode{a, node("gone", "uid-gone")}, false},
		"one has got the name":                {[]v1alpha1.DisruptedNode{a, node("b", "before")}, false},
		"one goes":                            {[]v1alpha1.DisruptedNode{a, node("going", "uid-going")}, false},
		"one has no Node":                     {[]v1alpha1.DisruptedNode{a, node("booting", "uid-booting")}, false},
		"the pool of one is gone":             {[]v1alpha1.DisruptedNode{a, {NodeClaim: "b", UID: "uid-b", NodePool: "gone"}}, false},
		"one is known by the name of a Node":  {[]v1alpha1.DisruptedNode{a, node("node-b", "uid-b")}, false},
		"one is known by a claim without UID": {[]v1alpha1.DisruptedNode{a, node("b", "")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			plan := approval.PlanOf(&v1alpha1.DisruptionStep{Reason: v1.DisruptionReasonDrifted, Method: "multi", Saves: "1.5000", Remove: tc.remove}, noon)
			got, there := approval.Restore(world(), plan)
			if there != tc.want {
				t.Fatalf("it is there: %v, want %v", there, tc.want)
			}
			if there && (got.Reason != v1.DisruptionReasonDrifted || got.Method != disrupt.MultiNode || got.Saves().Dollars() != 1.5 || len(got.Remove) != len(tc.remove) ||
				got.Remove[0].Node.Claim.Name != "a" || got.Remove[0].Pool.Name != "asked") {
				t.Errorf("step = %+v", got)
			}
		})
	}
}

func TestTheRulesOfEveryPoolMustApprove(t *testing.T) {
	ruled := func(name, rules string) *v1.NodePool {
		return &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1.AutoApproveAnnotationKey: rules}}}
	}
	for name, tc := range map[string]struct {
		pools []*v1.NodePool
		want  string
	}{
		"no pool":                           {nil, ""},
		"one that approves":                 {[]*v1.NodePool{ruled("a", "pods<=3")}, "a: pods<=3"},
		"one that does not":                 {[]*v1.NodePool{ruled("a", "pods<=2")}, ""},
		"both":                              {[]*v1.NodePool{ruled("a", "pods<=3"), ruled("b", "nodes<=1; nodes<=2")}, "a: pods<=3; b: nodes<=2"},
		"only the first":                    {[]*v1.NodePool{ruled("a", "pods<=3"), ruled("b", "")}, ""},
		"only the second":                   {[]*v1.NodePool{ruled("a", ""), ruled("b", "pods<=3")}, ""},
		"one cannot be read":                {[]*v1.NodePool{ruled("a", "pods<=3"), ruled("b", "pods<=3; pods<3")}, ""},
		"a condition of a rule fails":       {[]*v1.NodePool{ruled("a", "pods<=3,nodes<=1")}, ""},
		"a semicolon at the end":            {[]*v1.NodePool{ruled("a", "pods<=3;")}, "a: pods<=3"},
		"fewer than nothing":                {[]*v1.NodePool{ruled("a", "pods<=3; pods<=-1")}, ""},
		"no number":                         {[]*v1.NodePool{ruled("a", "pods<=3; saves>=NaN")}, ""},
		"semicolons and nothing":            {[]*v1.NodePool{ruled("a", " ; ;")}, ""},
		"a condition that is empty":         {[]*v1.NodePool{ruled("a", "pods<=3,")}, ""},
		"a saving that is just so":          {[]*v1.NodePool{ruled("a", "saves>=1")}, "a: saves>=1"},
		"a saving that is just not":         {[]*v1.NodePool{ruled("a", "saves>=1.0001")}, ""},
		"a saving that is boundless":        {[]*v1.NodePool{ruled("a", "saves>=-Inf")}, "a: saves>=-Inf"},
		"another reason":                    {[]*v1.NodePool{ruled("a", "reason=Drifted")}, ""},
		"the reason, and more":              {[]*v1.NodePool{ruled("a", "reason=Underutilized,saves>=0.5")}, "a: reason=Underutilized,saves>=0.5"},
		"a reason that nobody is asked for": {[]*v1.NodePool{ruled("a", "reason=Expired")}, ""},
		"such a reason beside what holds":   {[]*v1.NodePool{ruled("a", "pods<=3; reason=Expired")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := approval.Approve(tc.pools, step()); got != tc.want {
				t.Errorf("approved by %q, want %q", got, tc.want)
			}
		})
	}
	unread := step()
	unread.Saves = "much"
	if got := approval.Approve([]*v1.NodePool{ruled("a", "saves>=-1000")}, unread); got != "" {
		t.Errorf("a saving that cannot be read is approved by %q", got)
	}
}

func TestStepOf(t *testing.T) {
	candidate := func(name string, dollars float64, pods ...*cluster.Pod) *disrupt.Candidate {
		labels := map[string]string{corev1.LabelInstanceTypeStable: "m5.large", v1.CapacityTypeLabelKey: "spot"}
		claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: labels}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name, Labels: labels}}
		return &disrupt.Candidate{Pool: pool("asked", ""), Price: cloud.FromDollars(dollars), Pods: pods, Node: &cluster.Node{Name: node.Name, Node: node, Claim: claim}}
	}
	pod := func(name, kind, owner string) *cluster.Pod {
		p := &cluster.Pod{PodKey: cluster.PodKey{Namespace: "shop", Name: name}}
		if kind != "" {
			p.Owner = &cluster.Owner{Kind: kind, Name: owner}
		}
		return p
	}
	got := approval.StepOf(&disrupt.Step{
		Reason: v1.DisruptionReasonUnderutilized, Method: disrupt.MultiNode, Before: cloud.FromDollars(2.5), After: cloud.FromDollars(1),
		Remove: []*disrupt.Candidate{candidate("b", 1.5, pod("web-1", "ReplicaSet", "web"), pod("lone", "", "")), candidate("a", 1, pod("web-2", "ReplicaSet", "web"), pod("db-0", "StatefulSet", "db"))},
		Open:   []engine.Opening{{Pool: "free", Type: "m5.xlarge", Types: []string{"m5.xlarge", "m5a.xlarge"}, CapacityType: "on-demand", Price: cloud.FromDollars(1)}},
	})
	want := &v1alpha1.DisruptionStep{
		Reason: "Underutilized", Method: "multi", Pods: 4, Saves: "1.5000",
		Remove: []v1alpha1.DisruptedNode{
			{NodeClaim: "a", UID: "uid-a", Node: "node-a", NodePool: "asked", InstanceType: "m5.large", CapacityType: "spot", Price: "1.0000"},
			{NodeClaim: "b", UID: "uid-b", Node: "node-b", NodePool: "asked", InstanceType: "m5.large", CapacityType: "spot", Price: "1.5000"},
		},
		Open: []v1alpha1.OpenedNode{{NodePool: "free", InstanceType: "m5.xlarge", Types: 2, CapacityType: "on-demand", Price: "1.0000"}},
		Evictions: []v1alpha1.DisruptedWorkload{
			{Namespace: "shop", Kind: "Pod", Name: "lone", Pods: 1}, {Namespace: "shop", Kind: "ReplicaSet", Name: "web", Pods: 2}, {Namespace: "shop", Kind: "StatefulSet", Name: "db", Pods: 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("step (-want +got):\n%s", diff)
	}
}
