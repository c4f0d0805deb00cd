package why

import (
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/engine"
)

// A Kind says what a change does. Its text is stable.
type Kind string

// The kinds, in the order in which a person would think of them.
const (
	MendClass      Kind = "MendClass"      // of a pool that launches nothing because of its node class: it gets a class that can be used
	RaiseLimit     Kind = "RaiseLimit"     // of a pool; Key: the resource, Value: the new limit, "" for none
	LowerMinValues Kind = "LowerMinValues" // of a pool; Key: the label, Value: the new number
	// of a pool; Key: the label, Value: what is allowed as well, "" if the requirement is dropped
	AllowValue       Kind = "AllowValue"
	Tolerate         Kind = "Tolerate"         // the pod; Key: the taint
	DropSelector     Kind = "DropSelector"     // the pod; Key: the label in its node selector
	DropNodeAffinity Kind = "DropNodeAffinity" // the pod; Key: the label in its required node affinity
	DropSpread       Kind = "DropSpread"       // the pod; Key: the topology key
	DropAntiAffinity Kind = "DropAntiAffinity" // the pod; Key: the topology key
	DropAffinity     Kind = "DropAffinity"     // the pod; Key: the topology key
	FreePort         Kind = "FreePort"         // the pod; Key: the host port
	LowerRequest     Kind = "LowerRequest"     // the pod; Key: the resource, Value: the most that has a place
	FreeVolume       Kind = "FreeVolume"       // the pod; Key: the claim of a volume that ties it to a place
)

var kinds = []Kind{MendClass, RaiseLimit, LowerMinValues, AllowValue, Tolerate, DropSelector, DropNodeAffinity, DropSpread,
	DropAntiAffinity, DropAffinity, FreePort, LowerRequest, FreeVolume}

// A Change is one edit of a pool or of the pod.
type Change struct {
	Kind  Kind
	Pool  string // that is edited; "" for the pod
	Key   string
	Value string // what it becomes; "" where something is dropped
	Was   string // its present value, where that is one value

	at    int          // which of the pod's constraints
	taint corev1.Taint // that is tolerated
	parts int64        // of a request, so many 64ths that are left
}

// withChanges returns the question with changes made on copies. like reports which pods are edited; idle are the
// pools that launch nothing, of which those are added that get another class.
func withChanges(in engine.Question, idle []engine.Pool, like func(*cluster.Pod) bool, changes []Change) engine.Question {
	in.Pools = slices.Clone(in.Pools)
	for _, p := range idle {
		if slices.ContainsFunc(changes, func(c Change) bool { return c.Kind == MendClass && c.Pool == p.Pool.Name }) {
			in.Pools = append(in.Pools, p)
		}
	}
	for i := range in.Pools {
		own := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.Pool != in.Pools[i].Pool.Name })
		if len(own) > 0 {
			in.Pools[i].Pool = EditPool(in.Pools[i].Pool, own)
		}
	}
	own := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.Pool != "" })
	if len(own) == 0 {
		return in
	}
	in.Pods = slices.Clone(in.Pods)
	var class *podclass.Class
	for i, p := range in.Pods {
		if !like(p) {
			continue
		}
		if class == nil {
			class = &podclass.Class{ID: math.MaxUint32, Namespace: p.Class.Namespace, Spec: EditSpec(p.Class.Spec, own)}
		}
		row := *p
		row.Class = class
		in.Pods[i] = &row
	}
	return in
}

// EditPool returns a copy of a pool with changes made.
func EditPool(old *v1.NodePool, changes []Change) *v1.NodePool {
	p := old.DeepCopy()
	for _, c := range changes {
		switch c.Kind {
		case RaiseLimit:
			if c.Value == "" {
				delete(p.Spec.Limits, corev1.ResourceName(c.Key))
			} else {
				p.Spec.Limits[corev1.ResourceName(c.Key)] = resource.MustParse(c.Value)
			}
		case LowerMinValues:
			for i := range p.Spec.Template.Spec.Requirements {
				if q := &p.Spec.Template.Spec.Requirements[i]; q.Key == c.Key && q.MinValues != nil {
					q.MinValues = minValuesOf(c.Value)
				}
			}
		case AllowValue:
			p.Spec.Template.Spec.Requirements = allow(p.Spec.Template.Spec.Requirements, c.Key, c.Value)
		}
	}
	return p
}

// minValuesOf returns a number for minValues; nil for 1, which demands nothing.
func minValuesOf(value string) *int {
	n, err := strconv.Atoi(value)
	if err != nil || n <= 1 {
		return nil
	}
	return &n
}

