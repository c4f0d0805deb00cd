package nodegroup

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// A Pool is a NodePool and its class, which buy the machines of a group. Groups with equal machines share a class.
type Pool struct {
	From  string
	Pool  *v1.NodePool
	Class *awsv1.EC2NodeClass // nil where an earlier group's will do
	Notes []string            // what has no equal, and what is to be looked at
}

// Options say how groups become pools.
type Options struct {
	Cluster string // for groups that do not name theirs
	Widen   bool   // all types of the same categories and younger generations instead of those that are listed
}

// Pools returns a pool for each group.
func Pools(groups []Group, o Options) []Pool {
	var out []Pool
	var classes []*awsv1.EC2NodeClass
	used := map[string]bool{}
	for i := range groups {
		g := groups[i]
		g.Cluster = cmp.Or(g.Cluster, o.Cluster)
		p := Pool{From: g.Name, Notes: g.Lost}
		name := unique(objectName(g.Name), used)
		class := p.class(&g, name)
		at := slices.IndexFunc(classes, func(c *awsv1.EC2NodeClass) bool { return reflect.DeepEqual(c.Spec, class.Spec) })
		if at < 0 {
			p.Class = class
			classes = append(classes, class)
		} else {
			class = classes[at]
		}
		p.Pool = p.pool(&g, name, class.Name, o.Widen)
		out = append(out, p)
	}
	return out
}

func (p *Pool) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// objectName makes an object's name of a group's name.
func objectName(name string) string {
	name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return cmp.Or(strings.TrimRight(name[:min(len(name), 58)], "-"), "group")
}

// unique returns a name that is not used yet, with a number if need be.
func unique(name string, used map[string]bool) string {
	out := name
	for n := 2; used[out]; n++ {
		out = fmt.Sprintf("%s-%d", name, n)
	}
	used[out] = true
	return out
}

// family returns the image family of a group, by the names that EKS and eksctl use, and notes where it had to guess.
func (p *Pool) family(ami string) string {
	short := strings.ToUpper(strings.ReplaceAll(ami, "AmazonLinux", "AL"))
	switch {
	case strings.HasPrefix(short, "AL2023"), ami == "":
		return awsv1.AMIFamilyAL2023
	case strings.HasPrefix(short, "AL2"):
		p.note("AL2 has no images for Kubernetes 1.33 and later: the class says AL2023; look at user data")
		return awsv1.AMIFamilyAL2023
	case strings.HasPrefix(short, "BOTTLEROCKET"):
		return awsv1.AMIFamilyBottlerocket
	case strings.HasPrefix(short, "WINDOWS"):
		for _, f := range []string{awsv1.AMIFamilyWindows2019, awsv1.AMIFamilyWindows2022, awsv1.AMIFamilyWindows2025} {
			if strings.Contains(short, strings.TrimPrefix(f, "Windows")) {
				return f
			}
		}
	}
	p.note("images of type %s: the class says AL2023; name yours in amiSelectorTerms and set amiFamily", ami)
	return awsv1.AMIFamilyAL2023
}

// class returns the node class of a group.
func (p *Pool) class(g *Group, name string) *awsv1.EC2NodeClass {
	c := &awsv1.EC2NodeClass{TypeMeta: metav1.TypeMeta{APIVersion: awsv1.GroupVersion.String(), Kind: "EC2NodeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: name}}
	family := p.family(g.AMIType)
	c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: strings.ToLower(family) + "@latest"}}
	switch {
	case g.Profile != "":
		c.Spec.InstanceProfile = &g.Profile
	case g.Role != "":
		c.Spec.Role = g.Role
	default:
		c.Spec.Role = "KarpenterNodeRole-" + cmp.Or(g.Cluster, "CLUSTER")
		p.note("the files name no role of its nodes: the class says %s", c.Spec.Role)
	}
	discovery := map[string]string{awsv1.TagDiscovery: cmp.Or(g.Cluster, "CLUSTER")}
	for _, id := range g.SubnetIDs {
		c.Spec.SubnetSelectorTerms = append(c.Spec.SubnetSelectorTerms, awsv1.SubnetSelectorTerm{ID: id})
	}
	if len(g.SubnetIDs) == 0 {
		c.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: discovery}}
		p.note("tag the subnets with %s: %s", awsv1.TagDiscovery, discovery[awsv1.TagDiscovery])
	}
	for _, id := range g.GroupIDs {
		c.Spec.SecurityGroupSelectorTerms = append(c.Spec.SecurityGroupSelectorTerms, awsv1.SecurityGroupSelectorTerm{ID: id})
	}
	if len(g.GroupIDs) == 0 {
		c.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Tags: discovery}}
		p.note("tag the nodes' security group with %s: %s", awsv1.TagDiscovery, discovery[awsv1.TagDiscovery])
	}
	if g.DiskGiB > 0 {
		c.Spec.BlockDeviceMappings = []*awsv1.BlockDeviceMapping{disk(family, g.DiskGiB)}
	}
	for key, value := range g.Tags {
		if awsv1.RestrictedTag(key) || strings.HasPrefix(key, "aws:") || strings.HasPrefix(key, "eks:") {
			continue // EKS' and our own: they come by themselves
		}
		if c.Spec.Tags == nil {
			c.Spec.Tags = map[string]string{}
		}
		c.Spec.Tags[key] = value
	}
	return c
}

// disk returns the mapping of the disk that holds images and pods.
func disk(family string, gib int64) *awsv1.BlockDeviceMapping {
	device := "/dev/xvda"
	switch {
	case family == awsv1.AMIFamilyBottlerocket:
		device = "/dev/xvdb"
	case strings.HasPrefix(family, "Windows"):
		device = "/dev/sda1"
	}
	kind, encrypted, size := "gp3", true, resource.NewQuantity(gib<<30, resource.BinarySI)
	return &awsv1.BlockDeviceMapping{DeviceName: &device, EBS: &awsv1.BlockDevice{VolumeSize: size, VolumeType: &kind,
		Encrypted: &encrypted}}
}

