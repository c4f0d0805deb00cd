package provision

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
)

// Values of the zone label of the metric about pending pods, besides the zones themselves.
const (
	flexible = "flexible"
	nowhere  = "none"
)

// countZones counts pending pods by the zone that they are tied to by what they demand and by their volumes.
func (l *Loop) countZones(snap *cluster.Snapshot, pods []*cluster.Pod) {
	l.Metrics.SchedulingPendingPodsByZone.Reset()
	for _, p := range pods {
		if p.Phase == corev1.PodPending {
			l.Metrics.SchedulingPendingPodsByZone.WithLabelValues(name, zoneOf(snap, p)).Inc()
		}
	}
}

// zoneOf returns the one zone that a pod can go to, flexible or nowhere.
func zoneOf(snap *cluster.Snapshot, p *cluster.Pod) string {
	zones := anyZone
	if z, ok := p.Class.Spec.NodeSelector[corev1.LabelTopologyZone]; ok {
		zones = zones.and([]string{z})
	}
	if a := p.Class.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		zones = zones.and(zonesOf(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution))
	}
	for i := range p.Class.Spec.Volumes {
		zones = zones.and(volumeZones(snap, p, &p.Class.Spec.Volumes[i]))
	}
	switch {
	case zones == nil:
		return flexible
	case len(zones.list) == 0:
		return nowhere
	case len(zones.list) == 1:
		return zones.list[0]
	}
	return flexible
}

// zoneSet is a set of zones; nil is every zone.
type zoneSet struct{ list []string }

var anyZone *zoneSet

// and keeps the zones that are in list too. A nil list keeps them all.
func (s *zoneSet) and(list []string) *zoneSet {
	if list == nil {
		return s
	}
	if s == nil {
		return &zoneSet{list}
	}
	return &zoneSet{slices.DeleteFunc(slices.Clone(s.list), func(z string) bool { return !slices.Contains(list, z) })}
}

// zonesOf returns the zones that some term of a selector allows, nil if a term allows any.
func zonesOf(s *corev1.NodeSelector) []string {
	if s == nil {
		return nil
	}
	out := []string{}
	for i := range s.NodeSelectorTerms {
		at := slices.IndexFunc(s.NodeSelectorTerms[i].MatchExpressions, func(x corev1.NodeSelectorRequirement) bool {
			return x.Key == corev1.LabelTopologyZone && x.Operator == corev1.NodeSelectorOpIn
		})
		if at < 0 {
			return nil
		}
		for _, z := range s.NodeSelectorTerms[i].MatchExpressions[at].Values {
			if !slices.Contains(out, z) {
				out = append(out, z)
			}
		}
	}
	return out
}

// volumeZones returns the zones where a volume can be used, nil for any.
func volumeZones(snap *cluster.Snapshot, p *cluster.Pod, v *corev1.Volume) []string {
	claim := p.Name + "-" + v.Name
	if v.PersistentVolumeClaim != nil {
		claim = v.PersistentVolumeClaim.ClaimName
	}
	pvc := snap.PVC(p.Namespace, claim)
	if pvc == nil || pvc.Spec.VolumeName == "" {
		return nil
	}
	pv := snap.PV(pvc.Spec.VolumeName)
	if pv == nil || pv.Spec.NodeAffinity == nil {
		return nil
	}
	return zonesOf(pv.Spec.NodeAffinity.Required)
}