// allow returns requirements that allow one more value of a label, or any value if it is "". A requirement that
// cannot be widened by one value, such as Gt, is dropped.
func allow(reqs []v1.NodeSelectorRequirementWithMinValues, key, value string) []v1.NodeSelectorRequirementWithMinValues {
	var out []v1.NodeSelectorRequirementWithMinValues
	known := false
	for _, q := range reqs {
		switch {
		case q.Key != key:
			out = append(out, q)
		case value == "":
		case q.Operator == corev1.NodeSelectorOpIn:
			known = true
			if !slices.Contains(q.Values, value) {
				q.Values = append(slices.Clone(q.Values), value)
			}
			out = append(out, q)
		case q.Operator == corev1.NodeSelectorOpNotIn:
			known = true
			if q.Values = slices.DeleteFunc(slices.Clone(q.Values), func(v string) bool { return v == value }); len(q.Values) > 0 {
				out = append(out, q)
			}
		}
	}
	if value != "" && !known {
		out = append(out, v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	return out
}

// EditSpec returns a copy of a pod's spec with changes made. All are made at once, because changes name constraints
// by their index.
func EditSpec(old *corev1.PodSpec, changes []Change) *corev1.PodSpec {
	s := old.DeepCopy()
	dropped := func(kind Kind, at int) bool {
		return slices.ContainsFunc(changes, func(c Change) bool { return c.Kind == kind && c.at == at })
	}
	named := func(kind Kind, key string) bool {
		return slices.ContainsFunc(changes, func(c Change) bool { return c.Kind == kind && c.Key == key })
	}
	for key := range old.NodeSelector {
		if named(DropSelector, key) {
			delete(s.NodeSelector, key)
		}
	}
	if a := s.Affinity; a != nil {
		if a.NodeAffinity != nil {
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution =
				withoutKeys(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
					func(key string) bool { return named(DropNodeAffinity, key) })
		}
		if a.PodAffinity != nil {
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution =
				dropAt(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
					func(at int) bool { return dropped(DropAffinity, at) })
		}
		if a.PodAntiAffinity != nil {
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution =
				dropAt(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
					func(at int) bool { return dropped(DropAntiAffinity, at) })
		}
	}
	s.TopologySpreadConstraints = dropAt(s.TopologySpreadConstraints, func(at int) bool { return dropped(DropSpread, at) })
	s.Volumes = dropAt(s.Volumes, func(at int) bool { return dropped(FreeVolume, at) })
	for _, c := range changes {
		switch c.Kind {
		case Tolerate:
			s.Tolerations = append(s.Tolerations, tolerationOf(&c.taint))
		case LowerRequest:
			eachResources(s, func(r *corev1.ResourceRequirements) { scale(r, corev1.ResourceName(c.Key), c.parts) })
		case FreePort:
			eachContainer(s, func(x *corev1.Container) {
				x.Ports = slices.DeleteFunc(x.Ports, func(p corev1.ContainerPort) bool { return portOf(&p) == c.Key })
			})
		}
	}
	return s
}

// dropAt returns a list without the items at the indexes for which drop is true.
func dropAt[T any](list []T, drop func(at int) bool) []T {
	var out []T
	for i := range list {
		if !drop(i) {
			out = append(out, list[i])
		}
	}
	return out
}

// withoutKeys drops expressions about some labels from required node affinity. A term with no expression left allows
// any node; as terms are ORed, the whole selector is then dropped (nil).
func withoutKeys(s *corev1.NodeSelector, drop func(key string) bool) *corev1.NodeSelector {
	if s == nil {
		return nil
	}
	out := &corev1.NodeSelector{}
	for _, t := range s.NodeSelectorTerms {
		had := len(t.MatchExpressions)
		t.MatchExpressions = slices.DeleteFunc(slices.Clone(t.MatchExpressions),
			func(x corev1.NodeSelectorRequirement) bool { return drop(x.Key) })
		if had > 0 && len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 {
			return nil
		}
		out.NodeSelectorTerms = append(out.NodeSelectorTerms, t)
	}
	return out
}

// tolerationOf returns a toleration for a taint.
func tolerationOf(t *corev1.Taint) corev1.Toleration {
	out := corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect}
	if t.Value == "" {
		out.Operator = corev1.TolerationOpExists
	}
	return out
}

// eachContainer calls do for each init container and container.
func eachContainer(s *corev1.PodSpec, do func(*corev1.Container)) {
	for i := range s.InitContainers {
		do(&s.InitContainers[i])
	}
	for i := range s.Containers {
		do(&s.Containers[i])
	}
}

// eachResources calls do for the resources of each container and of the pod itself.
func eachResources(s *corev1.PodSpec, do func(*corev1.ResourceRequirements)) {
	eachContainer(s, func(c *corev1.Container) { do(&c.Resources) })
	if s.Resources != nil {
		do(s.Resources)
	}
}

// scale leaves so many 64ths (wholeParts) of a resource in requests and limits. A limit that stayed would become the
// request by default.
func scale(r *corev1.ResourceRequirements, name corev1.ResourceName, parts int64) {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		if q, ok := list[name]; ok {
			list[name] = partOf(name, q, parts)
		}
	}
}

// partOf returns so many 64ths of a quantity. It divides first, so that large quantities do not overflow.
func partOf(name corev1.ResourceName, q resource.Quantity, parts int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(q.MilliValue()/wholeParts*parts+q.MilliValue()%wholeParts*parts/wholeParts, q.Format)
	}
	return *resource.NewQuantity(q.Value()/wholeParts*parts+q.Value()%wholeParts*parts/wholeParts, q.Format)
}

// wholeParts is how finely requests are cut.
const wholeParts = 64

func portOf(p *corev1.ContainerPort) string {
	return strings.TrimPrefix(p.HostIP+":", ":") + strconv.Itoa(int(p.HostPort)) + "/" + string(p.Protocol)
}
