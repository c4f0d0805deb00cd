//go:build clouds

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
