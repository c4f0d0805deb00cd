package cluster_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

func node(name, id string, labels ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: pairs(labels)},
		Spec:       corev1.NodeSpec{ProviderID: id},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3900m")},
		},
	}
}

func claim(name, id string) *v1.NodeClaim {
	return &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status:     v1.NodeClaimStatus{ProviderID: id},
	}
}

func pairs(kv []string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

func pod(name, node string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}},
	}
	return p
}

func waiting(name string) *corev1.Pod {
	p := pod(name, "")
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	return p
}

func key(name string) cluster.PodKey { return cluster.PodKey{Namespace: "default", Name: name} }

// rows renders the node rows as "name=provider/claim", so that a table can say what it wants in one line.
func rows(s *cluster.Snapshot) []string {
	var out []string
	for n := range s.Nodes() {
		c, kind := "-", "node"
		if n.Claim != nil {
			c = n.Claim.Name
		}
		if n.Node == nil {
			kind = "claim"
		}
		out = append(out, fmt.Sprintf("%s %s %s", kind, n.Name, c))
	}
	return out
}

func TestNodesJoinClaimsByProviderID(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*cluster.Draft)
		want []string
	}{
		"a claim without machine is a row of its own": {
			func(d *cluster.Draft) { d.PutClaim(claim("c", "")) },
			[]string{"claim c c"},
		},
		"a node joins the claim that came before it": {
			func(d *cluster.Draft) { d.PutClaim(claim("c", "id")); d.PutNode(node("n", "id")) },
			[]string{"node n c"},
		},
		"a claim joins the node that came before it": {
			func(d *cluster.Draft) { d.PutNode(node("n", "id")); d.PutClaim(claim("c", "id")) },
			[]string{"node n c"},
		},
		"a claim joins once it learns its provider ID": {
			func(d *cluster.Draft) {
				d.PutClaim(claim("c", ""))
				d.PutNode(node("n", "id"))
				d.PutClaim(claim("c", "id"))
			},
			[]string{"node n c"},
		},
		"a node joins once it learns its provider ID": {
			func(d *cluster.Draft) {
				d.PutClaim(claim("c", "id"))
				d.PutNode(node("n", ""))
				d.PutNode(node("n", "id"))
			},
			[]string{"node n c"},
		},
		"equal names without equal provider IDs do not collide": {
			func(d *cluster.Draft) { d.PutClaim(claim("x", "")); d.PutNode(node("x", "other")) },
			[]string{"node x -", "claim x x"},
		},
		"equal names with equal provider IDs are one row": {
			func(d *cluster.Draft) { d.PutClaim(claim("x", "id")); d.PutNode(node("x", "id")) },
			[]string{"node x x"},
		},
		"a node that leaves gives its claim back": {
			func(d *cluster.Draft) {
				d.PutClaim(claim("c", "id"))
				d.PutNode(node("n", "id"))
				d.DeleteNode("n")
			},
			[]string{"claim c c"},
		},
		"a claim that leaves gives its node back": {
			func(d *cluster.Draft) {
				d.PutClaim(claim("c", "id"))
				d.PutNode(node("n", "id"))
				d.DeleteClaim("c")
			},
			[]string{"node n -"},
		},
		"a provider ID that changes parts them": {
			func(d *cluster.Draft) {
				d.PutClaim(claim("c", "id"))
				d.PutNode(node("n", "id"))
				d.PutClaim(claim("c", "other"))
			},
			[]string{"claim c c", "node n -"},
		},
		"a second node of one machine is a row of its own": {
			func(d *cluster.Draft) {
				d.PutClaim(claim("c", "id"))
				d.PutNode(node("n2", "id"))
				d.PutNode(node("n1", "id"))
			},
			[]string{"node n1 c", "node n2 -"},
		},
		"a second claim of one machine is a row of its own": {
			func(d *cluster.Draft) {
				d.PutNode(node("n", "id"))
				d.PutClaim(claim("c2", "id"))
				d.PutClaim(claim("c1", "id"))
			},
			[]string{"claim c2 c2", "node n c1"},
		},
		"nothing stays when both leave": {
			func(d *cluster.Draft) {
				d.PutNode(node("n", "id"))
				d.PutClaim(claim("c", "id"))
				d.DeleteNode("n")
				d.DeleteClaim("c")
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			s.Update(tc.edit)
			if got := rows(s.Snapshot()); !slices.Equal(got, tc.want) {
				t.Errorf("rows = %q, want %q", got, tc.want)
			}
			if n := s.Snapshot().NodeByProviderID("id"); n != nil && n.ProviderID != "id" {
				t.Errorf("NodeByProviderID(id) = row %s of %s", n.Name, n.ProviderID)
			}
			for _, n := range s.Snapshot().NodesWithProviderID("id") {
				if n.Spec.ProviderID != "id" {
					t.Errorf("NodesWithProviderID(id) holds %s of %s", n.Name, n.Spec.ProviderID)
				}
			}
			for n := range s.Snapshot().Nodes() {
				if n.Claim != nil && s.Snapshot().ClaimNode(n.Claim.Name) != n {
					t.Errorf("ClaimNode(%s) is another row than %s", n.Claim.Name, n.Name)
				}
			}
		})
	}
}

