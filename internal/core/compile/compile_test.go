package compile

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

func resources(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("20")}
}

// catalogOfTwo sells a small and a large machine in the zones a and b.
func catalogOfTwo() *cloud.Catalog {
	c := &cloud.Catalog{}
	for i, cpu := range []string{"2", "4"} {
		it := &cloud.InstanceType{Name: []string{"small", "large"}[i], Capacity: resources(cpu), Labels: map[string][]string{
			corev1.LabelInstanceTypeStable: {[]string{"small", "large"}[i]}, zone: {"a", "b"}, v1.CapacityTypeLabelKey: {v1.CapacityTypeOnDemand}}}
		for _, z := range []string{"a", "b"} {
			it.Offerings = append(it.Offerings, cloud.Offering{Available: true, Price: cloud.NanoUSD(1000 * (i + 1)),
				Labels: map[string]string{zone: z, v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}})
		}
		c.Types = append(c.Types, it)
	}
	return c
}

// pod returns a waiting pod that asks for one CPU.
func pod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
	p.Status.Phase = corev1.PodPending
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func on(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning }
}

var web = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}

func spreadOver(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: web})
	}
}

func affinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAffinity: &corev1.PodAffinity{},
			PodAntiAffinity: &corev1.PodAntiAffinity{}}
	}
	return p.Spec.Affinity
}

func apartFromWeb(p *corev1.Pod) {
	a := affinity(p).PodAntiAffinity
	a.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{{TopologyKey: zone, LabelSelector: web}}
}

func nearWeb(p *corev1.Pod) {
	a := affinity(p).PodAffinity
	a.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{{TopologyKey: zone, LabelSelector: web}}
}

func inZone(z string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: zone, Operator: corev1.NodeSelectorOpIn, Values: []string{z}}}}
}

func needsZone(zones ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		r := &corev1.NodeSelector{}
		for _, z := range zones {
			r.NodeSelectorTerms = append(r.NodeSelectorTerms, inZone(z))
		}
		affinity(p).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = r
	}
}

func prefersZone(z string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinity(p).NodeAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: 1, Preference: inZone(z)})
	}
}

// compiled returns the problem of the waiting pods in a cluster with the nodes a0 and b0, one in each zone, and one pool.
func compiled(t *testing.T, edit func(*Input, *cluster.Draft), pods ...*corev1.Pod) *Compiled {
	t.Helper()
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}
	in := Input{Pools: []Pool{{Pool: pool, Catalog: catalogOfTwo()}}}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for _, z := range []string{"a", "b"} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: z + "0", Labels: map[string]string{zone: z, corev1.LabelHostname: z + "0"}}}
			n.Status.Capacity, n.Status.Allocatable = resources("4"), resources("4")
			d.PutNode(n)
		}
		for _, p := range pods {
			d.PutPod(p)
		}
		if edit != nil {
			edit(&in, d)
		}
	})
	in.Snap = store.Snapshot()
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			in.Pods = append(in.Pods, in.Snap.Pod(cluster.PodKey{Namespace: p.Namespace, Name: p.Name}))
		}
	}
	return Compile(NewMemory(apilabel.NewVocabulary(v1.Labels())), in)
}

func TestEqualPodsAreOneClass(t *testing.T) {
	other := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }
	out := compiled(t, nil, pod("1"), pod("2"), pod("3", other), pod("4", needsZone("a")))
	if len(out.Classes) != 2 || len(out.Classes[0].Pods) != 3 || out.Problem.Classes[0].Count != 3 {
		t.Fatalf("classes = %+v, want one of three pods (no group selects by label) and one of the pod that needs a zone", out.Classes)
	}
	if need := out.Problem.Classes[0].Need[quantity.CPU]; need != 1000 {
		t.Errorf("need = %d thousandths of a CPU, want 1000", need)
	}
	if n := len(out.Refused); n != 0 {
		t.Errorf("%d pods are refused", n)
	}
}

