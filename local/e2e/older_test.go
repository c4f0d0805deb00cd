package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// manifests are those of the tests of karpenter convert.
const manifests = "../../internal/cli/testdata/convert/"

// applied writes a manifest into the cluster, as it is but for the names of things that are here, until the test ends.
func applied(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	text = strings.NewReplacer("YOUR_CLUSTER_NAME", "local", "name: default", "name: older", "amiFamily: AL2 ", "amiFamily: AL2023 ").Replace(text)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	shared.do(t, "kubectl", "apply", "-f", file)
	t.Cleanup(func() { shared.command("kubectl", "delete", "--wait=false", "-f", file).Run() })
}

func manifest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(manifests + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// only makes pods that accept nodes of one pool, named after it.
func only(t *testing.T, pool string) *appsv1.Deployment {
	t.Helper()
	pods := template(pool)
	pods.Spec.NodeSelector = map[string]string{v1.NodePoolLabelKey: pool}
	d := deployment(pool, 3, pods)
	add(t, d)
	return d
}

// converted is what karpenter convert writes for a Provisioner and its template.
func converted(t *testing.T) string {
	t.Helper()
	convert := exec.Command(filepath.Join(filepath.Dir(binary), "karpenter"), "convert", "--role", "KarpenterNodeRole-local", "-f", "-")
	convert.Stdin = strings.NewReader(`
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: oldest}
spec:
  consolidation: {enabled: true}
  labels: {environment: lower}
  kubeletConfiguration: {systemReserved: {cpu: 100m, memory: 300Mi}}
  providerRef: {name: oldest}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: oldest}
spec:
  amiFamily: Bottlerocket
  subnetSelector: {karpenter.sh/discovery: local}
  securityGroupSelector: {karpenter.sh/discovery: local}
`)
	var out, said bytes.Buffer
	convert.Stdout, convert.Stderr = &out, &said
	if err := convert.Run(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return out.String()
}

// What was written for v1beta1 is applied as it is, gets machines, and reads back as it was written. What was written for Provisioners gets
// machines once it is converted.
func TestOlderManifestsGetNodes(t *testing.T) {
	together.enter(t)
	applied(t, manifest(t, "001-01a-ec2nodeclass-role-corrected"))
	applied(t, manifest(t, "001-02-nodepool-default"))
	applied(t, converted(t))
	workloads := []*appsv1.Deployment{only(t, "older"), only(t, "oldest")}
	for _, d := range workloads {
		running(t, d.Name, 3)
	}
	seen := shared.do(t, "kubectl", "get", "nodepools.v1beta1.karpenter.sh", "older", "-o", "yaml")
	for _, want := range []string{"consolidationPolicy: WhenUnderutilized", "apiVersion: karpenter.k8s.aws/v1beta1"} {
		if !strings.Contains(seen, want) {
			t.Errorf("v1beta1 shows\n%s\nwant %s", seen, want)
		}
	}
	for _, d := range workloads {
		if err := shared.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	empty(t)
}
