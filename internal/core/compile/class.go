package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/compile/devices"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/taint"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// Bounds on hostile objects. No user writes so many by hand.
const (
	mostTerms        = 512
	mostPreferences  = 64 // of each kind, the heaviest; each is a level at which all the others are weighed again
	mostVariants     = 1024
	mostAlternatives = 64
	mostDomains      = 2000 // of one list of values for a label that is chosen for each new node: the first are topology domains
)

// A podInfo is what a pod class means, without anything that depends on other objects. It is made once for each class.
type podInfo struct {
	class     *podclass.Class
	need      quantity.Vec
	tooMuch   string
	invalid   []reason.Count // the pod cannot be planned at all
	terms     []label.Reqs   // node selector with each required term; at least one, unless the pod is invalid
	preferred []label.Reqs   // preferred node affinity, heaviest first
	admittance
	ports      []ports.Port
	claims     []string // names of PersistentVolumeClaims
	ephemeral  []string // names of volumes
	devices    bool     // it uses resource claims
	hard, soft []spreadTerm
	near       []podTerm // required pod affinity
	apart      []podTerm // required pod anti-affinity
	nearSoft   []podTerm // preferred, heaviest first
	apartSoft  []podTerm
	ownLabels  bool // the required anti-affinity looks at the pod's own labels
	used       uint64
}

// An admittance is everything but labels that decides whether a node admits a pod: its tolerations, and the features it needs.
type admittance struct {
	tolerances []corev1.Toleration
	tolKey     string   // equal for equal tolerances; see tolerationKey
	features   []string // that the kubelet of the node has to declare
}

// infoOf returns what a pod class means, from the cache if it is there. A resource that has no column is noted in m.missing, so that
// Compile can add the column and start again.
func (m *Memory) infoOf(c *podclass.Class) *podInfo {
	if i := m.infos[c]; i != nil {
		i.used = m.turn
		return i
	}
	i := &podInfo{class: c, used: m.turn}
	m.infos[c] = i
	spec := c.Spec
	i.need, i.tooMuch = m.resources.requests(withSlot(podclass.Requests(spec)))
	if m.withAssumed {
		m.assume(i, spec)
	}
	if i.tooMuch != "" && !slices.Contains(m.missing, i.tooMuch) {
		m.missing = append(m.missing, i.tooMuch)
	}
	i.tolerances, i.tolKey = spec.Tolerations, tolerationKey(spec.Tolerations)
	i.features = featuresOf(spec)
	i.readVolumes(spec)
	i.ports = hostPorts(spec)
	i.readNodeAffinity(m.known, spec)
	m.readSpread(i, spec)
	m.readPodAffinity(i, c.Namespace, spec.Affinity)
	i.devices = devices.Uses(spec)
	return i
}

// assume writes what containers without requests are assumed to need, in columns of their own. If the columns are not there, and a class
// has such containers, they are noted in m.missing.
func (m *Memory) assume(i *podInfo, spec *corev1.PodSpec) {
	list, more := podclass.Assumed(spec)
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	m.resources.setAssumed(i.need, up(corev1.ResourceCPU, &cpu), up(corev1.ResourceMemory, &memory))
	if more && m.resources.names.Lookup(quantity.AssumedCPU) < 0 && !slices.Contains(m.missing, quantity.AssumedCPU) {
		m.missing = append(m.missing, quantity.AssumedCPU, quantity.AssumedMemory)
	}
}

// tolerationKey returns a text that is equal for lists with the same tolerations, in any order.
func tolerationKey(list []corev1.Toleration) string {
	if len(list) == 0 {
		return ""
	}
	parts := make([]string, 0, len(list))
	for _, t := range list {
		parts = append(parts, identity.Of(t.Key, string(t.Operator), t.Value, string(t.Effect)))
	}
	slices.Sort(parts)
	return identity.Of(slices.Compact(parts)...)
}

// readVolumes collects the volume claims that a pod names, each once, and its ephemeral volumes.
func (i *podInfo) readVolumes(spec *corev1.PodSpec) {
	for _, v := range spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			if name := v.PersistentVolumeClaim.ClaimName; !slices.Contains(i.claims, name) {
				i.claims = append(i.claims, name)
			}
		case v.Ephemeral != nil:
			i.ephemeral = append(i.ephemeral, v.Name)
		}
	}
}

// hostPorts returns the host ports of containers and of sidecars, which keep running beside them.
func hostPorts(spec *corev1.PodSpec) []ports.Port {
	var out []ports.Port
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				out = append(out, ports.Port{Protocol: string(p.Protocol), Number: p.HostPort, IP: p.HostIP})
			}
		}
	}
	for k := range spec.Containers {
		add(&spec.Containers[k])
	}
	for k := range spec.InitContainers {
		if c := &spec.InitContainers[k]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}

