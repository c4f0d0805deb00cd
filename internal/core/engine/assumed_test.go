package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// Pods without requests get new machines on which each has 100m and 200Mi. An existing node takes as many as kube-scheduler puts there. Pods
// that request everything are planned alike with the setting and without.
func TestPodsWithoutRequestsCountOnNewNodes(t *testing.T) {
	plan := func(node string, pods int, requests string, assume bool) *engine.Plan {
		text := "Pods.\n-- shapes --\nnano cpu=2 mem=512Mi pods=20 od=0.004\nlarge cpu=2 mem=8Gi pods=60 od=0.09\n" + node + "-- pods --\n"
		for i := range pods {
			text += fmt.Sprintf("p%d%s\n", i, requests)
		}
		w := worldOf(t, text)
		w.Settings.AssumeRequests = assume
		if requests == "" {
			w.Store.Update(func(d *cluster.Draft) {
				for _, p := range w.Objects {
					if pod, ok := p.(*corev1.Pod); ok {
						pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
						d.PutPod(pod)
					}
				}
			})
		}
		snap := w.Store.Snapshot()
		return engine.New().Plan(engine.Question{Snap: snap, Pools: w.Pools, Pods: snap.Provisionable(), Settings: w.Settings, Now: time.Now()})
	}
	for name, tc := range map[string]struct {
		node     string
		pods     int
		requests string
		assume   bool
		types    string // of the opened nodes
	}{
		"nothing is assumed":          {"", 10, "", false, "nano"},
		"something is":                {"", 10, "", true, "nano nano nano nano nano"},
		"two fit on a small machine":  {"", 2, "", true, "nano"},
		"an existing node takes them": {"-- nodes --\nthere cpu=1 mem=256Mi pods=20\n", 10, "", true, ""},
		"requests count alone":        {"", 2, " cpu=100m mem=100Mi", true, "nano"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := plan(tc.node, tc.pods, tc.requests, tc.assume)
			var types []string
			for i := range plan.Open {
				types = append(types, plan.Open[i].Type)
			}
			if got := strings.Join(types, " "); got != tc.types || len(plan.Refused) > 0 {
				t.Errorf("opened %q, refused %d; want %q", got, len(plan.Refused), tc.types)
			}
			for i := range plan.Open {
				for name := range plan.Open[i].Claim.Spec.Resources.Requests {
					if strings.Contains(string(name), " ") {
						t.Errorf("the claim requests %q", name)
					}
				}
			}
		})
	}
}
