package kubelet

import (
	"testing"

	"sigs.k8s.io/kwok/pkg/utils/expression"

	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/local/runtime"
)

// What runs as a process must not be played too, and all else must be.
func TestPodsThatRunAreNotPlayed(t *testing.T) {
	stages, err := loadStages()
	if err != nil {
		t.Fatal(err)
	}
	pod := func(node, image string) any {
		return map[string]any{"spec": map[string]any{"nodeName": node, "containers": []any{map[string]any{"image": "envoy"}, map[string]any{"image": image}}}}
	}
	for name, tc := range map[string]struct {
		pod    any
		played bool
	}{
		"the controller on a node of the control plane":   {pod("control-b", "example.com/karpenter/controller:1"), false},
		"something else there":                            {pod("control-b", "example.com/nginx/controller:1"), true},
		"the controller on a machine":                     {pod("ip-10-0-0-1", "example.com/karpenter/controller:1"), true},
		"something else on a machine":                     {pod("ip-10-0-0-1", "pause"), true},
		"a node whose name begins like the control plane": {pod("control-b2", "karpenter"), true},
	} {
		for ref, all := range stages {
			if ref.Kind != "Pod" {
				continue
			}
			for _, stage := range all {
				found := false
				for _, e := range stage.Spec.Selector.MatchExpressions {
					if e.JQ == nil || e.JQ.Key != runtime.Query(plane.ControlNodes()) {
						continue
					}
					found = true
					r, err := expression.NewRequirement(e.JQ.Key, e.JQ.Operator, e.JQ.Values)
					if err != nil {
						t.Fatal(err)
					}
					if played, err := r.Matches(t.Context(), tc.pod); err != nil || played != tc.played {
						t.Errorf("%s, stage %s: played %t, %v, want %t", name, stage.Name, played, err, tc.played)
					}
				}
				if !found {
					t.Errorf("stage %s plays the controller too", stage.Name)
				}
			}
		}
	}
}