// readNodeAffinity turns the node selector and the terms of node affinity into requirements. A required term that cannot be planned for is
// left out, because meeting any other is enough. The pod is invalid if none is left. Preferences are sorted, heaviest first.
func (i *podInfo) readNodeAffinity(known *apilabel.Vocabulary, spec *corev1.PodSpec) {
	var selected []label.Req
	for _, k := range sortedKeys(spec.NodeSelector) {
		v := spec.NodeSelector[k]
		if known.Restricted(k) && !known.Owned(k) {
			i.refuse(reason.Count{Code: reason.RestrictedLabel, Key: k})
		}
		if !possible(v) {
			i.refuse(reason.Count{Code: reason.Invalid, Flaw: reason.SelectorValue, Detail: k})
		}
		selected = append(selected, label.Req{Key: known.Normalize(k), Set: label.Only(v)})
	}
	base := label.Of(selected)
	var affinity corev1.NodeAffinity
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		affinity = *spec.Affinity.NodeAffinity
	}
	if r := affinity.RequiredDuringSchedulingIgnoredDuringExecution; r == nil {
		i.addTerm(base)
	} else {
		i.readTerms(known, base, r.NodeSelectorTerms)
	}
	pref := slices.Clone(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	slices.SortStableFunc(pref, func(a, b corev1.PreferredSchedulingTerm) int { return int(b.Weight) - int(a.Weight) })
	for _, p := range pref[:min(len(pref), mostPreferences)] {
		reqs, _ := expressions(known, p.Preference.MatchExpressions) // a wrong expression is never met, so the preference is dropped later
		i.preferred = append(i.preferred, reqs)
	}
}

// readTerms reads the required terms, of which one must be met beside the node selector (base). If no term can be planned for, it refuses
// the pod with all reasons.
func (i *podInfo) readTerms(known *apilabel.Vocabulary, base label.Reqs, terms []corev1.NodeSelectorTerm) {
	var bad []reason.Count
	var all []label.Reqs
	for _, term := range terms {
		if len(all) == mostTerms || len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue // an empty term matches no node
		}
		reqs, wrong := expressions(known, term.MatchExpressions)
		all = append(all, base.And(reqs))
		if len(term.MatchFields) > 0 {
			wrong = append(wrong, reason.Count{Code: reason.Invalid, Flaw: reason.FieldTerms})
		}
		if len(wrong) == 0 {
			wrong = i.addTerm(base.And(reqs))
		}
		bad = append(bad, wrong...)
	}
	if len(i.terms) > 0 {
		i.terms = slices.CompactFunc(i.terms, func(a, b label.Reqs) bool { return a.Key() == b.Key() })
		return
	}
	if len(bad) == 0 {
		bad = []reason.Count{{Code: reason.Invalid, Flaw: reason.EmptyTerms}}
	}
	i.refuse(bad...)
	i.terms = all // daemons are planned by their terms although they are invalid for pods
}

// addTerm adds one alternative of the required terms. It returns why no node of a pool could meet it, and does not add it then.
func (i *podInfo) addTerm(reqs label.Reqs) []reason.Count {
	if s, ok := reqs.Get(v1.NodePoolLabelKey); ok && s.HasAbsent() && !s.Open() {
		return []reason.Count{{Code: reason.AvoidsManaged}}
	}
	i.terms = append(i.terms, reqs)
	return nil
}

// mostFlaws is how many flaws of one pod are named. Further ones help no user, and comparing thousands takes long.
const mostFlaws = 10

// refuse notes why the pod cannot be planned, each reason once.
func (i *podInfo) refuse(why ...reason.Count) {
	for _, w := range why {
		if len(i.invalid) < mostFlaws && !slices.Contains(i.invalid, w) {
			i.invalid = append(i.invalid, w)
		}
	}
}

// expressions turns match expressions into requirements, and returns what is wrong with them. An expression that makes no sense becomes a
// requirement that no node meets.
func expressions(known *apilabel.Vocabulary, list []corev1.NodeSelectorRequirement) (label.Reqs, []reason.Count) {
	var out []label.Req
	var wrong []reason.Count
	for _, x := range list {
		if known.Restricted(x.Key) && !known.Owned(x.Key) {
			wrong = append(wrong, reason.Count{Code: reason.RestrictedLabel, Key: x.Key})
		}
		s, ok := label.New(label.Op(x.Operator), x.Values)
		if !ok || (x.Operator == corev1.NodeSelectorOpIn || x.Operator == corev1.NodeSelectorOpNotIn) && len(x.Values) == 0 {
			wrong = append(wrong, reason.Count{Code: reason.Invalid, Flaw: reason.Operator, Key: x.Key, Detail: string(x.Operator)})
			s = label.Nothing()
		} else if !s.Open() && len(s.Values()) > 0 && !slices.ContainsFunc(s.Values(), possible) {
			wrong = append(wrong, reason.Count{Code: reason.Invalid, Flaw: reason.AffinityValue, Detail: x.Key})
		}
		out = append(out, label.Req{Key: known.Normalize(x.Key), Set: s})
	}
	return label.Of(out), wrong
}

// possible reports whether a label can have a value. Old API servers let pods ask for others.
func possible(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }

// toleratesAll reports whether tolerations cover all taints. Taints of effect PreferNoSchedule are left out if soft is set.
func toleratesAll(list []corev1.Toleration, taints []corev1.Taint, soft bool) bool {
	for k := range taints {
		t := &taints[k]
		if soft && t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !taint.Tolerated(list, t) {
			return false
		}
	}
	return true
}
