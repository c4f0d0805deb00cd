//go:build apiserver

package apiserver

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// compareGolden compares text with a file in testdata, or rewrites the file under -update.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestExplain reads the documentation that kubectl shows.
func TestExplain(t *testing.T) {
	for _, field := range []string{
		"nodepool.spec.disruption", "nodepool.spec.disruption.budgets", "nodepool.spec.template.spec", "nodeclaim.spec",
		"ec2nodeclass.spec.amiSelectorTerms", "nodeoverlay.spec", "capacitybuffer.spec",
	} {
		out, problems, err := kubectl(t, "", "explain", field)
		if err != nil {
			t.Fatalf("explain %s: %v: %s", field, err, problems)
		}
		compareGolden(t, filepath.Join("explain", field+".txt"), out)
	}
}

// TestColumns shows what kubectl get prints, with and without -o wide.
func TestColumns(t *testing.T) {
	const ready = `{type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: "2025-01-02T03:04:05Z"}`
	for _, o := range []struct{ kind, edit, status string }{
		{"NodePool", "{spec: {weight: 10}}", "{status: {nodes: 3, resources: {cpu: 12, memory: 48Gi}, conditions: [" + ready + "]}}"},
		{"NodeClaim", "{metadata: {labels: {node.kubernetes.io/instance-type: m5.large, karpenter.sh/capacity-type: spot, topology.kubernetes.io/zone: zone-a, karpenter.sh/nodepool: columns}}}",
			`{status: {nodeName: node-1, providerID: "aws:///zone-a/i-0abc", imageID: ami-0abc, conditions: [` + ready + `, {type: Drifted, status: "True", reason: AMIDrift, message: "", lastTransitionTime: "2025-01-02T03:04:05Z"}]}}`},
		{"NodeOverlay", "{spec: {weight: 5}}", "{status: {conditions: [" + ready + "]}}"},
		{"CapacityBuffer", "{}", `{status: {podTemplateRef: {name: web}, replicas: 4, conditions: [{type: ReadyForProvisioning, status: "True", reason: Resolved, message: "", lastTransitionTime: "2025-01-02T03:04:05Z"}, {type: Provisioning, status: "False", reason: RequiresNewCapacity, message: "", lastTransitionTime: "2025-01-02T03:04:05Z"}]}}`},
		{"EC2NodeClass", "{}", "{status: {conditions: [" + ready + "]}}"},
	} {
		object := edited(t, o.kind, "columns", o.edit)
		mustCreate(t, object)
		if err := kube.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, toJSON(t, o.status))); err != nil {
			t.Fatal(err)
		}
	}
	age := regexp.MustCompile(`\b[0-9]+s\b`)
	var all strings.Builder
	for _, resource := range []string{"nodepools", "nodeclaims", "nodeoverlays", "capacitybuffers", "ec2nodeclasses",
		"nodepools.v1beta1.karpenter.sh", "nodeclaims.v1beta1.karpenter.sh", "ec2nodeclasses.v1beta1.karpenter.k8s.aws"} {
		for _, wide := range []bool{false, true} {
			args := []string{"get", resource, "columns"}
			if wide {
				args = append(args, "-o", "wide")
			}
			out, problems, err := kubectl(t, "", args...)
			if err != nil {
				t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, problems)
			}
			all.WriteString("$ kubectl " + strings.Join(args, " ") + "\n" + spaces(age.ReplaceAllString(out, "AGE")) + "\n")
		}
	}
	compareGolden(t, "columns.txt", all.String())
}

// spaces makes one column separator of many blanks, so that the width of an age does not matter.
func spaces(table string) string {
	lines := strings.Split(table, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(regexp.MustCompile(` {2,}`).Split(strings.TrimRight(line, " "), -1), " | ")
	}
	return strings.Join(lines, "\n")
}

// TestNames says under which names users reach the kinds.
func TestNames(t *testing.T) {
	out, problems, err := kubectl(t, "", "api-resources", "--cached=false", "-o", "wide", "--sort-by=name", "--no-headers")
	if err != nil {
		t.Fatalf("%v: %s", err, problems)
	}
	var ours strings.Builder
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "karpenter") || strings.Contains(line, "autoscaling.x-k8s.io") {
			ours.WriteString(spaces(line) + "\n")
		}
	}
	compareGolden(t, "names.txt", ours.String())
	for _, name := range []string{"nodepool", "nodeclaim", "nodeoverlay", "overlays", "capacitybuffer", "cb", "ec2nodeclass", "ec2nc", "ec2ncs", "karpenter", "autoscaling"} {
		if _, problems, err := kubectl(t, "", "get", name); err != nil {
			t.Errorf("kubectl get %s: %v: %s", name, err, problems)
		}
	}
}

// TestStatusIsASubresource says that users cannot write what controllers write, and the other way round.
func TestStatusIsASubresource(t *testing.T) {
	for kind := range bases {
		if _, ok := schemas[kind].Properties["status"]; !ok {
			continue // nothing is written back to it
		}
		object := edited(t, kind, "subresource", "{status: {conditions: [{type: Ready, status: \"True\", reason: Ready, message: \"\", lastTransitionTime: \"2025-01-02T03:04:05Z\"}]}}")
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), object) })
		if status, ok := object.Object["status"].(map[string]any); ok && status["conditions"] != nil {
			t.Errorf("%s: the status was stored by a create", kind)
		}
		if err := kube.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, toJSON(t, "{spec: {weight: 7, context: x, expireAfter: 5h, percentage: 4}}"))); err != nil {
			t.Fatal(err)
		}
		if object.GetGeneration() != 1 {
			t.Errorf("%s: a status update changed the spec", kind)
		}
	}
}

// An API server takes every example as it stands: no field is misspelled, none is left out that is required.
func TestExamplesAreAccepted(t *testing.T) {
	out, problems, err := kubectl(t, "", "apply", "--dry-run=server", "--validate=strict", "-f", "../../docs/examples")
	if err != nil || strings.TrimSpace(problems) != "" {
		t.Errorf("%v: %s", err, problems)
	}
	for _, name := range []string{"nodepool.karpenter.sh/critical", "ec2nodeclass.karpenter.k8s.aws/reserved", "deployment.apps/headroom"} {
		if !strings.Contains(out, name) {
			t.Errorf("%s was not tried:\n%s", name, out)
		}
	}
}
