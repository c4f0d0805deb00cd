package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Manifests of a buffer of ten pods, and of a deployment of ten such pods.
const (
	buffered = `
apiVersion: v1
kind: PodTemplate
metadata: {name: burst}
template:
  spec:
    containers: [{name: c, image: public.ecr.aws/eks-distro/kubernetes/pause:3.10, resources: {requests: {cpu: 900m, memory: 256Mi}}}]
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: burst}
spec: {podTemplateRef: {name: burst}, replicas: 10}
`
	burst = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: burst}
spec:
  replicas: 10
  selector: {matchLabels: {app: burst}}
  template:
    metadata: {labels: {app: burst}}
    spec:
      containers: [{name: c, image: public.ecr.aws/eks-distro/kubernetes/pause:3.10, resources: {requests: {cpu: 900m, memory: 256Mi}}}]
`
)

// Ten pods come to a cluster that runs nothing and keeps room for ten: kube-scheduler binds them at once, onto nodes that were there. Then the
// room is bought again, and when nobody wants any more all nodes go. Beside them, for there is a cluster that waits, pods with claims for devices come
// and go.
func TestABufferOfTenBindsTenPodsAtOnce(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	c.do(t, "up", "--set", "settings.featureGates.capacityBuffer=true")
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	c.apply(t, buffered)
	c.do(t, "kubectl", "wait", "capacitybuffer/burst", "--for=condition=Provisioning", wait)
	before, err := c.claims(t.Context())
	if err != nil || len(before) == 0 {
		t.Fatalf("%d claims, %v", len(before), err)
	}
	there := map[string]bool{}
	for _, claim := range before {
		there[claim.Status.NodeName] = true
	}

	c.apply(t, burst)
	var pods []corev1.Pod
	eventually(t, func(ctx context.Context) (string, error) {
		pods, err = c.pods(ctx, client.MatchingLabels{"app": "burst"})
		bound := 0
		for _, p := range pods {
			if p.Spec.NodeName != "" {
				bound++
			}
		}
		if bound == 10 {
			return "", err
		}
		return fmt.Sprintf("%d of 10 pods are bound", bound), err
	})
	for _, p := range pods {
		if !there[p.Spec.NodeName] {
			t.Errorf("pod %s runs on %s, which was bought for it", p.Name, p.Spec.NodeName)
		}
	}
	if waited := c.do(t, "kubectl", "get", "events", "--field-selector", "reason=FailedScheduling", "-o", "name"); waited != "" {
		t.Errorf("kube-scheduler found no place at first:\n%s", waited)
	}
	eventually(t, func(ctx context.Context) (string, error) {
		now, err := c.claims(ctx)
		if len(now) > len(before) {
			return "", err
		}
		return "the room has not been bought again", err
	})
	c.do(t, "kubectl", "wait", "capacitybuffer/burst", "--for=condition=Provisioning", wait)

	const all = "capacitybuffer/burst deployment/burst"
	if kubernetes == "1.33" { // which does not serve resource.k8s.io/v1
		if said := c.do(t, "logs", "controller"); !strings.Contains(said, "devices by resource claims (from 1.34 on)") {
			t.Errorf("the log does not say that devices are off:\n%s", said)
		}
		c.typed(t, "kubectl delete --wait=false "+all)
	} else {
		machines := c.getDevices(t)
		c.giveDevicesBack(t)
		c.typed(t, "kubectl delete --wait=false "+all)
		c.devicesGo(t, machines)
	}
	eventually(t, func(ctx context.Context) (string, error) {
		left, err := c.claims(ctx)
		if len(left) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d claims are left", len(left)), err
	})
}

// apply applies a manifest.
func (c *cluster) apply(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	c.do(t, "kubectl", "apply", "-f", file)
}