func TestNodesWithProviderID(t *testing.T) {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		d.PutClaim(claim("c", "id"))
		d.PutNode(node("n2", "id"))
		d.PutNode(node("n1", "id"))
	})
	names := func() (out []string) {
		for _, n := range s.Snapshot().NodesWithProviderID("id") {
			out = append(out, n.Name)
		}
		return out
	}
	if got, want := names(), []string{"n1", "n2"}; !slices.Equal(got, want) {
		t.Errorf("nodes = %q, want %q", got, want)
	}
	s.Update(func(d *cluster.Draft) { d.DeleteNode("n2") })
	if got, want := names(), []string{"n1"}; !slices.Equal(got, want) {
		t.Errorf("nodes after one left = %q, want %q", got, want)
	}
}

func TestLateWritesDoNotUndoTheWatch(t *testing.T) {
	version := func(c *v1.NodeClaim, rv string) *v1.NodeClaim { c.ResourceVersion = rv; return c }
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		d.PutClaim(version(claim("c", "id"), "10"))
		d.PutClaim(version(claim("c", ""), "9"))
	})
	if got := s.Snapshot().ClaimNode("c").ProviderID; got != "id" {
		t.Errorf("an older version overwrote a newer one: provider ID = %q", got)
	}
	s.Update(func(d *cluster.Draft) {
		d.DeleteClaim("c")
		d.PutClaim(version(claim("c", "id"), "10"))
	})
	if s.Snapshot().ClaimNode("c") != nil {
		t.Error("a deleted claim came back")
	}
	again := claim("c", "")
	again.UID = "another"
	s.Update(func(d *cluster.Draft) { d.PutClaim(version(again, "12")) })
	if s.Snapshot().ClaimNode("c") == nil {
		t.Error("a new claim of an old name is missing")
	}
}

// A heartbeat is in the next picture, since patches need its version, but it wakes nobody.
func TestHeartbeatsWakeNobody(t *testing.T) {
	beat := metav1.NewTime(time.Unix(1000, 0))
	node := func(edit func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: "2"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: beat}}
		edit(n)
		return n
	}
	for name, tc := range map[string]struct {
		edit func(*corev1.Node)
		wake bool
	}{
		"a heartbeat":           {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(beat.Add(time.Minute)) }, false},
		"a node that is broken": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"another condition": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Disk"})
		}, true},
		"a label":      {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, true},
		"a taint":      {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "t"}} }, true},
		"another node": {func(n *corev1.Node) { n.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := cluster.NewStore()
				s.Update(func(d *cluster.Draft) { d.PutNode(node(func(n *corev1.Node) { n.ResourceVersion = "1" })) })
				before := s.Snapshot()
				s.Observe(func(d *cluster.Draft) bool { return d.PutNode(node(tc.edit)) })
				woken := false
				select {
				case <-before.Stale():
					woken = true
				case <-time.After(time.Second / 10):
				}
				if woken != tc.wake {
					t.Errorf("woken: %v, want %v", woken, tc.wake)
				}
				if told := s.Snapshot().News() != before.News(); told != tc.wake {
					t.Errorf("told as news: %v, want %v", told, tc.wake)
				}
				if got := s.Snapshot().Node("n").Node.ResourceVersion; got != "2" {
					t.Errorf("the next picture has version %s, want 2", got)
				}
				if tc.wake {
					return
				}
				s.Update(func(*cluster.Draft) {})
				select {
				case <-before.Stale():
				case <-time.After(10 * time.Second):
					t.Error("after news the old picture is not known to be old")
				}
			})
		})
	}
}

