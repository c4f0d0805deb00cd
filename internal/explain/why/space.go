package why

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/taint"
)

// Everything that could be changed, each as wide as it goes: a limit is dropped, a request becomes nothing. Whether less is enough is
// asked of those that help.

// changesOf lists all changes that could help a pod, the likeliest first.
func changesOf(in engine.Question, idle []engine.Pool, pod *cluster.Pod) []Change {
	out := slices.Concat(ofConstraints(pod.Class.Spec), ofContainers(pod.Class.Spec))
	out = append(out, ofTaints(in, idle, pod.Class.Spec)...)
	out = append(out, ofVolumes(in.Snap, pod)...)
	for _, p := range idle {
		out = append(out, Change{Kind: MendClass, Pool: p.Pool.Name})
	}
	for _, p := range slices.Concat(in.Pools, idle) {
		if !p.Pool.IsStatic() && p.Pool.DeletionTimestamp == nil {
			out = append(out, ofPool(p, pod.Class.Spec)...)
		}
	}
	slices.SortStableFunc(out, Change.compare)
	return out
}

// ofConstraints lists the rules about nodes and other pods that could be dropped.
func ofConstraints(s *corev1.PodSpec) []Change {
	var out []Change
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		out = append(out, Change{Kind: DropSelector, Key: key, Was: s.NodeSelector[key]})
	}
	for _, key := range affinityKeys(s) {
		out = append(out, Change{Kind: DropNodeAffinity, Key: key})
	}
	for i := range s.TopologySpreadConstraints {
		if c := &s.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == corev1.DoNotSchedule {
			out = append(out, Change{Kind: DropSpread, Key: c.TopologyKey, at: i})
		}
	}
	if a := s.Affinity; a != nil {
		if a.PodAntiAffinity != nil {
			for i, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				out = append(out, Change{Kind: DropAntiAffinity, Key: t.TopologyKey, at: i})
			}
		}
		if a.PodAffinity != nil {
			for i, t := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				out = append(out, Change{Kind: DropAffinity, Key: t.TopologyKey, at: i})
			}
		}
	}
	return out
}

// ofContainers lists the host ports that could be freed, and the requests that could be lowered: to nothing, and to half.
func ofContainers(s *corev1.PodSpec) []Change {
	var out []Change
	ports, resources := map[string]bool{}, map[string]bool{}
	eachContainer(s, func(c *corev1.Container) {
		for i := range c.Ports {
			if c.Ports[i].HostPort != 0 {
				ports[portOf(&c.Ports[i])] = true
			}
		}
	})
	eachResources(s, func(r *corev1.ResourceRequirements) {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for name, q := range list {
				if !q.IsZero() {
					resources[string(name)] = true
				}
			}
		}
	})
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		out = append(out, Change{Kind: FreePort, Key: port})
	}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		out = append(out, Change{Kind: LowerRequest, Key: name}, Change{Kind: LowerRequest, Key: name, parts: wholeParts / 2})
	}
	return out
}

