//go:build clouds

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Manifests for the pool of a provider that is not AWS.
const (
	alwaysTwo = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: two}
spec:
  replicas: 2
  template:
    metadata: {labels: {pool: two}}
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [c-2x-amd64-linux]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      taints: [{key: pool, value: two, effect: NoSchedule}]
`
	dearTypes = `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: dear}
spec:
  requirements:
  - {key: karpenter.kwok.sh/instance-family, operator: In, values: [c, s]}
  priceAdjustment: "+900%"
`
)

// TestPodsRunOverKarpentersKWOKProvider is the life of a cluster in which Karpenter's KWOK provider makes the nodes: pods come and go, nodes
// drift and expire, and pools, buffers and overlays do what they do over AWS.
func TestPodsRunOverKarpentersKWOKProvider(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	c.do(t, "up", "--provider", "kwok", "--set", "settings.featureGates.staticCapacity=true",
		"--set", "settings.featureGates.capacityBuffer=true", "--set", "settings.featureGates.nodeOverlay=true")
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	of := func(pool string) []v1.NodeClaim {
		t.Helper()
		all, err := c.claims(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(all, func(n v1.NodeClaim) bool { return n.Labels[v1.NodePoolLabelKey] != pool })
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		eventually(t, func(context.Context) (string, error) {
			if holds() {
				return "", nil
			}
			return fmt.Sprintf("%s: %d claims of pool default", what, len(of("default"))), nil
		})
	}
	gone := func(before []v1.NodeClaim) bool {
		return !slices.ContainsFunc(of("default"), func(n v1.NodeClaim) bool {
			return slices.ContainsFunc(before, func(b v1.NodeClaim) bool { return b.Name == n.Name })
		})
	}
	run := func(app string, want int) bool {
		pods, err := c.pods(t.Context(), client.MatchingLabels{"app": app})
		running := slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil })
		return err == nil && len(running) == want
	}

	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=10")
	until("10 pods run", func() bool { return run("inflate", 10) })
	first := of("default")
	for _, n := range first {
		if n.Spec.NodeClassRef.Kind != "KWOKNodeClass" || n.Labels[v1.CapacityTypeLabelKey] != v1.CapacityTypeSpot {
			t.Errorf("claim %s has class %s and is %s, want a spot node of KWOK", n.Name, n.Spec.NodeClassRef.Kind,
				n.Labels[v1.CapacityTypeLabelKey])
		}
	}

	t.Log("drift, to on-demand")
	c.do(t, "kubectl", "patch", "nodepool/default", "--type=json", "-p",
		`[{"op": "replace", "path": "/spec/template/spec/requirements/2/values", "value": ["on-demand"]}]`)
	until("drifted nodes are replaced", func() bool { return gone(first) && run("inflate", 10) })
	second := of("default")
	for _, n := range second {
		if n.Labels[v1.CapacityTypeLabelKey] != v1.CapacityTypeOnDemand {
			t.Errorf("claim %s is %s, want on-demand", n.Name, n.Labels[v1.CapacityTypeLabelKey])
		}
	}

	t.Log("expiry")
	c.do(t, "kubectl", "patch", "nodepool/default", "--type=merge", "-p", `{"spec": {"template": {"spec": {"expireAfter": "30s"}}}}`)
	until("nodes drift to a short life, and expire", func() bool { return gone(second) && run("inflate", 10) })
	third := of("default")
	until("expired nodes are replaced", func() bool { return len(third) > 0 && gone(third) })
	c.do(t, "kubectl", "patch", "nodepool/default", "--type=merge", "-p", `{"spec": {"template": {"spec": {"expireAfter": "720h"}}}}`)

	t.Log("scale-down")
	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=0")
	until("nodes go with their pods", func() bool {
		nodes, err := c.nodes(t.Context())
		return err == nil && len(nodes) == 0 && len(of("default")) == 0
	})

	t.Log("a static pool")
	c.apply(t, alwaysTwo)
	until("the static pool has two nodes", func() bool {
		nodes, err := c.nodes(t.Context())
		return err == nil && len(nodes) == 2 && len(of("two")) == 2
	})
	c.do(t, "kubectl", "delete", "nodepool/two")
	until("its nodes go with it", func() bool { return len(of("two")) == 0 })

	t.Log("an overlay")
	c.apply(t, dearTypes)
	c.do(t, "kubectl", "wait", "nodeoverlay/dear", "--for=condition=Ready", wait)
	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=4")
	until("4 pods run", func() bool { return run("inflate", 4) })
	for _, n := range of("default") {
		if family := n.Labels["karpenter.kwok.sh/instance-family"]; family != "m" {
			t.Errorf("claim %s is of family %q, want m: the overlay made the others dear", n.Name, family)
		}
	}
	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=0")
	until("nodes go again", func() bool { return len(of("default")) == 0 })

	t.Log("a buffer")
	c.apply(t, buffered)
	c.do(t, "kubectl", "wait", "capacitybuffer/burst", "--for=condition=Provisioning", wait)
	until("the buffer has nodes", func() bool { return len(of("default")) > 0 })
}

// TestKarpentersAWSProviderTakesTheFleetOverAndGivesItBack runs Karpenter's own AWS provider on the model of AWS: an example of the guides gets a
// node, an interruption and drift replace it. Then this project's provider takes the cluster over, and gives it back; no machine changes.
func TestKarpentersAWSProviderTakesTheFleetOverAndGivesItBack(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	c.do(t, "up", "--provider", "aws-upstream")
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	ready := func() (map[string]string, error) { // claims that are in use, with their machines
		all, err := c.claims(t.Context())
		out := map[string]string{}
		for i := range all {
			if condition.IsTrue(&all[i], v1.ConditionTypeInitialized) && all[i].DeletionTimestamp == nil {
				out[all[i].Name] = all[i].Status.ProviderID
			}
		}
		if err == nil && len(out) != len(all) {
			err = fmt.Errorf("%d of %d claims are in use", len(out), len(all))
		}
		return out, err
	}
	replaced := func(old map[string]string) (now map[string]string) {
		t.Helper()
		eventually(t, func(context.Context) (why string, err error) {
			if now, err = ready(); err != nil {
				return "", err
			}
			for name := range now {
				if _, is := old[name]; is {
					why = "claim " + name + " is not replaced"
				}
			}
			if len(now) == 0 {
				why = "there is no claim"
			}
			return why, nil
		})
		c.do(t, "kubectl", "wait", "--for=condition=Ready", "pod", "--all", wait)
		return now
	}
	examples := filepath.Join("..", "..", "docs", "examples")
	for _, file := range []string{"spot-first.yaml", "test-pod.yaml"} {
		c.do(t, "kubectl", "apply", "-f", filepath.Join(examples, file))
	}
	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=3")
	first := replaced(nil)

	t.Log("interruption")
	for _, id := range first {
		c.do(t, "break", "--interrupt", c.nodeOf(t, id))
	}
	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=4")
	second := replaced(first)

	t.Log("drift")
	for name := range second {
		pool := c.do(t, "kubectl", "get", "nodeclaim", name, "-o", `jsonpath={.metadata.labels.karpenter\.sh/nodepool}`)
		c.do(t, "kubectl", "patch", "nodepool", pool, "--type=merge", "-p", `{"spec": {"template": {"metadata": {"labels": {"edition": "2"}}}}}`)
	}
	third := replaced(second)

	c.do(t, "kubectl", "patch", "nodepool", "spot-first", "on-demand-fallback", "default", "--type=merge", "-p",
		`{"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}`) // only what a new controller finds wrong could cost a machine now
	for i, provider := range []string{"aws", "aws-upstream"} {
		t.Log("handing over to ", provider)
		c.do(t, "up", "--provider", provider)
		replicas := fmt.Sprint(40 * (i + 1)) // which the new controller buys machines for
		c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas="+replicas)
		c.do(t, "kubectl", "wait", "--for=jsonpath={.status.readyReplicas}="+replicas, "deployment/inflate", wait)
		all, err := c.claims(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == len(third) {
			t.Errorf("%s bought nothing", provider)
		}
		kept := map[string]string{}
		for i := range all {
			kept[all[i].Name] = all[i].Status.ProviderID
			if condition.IsTrue(&all[i], v1.ConditionTypeDrifted) {
				t.Errorf("claim %s has drifted with %s", all[i].Name, provider)
			}
		}
		for name, id := range third {
			if kept[name] != id {
				t.Errorf("claim %s has machine %q with %s, want %q", name, kept[name], provider, id)
			}
		}
		third = kept
	}
}

// nodeOf is the name of a machine's Node.
func (c *cluster) nodeOf(t *testing.T, providerID string) string {
	t.Helper()
	nodes, err := c.nodes(t.Context())
	for _, n := range nodes {
		if n.Spec.ProviderID == providerID {
			return n.Name
		}
	}
	t.Fatalf("machine %s has no Node, %v", providerID, err)
	return ""
}
