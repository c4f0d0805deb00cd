package compile

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// ask changes the question and nothing in the cluster.
func ask(edit func(*Input)) func(*Input, *cluster.Draft) {
	return func(in *Input, _ *cluster.Draft) { edit(in) }
}

// A pod with a place from an earlier plan takes room there, and groups count it there, if it is not part of the question.
func TestExpectedPodsCountWhereTheyWillBe(t *testing.T) {
	planned := func(in *Input, d *cluster.Draft) {
		d.PutPod(pod("planned", apartFromWeb))
		d.Plan(cluster.PodKey{Namespace: "shop", Name: "planned"}, "a0", noon)
		in.Now = noon
	}
	out := compiled(t, planned, pod("w", spreadOver(zone)))
	if got := out.Problem.Nodes[0].Room[quantity.CPU]; got != 3000 {
		t.Errorf("a0 has %d thousandths of a CPU, want 3000", got)
	}
	var counted, owners bool
	for _, g := range out.Problem.Groups {
		counted = counted || g.Kind == spread.Spread && g.Total == 1 && g.Count[0] == 1
		owners = owners || g.Kind == spread.Anti && slices.Contains(g.Owners, 1)
	}
	if !counted || !owners {
		t.Errorf("groups = %+v, want the planned pod in the spread and as owner of anti-affinity", out.Problem.Groups)
	}
}

// A pod of the question that has a place from an earlier plan is sticky there.
func TestAPlannedPodIsSticky(t *testing.T) {
	key := cluster.PodKey{Namespace: "shop", Name: "p"}
	out := compiled(t, func(in *Input, d *cluster.Draft) { d.Plan(key, "b0", noon); in.Now = noon }, pod("p"))
	want := []problem.Sticky{{Node: 1, Count: 1}}
	if got := out.Problem.Classes[0].Sticky; !slices.Equal(got, want) || out.Classes[0].Sticky[key] != 1 {
		t.Errorf("sticky = %v and %v, want %v", got, out.Classes[0].Sticky, want)
	}
}

// A pod that gets default constraints is spread by the selector of the services that select it.
func TestDefaultSpreadComesFromServices(t *testing.T) {
	withDefault := func(in *Input, d *cluster.Draft) {
		in.DefaultSpread = []corev1.TopologySpreadConstraint{{TopologyKey: zone, MaxSkew: 3, WhenUnsatisfiable: corev1.ScheduleAnyway}}
		cluster.Services.Put(d, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: corev1.ServiceSpec{Selector: web.MatchLabels}})
	}
	other := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }
	out := compiled(t, withDefault, pod("r", on("a0")), pod("w"))
	if g := out.Problem.Groups; len(g) != 1 || g[0].MaxSkew != 3 || g[0].Total != 1 || levels(&out.Problem.Classes[0]) != "01" {
		t.Errorf("groups = %+v, levels %q, want one preferred spread", g, levels(&out.Problem.Classes[0]))
	}
	if out := compiled(t, withDefault, pod("w", other)); len(out.Problem.Groups) != 0 {
		t.Errorf("groups = %+v, want none: no service selects the pod", out.Problem.Groups)
	}
}

// With minValues, the last variant of several required terms stands for all of them at once.
func TestTermsAreUnitedWhereAPoolHasMinValues(t *testing.T) {
	two := 2
	varied := ask(func(in *Input) {
		in.Pools[0].Pool.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: &two}}
	})
	ofType := func(names ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			r := &corev1.NodeSelector{}
			for _, n := range names {
				r.NodeSelectorTerms = append(r.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{n}}}})
			}
			affinity(p).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = r
		}
	}
	out := compiled(t, varied, pod("p", ofType("small", "large")))
	variants := out.Problem.Classes[0].Variants
	if len(variants) != 3 {
		t.Fatalf("%d variants, want one for each term and one for both", len(variants))
	}
	if m := out.Problem.Labels.OnTemplate[variants[2].Reqs][0]; !m.OK || m.Shapes.Count() != 2 {
		t.Errorf("both terms leave %+v, want two shapes", m)
	}
	// The zone is decided by the offer that is bought, so terms about zones cannot be united.
	if out := compiled(t, varied, pod("p", needsZone("a", "b"))); len(out.Problem.Classes[0].Variants) != 2 {
		t.Errorf("variants = %+v, want two", out.Problem.Classes[0].Variants)
	}
}