// affinityKeys lists the labels that required node affinity names.
func affinityKeys(s *corev1.PodSpec) []string {
	keys := map[string]bool{}
	for x := range expressions(s) {
		keys[x.Key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// expressions returns the requirements of required node affinity.
func expressions(s *corev1.PodSpec) iter.Seq[corev1.NodeSelectorRequirement] {
	return func(yield func(corev1.NodeSelectorRequirement) bool) {
		if s.Affinity == nil || s.Affinity.NodeAffinity == nil ||
			s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			return
		}
		for _, t := range s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, x := range t.MatchExpressions {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// ofTaints lists the taints of pools and nodes that the pod does not tolerate. Taints that describe the state of a
// node are left out.
func ofTaints(in engine.Question, idle []engine.Pool, s *corev1.PodSpec) []Change {
	found := map[string]corev1.Taint{}
	note := func(list []corev1.Taint) {
		for i := range list {
			t := &list[i]
			state := strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, v1.Group+"/") ||
				strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
			if !state && t.Effect != corev1.TaintEffectPreferNoSchedule && !taint.Tolerated(s.Tolerations, t) {
				found[t.ToString()] = corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
			}
		}
	}
	for _, p := range slices.Concat(in.Pools, idle) {
		note(p.Pool.Spec.Template.Spec.Taints)
	}
	for n := range in.Snap.Nodes() {
		note(n.Taints())
	}
	var out []Change
	for _, text := range slices.Sorted(maps.Keys(found)) {
		out = append(out, Change{Kind: Tolerate, Key: text, taint: found[text]})
	}
	return out
}

// ofVolumes lists the volumes that tie the pod to a place.
func ofVolumes(snap *cluster.Snapshot, pod *cluster.Pod) []Change {
	var out []Change
	for i, name := range pod.VolumeClaims() {
		if claim := cluster.PVCs.Get(snap, pod.Namespace, name); claim != nil && tiedToPlace(snap, claim) {
			out = append(out, Change{Kind: FreeVolume, Key: name, at: i})
		}
	}
	return out
}

// tiedToPlace reports whether the volume of a claim, or its storage class, allows some places only.
func tiedToPlace(snap *cluster.Snapshot, claim *corev1.PersistentVolumeClaim) bool {
	if pv := cluster.PVs.Get(snap, claim.Spec.VolumeName); pv != nil {
		return pv.Spec.NodeAffinity != nil || len(pv.Labels) > 0
	}
	if claim.Spec.StorageClassName == nil {
		return false
	}
	class := cluster.StorageClasses.Get(snap, *claim.Spec.StorageClassName)
	return class != nil && len(class.AllowedTopologies) > 0
}

// ofPool lists the changes of one pool: limits dropped, minValues lowered, requirements widened.
func ofPool(in engine.Pool, pod *corev1.PodSpec) []Change {
	p := in.Pool
	var out []Change
	for name, q := range p.Spec.Limits {
		out = append(out, Change{Kind: RaiseLimit, Pool: p.Name, Key: string(name), Was: q.String()})
	}
	keys := map[string]bool{}
	for _, q := range p.Spec.Template.Spec.Requirements {
		if q.MinValues != nil && *q.MinValues > 1 {
			out = append(out, Change{Kind: LowerMinValues, Pool: p.Name, Key: q.Key, Value: "1", Was: strconv.Itoa(*q.MinValues)})
		}
		if q.Operator != corev1.NodeSelectorOpExists && !keys[q.Key] {
			keys[q.Key] = true
			out = append(out, Change{Kind: AllowValue, Pool: p.Name, Key: q.Key})
		}
	}
	for _, w := range askedLabels(pod) {
		if keys[w.key] || labelUnknown(in, w.key) {
			out = append(out, Change{Kind: AllowValue, Pool: p.Name, Key: w.key, Value: w.value})
		}
	}
	return out
}

// labelUnknown reports whether neither the pool nor any of its types has a label. If types had it, a requirement for
// one value would forbid all others.
func labelUnknown(in engine.Pool, key string) bool {
	_, fixed := in.Pool.NodeLabels()[key]
	return !fixed && key != v1.NodePoolLabelKey && key != corev1.LabelHostname &&
		!slices.ContainsFunc(in.Pool.Spec.Template.Spec.Requirements,
			func(q v1.NodeSelectorRequirementWithMinValues) bool { return q.Key == key }) &&
		!slices.ContainsFunc(in.Catalog.Types, func(it *cloud.InstanceType) bool { _, has := it.Labels[key]; return has })
}

// A labelValue is a label with one value that a pod asks for.
type labelValue struct{ key, value string }

// askedLabels lists the labels with the values that a pod asks for by name.
func askedLabels(s *corev1.PodSpec) []labelValue {
	found := map[labelValue]bool{}
	for k, v := range s.NodeSelector {
		found[labelValue{k, v}] = true
	}
	for x := range expressions(s) {
		if x.Operator == corev1.NodeSelectorOpIn {
			for _, v := range x.Values {
				found[labelValue{x.Key, v}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b labelValue) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.value, b.value))
	})
}
