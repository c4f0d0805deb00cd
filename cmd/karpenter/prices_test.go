package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const somePool = `apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: c, resources: {requests: {cpu: "1", memory: 1Gi}}}]}
`

// planOf runs karpenter plan over manifests and returns what it prints.
func planOf(t *testing.T, manifests string, flags ...string) (out, trouble string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o644); err != nil {
		t.Fatal(err)
	}
	var o, e strings.Builder
	run(t.Context(), append([]string{"plan", "-f", file}, flags...), &o, &e)
	return o.String(), e.String()
}

// A price of one region must never pass for that of another.
func TestPricesOfAnotherRegionAreMarked(t *testing.T) {
	const mark, remedy = "(prices of us-east-1)", "karpenter prices fetch --region eu-west-2"
	for region, marked := range map[string]bool{"us-east-1": false, "eu-west-2": true} {
		out, trouble := planOf(t, somePool, "--region", region)
		if n := strings.Count(out, mark); (n == 2) != marked || (n == 0) == marked {
			t.Errorf("%s: the plan has the mark %d times:\n%s", region, n, out)
		}
		if strings.Contains(trouble, remedy) != marked || strings.Contains(trouble, "2026-07-20") != marked {
			t.Errorf("%s: %s", region, trouble)
		}
		asJSON, _ := planOf(t, somePool, "--region", region, "-o", "json")
		if strings.Contains(asJSON, `"pricesOf": "us-east-1"`) != marked {
			t.Errorf("%s: %s", region, asJSON)
		}
	}
}

func TestPlanWithThePricesOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "eu-west-1.json")
	text := `{"region": "eu-west-1", "made": "2026-11-01", "onDemand": {"m5.large": 0.107},
		"zones": {"eu-west-1a": {"id": "euw1-az1", "types": ["m5.large"]}}}`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, trouble := planOf(t, somePool, "--prices", file)
	if !strings.Contains(out, "m5.large") || !strings.Contains(out, "eu-west-1a") || !strings.Contains(out, "$0.1070 an hour;") {
		t.Errorf("%s%s", out, trouble)
	}
	if _, trouble := planOf(t, somePool, "--region", "eu-west-1"); !strings.Contains(trouble, "karpenter prices fetch --region eu-west-1") {
		t.Errorf("a region without data: %s", trouble)
	}
}

// EC2 keeps prices of types that it lists no more.
func TestPlanNamesTypesThatEC2ListsNoMore(t *testing.T) {
	pool := strings.Replace(somePool, "requirements: [", "requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [p3]}, ", 1)
	pod := strings.Replace(somePool, "spec: {containers", "spec: {nodeSelector: {node.kubernetes.io/instance-type: p3.2xlarge}, containers", 1)
	for text, want := range map[string]string{
		pool:     "NodePool default asks for p3.16xlarge, p3.2xlarge, p3.8xlarge, which EC2 lists no more",
		pod:      "Pod default/web asks for p3.2xlarge, which EC2 lists no more",
		somePool: "",
	} {
		if _, trouble := planOf(t, text); !strings.Contains(trouble, want) || want == "" && strings.Contains(trouble, "lists no more") {
			t.Errorf("got %q, want %q", trouble, want)
		}
	}
}
