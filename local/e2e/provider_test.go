//go:build clouds

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
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
	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=60")
	until("60 pods run", func() bool { return run("inflate", 60) })
	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=21")
	eventually(t, func(context.Context) (string, error) {
		bill, least := kwokBill(of("default")), leastKWOKBill(21)
		if run("inflate", 21) && bill <= least*1.05 {
			return "", nil
		}
		return fmt.Sprintf("21 pods cost $%.4f an hour, the least is $%.4f", bill, least), nil
	})
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
	var room []v1.NodeClaim
	starting := func(n v1.NodeClaim) bool { return !condition.IsTrue(&n, v1.ConditionTypeInitialized) }
	until("the buffer has nodes", func() bool {
		room = of("default")
		return len(room) > 0 && !slices.ContainsFunc(room, starting)
	})
	c.apply(t, burst)
	for _, p := range c.running(t, "burst", 10) {
		if !slices.ContainsFunc(room, func(n v1.NodeClaim) bool { return n.Status.NodeName == p.Spec.NodeName }) {
			t.Errorf("pod %s runs on node %s, which was bought after the pod came", p.Name, p.Spec.NodeName)
		}
	}
}

// kwokBill returns what claims cost an hour on demand, infinity while one of them is not launched. The KWOK provider asks $0.025 for a vCPU
// and $0.001 for 10^9 bytes of memory.
func kwokBill(claims []v1.NodeClaim) (dollars float64) {
	for _, n := range claims {
		cpu, err := resource.ParseQuantity(n.Labels["karpenter.kwok.sh/instance-cpu"])
		memory, wrong := resource.ParseQuantity(n.Labels["karpenter.kwok.sh/instance-memory"])
		if err != nil || wrong != nil {
			return math.Inf(1)
		}
		dollars += 0.025*cpu.AsApproximateFloat64() + 0.001*memory.AsApproximateFloat64()/1e9
	}
	return dollars
}

// leastKWOKBill returns the least price an hour, on demand, of nodes for pods of one vCPU and 1 Gi. Types of the family c, of 2 Gi for a
// vCPU, are the cheapest, and each node keeps less than one vCPU for itself.
func leastKWOKBill(pods int) float64 {
	least := make([]float64, pods+1)
	for n := 1; n <= pods; n++ {
		for i, cpu := range []int{2, 4, 8, 16, 32, 48, 64} {
			price := float64(cpu) * (0.025 + 0.001*(2<<30)/1e9)
			if bill := price + least[max(0, n-(cpu-1))]; i == 0 || bill < least[n] {
				least[n] = bill
			}
		}
	}
	return least[pods]
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

// guidesOfV1 are manifests that people wrote for v1: a class and pools of it. What is called default has the name of the guide here.
var guidesOfV1 = map[string]struct{ files, pools []string }{
	"basic": {[]string{"003-01-ec2nodeclass-default", "003-02-nodepool-general"}, []string{"general"}},
	"spot": {
		[]string{"004-04-ec2nodeclass-default", "004-01-nodepool-default", "004-11-nodepool-spot-optimized-corrected",
			"004-12-nodepool-spot-diverse", "004-13-nodepool-spot-first", "004-14-nodepool-on-demand-fallback"},
		[]string{"spot", "spot-optimized", "spot-diverse", "spot-first", "on-demand-fallback"},
	},
	"development": {[]string{"004-04-ec2nodeclass-default", "004-03-nodepool-development"}, []string{"development"}},
	"production":  {[]string{"004-17-ec2nodeclass-production", "004-02-nodepool-production"}, []string{"production"}},
}

// TestManifestsOfTheGuidesGetNodesOverKarpentersAWSProvider applies what people wrote for Karpenter, converted to v1 where it is older:
// every pool gets a node.
func TestManifestsOfTheGuidesGetNodesOverKarpentersAWSProvider(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	c.do(t, "up", "--provider", "aws-upstream")
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	const provisioner = "lower-env-provisioner"
	older, texts, pools := []string{c.provisioners(t)}, []string{}, []string{provisioner, inPieces, "full"}
	for name, guide := range guides {
		for _, file := range guide.files {
			older = append(older, c.manifest(t, manifests+file, name))
		}
		pools = append(pools, guide.pools...)
	}
	for name, guide := range guidesOfV1 {
		for _, file := range guide.files {
			texts = append(texts, c.manifest(t, manifestsOfV1+file, name))
		}
		pools = append(pools, guide.pools...)
	}
	for _, file := range []string{"004-17-ec2nodeclass-production", "004-18-nodepool-production-full"} { // names that the guide has twice
		texts = append(texts, strings.ReplaceAll(c.manifest(t, manifestsOfV1+file, ""), "name: production", "name: full"))
	}
	c.apply(t, strings.Join(append(texts, converted(t, older...)), "\n---\n"))
	for _, pool := range pools {
		if err := c.Create(t.Context(), c.only(t, pool, nil)); err != nil {
			t.Fatal(err)
		}
	}
	c.networked(t, provisioner, "node.cilium.io/agent-not-ready")
	for _, pool := range pools {
		c.running(t, pool, 1)
	}
	if wrong, err := c.unequal(t.Context(), c.run(t)); wrong != "" || err != nil {
		t.Error(wrong, err)
	}
}

// TestLostClaimsAndMachinesAreFoundOverKarpentersAWSProvider tears the claim of a machine away, and ends the machine of a claim. In both
// cases machines, claims and nodes become the same again, and the pods run on another machine. The provider looks for machines without a
// claim too; that the core finds them is what the crash tests of the adapter show.
func TestLostClaimsAndMachinesAreFoundOverKarpentersAWSProvider(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	c.do(t, "up", "--provider", "aws-upstream")
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	c.do(t, "kubectl", "scale", "deployment/inflate", "--replicas=3")
	same := func() {
		t.Helper()
		eventually(t, func(ctx context.Context) (string, error) { return c.unequal(ctx, c.run(t)) })
	}
	for what, lose := range map[string]func(v1.NodeClaim){
		"a machine whose claim is torn away": func(n v1.NodeClaim) {
			none := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
			if err := errors.Join(c.Patch(t.Context(), &n, none), c.Delete(t.Context(), &n)); err != nil {
				t.Fatal(err)
			}
		},
		"a claim whose machine was ended": func(n v1.NodeClaim) { c.do(t, "break", "--kill", n.Status.NodeName) },
	} {
		t.Log(what)
		c.running(t, "inflate", 3)
		same()
		before, err := c.claims(t.Context())
		if err != nil || len(before) == 0 {
			t.Fatalf("%d claims, %v", len(before), err)
		}
		lost := before[0]
		lose(lost)
		eventually(t, func(ctx context.Context) (string, error) {
			running, err := machines(ctx, c.run(t))
			claims, wrong := c.claims(ctx)
			if slices.Contains(running, lost.Status.ProviderID) {
				return "machine " + lost.Status.ProviderID + " runs", err
			}
			if slices.ContainsFunc(claims, func(n v1.NodeClaim) bool { return n.UID == lost.UID }) {
				return "claim " + lost.Name + " is there", wrong
			}
			return "", errors.Join(err, wrong)
		})
		for _, p := range c.running(t, "inflate", 3) {
			if p.Spec.NodeName == lost.Status.NodeName {
				t.Errorf("pod %s runs on node %s, whose machine is gone", p.Name, p.Spec.NodeName)
			}
		}
		same()
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
