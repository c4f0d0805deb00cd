package lifecycle

import (
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

func TestUnpublished(t *testing.T) {
	slice := func(driver, node string, generation, of int64) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: of}}}
	}
	here := func(driver string, generation, of int64) *resourcev1.ResourceSlice {
		return slice(driver, "n", generation, of)
	}
	for name, tc := range map[string]struct {
		asked  string
		slices []*resourcev1.ResourceSlice
		want   string
	}{
		"nobody asks for devices":                      {"", nil, ""},
		"nothing is published":                         {"gpu", nil, "gpu"},
		"a complete pool":                              {"gpu", []*resourcev1.ResourceSlice{here("gpu", 1, 1)}, ""},
		"half a pool":                                  {"gpu", []*resourcev1.ResourceSlice{here("gpu", 1, 2)}, "gpu"},
		"both halves":                                  {"gpu", []*resourcev1.ResourceSlice{here("gpu", 1, 2), here("gpu", 1, 2)}, ""},
		"of another node":                              {"gpu", []*resourcev1.ResourceSlice{slice("gpu", "m", 1, 1)}, "gpu"},
		"of another driver":                            {"gpu", []*resourcev1.ResourceSlice{here("nic", 1, 1)}, "gpu"},
		"the older generation is complete":             {"gpu", []*resourcev1.ResourceSlice{here("gpu", 1, 1), here("gpu", 2, 2)}, "gpu"},
		"the older generation comes last":              {"gpu", []*resourcev1.ResourceSlice{here("gpu", 2, 2), here("gpu", 1, 1)}, "gpu"},
		"one of two drivers":                           {"gpu,nic", []*resourcev1.ResourceSlice{here("nic", 1, 1)}, "gpu"},
		"a newer generation that is complete replaces": {"gpu", []*resourcev1.ResourceSlice{here("gpu", 1, 2), here("gpu", 2, 1)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &v1.NodeClaim{}
			claim.Annotations = map[string]string{v1.RequestedDRADriversAnnotationKey: tc.asked}
			if got := strings.Join(Unpublished(claim, "n", slices.Values(tc.slices)), ","); got != tc.want {
				t.Errorf("Unpublished = %q, want %q", got, tc.want)
			}
		})
	}
}