// A claim that was stored in an older version is written anew, and 5,000 of them in half a minute: nobody looks at them for that.
func TestClaimsThatAreOnlyStoredAnewWakeNobody(t *testing.T) {
	later := metav1.NewTime(time.Unix(2000, 0))
	for name, tc := range map[string]struct {
		edit func(*v1.NodeClaim)
		wake bool
	}{
		"nothing but its version": {func(*v1.NodeClaim) {}, false},
		"who wrote what":          {func(c *v1.NodeClaim) { c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Time: &later}} }, false},
		"an annotation":           {func(c *v1.NodeClaim) { c.Annotations = map[string]string{"a": "b"} }, true},
		"its spec":                {func(c *v1.NodeClaim) { c.Spec.Taints = []corev1.Taint{{Key: "t"}} }, true},
		"its status":              {func(c *v1.NodeClaim) { c.Status.ImageID = "image" }, true},
		"its machine":             {func(c *v1.NodeClaim) { c.Status.ProviderID = "another" }, true},
		"that it is to go":        {func(c *v1.NodeClaim) { c.DeletionTimestamp = &later }, true},
		"another of its name":     {func(c *v1.NodeClaim) { c.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, first, next := cluster.NewStore(), claim("c", "id"), claim("c", "id")
			first.ResourceVersion, next.ResourceVersion = "1", "2"
			tc.edit(next)
			s.Update(func(d *cluster.Draft) { d.PutClaim(first) })
			before := s.Snapshot().News()
			s.Observe(func(d *cluster.Draft) bool { return d.PutClaim(next) })
			if told := s.Snapshot().News() != before; told != tc.wake {
				t.Errorf("told as news: %v, want %v", told, tc.wake)
			}
			if got := s.Snapshot().ClaimNode("c").Claim.ResourceVersion; got != "2" {
				t.Errorf("the next picture has version %s, want 2", got)
			}
		})
	}
}

func TestMarks(t *testing.T) {
	now := time.Unix(1000, 0)
	deleting := claim("c", "id")
	deleting.DeletionTimestamp = &metav1.Time{Time: now}
	stopping := claim("c", "id")
	stopping.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeInstanceTerminating, Status: metav1.ConditionTrue}}
	leaving := node("n", "id")
	leaving.DeletionTimestamp = &metav1.Time{Time: now}

	for name, tc := range map[string]struct {
		edit   func(*cluster.Draft)
		row    string
		marked bool
	}{
		"a mark by claim name holds for the node": {
			edit: func(d *cluster.Draft) {
				d.PutClaim(claim("c", "id"))
				d.MarkForRemoval("c")
				d.PutNode(node("n", "id"))
			},
			row: "n", marked: true,
		},
		"a mark by node name holds for the node": {
			edit: func(d *cluster.Draft) {
				d.PutClaim(claim("c", "id"))
				d.PutNode(node("n", "id"))
				d.MarkForRemoval("n")
			},
			row: "n", marked: true,
		},
		"a mark can be taken back": {
			edit: func(d *cluster.Draft) { d.PutNode(node("n", "id")); d.MarkForRemoval("n"); d.Unmark("n") },
			row:  "n",
		},
		"a mark does not outlive what it was for": {
			edit: func(d *cluster.Draft) {
				d.PutNode(node("n", "id"))
				d.MarkForRemoval("n")
				d.DeleteNode("n")
				d.PutNode(node("n", "other"))
			},
			row: "n",
		},
		"a claim that is being deleted is marked": {
			edit: func(d *cluster.Draft) { d.PutNode(node("n", "id")); d.PutClaim(deleting) },
			row:  "n", marked: true,
		},
		"a machine that is being stopped is marked": {
			edit: func(d *cluster.Draft) { d.PutNode(node("n", "id")); d.PutClaim(stopping) },
			row:  "n", marked: true,
		},
		"a managed node that is being deleted waits for its claim": {
			edit: func(d *cluster.Draft) { d.PutNode(leaving); d.PutClaim(claim("c", "id")) },
			row:  "n",
		},
		"a node of others that is being deleted is marked": {
			edit: func(d *cluster.Draft) { d.PutNode(leaving) },
			row:  "n", marked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			s.Update(tc.edit)
			n := s.Snapshot().Node(tc.row)
			if n.MarkedForRemoval != tc.marked {
				t.Errorf("marked = %v, want %v", n.MarkedForRemoval, tc.marked)
			}
		})
	}
}

func TestIncompleteNodes(t *testing.T) {
	pool := v1.NodePoolLabelKey
	for name, tc := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"a node of others without provider ID is complete": {node("n", ""), false},
		"a managed node without provider ID is not":        {node("n", "", pool, "p", v1.NodeInitializedLabelKey, "true"), true},
		"nor one without any sign of registration":         {node("n", "id", pool, "p"), true},
		"an instance type is such a sign":                  {node("n", "id", pool, "p", corev1.LabelInstanceTypeStable, "m"), false},
		"so is the initialized label":                      {node("n", "id", pool, "p", v1.NodeInitializedLabelKey, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			s.Update(func(d *cluster.Draft) { d.PutNode(tc.node) })
			if got := s.Snapshot().Node("n").Incomplete; got != tc.want {
				t.Errorf("Incomplete = %v, want %v", got, tc.want)
			}
		})
	}
}

