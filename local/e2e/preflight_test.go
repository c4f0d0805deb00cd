package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/local/plane"
)

// TestPreflight looks at the local cluster as somebody would at his own, with the program, its kubeconfig and the services' own
// protocols. Two checks warn, and are right: the cluster has no DNS, because its pods are processes or simulated, and no agent of Pod Identity, because
// its controller comes with a key.
func TestPreflight(t *testing.T) {
	together.enter(t)
	cmd := exec.Command(filepath.Join(filepath.Dir(shared.path), "karpenter"), "preflight", "--cluster-name", plane.ClusterName, "-o", "json",
		"--kubeconfig", filepath.Join(shared.dir, "kubeconfig"))
	cmd.Env = append(os.Environ(), plane.Plane{Ports: shared.run(t).Ports}.AWSEnv("PERSON")...)
	text, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, text)
	}
	var found []struct{ Check, State, Message string }
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	states := map[string]string{}
	for _, f := range found {
		if f.State == "missing" {
			t.Errorf("%s: %s", f.Check, f.Message)
		}
		if states[f.Check] == "" || f.State != "ok" {
			states[f.Check] = f.State
		}
		t.Logf("%+v", f)
	}
	var wrong []string
	for _, check := range slices.Sorted(maps.Keys(states)) {
		if states[check] != "ok" {
			wrong = append(wrong, check)
		}
	}
	if diff := cmp.Diff([]string{"DNS", "service account"}, wrong); diff != "" || len(states) != 16-1 { // no class names a profile
		t.Errorf("%d checks; what the local cluster lacks:\n%s", len(states), diff)
	}
}