// pool returns the NodePool of a group. widen allows the categories of its types instead of the types.
func (p *Pool) pool(g *Group, name, class string, widen bool) *v1.NodePool {
	pool := &v1.NodePool{TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "NodePool"},
		ObjectMeta: metav1.ObjectMeta{Name: name}}
	t := &pool.Spec.Template
	t.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: "EC2NodeClass", Name: class}
	p.taints(t, g)
	require := func(key string, operator corev1.NodeSelectorOperator, values ...string) {
		t.Spec.Requirements = append(t.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{Key: key,
			Operator: operator, Values: values})
	}
	require(v1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, g.CapacityTypes...)
	facts := factsOf(g.Types)
	require(corev1.LabelArchStable, corev1.NodeSelectorOpIn, facts.architectures(g.AMIType)...)
	if strings.HasPrefix(strings.ToUpper(g.AMIType), "WINDOWS") {
		require(corev1.LabelOSStable, corev1.NodeSelectorOpIn, string(corev1.Windows))
	}
	switch {
	case widen && len(facts.categories) > 0:
		require(awsv1.LabelInstanceCategory, corev1.NodeSelectorOpIn, facts.categories...)
		require(awsv1.LabelInstanceGeneration, corev1.NodeSelectorOpGt, fmt.Sprint(facts.generation-1))
	case len(g.Types) > 0:
		require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, g.Types...)
	default:
		p.note("the files name no instance types: the pool allows all")
	}
	if len(g.SubnetIDs) == 0 && len(g.Zones) > 0 {
		require(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, g.Zones...)
	}
	p.labels(t, g)
	p.size(pool, g, facts)
	t.Spec.ExpireAfter = v1.MustParseNillableDuration("720h")
	pool.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
	pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration("1m")
	if g.Unavailable != "" {
		pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: g.Unavailable}}
	}
	return pool
}

// taints adds the taints whose effect Kubernetes knows.
func (p *Pool) taints(t *v1.NodeClaimTemplate, g *Group) {
	for _, taint := range g.Taints {
		switch taint.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule:
			t.Spec.Taints = append(t.Spec.Taints, taint)
		default:
			p.note("taint %s=%s has the effect %q, which is none", taint.Key, taint.Value, taint.Effect)
		}
	}
}

var vocabulary = label.NewVocabulary(v1.Labels(), awsv1.Labels())

// labels adds the labels that a template may have.
func (p *Pool) labels(t *v1.NodeClaimTemplate, g *Group) {
	for _, key := range slices.Sorted(maps.Keys(g.Labels)) {
		if _, known := vocabulary.Label(key); known || vocabulary.Restricted(key) {
			p.note("label %s=%s: templates may not carry it", key, g.Labels[key])
			continue
		}
		if t.Labels == nil {
			t.Labels = map[string]string{}
		}
		t.Labels[key] = g.Labels[key]
	}
}

// size sets limits so that the pool is as large as the group can be, and notes that a pool has no minimum.
func (p *Pool) size(pool *v1.NodePool, g *Group, f facts) {
	if g.Max > 0 && f.vcpu > 0 {
		pool.Spec.Limits = v1.Limits{
			corev1.ResourceCPU:    *resource.NewQuantity(int64(g.Max)*f.vcpu, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(int64(g.Max)*f.memoryMiB<<20, resource.BinarySI),
		}
	}
	if g.Min > 0 {
		p.note("at least %d nodes: a pool goes down to what its pods need; room that is there before pods come is a "+
			"Deployment of placeholders or a CapacityBuffer", g.Min)
	}
}

// A facts holds what is known of some types together.
type facts struct {
	vcpu, memoryMiB int64 // of the largest
	amd, arm        bool
	categories      []string
	generation      int // the oldest
}

var typeName = regexp.MustCompile(`^([a-z]+)([0-9]+)`)

// factsOf looks types up in the data that ships with Karpenter.
func factsOf(types []string) facts {
	var f facts
	for _, it := range awsdata.Types() {
		if !slices.Contains(types, it.Name) {
			continue
		}
		f.vcpu, f.memoryMiB = max(f.vcpu, int64(it.VCPU.Default)), max(f.memoryMiB, int64(it.Memory.MiB))
		arm := slices.Contains(it.Processor.Architectures, "arm64")
		f.arm, f.amd = f.arm || arm, f.amd || !arm
		if m := typeName.FindStringSubmatch(it.Name); m != nil {
			generation := 0
			fmt.Sscan(m[2], &generation)
			f.categories = append(f.categories, m[1])
			if f.generation == 0 || generation < f.generation {
				f.generation = generation
			}
		}
	}
	slices.Sort(f.categories)
	f.categories = slices.Compact(f.categories)
	return f
}

// architectures returns the architectures of the types. Where no type is known, an AMI type that names ARM stands for arm64, any other for
// amd64.
func (f *facts) architectures(amiType string) []string {
	switch {
	case f.arm && f.amd:
		return []string{"amd64", "arm64"}
	case f.arm, !f.amd && strings.Contains(strings.ToUpper(amiType), "ARM"):
		return []string{"arm64"}
	}
	return []string{"amd64"}
}

// taintOf reads a taint as older files of eksctl write it.
func taintOf(key, said string) corev1.Taint {
	value, effect, _ := strings.Cut(said, ":")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

func sortTaints(l []corev1.Taint) {
	slices.SortFunc(l, func(a, b corev1.Taint) int { return strings.Compare(a.Key, b.Key) })
}