// A kubelet may write what it likes into its own Node. What the machine cannot have attracts no pods.
func TestANodeHasNoMoreThanItsMachineCanHave(t *testing.T) {
	const registered, initialized = v1.NodeRegisteredLabelKey, v1.NodeInitializedLabelKey
	for name, tc := range map[string]struct {
		reported, capacity, want corev1.ResourceList
	}{
		"what the claim expects":                     {amounts("7900m", "30Gi", "58"), amounts("8", "31Gi", "58"), amounts("7900m", "30Gi", "58")},
		"memory is an estimate":                      {amounts("7900m", "36Gi", "58"), amounts("8", "31Gi", "58"), amounts("7900m", "36Gi", "58")},
		"a kubelet that is configured for more pods": {amounts("7900m", "30Gi", "250"), amounts("8", "31Gi", "58"), amounts("7900m", "30Gi", "250")},
		"a lie": {amounts("2000", "8Ti", "5000"), amounts("8", "31Gi", "58"), amounts("8", "31Gi", "5000")},
		"a claim of an older Karpenter says nothing": {amounts("2000", "8Ti", "5000"), nil, amounts("2000", "8Ti", "5000")},
	} {
		t.Run(name, func(t *testing.T) {
			n, c := node("n", "id", registered, "true", initialized, "true"), claim("c", "id")
			n.Status.Allocatable, n.Status.Capacity, c.Status.Capacity = tc.reported, tc.reported, tc.capacity
			row := &cluster.Node{Name: "n", Node: n, Claim: c}
			for what, got := range map[string]corev1.ResourceList{"Allocatable": row.Allocatable(), "Capacity": row.Capacity()} {
				delete(got, v1.ResourceNodes)
				if !equality.Semantic.DeepEqual(got, tc.want) {
					t.Errorf("%s = %v, want %v", what, got, tc.want)
				}
			}
		})
	}
}

func TestAKubeletCannotMoveItsNodeToAnotherPool(t *testing.T) {
	n, c := node("n", "id", v1.NodeRegisteredLabelKey, "true", v1.NodePoolLabelKey, "other"), claim("c", "id")
	c.Labels = map[string]string{v1.NodePoolLabelKey: "own"}
	if got := (&cluster.Node{Name: "n", Node: n, Claim: c}).Pool(); got != "own" {
		t.Errorf("Pool = %q, want that of the claim", got)
	}
	if got := (&cluster.Node{Name: "n", Node: n}).Pool(); got != "other" {
		t.Errorf("Pool of a Node without claim = %q, want that of the Node", got)
	}
}

func amounts(cpu, memory, pods string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "pods": resource.MustParse(pods)}
}

