package engine_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// TestWellKnownRequests asks for machines that guides and suites ask for, of the whole catalogue of EC2.
func TestWellKnownRequests(t *testing.T) {
	neuron := benchload.Pending("neuron", 100, 128)
	neuron.Spec.Containers[0].Resources.Requests["aws.amazon.com/neuroncore"] = resource.MustParse("1")
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want string // the type of the only node
	}{
		"8 CPU and 16 GiB take more than a machine of that size, which keeps some for itself": {[]*corev1.Pod{benchload.Pending("oversized-app", 8000, 16*1024)}, "c6g.4xlarge"},
		"who asks for nothing special goes along with who needs an accelerator":               {[]*corev1.Pod{benchload.Pending("plain", 100, 128), neuron}, "inf1.xlarge"},
	} {
		t.Run(name, func(t *testing.T) {
			pools := []engine.Pool{{Pool: benchload.Pool(false, true), Catalog: catalogue(t)}}
			p := solveFresh(prepared(pools, engine.Settings{}), tc.pods, pools, engine.Settings{}, agent())
			if len(p.Open) != 1 || p.Open[0].Type != tc.want || len(p.Refused) > 0 {
				t.Errorf("got %q, refused %d, want one %s", outline(p), len(p.Refused), tc.want)
			}
		})
	}
}
