package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Commands count on the quotas that they read, name them, and snapshots carry them.
func TestQuotasOfFiles(t *testing.T) {
	world := strings.Replace(snapshotWorld, "limits: {cpu: 30}", "limits: {cpu: 300}", 1) + `
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityQuota
metadata: {name: small}
spec: {selector: {matchLabels: {karpenter.sh/nodepool: p}}, limits: {resources: {cpu: LIMIT}}}
`
	folder := t.TempDir()
	file, kept := filepath.Join(folder, "world.yaml"), filepath.Join(folder, "snapshot.txtar")
	run := func(args ...string) string {
		var out, trouble bytes.Buffer
		env := Env{In: strings.NewReader(""), Out: &out, Err: &trouble, Catalog: threeTypes, CheckClass: noPlacementGroups}
		if code := Run(t.Context(), env, args); code == exitBadInput {
			t.Fatal(trouble.String())
		}
		return out.String()
	}
	write := func(limit string) {
		if err := os.WriteFile(file, []byte(strings.Replace(world, "LIMIT", limit, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("4")
	run("snapshot", "-f", file, "-o", kept)
	for _, from := range [][]string{{"-f", file}, {"--snapshot", kept}} {
		got := run(append([]string{"plan"}, from...)...)
		if !strings.Contains(got, "CapacityQuota small allows no more cpu (4, used ") {
			t.Errorf("plan %s names no quota:\n%s", from, got)
		}
		if got := run(append([]string{"why", "pod", "web-6"}, from...)...); !strings.Contains(got, "CapacityQuota small") {
			t.Errorf("why pod %s names no quota:\n%s", from, got)
		}
	}
	if got := run("snapshot", "-f", file, "-o", "-", "--anonymous"); strings.Contains(got, `"small"`) || !strings.Contains(got, "CapacityQuota") {
		t.Errorf("the anonymous snapshot tells the name of the quota, or nothing of it:\n%s", got)
	}
	if got := run("lint", "-f", file); strings.Contains(got, "CapacityQuota") {
		t.Errorf("lint finds a fault in a quota that has room:\n%s", got)
	}
	write("1")
	const want = "CapacityQuota/small: it allows less cpu than the smallest machine of NodePool p has"
	if got := run("lint", "-f", file); !strings.Contains(got, want) {
		t.Errorf("lint does not say %q:\n%s", want, got)
	}
}