func TestNodeViews(t *testing.T) {
	ephemeral := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	startup := corev1.Taint{Key: "cni", Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	row := func(labels ...string) *cluster.Node {
		n := node("n", "id", labels...)
		n.Spec.Taints = []corev1.Taint{ephemeral, startup, own}
		n.Status.Allocatable["gpu"] = resource.MustParse("0")
		c := claim("c", "id")
		c.Labels = map[string]string{"from": "claim"}
		c.Spec.Taints = []corev1.Taint{own}
		c.Spec.StartupTaints = []corev1.Taint{startup}
		c.Status.Allocatable = corev1.ResourceList{"gpu": resource.MustParse("2"), "cpu": resource.MustParse("1")}
		return &cluster.Node{Name: "n", Node: n, Claim: c}
	}
	keys := func(taints []corev1.Taint) []string {
		out := []string{}
		for _, t := range taints {
			out = append(out, t.Key)
		}
		return out
	}
	underused := row(v1.NodeRegisteredLabelKey, "true", v1.NodeInitializedLabelKey, "true")
	underused.Node.Spec.Taints = []corev1.Taint{v1.UnderusedTaint(), own}
	unmanaged := row()
	unmanaged.Claim = nil
	for name, tc := range map[string]struct {
		node   *cluster.Node
		taints []string
		gpu    int64
		from   string
	}{
		"before registration the claim speaks": {row(), []string{"team"}, 2, "claim"},
		"after registration the node speaks, without what it will lose": {
			row(v1.NodeRegisteredLabelKey, "true"), []string{"team"}, 2, "",
		},
		"after initialization nothing is hidden": {
			row(v1.NodeRegisteredLabelKey, "true", v1.NodeInitializedLabelKey, "true"),
			[]string{ephemeral.Key, "cni", "team"}, 0, "",
		},
		"after initialization the taint that only steers pods does not count": {underused, []string{"team"}, 0, ""},
		"of a node of others nothing is hidden":                               {unmanaged, []string{ephemeral.Key, "cni", "team"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := keys(tc.node.Taints()); !slices.Equal(got, tc.taints) {
				t.Errorf("Taints = %q, want %q", got, tc.taints)
			}
			alloc := tc.node.Allocatable()
			gpu := alloc["gpu"]
			if gpu.Value() != tc.gpu || alloc.Cpu().MilliValue() != 3900 {
				t.Errorf("Allocatable = %v, want gpu %d and cpu 3900m", alloc, tc.gpu)
			}
			if got := tc.node.Labels()["from"]; got != tc.from {
				t.Errorf("labels come from %q, want %q", got, tc.from)
			}
			capacity := tc.node.Capacity()
			if nodes := capacity[v1.ResourceNodes]; nodes.Value() != 1 {
				t.Errorf("Capacity = %v, want one of %q", capacity, v1.ResourceNodes)
			}
		})
	}
}

func TestProvisionable(t *testing.T) {
	with := func(change func(*corev1.Pod)) *corev1.Pod {
		p := waiting("p")
		change(p)
		return p
	}
	owned := func(api, kind string) *corev1.Pod {
		return with(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: api, Kind: kind, Name: "o", UID: "o"}}
		})
	}
	nominated := func(node string, managers ...string) *corev1.Pod {
		return with(func(p *corev1.Pod) {
			p.Status.NominatedNodeName = node
			for _, m := range managers {
				p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
					Manager: m, Subresource: "status", Operation: metav1.ManagedFieldsOperationUpdate,
					FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:nominatedNodeName":{}}}`),
				})
			}
		})
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a pod that the scheduler gave up on":   {waiting("p"), true},
		"a pod that the scheduler has not seen": {pod("p", ""), false},
		"a gated pod": {with(func(p *corev1.Pod) {
			p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		}), false},
		"a bound pod":                               {with(func(p *corev1.Pod) { p.Spec.NodeName = "n" }), false},
		"a pod that is terminating":                 {with(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), false},
		"a pod of a DaemonSet":                      {owned("apps/v1", "DaemonSet"), false},
		"a pod of a ReplicaSet":                     {owned("apps/v1", "ReplicaSet"), true},
		"a static pod":                              {owned("v1", "Node"), false},
		"a pod that preempts others on a live node": {nominated("n", "kube-scheduler"), false},
		"a pod nominated to a node that is gone":    {nominated("gone", "kube-scheduler"), true},
		"a pod nominated to a node that is leaving": {nominated("leaving", "kube-scheduler"), true},
		"a pod that carries our own hint":           {nominated("n", cluster.HintManager), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			s.Update(func(d *cluster.Draft) {
				d.PutNode(node("n", "id"))
				leaving := node("leaving", "id2")
				leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				d.PutNode(leaving)
				d.PutPod(tc.pod)
			})
			if got := len(s.Snapshot().Provisionable()) == 1; got != tc.want {
				t.Errorf("provisionable = %v, want %v", got, tc.want)
			}
		})
	}
}

// What kube-scheduler gave up on speaks for its like that it has not looked at yet.
func TestProvisionableSoon(t *testing.T) {
	unjudged := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := pod(name, "")
		change(p)
		return p
	}
	for name, tc := range map[string]struct {
		other *corev1.Pod
		want  bool
	}{
		"its like":                    {unjudged("p", func(*corev1.Pod) {}), true},
		"a pod with another request":  {unjudged("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }), false},
		"a pod with other labels":     {unjudged("p", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }), false},
		"a pod of another priority":   {unjudged("p", func(p *corev1.Pod) { p.Spec.Priority = new(int32(7)) }), false},
		"a pod that is gated":         {unjudged("p", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }), false},
		"a pod that is bound":         {pod("p", "n"), false},
		"a pod that is nominated":     {unjudged("p", func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }), false},
		"a pod that is being deleted": {unjudged("p", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), false},
		"a pod that has found its place": {unjudged("p", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			s.Update(func(d *cluster.Draft) { d.PutNode(node("n", "id")); d.PutPod(tc.other) })
			if got := s.Snapshot().ProvisionableSoon(); len(got) != 0 {
				t.Errorf("%d pods before one was refused", len(got))
			}
			s.Update(func(d *cluster.Draft) { d.PutPod(waiting("a")) })
			if got := len(s.Snapshot().ProvisionableSoon()) == 2; got != tc.want {
				t.Errorf("provisionable soon = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPodsFollowTheirNode(t *testing.T) {
	names := func(n *cluster.Node) []string {
		out := []string{}
		for _, p := range n.Pods {
			out = append(out, p.Name)
		}
		return out
	}
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		d.PutPod(pod("b", "n")) // before its node
		d.PutNode(node("n", "id"))
		d.PutNode(node("m", "id2"))
		d.PutPod(pod("a", "n"))
		d.PutPod(waiting("c"))
	})
	before := s.Snapshot()
	done := pod("b", "n")
	done.Status.Phase = corev1.PodSucceeded
	s.Update(func(d *cluster.Draft) {
		d.PutPod(done)
		d.PutPod(pod("c", "n"))
		d.PutPod(pod("a", "m")) // missed the deletion in between
	})
	after := s.Snapshot()
	for name, tc := range map[string]struct {
		snap *cluster.Snapshot
		node string
		want []string
	}{
		"pods are sorted, whichever came first": {before, "n", []string{"a", "b"}},
		"a node without pods has none":          {before, "m", []string{}},
		"terminal pods leave, bound ones come":  {after, "n", []string{"c"}},
		"a pod that shows up elsewhere moves":   {after, "m", []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := names(tc.snap.Node(tc.node)); !slices.Equal(got, tc.want) {
				t.Errorf("pods = %q, want %q", got, tc.want)
			}
		})
	}
	counts := map[string]int{}
	for c := range after.LabelCounts() {
		counts[c.Node] += c.Count
	}
	if counts["n"] != 1 || counts["m"] != 1 || len(counts) != 2 {
		t.Errorf("label counts = %v, want one on each node", counts)
	}
}

