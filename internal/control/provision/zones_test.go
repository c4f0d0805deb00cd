package provision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
)

func in(zones ...string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: zones},
	}}}}
}

func TestZoneOf(t *testing.T) {
	selects := func(zone string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone} }
	}
	demands := func(s *corev1.NodeSelector) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}}
		}
	}
	uses := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	}
	either := in("a")
	either.NodeSelectorTerms = append(either.NodeSelectorTerms, in("b").NodeSelectorTerms...)
	loose := in("a")
	loose.NodeSelectorTerms = append(loose.NodeSelectorTerms, corev1.NodeSelectorTerm{})
	for name, tc := range map[string]struct {
		changes []func(*corev1.Pod)
		want    string
	}{
		"a pod that does not care":                   {nil, flexible},
		"a pod that selects a zone":                  {[]func(*corev1.Pod){selects("a")}, "a"},
		"a pod that demands one":                     {[]func(*corev1.Pod){demands(in("b"))}, "b"},
		"a pod that demands one of two":              {[]func(*corev1.Pod){demands(in("a", "b"))}, flexible},
		"terms are alternatives":                     {[]func(*corev1.Pod){demands(either)}, flexible},
		"a term without zone allows any":             {[]func(*corev1.Pod){demands(loose)}, flexible},
		"a pod whose volume is in a zone":            {[]func(*corev1.Pod){uses}, "z"},
		"a pod whose volume and demand agree":        {[]func(*corev1.Pod){uses, demands(in("a", "z"))}, "z"},
		"a pod that contradicts its volume":          {[]func(*corev1.Pod){uses, selects("a")}, nowhere},
		"a pod that demands a zone and selects that": {[]func(*corev1.Pod){demands(in("a", "b")), selects("a")}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			p := pod("p")
			for _, change := range tc.changes {
				change(p)
			}
			s.Update(func(d *cluster.Draft) {
				d.PutPod(p)
				d.PutPVC(&corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
				})
				d.PutPV(&corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "pv"},
					Spec:       corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: in("z")}},
				})
			})
			if got := zoneOf(s.Snapshot(), s.Snapshot().Pod(key("p"))); got != tc.want {
				t.Errorf("zone = %s, want %s", got, tc.want)
			}
		})
	}
}