func TestNodesHaveTheRoomThatPodsLeave(t *testing.T) {
	out := compiled(t, func(in *Input, _ *cluster.Draft) {
		in.Closed, in.Gone = map[string]bool{"a0": true}, map[string]bool{"b0": true}
	},
		pod("running", on("a0")), pod("waiting"))
	for i, want := range []int64{3000, 4000} {
		n := &out.Problem.Nodes[i]
		if n.Room[quantity.CPU] != want || !n.Closed {
			t.Errorf("%s has %d thousandths of a CPU (closed: %t), want %d and closed", n.Name, n.Room[quantity.CPU], n.Closed, want)
		}
	}
}

// A spec that no node can meet refuses the pod with a reason.
func TestPodsThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*corev1.Pod)
		want reason.Code
	}{
		"a label that no pod may ask for": {
			edit: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"karpenter.sh/x": "y"} },
			want: reason.RestrictedLabel,
		},
		"an impossible value": {
			edit: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"team": "a b"} },
			want: reason.Invalid,
		},
		"no required term":            {edit: needsZone(), want: reason.Invalid},
		"no node of a pool":           {edit: avoidPools, want: reason.AvoidsManaged},
		"a claim that does not exist": {edit: usesClaim("none"), want: reason.VolumeInvalid},
		"resource claims while they are off": {
			edit: func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, want: reason.DeviceClaims},
	} {
		t.Run(name, func(t *testing.T) {
			out := compiled(t, nil, pod("p", tc.edit))
			if len(out.Refused) != 1 || out.Refused[0].Reasons[0].Code != tc.want || len(out.Classes) != 0 {
				t.Errorf("refused = %+v, want code %v", out.Refused, tc.want)
			}
		})
	}
}

func avoidPools(p *corev1.Pod) {
	affinity(p).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpDoesNotExist}}}}}
}

func usesClaim(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
}

// levels returns, variant by variant, the level of preference.
func levels(c *problem.Class) string {
	out := ""
	for _, v := range c.Variants {
		out += fmt.Sprint(v.Level)
	}
	return out
}

func TestVariantsOfAClass(t *testing.T) {
	for name, tc := range map[string]struct {
		edits  []func(*corev1.Pod)
		ignore bool
		want   string
	}{
		"a plain pod":                     {want: "0"},
		"each required term is a variant": {edits: []func(*corev1.Pod){needsZone("a", "b")}, want: "00"},
		"each preference is a level":      {edits: []func(*corev1.Pod){prefersZone("a"), prefersZone("b")}, want: "012"},
		"preferences are ignored":         {edits: []func(*corev1.Pod){prefersZone("a")}, ignore: true, want: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			out := compiled(t, func(in *Input, _ *cluster.Draft) { in.IgnorePreferences = tc.ignore }, pod("p", tc.edits...))
			if got := levels(&out.Problem.Classes[0]); got != tc.want {
				t.Errorf("levels = %q, want %q", got, tc.want)
			}
		})
	}
}

// Requirements are answered for nodes and for templates.
func TestRequirementsAreAnswered(t *testing.T) {
	out := compiled(t, nil, pod("p", needsZone("a")))
	reqs := out.Problem.Classes[0].Variants[0].Reqs
	l := &out.Problem.Labels
	if !l.OnNode[reqs].Has(0) || l.OnNode[reqs].Has(1) || !l.OnTemplate[reqs][0].OK {
		t.Errorf("nodes %v, templates %+v: want the node in zone a and the template", l.OnNode[reqs], l.OnTemplate[reqs])
	}
	out = compiled(t, nil, pod("p", needsZone("c")))
	if m := out.Problem.Labels.OnTemplate[out.Problem.Classes[0].Variants[0].Reqs][0]; m.OK || m.Key != zone {
		t.Errorf("zone c: %+v, want a mismatch of the zone", m)
	}
}