func TestEventsOfARunningPodReplaceItsRowEverywhere(t *testing.T) {
	anti := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname}},
		}}
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: &yes}}
		return p
	}
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		d.PutNode(node("n", "id"))
		d.PutPod(anti(pod("p", "n")))
	})
	ready := anti(pod("p", "n"))
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.Update(func(d *cluster.Draft) { d.PutPod(ready) })
	snap := s.Snapshot()
	for where, rows := range map[string][]*cluster.Pod{
		"the pods":           slices.Collect(snap.Pods()),
		"its node":           snap.Node("n").Pods,
		"the repelling pods": slices.Collect(snap.Repelling()),
		"its DaemonSet":      {snap.DaemonPod(newDaemonSet())},
	} {
		if len(rows) != 1 || !rows[0].Ready {
			t.Errorf("%s hold %v, want the one new row", where, rows)
		}
	}
	relabelled := anti(pod("p", "n"))
	relabelled.Labels = map[string]string{"app": "other"}
	s.Update(func(d *cluster.Draft) { d.PutPod(relabelled) })
	counts := slices.Collect(s.Snapshot().LabelCounts())
	if len(counts) != 1 || counts[0].Labels.Map["app"] != "other" || counts[0].Count != 1 {
		t.Errorf("label counts after a change of labels = %v, want one of app=other", counts)
	}
	leaving := anti(pod("p", "n"))
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
	s.Update(func(d *cluster.Draft) { d.PutPod(leaving) })
	if got := slices.Collect(s.Snapshot().LabelCounts()); len(got) != 1 || got[0].Count != 0 || got[0].Terminating != 1 {
		t.Errorf("label counts of a terminating pod = %v, want it as such", got)
	}
}

func TestPlansEndByThemselves(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		edit func(*cluster.Draft)
		want bool
	}{
		"a plan is remembered":              {func(*cluster.Draft) {}, true},
		"a later plan replaces it":          {func(d *cluster.Draft) { d.Plan(key("p"), "n", now); d.DeleteClaim("c") }, true},
		"it ends when the pod binds":        {func(d *cluster.Draft) { d.PutPod(pod("p", "n")) }, false},
		"it ends when the pod is gone":      {func(d *cluster.Draft) { d.DeletePod(key("p")) }, false},
		"it ends when the claim is gone":    {func(d *cluster.Draft) { d.DeleteClaim("c") }, false},
		"it stays when the claim is a node": {func(d *cluster.Draft) { d.PutClaim(claim("c", "id2")); d.PutNode(node("m", "id2")) }, true},
		"it stays while the pod still runs on the node that it is to leave": {func(d *cluster.Draft) {
			d.PutPod(pod("p", "old"))
			d.Plan(key("p"), "c", now)
			d.PutPod(pod("p", "old"))
		}, true},
		"it can be taken back": {func(d *cluster.Draft) { d.Unplan(key("p")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			s.Update(func(d *cluster.Draft) {
				d.PutNode(node("n", "id"))
				d.PutClaim(claim("c", ""))
				d.PutPod(waiting("p"))
				d.Plan(key("p"), "c", now)
			})
			s.Update(tc.edit)
			p, ok := s.Snapshot().Planned(key("p"))
			if ok != tc.want {
				t.Errorf("planned = %v, want %v", ok, tc.want)
			}
			if ok && s.Snapshot().Target(p.Target) == nil {
				t.Errorf("target %s is unknown", p.Target)
			}
		})
	}
}

