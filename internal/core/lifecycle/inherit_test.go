package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// A claim for a machine of a Provisioner says what the pool says, but nothing by which the Node would change under its pods.
func TestAClaimForARunningMachineChangesNothingOnItsNode(t *testing.T) {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general", Annotations: map[string]string{
		v1.ProvisionerAnnotationKey: "web", v1.NodePoolHashAnnotationKey: "1", v1.NodePoolHashVersionAnnotationKey: "go1", "team": "blue",
	}}}
	pool.Spec.Template.Labels = map[string]string{"team": "blue", "tier": "front"}
	spec := &pool.Spec.Template.Spec
	spec.NodeClassRef = &v1.NodeClassReference{Group: "example.org", Kind: "Class", Name: "default"}
	spec.Taints = []corev1.Taint{{Key: "kept", Effect: corev1.TaintEffectNoSchedule}, {Key: "newer", Effect: corev1.TaintEffectNoExecute}}
	spec.StartupTaints = []corev1.Taint{{Key: "starting", Effect: corev1.TaintEffectNoExecute}}
	spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"arm64"}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ip-10-0-0-1", Labels: map[string]string{
		v1.ProvisionerLabelKey: "web", "team": "red", corev1.LabelArchStable: "amd64", corev1.LabelInstanceTypeStable: "m5.large", "somebody/else": "x",
	}}}
	node.Spec.Taints = []corev1.Taint{{Key: "kept", Effect: corev1.TaintEffectNoSchedule}}
	b := Bequest{Machine: cloud.Machine{ProviderID: "id-1", Provisioner: "web"}, Nodes: []*corev1.Node{node}, Heir: pool}

	c := b.Claim()
	if c.Name != node.Name || c.Annotations[v1.AdoptsAnnotationKey] != "id-1" || c.Annotations[v1.NodePoolHashAnnotationKey] != "1" {
		t.Errorf("claim %s with %v", c.Name, c.Annotations)
	}
	if diff := cmp.Diff(node.Spec.Taints, c.Spec.Taints); diff != "" || len(c.Spec.StartupTaints) > 0 {
		t.Errorf("taints that the Node does not have: %s, %v", diff, c.Spec.StartupTaints)
	}
	want := map[string]string{
		v1.ProvisionerLabelKey: "web", "team": "red", "tier": "front", corev1.LabelArchStable: "amd64", corev1.LabelInstanceTypeStable: "m5.large",
		v1.NodePoolLabelKey: "general", "example.org/class": "default",
	}
	if diff := cmp.Diff(want, c.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if len(spec.StartupTaints) != 1 || len(spec.Taints) != 2 || pool.Spec.Template.Labels["team"] != "blue" {
		t.Error("the pool was changed")
	}
}

// Who deletes Provisioners, or their definition, does not delete Nodes by it.
func TestJoinTakesOlderOwnersAway(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "Machine", Name: "m", UID: "4"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "karpenter.sh/v1alpha5", Kind: "Provisioner", Name: "web", UID: "1"}, {APIVersion: "karpenter.sh/v1alpha5", Kind: "Machine", Name: "web-x", UID: "2"}, other,
	}}}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "3"}}
	Join(node, claim)
	if diff := cmp.Diff([]metav1.OwnerReference{other, owner(claim)}, node.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// standIn is a pool that stands in for Provisioner web.
func standIn(name string, edits ...func(*v1.NodePool)) *v1.NodePool {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1.ProvisionerAnnotationKey: "web"}}}
	for _, edit := range edits {
		edit(pool)
	}
	return pool
}

func TestHeirs(t *testing.T) {
	gone := func(p *v1.NodePool) { p.DeletionTimestamp = &metav1.Time{} }
	static := func(p *v1.NodePool) { p.Spec.Replicas = new(int64) }
	other := func(p *v1.NodePool) { p.Annotations = map[string]string{v1.ProvisionerAnnotationKey: "batch"} }
	none := func(p *v1.NodePool) { p.Annotations = nil }
	for name, tc := range map[string]struct {
		pools []*v1.NodePool
		want  string
	}{
		"nobody":               {nil, ""},
		"one":                  {[]*v1.NodePool{standIn("a")}, "a"},
		"one, beside others":   {[]*v1.NodePool{standIn("x", other), standIn("y", none), standIn("a")}, "a"},
		"two":                  {[]*v1.NodePool{standIn("a"), standIn("b")}, ""},
		"three":                {[]*v1.NodePool{standIn("a"), standIn("b"), standIn("c")}, ""},
		"one that goes":        {[]*v1.NodePool{standIn("a", gone)}, ""},
		"one, as another goes": {[]*v1.NodePool{standIn("a"), standIn("b", gone)}, "a"},
		"one of fixed size":    {[]*v1.NodePool{standIn("a", static)}, ""},
	} {
		got := ""
		if heir := Heirs(slices.Values(tc.pools))["web"]; heir != nil {
			got = heir.Name
		}
		if got != tc.want {
			t.Errorf("%s: the heir is %q, want %q", name, got, tc.want)
		}
	}
}