func TestGroupsCountPods(t *testing.T) {
	for name, tc := range map[string]struct {
		running, waiting *corev1.Pod
		gone             map[string]bool
		want             func(*spread.Group) bool
	}{
		"a spread counts matching pods": {running: pod("r", on("a0")), waiting: pod("w", spreadOver(zone)),
			want: func(g *spread.Group) bool {
				return g.Kind == spread.Spread && g.Total == 1 && g.Count[0] == 1 && g.Universe.Has(0) && g.Universe.Has(1)
			}},
		"a spread does not count removed nodes": {
			running: pod("r", on("a0")),
			waiting: pod("w", spreadOver(zone)),
			gone:    map[string]bool{"a0": true},
			want:    func(g *spread.Group) bool { return g.Total == 0 && !g.Universe.Has(0) }},
		"affinity counts matching pods": {running: pod("r", on("b0")), waiting: pod("w", nearWeb),
			want: func(g *spread.Group) bool { return g.Kind == spread.Affinity && g.Total == 1 }},
		"anti-affinity counts matching pods": {running: pod("r", on("b0")), waiting: pod("w", apartFromWeb),
			want: func(g *spread.Group) bool { return g.Kind == spread.Anti && g.Required && g.Total == 1 }},
		"anti-affinity of running pods counts its owners": {running: pod("r", on("b0"), apartFromWeb), waiting: pod("w"),
			want: func(g *spread.Group) bool {
				return g.Kind == spread.Anti && g.Total == 0 && slices.Contains(g.Owners, 1)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			out := compiled(t, func(in *Input, _ *cluster.Draft) { in.Gone = tc.gone }, tc.running, tc.waiting)
			if len(out.Problem.Groups) != 1 || !tc.want(&out.Problem.Groups[0]) {
				t.Errorf("groups = %+v", out.Problem.Groups)
			}
		})
	}
}

// Pods of a DaemonSet take room of every new node, and of nodes where they do not run yet.
func TestDaemonSetsTakeRoom(t *testing.T) {
	out := compiled(t, func(_ *Input, d *cluster.Draft) {
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent", UID: "agent"}}
		set.Spec.Template.Spec = pod("agent").Spec
		cluster.DaemonSets.Put(d, set)
	}, pod("p"))
	if got := out.Problem.Nodes[0].Room[quantity.CPU]; got != 3000 {
		t.Errorf("a node has %d thousandths of a CPU, want 3000", got)
	}
	tmpl := &out.Problem.Templates[0]
	for s, name := range tmpl.Catalog.Names {
		want := map[string]int64{"small": 1000, "large": 3000}[name]
		if got := tmpl.Room[s][quantity.CPU]; got != want {
			t.Errorf("a new %s has %d thousandths of a CPU, want %d", name, got, want)
		}
	}
}

func TestPools(t *testing.T) {
	limited := func(in *Input, _ *cluster.Draft) {
		in.Pools[0].Pool.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("10"), v1.ResourceNodes: resource.MustParse("3")}
	}
	out := compiled(t, limited, pod("p"))
	limit := out.Problem.Pools[0].Limit
	if !limit.Limited || limit.Nodes != 3 || limit.Left[quantity.CPU] != 10_000 {
		t.Errorf("limit = %+v, want 3 nodes and 10 CPUs", limit)
	}
	count := reason.Count{Pool: "pool", Key: "cpu", Left: 4000, Needs: 5000}
	if out.Quantify(&count); count.Limit != "10" || count.Used != "6" || count.Least != "5" {
		t.Errorf("explained as %+v, want 6 of 10 used and 5 needed", count)
	}
	if pool, reqs := out.Template(0); pool.Name != "pool" || len(reqs) == 0 {
		t.Errorf("template of pool %q with %v", pool.Name, reqs)
	}
	empty := func(in *Input, _ *cluster.Draft) {
		in.Pools[0].Pool.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"huge"}}}
	}
	out = compiled(t, empty, pod("p"))
	if len(out.Problem.Templates) != 0 || len(out.Dropped) != 1 || out.Dropped[0].Code != reason.NoTypes ||
		out.Dropped[0].Key != corev1.LabelInstanceTypeStable {
		t.Errorf("dropped = %+v, want a pool without types because of the instance type", out.Dropped)
	}
}