func TestDaemonPod(t *testing.T) {
	at := func(name string, seconds int64) *corev1.Pod {
		p := pod(name, "n")
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: &yes}}
		p.CreationTimestamp = metav1.Unix(seconds, 0)
		return p
	}
	s := cluster.NewStore()
	ds := newDaemonSet()
	steps := []struct {
		does string
		edit func(*cluster.Draft)
		want string
	}{
		{"no pods", func(*cluster.Draft) {}, ""},
		{"one pod", func(d *cluster.Draft) { d.PutPod(at("a", 5)) }, "a"},
		{"an older pod", func(d *cluster.Draft) { d.PutPod(at("b", 3)) }, "a"},
		{"a newer pod", func(d *cluster.Draft) { d.PutPod(at("c", 7)) }, "c"},
		{"a pod of somebody else", func(d *cluster.Draft) { d.PutPod(pod("z", "n")) }, "c"},
		{"the newest goes", func(d *cluster.Draft) { d.DeletePod(key("c")) }, "a"},
		{"all go", func(d *cluster.Draft) { d.DeletePod(key("a")); d.DeletePod(key("b")) }, ""},
	}
	for _, step := range steps {
		s.Update(step.edit)
		got := ""
		if p := s.Snapshot().DaemonPod(ds); p != nil {
			got = p.Name
		}
		if got != step.want {
			t.Errorf("%s: daemon pod = %q, want %q", step.does, got, step.want)
		}
	}
}

func TestAttachLimits(t *testing.T) {
	three := int32(3)
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		d.PutNode(node("n", "id"))
		d.PutCSINode(&storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: "three", Allocatable: &storagev1.VolumeNodeResources{Count: &three}},
				{Name: "none", Allocatable: &storagev1.VolumeNodeResources{}},
				{Name: "unlimited"},
			}},
		})
	})
	got := s.Snapshot().Node("n").CSINode
	if want := map[string]int{"three": 3, "none": 0, "unlimited": -1}; !maps.Equal(got, want) {
		t.Errorf("limits = %v, want %v", got, want)
	}
}

func TestStaleWakesAtMostEvery20Milliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := cluster.NewStore()
		wakes := 0
		ctx := t.Context()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-s.Snapshot().Stale():
					wakes++
				case <-ctx.Done():
					return
				case <-time.After(time.Second):
					return
				}
			}
		}()
		for i := range 1000 {
			s.Update(func(d *cluster.Draft) { d.PutPod(waiting(fmt.Sprint("p", i))) })
			time.Sleep(time.Millisecond)
		}
		<-done
		if wakes < 49 || wakes > 51 {
			t.Errorf("a second of events woke %d times, want about 50", wakes)
		}
		if got := s.Snapshot().PodCount(); got != 1000 {
			t.Errorf("the last snapshot holds %d pods, want 1000", got)
		}
	})
}

func TestANewSnapshotIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := cluster.NewStore()
		s.Snapshot()
		s.Update(func(d *cluster.Draft) { d.PutPod(waiting("a")) })
		s.Snapshot()
		time.Sleep(5 * time.Millisecond)
		s.Update(func(d *cluster.Draft) { d.PutPod(waiting("b")) })
		snap := s.Snapshot() // while the wake-up for the edit before is arranged
		time.Sleep(time.Second)
		select {
		case <-snap.Stale():
			t.Error("the newest snapshot is stale")
		default:
		}
	})
}

func TestSnapshotsDoNotChange(t *testing.T) {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		d.Synced(true)
		for i := range 300 {
			d.PutPod(waiting(fmt.Sprintf("p%03d", i)))
		}
	})
	old := s.Snapshot()
	s.Update(func(d *cluster.Draft) {
		for i := range 300 {
			if i%2 == 0 {
				d.DeletePod(key(fmt.Sprintf("p%03d", i)))
			} else {
				d.PutPod(pod(fmt.Sprintf("p%03d", i), "n"))
			}
		}
	})
	if got := len(old.Provisionable()); got != 300 {
		t.Errorf("the old snapshot now has %d pods that wait, want 300", got)
	}
	if got := len(s.Snapshot().Provisionable()); got != 0 {
		t.Errorf("the new snapshot has %d pods that wait, want 0", got)
	}
	if old.Revision() >= s.Snapshot().Revision() {
		t.Error("revisions do not grow")
	}
	select {
	case <-old.Stale():
	case <-time.After(5 * time.Minute):
		t.Error("the old snapshot is not stale")
	}
	if first, again := s.Snapshot(), s.Snapshot(); first != again {
		t.Error("an unchanged store makes a new snapshot")
	}
}

