package crashtest

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestTheLogHasTheLinesThatPeopleSearchFor looks for each line and its fields by the names that alerts and habits know.
func TestTheLogHasTheLinesThatPeopleSearchFor(t *testing.T) {
	var log bytes.Buffer
	sim.Bubble(t, sim.Options{}, doingAll(&log), func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
		})
		live(t, w)
	})
	lines := map[string]map[string]any{}
	for raw := range bytes.Lines(log.Bytes()) {
		line := map[string]any{}
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		lines[line["message"].(string)] = line
	}
	for message, want := range map[string]struct {
		level  string
		fields []string
	}{
		"found provisionable pod(s)":              {"INFO", []string{"Pods", "duration"}},
		"computed new nodeclaim(s) to fit pod(s)": {"INFO", []string{"nodeclaims", "pods"}},
		"created nodeclaim":                       {"INFO", []string{"NodePool", "NodeClaim", "requests", "instance-types"}},
		"launched nodeclaim":                      {"INFO", []string{"NodeClaim", "provider-id", "instance-type", "zone", "capacity-type", "allocatable"}},
		"registered nodeclaim":                    {"INFO", []string{"NodeClaim", "provider-id", "Node"}},
		"initialized nodeclaim":                   {"INFO", []string{"NodeClaim", "allocatable"}},
		"disrupting node(s)":                      {"INFO", []string{"command", "decision", "disrupted-node-count", "replacement-node-count", "pod-count", "disrupted-nodes", "replacement-nodes"}},
		"tainted node":                            {"INFO", []string{"Node", "taint.Key", "taint.Value", "taint.Effect"}},
		"annotated nodeclaim":                     {"INFO", []string{"NodeClaim", v1.NodeClaimTerminationTimestampAnnotationKey}},
		"deleted node":                            {"INFO", []string{"Node"}},
		"deleted nodeclaim":                       {"INFO", []string{"NodeClaim"}},
		"failed launching nodeclaim":              {"ERROR", []string{"NodeClaim", "error"}},
		"command succeeded":                       {"DEBUG", []string{"command"}},
	} {
		line, said := lines[message]
		if !said {
			t.Errorf("nothing says %q", message)
			continue
		}
		if line["level"] != want.level || line["controller"] == nil {
			t.Errorf("%q has level %v and controller %v, want %s and one", message, line["level"], line["controller"], want.level)
		}
		for _, field := range want.fields {
			if line[field] == nil {
				t.Errorf("%q has no %s: %v", message, field, line)
			}
		}
	}
}