// Pods whose terms are more work than a plan may take are left for the next plan. Plain pods are always planned.
func TestTermsBeyondTheBudgetArePostponed(t *testing.T) {
	out := compiled(t, func(in *Input, _ *cluster.Draft) { in.Work = 1 }, pod("1", spreadOver(zone)), pod("2", apartFromWeb), pod("3"))
	if len(out.Refused) != 1 || out.Refused[0].Reasons[0].Code != reason.Postponed || len(out.Classes) != 2 {
		t.Errorf("refused = %+v with %d classes, want one postponed pod", out.Refused, len(out.Classes))
	}
	if out.Spent == 0 {
		t.Error("the terms cost nothing")
	}
}

func TestZonesOfWaitingPods(t *testing.T) {
	got := compiled(t, nil, pod("1", needsZone("a")), pod("2", needsZone("a", "b")), pod("3"), pod("r", on("b0")), pod("4", nearWeb)).Zones()
	if got.In["a"] != 1 || got.In["b"] != 1 || got.Flexible != 2 || got.None != 0 {
		t.Errorf("zones = %+v, want one pod in a, one in b (near the running one) and two flexible", got)
	}
}

// A volume claim for one pod at a time keeps its two users apart.
func TestAnExclusiveClaimTiesItsUsers(t *testing.T) {
	put := func(_ *Input, d *cluster.Draft) {
		cluster.StorageClasses.Put(d, storageClass("anywhere", "ebs.csi.aws.com", &later))
		claim := claimOf("anywhere", "")
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		cluster.PVCs.Put(d, claim)
	}
	out := compiled(t, put, pod("1", usesClaim("data")), pod("2", usesClaim("data")))
	if len(out.Classes) != 1 || !slices.Equal(out.Classes[0].Exclusive, []string{"data"}) || len(out.Problem.Groups) != 1 {
		t.Errorf("classes = %+v, groups = %+v", out.Classes, out.Problem.Groups)
	}
	out = compiled(t, put, pod("1", usesClaim("data"), on("a0")), pod("2", usesClaim("data")))
	if len(out.Refused) != 1 || out.Refused[0].Reasons[0].Flaw != reason.InUseByAnother || out.Refused[0].Reasons[0].Detail != "1" {
		t.Errorf("refused = %+v, want the claim in use by pod 1", out.Refused)
	}
}

// Pods that share a claim whose volume is created for the first of them are kept in one zone.
func TestASharedClaimKeepsItsUsersTogether(t *testing.T) {
	out := compiled(t, func(_ *Input, d *cluster.Draft) {
		cluster.StorageClasses.Put(d, storageClass("anywhere", "ebs.csi.aws.com", &later))
		cluster.PVCs.Put(d, claimOf("anywhere", ""))
	}, pod("1", usesClaim("data")), pod("2", usesClaim("data")))
	if len(out.Problem.Groups) != 1 || out.Problem.Groups[0].Kind != spread.Affinity {
		t.Errorf("groups = %+v, want an affinity", out.Problem.Groups)
	}
	if out.Problem.Drivers != 1 || len(out.Problem.Classes[0].Volumes) != 1 {
		t.Errorf("%d drivers, volumes %v", out.Problem.Drivers, out.Problem.Classes[0].Volumes)
	}
}

// A Memory that recalls a history numbers resources as the old one did.
func TestAHistoryIsRecalled(t *testing.T) {
	known := apilabel.NewVocabulary(v1.Labels())
	m := NewMemory(known)
	m.resources.names.Intern("example.com/gpu")
	m.missing, m.asked["team"] = []string{"x/y"}, map[string]bool{"red": true}
	m.reservations.of("cr-1")
	again := Recall(known, m.History()).History()
	if fmt.Sprint(again) != fmt.Sprint(m.History()) || !slices.Contains(again.Columns, "example.com/gpu") {
		t.Errorf("recalled %+v, want %+v", again, m.History())
	}
}