// fleet fills a store the way a large cluster would: 20 pods a node, 200 deployments, 3 daemon sets.
func fleet(s *cluster.Store, nodes, pods int) {
	for i := range nodes {
		s.Update(func(d *cluster.Draft) {
			id := fmt.Sprintf("aws:///zone-a/i-%017d", i)
			n := node(fmt.Sprintf("ip-10-0-%d-%d.internal", i/250, i%250), id)
			for j := range 25 {
				n.Labels[fmt.Sprintf("label.example.com/key-%02d", j)] = "value"
			}
			c := claim(fmt.Sprintf("default-%05d", i), id)
			c.Labels = n.Labels
			d.PutNode(n)
			d.PutClaim(c)
		})
	}
	for i := range pods {
		p := busyPod(i, nodes)
		s.Update(func(d *cluster.Draft) { d.PutPod(p) })
	}
}

func busyPod(i, nodes int) *corev1.Pod {
	deployment := i % 200
	n := i % nodes
	p := pod(fmt.Sprintf("deployment-%03d-5d4f8c7b9-%06d", deployment, i), fmt.Sprintf("ip-10-0-%d-%d.internal", n/250, n%250))
	p.Namespace = fmt.Sprintf("team-%02d", deployment%20)
	p.Labels = map[string]string{"app": fmt.Sprintf("deployment-%03d", deployment), "pod-template-hash": "5d4f8c7b9"}
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "deployment", UID: types.UID(fmt.Sprint("rs", deployment)), Controller: &yes}}
	p.Spec.Containers = []corev1.Container{{
		Name: "main", Image: "registry.example.com/team/image:1.2.3",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"cpu": *resource.NewMilliQuantity(int64(100+deployment), resource.DecimalSI), "memory": resource.MustParse("256Mi"),
		}},
	}}
	p.Spec.Tolerations = []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}},
	}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}
	return p
}

// The whole store: 10,000 nodes and 200,000 pods, one event at a time. Reports the live heap it needs.
func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := cluster.NewStore()
		fleet(s, 10_000, 200_000)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB-live")
		if got := s.Snapshot().PodCount(); got != 200_000 {
			b.Fatalf("%d pods", got)
		}
	}
}

// One event about a running pod of a large cluster, with readers that look as often as Stale wakes them at 5,000 events
// a second.
func BenchmarkPodEvent(b *testing.B) {
	s := cluster.NewStore()
	fleet(s, 10_000, 200_000)
	pods := make([]*corev1.Pod, 2_000)
	for i := range pods {
		pods[i] = busyPod(i*97, 10_000)
	}
	i := 0
	for b.Loop() {
		i++
		s.Update(func(d *cluster.Draft) { d.PutPod(pods[i%len(pods)]) })
		if i%100 == 0 {
			s.Snapshot()
		}
	}
}

func newDaemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ds", UID: "ds"}}
}

// TestAPlanThatIsGoneStaysGone: the result of a write of ours comes after the watch has told that the plan was deleted.
func TestAPlanThatIsGoneStaysGone(t *testing.T) {
	s := cluster.NewStore()
	plan := &v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1", ResourceVersion: "2"}}
	known := func() bool { return s.Snapshot().DisruptionPlan("p") != nil }
	s.Update(func(d *cluster.Draft) { d.PutDisruptionPlan(plan) })
	s.Update(func(d *cluster.Draft) { d.DeleteDisruptionPlan("p") })
	written := plan.DeepCopy()
	written.ResourceVersion = "3"
	s.Update(func(d *cluster.Draft) { d.PutDisruptionPlan(written) })
	if known() {
		t.Error("a plan that was deleted is known again")
	}
	again := plan.DeepCopy()
	again.UID = "2"
	s.Update(func(d *cluster.Draft) { d.PutDisruptionPlan(again) })
	if !known() {
		t.Error("another plan of the same name is not known")
	}
}

// A quantity of forty million digits takes 20 s to compare. The pod has a row at once, and its request is more than any machine has.
func TestAbsurdQuantitiesDelayNothing(t *testing.T) {
	absurd := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1e40000000")}
	store := cluster.NewStore()
	begin := time.Now()
	store.Update(func(d *cluster.Draft) {
		for i := range 100 {
			meta := metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i)}
			d.PutPod(&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: absurd}}}}})
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Status: corev1.NodeStatus{Capacity: absurd, Allocatable: absurd}})
		}
	})
	for i := range 100 {
		row := store.Snapshot().Pod(cluster.PodKey{Namespace: "shop", Name: fmt.Sprint("web-", i)})
		if cpu := podclass.Requests(row.Class.Spec)[corev1.ResourceCPU]; cpu.CmpInt64(bounded.Most) != 0 {
			t.Fatalf("the pod requests %s CPUs", cpu.String())
		}
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("100 pods and 100 nodes took %v", took)
	}
}
