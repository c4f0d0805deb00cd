package kubelet

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
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

// A pod that starts before its volumes are attached would start on a machine that cannot have them.
func TestPodsWaitForTheirVolumes(t *testing.T) {
	stages, err := loadStages()
	if err != nil {
		t.Fatal(err)
	}
	pod := func(volume map[string]any, conditions ...any) any {
		return map[string]any{
			"metadata": map[string]any{}, "spec": map[string]any{"nodeName": "n", "volumes": []any{map[string]any{"name": "config", "emptyDir": map[string]any{}}, volume}},
			"status": map[string]any{"phase": "Pending", "conditions": conditions},
		}
	}
	condition := func(kind, status string) any { return map[string]any{"type": kind, "status": status} }
	claim := map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data"}}
	own := map[string]any{"name": "data", "ephemeral": map[string]any{"volumeClaimTemplate": map[string]any{}}}
	for name, tc := range map[string]struct {
		pod   any
		waits bool
	}{
		"a pod without volumes starts":         {map[string]any{"spec": map[string]any{"nodeName": "n"}, "status": map[string]any{"phase": "Pending"}}, false},
		"a pod without claims starts":          {pod(map[string]any{"name": "x", "hostPath": map[string]any{}}, condition("PodScheduled", "True")), false},
		"a pod with a claim waits":             {pod(claim, condition("PodScheduled", "True")), true},
		"a pod with a volume of its own waits": {pod(own, condition("PodScheduled", "True")), true},
		"it waits until the word is True":      {pod(claim, condition("PodReadyToStartContainers", "False")), true},
		"it starts when its volumes are there": {pod(claim, condition("PodScheduled", "True"), condition("PodReadyToStartContainers", "True")), false},
	} {
		starts := false
		for ref, all := range stages {
			for _, stage := range all {
				if ref.Kind == "Pod" && stage.Name == "pod-running" {
					starts = matches(t, stage, tc.pod)
				}
			}
		}
		if starts == tc.waits {
			t.Errorf("%s: it starts = %t", name, starts)
		}
	}
}

// matches reports whether all that a stage demands by jq is so.
func matches(t *testing.T, stage *internalversion.Stage, object any) bool {
	t.Helper()
	for _, e := range stage.Spec.Selector.MatchExpressions {
		if e.JQ == nil {
			t.Fatalf("stage %s asks for something in another language", stage.Name)
		}
		r, err := expression.NewRequirement(e.JQ.Key, e.JQ.Operator, e.JQ.Values)
		if err != nil {
			t.Fatal(err)
		}
		is, err := r.Matches(t.Context(), object)
		if err != nil {
			t.Fatal(err)
		}
		if !is {
			return false
		}
	}
	return true
}

// An API server before 1.36 hands a refusal on only if it is a status.
func TestCommandsAreRefusedWithAStatus(t *testing.T) {
	for _, path := range []string{"/exec/default/p/c", "/run/default/p/c", "/attach/default/p/c"} {
		w := httptest.NewRecorder()
		handler(nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		var said metav1.Status
		err := json.Unmarshal(w.Body.Bytes(), &said)
		if err != nil || w.Code != http.StatusNotImplemented || said.Kind != "Status" || said.Status != metav1.StatusFailure ||
			!strings.Contains(said.Message, "simulated") {
			t.Errorf("%s: %d, %v, %s", path, w.Code, err, w.Body)
		}
	}
}
