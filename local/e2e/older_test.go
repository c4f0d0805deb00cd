package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// onlyThere runs pods that accept nodes of one pool.
func onlyThere(t *testing.T, pool string) {
	t.Helper()
	pods := template("older")
	pods.Spec.NodeSelector = map[string]string{v1.NodePoolLabelKey: pool}
	d := deployment("older", 3, pods)
	add(t, d)
	running(t, "older", 3, time.Minute)
	if err := shared.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// What was written for v1beta1 is applied as it is, gets machines, and reads back as it was written.
func TestManifestsOfV1Beta1GetNodes(t *testing.T) {
	applied(t, manifest(t, "001-01a-ec2nodeclass-role-corrected"))
	applied(t, manifest(t, "001-02-nodepool-default"))
	onlyThere(t, "older")
	seen := shared.do(t, "kubectl", "get", "nodepools.v1beta1.karpenter.sh", "older", "-o", "yaml")
	for _, want := range []string{"consolidationPolicy: WhenUnderutilized", "apiVersion: karpenter.k8s.aws/v1beta1"} {
		if !strings.Contains(seen, want) {
			t.Errorf("v1beta1 shows\n%s\nwant %s", seen, want)
		}
	}
	empty(t, 2*time.Minute)
}

// What was written for Provisioners gets machines once it is converted.
func TestConvertedProvisionersGetNodes(t *testing.T) {
	convert := exec.Command(filepath.Join(filepath.Dir(binary), "karpenter"), "convert", "--role", "KarpenterNodeRole-local", "-f", "-")
	convert.Stdin = strings.NewReader(`
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: older}
spec:
  consolidation: {enabled: true}
  labels: {environment: lower}
  kubeletConfiguration: {systemReserved: {cpu: 100m, memory: 300Mi}}
  providerRef: {name: older}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: older}
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
	applied(t, out.String())
	onlyThere(t, "older")
	empty(t, 2*time.Minute)
}