// A claim that is not launched yet takes pods that fit whatever it becomes.
func TestAClaimThatIsNotLaunched(t *testing.T) {
	claim := func(in *Input, d *cluster.Draft) {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c0", Labels: map[string]string{v1.NodePoolLabelKey: "pool"}}}
		c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
			{Key: zone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}},
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"small", "large"}}}
		d.PutClaim(c)
	}
	for z, want := range map[string]bool{"a": true, "b": false} {
		out := compiled(t, claim, pod("p", needsZone(z)))
		at := slices.IndexFunc(out.Problem.Nodes, func(n problem.Node) bool { return n.Name == "c0" })
		if at < 0 {
			t.Fatal("the claim is no bin")
		}
		if got := out.Problem.Labels.OnNode[out.Problem.Classes[0].Variants[0].Reqs].Has(at); got != want {
			t.Errorf("zone %s: the claim takes the pod: %t, want %t", z, got, want)
		}
		if got := out.Problem.Nodes[at].Room[quantity.CPU]; got != 2000 {
			t.Errorf("the claim has %d thousandths of a CPU, want those of the smaller type", got)
		}
	}
}

func TestVolumesCountAgainstTheLimitOfANode(t *testing.T) {
	limit := int32(1)
	out := compiled(t, func(_ *Input, d *cluster.Draft) {
		cluster.StorageClasses.Put(d, storageClass("anywhere", "ebs.csi.aws.com", &later))
		cluster.PVCs.Put(d, claimOf("anywhere", ""))
		other := claimOf("anywhere", "")
		other.Name = "other"
		cluster.PVCs.Put(d, other)
		d.PutCSINode(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "a0"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "ebs.csi.aws.com", NodeID: "a0", Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}}}})
	}, pod("r", usesClaim("other"), on("a0")), pod("w", usesClaim("data")))
	got := out.Problem.Nodes[0].Volumes
	if len(got) != 1 || got[0].Limit != 1 || got[0].Count != 1 {
		t.Errorf("volumes on a0 = %+v, want one of one in use", got)
	}
}

// A label that the pool leaves open is chosen for each node. Its domains are the values that pods ask for, and one for all other nodes.
func TestOpenLabelsHaveTheDomainsThatPodsAskFor(t *testing.T) {
	open := ask(func(in *Input) {
		in.Pools[0].Pool.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
			{Key: "team", Operator: corev1.NodeSelectorOpExists}}
	})
	out := compiled(t, open, pod("1", spreadOver("team")), pod("2", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"team": "red"} }))
	at := slices.IndexFunc(out.Problem.Keys, func(k problem.Key) bool { return k.Name == "team" })
	if at < 0 {
		t.Fatal("team is no topology key")
	}
	if k := out.Problem.Keys[at]; k.Tmpl[0].Kind != problem.ByChoice || !slices.Contains(k.Values, "red") || len(k.Values) != 2 {
		t.Errorf("key = %+v, want the domain red and the one of nodes that no pod asks for", k)
	}
}

func TestOneValueOfASet(t *testing.T) {
	set := func(op label.Op, values ...string) label.Set { s, _ := label.New(op, values); return s }
	for name, tc := range map[string]struct {
		set  label.Set
		want string // "" if there is none
	}{
		"the first listed value":              {set: set("In", "b", "a"), want: "a"},
		"the smallest number":                 {set: set("Exists"), want: "0"},
		"the next number after excluded ones": {set: set("NotIn", "0", "1").Intersect(set("Exists")), want: "2"},
		"a number above the bound":            {set: set("Gt", "7"), want: "8"},
		"no number is negative":               {set: set("Lt", "0")},
		"a label that nodes may be without":   {set: set("NotIn", "a")},
		"a set that is empty":                 {set: label.Nothing()},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := AnyValue(tc.set); got != tc.want || ok != (tc.want != "") {
				t.Errorf("AnyValue = %q, %t, want %q", got, ok, tc.want)
			}
		})
	}
}

func TestSelectors(t *testing.T) {
	labels := map[string]string{"app": "web", "rev": "2"}
	sel := func(s *metav1.LabelSelector, keys ...string) selector { return selectorOf(s, keys, labels) }
	for name, tc := range map[string]struct {
		selector selector
		pod      map[string]string
		want     bool
	}{
		"no selector selects nothing":         {selector: sel(nil), pod: labels},
		"an invalid selector selects nothing": {selector: sel(&metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}}), pod: labels},
		"an empty selector selects all":       {selector: sel(&metav1.LabelSelector{}), pod: labels, want: true},
		"matchLabelKeys take the own value":   {selector: sel(web, "rev"), pod: labels, want: true},
		"matchLabelKeys leave other values":   {selector: sel(web, "rev"), pod: map[string]string{"app": "web", "rev": "1"}},
		"mismatchLabelKeys leave the own":     {selector: excluding(sel(web), []string{"rev"}, labels), pod: labels},
		"mismatchLabelKeys take others": {
			selector: excluding(sel(web), []string{"rev"}, labels),
			pod:      map[string]string{"app": "web", "rev": "1"},
			want:     true,
		},
		"both have to select": {
			selector: together(sel(web), sel(&metav1.LabelSelector{MatchLabels: map[string]string{"rev": "1"}})),
			pod:      labels,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.selector.matches(tc.pod); got != tc.want {
				t.Errorf("matches = %t, want %t", got, tc.want)
			}
		})
	}
}
