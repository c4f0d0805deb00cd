package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

const (
	gpuDriver  = "gpu.nvidia.com"
	devicePool = "devices" // of docs/examples/devices.yaml
)

// deviceCommands are those of the page, from the folder of the tests.
func deviceCommands(t *testing.T) []string {
	t.Helper()
	all := section(t, "devices.md", "On the local cluster")
	if len(all) != 2 {
		t.Fatalf("the page has %d blocks of commands, want one that gets devices and one that gives them back", len(all))
	}
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "docs/examples", "../../docs/examples")
	}
	return all
}

// getDevices has two pods run with a GPU each, as the page says, and returns their machines: two, whose devices were published before they counted
// as initialised, with a GPU of its own for each pod.
func (c *cluster) getDevices(t *testing.T) []v1.NodeClaim {
	t.Helper()
	c.typed(t, deviceCommands(t)[0])
	c.do(t, "kubectl", "rollout", "status", "deployment/render", wait)
	var machines v1.NodeClaimList
	var published resourcev1.ResourceSliceList
	var allocated resourcev1.ResourceClaimList
	for _, err := range []error{
		c.List(t.Context(), &machines, client.MatchingLabels{v1.NodePoolLabelKey: devicePool}), c.List(t.Context(), &published), c.List(t.Context(), &allocated),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(machines.Items) != 2 {
		t.Errorf("%d machines were bought for two pods, want two with a GPU each", len(machines.Items))
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		at := slices.IndexFunc(published.Items, func(s resourcev1.ResourceSlice) bool {
			return s.Spec.Driver == gpuDriver && *s.Spec.NodeName == m.Status.NodeName
		})
		ready := condition.Get(m, v1.ConditionTypeInitialized)
		if m.Annotations[v1.RequestedDRADriversAnnotationKey] != gpuDriver || at < 0 || ready == nil || ready.LastTransitionTime.Time.Before(published.Items[at].CreationTimestamp.Time) {
			t.Errorf("%s, which counts on %q, is initialised: %+v; its devices: %+v", m.Name, m.Annotations[v1.RequestedDRADriversAnnotationKey], ready, published.Items)
		}
	}
	pods, err := c.pods(t.Context(), client.MatchingLabels{"app": "render"})
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, pod := range pods {
		given[c.deviceOf(t, pod, allocated.Items)] = true
	}
	if len(given) != 2 {
		t.Errorf("the pods have devices %v, want one each", given)
	}
	return machines.Items
}

// deviceOf is the device of a pod, which has to be of its node.
func (c *cluster) deviceOf(t *testing.T, pod corev1.Pod, allocated []resourcev1.ResourceClaim) string {
	t.Helper()
	for _, claim := range allocated {
		if claim.OwnerReferences[0].UID != pod.UID || claim.Status.Allocation == nil {
			continue
		}
		got := claim.Status.Allocation.Devices.Results
		if len(got) != 1 || got[0].Driver != gpuDriver || got[0].Pool != pod.Spec.NodeName {
			t.Errorf("%s on %s was given %+v", pod.Name, pod.Spec.NodeName, got)
		}
		return got[0].Pool + "/" + got[0].Device
	}
	t.Errorf("%s was given no device", pod.Name)
	return ""
}

// giveDevicesBack scales to nothing.
func (c *cluster) giveDevicesBack(t *testing.T) { t.Helper(); c.typed(t, deviceCommands(t)[1]) }

// devicesGo waits until the machines are gone, with the devices that were published of them. Meanwhile no other is bought.
func (c *cluster) devicesGo(t *testing.T, machines []v1.NodeClaim) {
	t.Helper()
	eventually(t, func(ctx context.Context) (string, error) {
		var left v1.NodeClaimList
		if err := c.List(ctx, &left, client.MatchingLabels{v1.NodePoolLabelKey: devicePool}); err != nil {
			return "", err
		}
		for _, m := range left.Items {
			if !among(machines, m) {
				t.Errorf("%s was bought for nothing", m.Name)
			}
		}
		var published resourcev1.ResourceSliceList
		if err := c.List(ctx, &published); err != nil {
			return "", err
		}
		if len(left.Items)+len(published.Items) == 0 {
			return "", nil
		}
		return fmt.Sprintf("%d machines and %d slices are left", len(left.Items), len(published.Items)), nil
	})
}
