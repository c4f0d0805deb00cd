//go:build apiserver

package conversion

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// rendered is what the chart renders where everything is strict; a test beside it sees to that.
const rendered = "../../local/release/testdata/golden/policies.yaml"

// told is what the chart's policy about v1beta1 says.
const told = "consolidateAfter beside consolidationPolicy WhenUnderutilized"

// policy gives the server the chart's policy about v1beta1, which refuses, and returns its binding.
func (c *cluster) policy(t *testing.T) (binding *unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(rendered)
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		document, _, _ := bytes.Cut(part, []byte("\n# karpenter/"))
		if !bytes.Contains(document, []byte("kind: ValidatingAdmissionPolicy")) || !bytes.Contains(document, []byte("name: karpenter-v1beta1\n")) {
			continue
		}
		binding = &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &binding.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if err := c.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	if binding == nil || binding.GetKind() != "ValidatingAdmissionPolicyBinding" {
		t.Fatalf("there is no binding in %s", rendered)
	}
	return binding
}

// disrupted is a NodePool of v1beta1, or v1, whose disruption is given.
func disrupted(version, name, disruption string) string {
	group := ""
	if version == "v1" {
		group = "group: karpenter.k8s.aws, kind: EC2NodeClass, "
	}
	return fmt.Sprintf("{apiVersion: karpenter.sh/%s, kind: NodePool, metadata: {name: %s}, spec: {template: {spec: {requirements: [], nodeClassRef: {%sname: default}}}, disruption: {%s}}}",
		version, name, group, disruption)
}

func (c *cluster) checkStrict(t *testing.T) {
	apply := func(text string, more ...string) (string, error) {
		return c.kubectl(t, text, append([]string{"apply", "-f", "-"}, more...)...)
	}
	older := disrupted("v1beta1", "older", "consolidationPolicy: WhenUnderutilized, consolidateAfter: 30s")
	if out, err := apply(older); err != nil {
		t.Fatal(out)
	}
	binding := c.policy(t)
	eventually(t, "it is refused", func() error {
		if out, err := apply(disrupted("v1beta1", "probe", "consolidateAfter: 30s"), "--dry-run=server"); err == nil || !strings.Contains(out, told) {
			return fmt.Errorf("kubectl apply says %q", out)
		}
		return nil
	})
	for name, tc := range map[string]struct {
		text    string
		refused bool
	}{
		"a time to wait":                       {disrupted("v1beta1", "new", "consolidationPolicy: WhenUnderutilized, consolidateAfter: 30s"), true},
		"a time of nothing":                    {disrupted("v1beta1", "new", "consolidateAfter: 0s"), true},
		"no consolidation":                     {disrupted("v1beta1", "new", "consolidateAfter: Never"), false},
		"no word about it":                     {disrupted("v1beta1", "new", ""), false},
		"empty nodes after a while":            {disrupted("v1beta1", "new", "consolidationPolicy: WhenEmpty, consolidateAfter: 30s"), false},
		"what v1 allows, through v1":           {disrupted("v1", "new", "consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 30s"), false},
		"a pool that had it, otherwise edited": {strings.Replace(older, "spec: {template", "spec: {weight: 7, template", 1), false},
		"a pool that had it, with another":     {strings.Replace(older, "30s", "31s", 1), true},
	} {
		out, err := apply(tc.text, "--dry-run=server")
		if refused := err != nil && strings.Contains(out, told); refused != tc.refused || err != nil && !refused {
			t.Errorf("%s: kubectl apply says %q, want refused = %v", name, out, tc.refused)
		}
	}
	if err := c.Patch(t.Context(), binding, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"validationActions":["Warn"]}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is warned of", func() error {
		if out, err := apply(disrupted("v1beta1", "new", "consolidateAfter: 30s"), "--dry-run=server"); err != nil || !strings.Contains(out, "Warning") || !strings.Contains(out, told) {
			return fmt.Errorf("kubectl apply says %q", out)
		}
		return nil
	})
	if out, err := apply(disrupted("v1beta1", "new", ""), "--dry-run=server"); err != nil || strings.Contains(out, told) {
		t.Errorf("kubectl apply says %q of a pool that says nothing", out)
	}
	if out, err := c.kubectl(t, older, "delete", "-f", "-"); err != nil {
		t.Error(out)
	}
}