func TestWhetherAMachineIsInherited(t *testing.T) {
	node := func(labels ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.ProvisionerLabelKey: "web"}}}
		for i := 0; i < len(labels); i += 2 {
			n.Labels[labels[i]] = labels[i+1]
		}
		return n
	}
	with := func(nodes ...*corev1.Node) func(*Bequest) { return func(b *Bequest) { b.Nodes = nodes } }
	of := func(pool string, nodes ...*corev1.Node) func(*Bequest) {
		return func(b *Bequest) { b.Machine.PoolName, b.Nodes = pool, nodes }
	}
	for name, tc := range map[string]struct {
		edit  func(*Bequest)
		adopt bool
		why   Hindrance
	}{
		"it has its Node":                    {with(node()), true, ""},
		"which the heir had already":         {with(node(v1.NodePoolLabelKey, "heir")), true, ""},
		"which another pool has":             {with(node(v1.NodePoolLabelKey, "other")), false, OtherNode},
		"which is of another Provisioner":    {with(node(v1.ProvisionerLabelKey, "batch")), false, OtherNode},
		"two Nodes have it":                  {with(node(), node()), false, SeveralNodes},
		"nobody is the heir":                 {func(b *Bequest) { b.Nodes, b.Heir = []*corev1.Node{node()}, nil }, false, NoHeir},
		"a claim has it":                     {func(b *Bequest) { b.Nodes, b.Claimed = []*corev1.Node{node()}, true }, false, ""},
		"it is on its way out":               {func(b *Bequest) { b.Nodes, b.Machine.Deleting = []*corev1.Node{node()}, true }, false, ""},
		"the heir had it":                    {of("heir", node()), true, ""},
		"the heir had it, it has no Node":    {func(b *Bequest) { b.Machine.PoolName, b.Alone = "heir", time.Hour }, false, ""},
		"another pool had it":                {of("other", node()), false, ""},
		"no Node, for a moment":              {func(b *Bequest) { b.Alone = joinBy - 1 }, false, ""},
		"no Node, for as long as others get": {func(b *Bequest) { b.Alone = joinBy }, true, ""},
		"no Node, like many":                 {func(b *Bequest) { b.Alone, b.Many = time.Hour, true }, false, ManyWithoutNode},
		"its Node, while many have none":     {func(b *Bequest) { b.Nodes, b.Many = []*corev1.Node{node()}, true }, true, ""},
	} {
		b := Bequest{Machine: cloud.Machine{ProviderID: "id-1", Provisioner: "web"}, Heir: standIn("heir")}
		tc.edit(&b)
		if adopt, why := b.Inherited(); adopt != tc.adopt || why != tc.why {
			t.Errorf("%s: adopt %v, %q; want %v, %q", name, adopt, why, tc.adopt, tc.why)
		}
	}
}

func TestOwnersOfOlderKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		owner metav1.OwnerReference
		want  bool
	}{
		"a Provisioner":              {metav1.OwnerReference{APIVersion: "karpenter.sh/v1alpha5", Kind: "Provisioner"}, true},
		"a Machine":                  {metav1.OwnerReference{APIVersion: "karpenter.sh/v1alpha5", Kind: "Machine"}, true},
		"a Machine of somebody else": {metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1alpha5", Kind: "Machine"}, false},
		"a kind of ours to come":     {metav1.OwnerReference{APIVersion: "karpenter.sh/v1", Kind: "Machine"}, false},
		"a claim":                    {metav1.OwnerReference{APIVersion: "karpenter.sh/v1beta1", Kind: "NodeClaim"}, false},
	} {
		if got := older(tc.owner); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
