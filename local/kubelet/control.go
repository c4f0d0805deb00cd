package kubelet

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"karpenter.sh/karpenter/local/ebs"
	"karpenter.sh/karpenter/local/join"
	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/local/runtime"
)

// controlNodes are the nodes that the controller runs on, as runtime knows them.
func controlNodes() []runtime.Node {
	var all []runtime.Node
	for i, name := range plane.ControlNodes() {
		m := controlMachine(i, name)
		all = append(all, runtime.Node{Name: name, IP: m.InternalIP, Allocatable: m.Allocatable})
	}
	return all
}

// controlVolumes is how many volumes a node of the control plane takes.
const controlVolumes = 26

// controlMachine is a machine that was not bought: two CPUs and eight gigabytes in a zone of its own, kept free of
// everything that does not ask for it, as nodes for add-ons are.
func controlMachine(i int, name string) join.Machine {
	zone := plane.Region + string(rune('a'+i))
	size := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
			corev1.ResourcePods: resource.MustParse("29"), corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
		}
	}
	return join.Machine{
		Node: name,
		Labels: map[string]string{
			corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: zone,
			corev1.LabelTopologyRegion: plane.Region,
		},
		Taints:      []corev1.Taint{{Key: "CriticalAddonsOnly", Value: "true", Effect: corev1.TaintEffectNoSchedule}},
		Capacity:    size("2", "8Gi"),
		Allocatable: size("1930m", "7Gi"),
		InternalIP:  "10.0.255." + string(rune('1'+i)), // outside of all subnets
		Drivers:     ebs.OnNode(name, controlVolumes),
	}
}

// keepControlNodes makes the nodes of the control plane, again if they are deleted, until ctx ends.
func keepControlNodes(ctx context.Context, client kubernetes.Interface, version string, log *slog.Logger) error {
	for {
		wait := 2 * time.Second
		for i, name := range plane.ControlNodes() {
			m := controlMachine(i, name)
			m.Version = version
			if err := makeControlNode(ctx, client, m); err != nil && ctx.Err() == nil {
				log.Error("make a node of the control plane", "node", name, "error", err)
				wait = 200 * time.Millisecond
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// makeControlNode makes a node that is ready from the start: the controller should not wait for what is there always.
func makeControlNode(ctx context.Context, client kubernetes.Interface, m join.Machine) error {
	_, err := client.CoreV1().Nodes().Get(ctx, m.Node, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	node := join.Node(m, time.Now())
	for i, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"
			node.Status.Conditions[i] = c
		}
	}
	node, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = client.StorageV1().CSINodes().Create(ctx, join.CSINode(node, m.Drivers), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
