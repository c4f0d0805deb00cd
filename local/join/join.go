// Package join makes a Node of a machine, as the machine's kubelet would when it has booted, and removes the Node when
// the machine is gone, as the cloud's node controller would.
//
// It does not care where machines come from: the function that starts them calls Booted and Gone.
package join

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Annotation marks the nodes whose kubelets are played, by KWOK.
const (
	Annotation      = "kwok.x-k8s.io/node"
	AnnotationValue = "fake"
)

// Broken is the annotation of nodes whose readiness is not touched: the user broke them.
const Broken = "karpenter-local/broken"

// A Machine is what its kubelet knows of itself.
type Machine struct {
	Node       string // the name of its Node
	ProviderID string
	Labels     map[string]string
	Taints     []corev1.Taint // those that the kubelet registers with
	Capacity   corev1.ResourceList
	// Allocatable is Capacity without what the system keeps.
	Allocatable corev1.ResourceList
	InternalIP  string
	Version     string // of the kubelet
	OSImage     string
	BootID      string
	Drivers     []storagev1.CSINodeDriver // of volumes, which are on it from its start
}

// attached says, on a Node, that its kubelet leaves it to kube-controller-manager to attach volumes.
const attached = "volumes.kubernetes.io/controller-managed-attach-detach"

// Node returns the Node that the machine's kubelet registers: not ready yet, since its network is not up.
func Node(m Machine, now time.Time) *corev1.Node {
	labels := maps.Clone(m.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelHostname] = m.Node
	for _, driver := range m.Drivers { // the kubelet labels its Node with where a driver's volumes can be attached
		for _, key := range driver.TopologyKeys {
			if zone := labels[corev1.LabelTopologyZone]; zone != "" && strings.HasSuffix(key, "/zone") {
				labels[key] = zone
			}
		}
	}
	stamp := metav1.NewTime(now)
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: stamp, LastTransitionTime: stamp,
		}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        m.Node,
			Labels:      labels,
			Annotations: map[string]string{Annotation: AnnotationValue, attached: "true"},
		},
		Spec: corev1.NodeSpec{ProviderID: m.ProviderID, Taints: m.Taints},
		Status: corev1.NodeStatus{
			Capacity:    m.Capacity,
			Allocatable: m.Allocatable,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: m.InternalIP},
				{Type: corev1.NodeHostName, Address: m.Node},
				{Type: corev1.NodeInternalDNS, Address: m.Node},
			},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory",
					"kubelet has sufficient memory available"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID",
					"kubelet has sufficient PID available"),
				condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready"),
			},
			NodeInfo: corev1.NodeSystemInfo{
				BootID:                  m.BootID,
				KubeletVersion:          m.Version,
				ContainerRuntimeVersion: "simulated://1",
				OperatingSystem:         cmp.Or(labels[corev1.LabelOSStable], "linux"),
				Architecture:            cmp.Or(labels[corev1.LabelArchStable], "amd64"),
				OSImage:                 cmp.Or(m.OSImage, "simulated"),
			},
		},
	}
}

// CSINode returns what the kubelet registers beside its Node: a list of the CSI drivers on the machine.
func CSINode(owner *corev1.Node, drivers []storagev1.CSINodeDriver) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{
			Name: owner.Name,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID},
			},
		},
		Spec: storagev1.CSINodeSpec{Drivers: drivers},
	}
}

// Boot is how long machines take from their start until they join.
type Boot struct{ Delay, Spread time.Duration }

// Of returns the delay of one machine: always the same for the same machine, and evenly spread over all.
func (b Boot) Of(machine string) time.Duration {
	if b.Spread <= 0 {
		return b.Delay
	}
	h := fnv.New64a()
	h.Write([]byte(machine))
	const steps = 1 << 20
	step := time.Duration(h.Sum64() >> 44) // the upper 20 bits
	return b.Delay - b.Spread + 2*b.Spread*step/steps
}

// Nodes turns machines into Nodes.
type Nodes struct {
	client  kubernetes.Interface
	log     *slog.Logger
	running sync.WaitGroup

	mu      sync.Mutex
	joining map[string]*attempt // by provider ID
}

// An attempt to join goes on until it succeeds, or until the machine is gone.
type attempt struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// New returns a Nodes that writes with the given client, which needs the rights of a kubelet.
func New(client kubernetes.Interface, log *slog.Logger) *Nodes {
	return &Nodes{client: client, log: log, joining: map[string]*attempt{}}
}

// Booted lets the machine join. Telling it twice is harmless. ctx bounds the attempts.
func (n *Nodes) Booted(ctx context.Context, m Machine) {
	ctx, cancel := context.WithCancel(ctx)
	this := &attempt{cancel, make(chan struct{})}
	n.mu.Lock()
	before := n.joining[m.ProviderID]
	n.joining[m.ProviderID] = this
	n.mu.Unlock()
	n.running.Go(func() {
		defer close(this.done)
		defer cancel()
		before.end()
		n.untilDone(ctx, "join", m.Node, func(ctx context.Context) error { return n.register(ctx, m) })
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.joining[m.ProviderID] == this {
			delete(n.joining, m.ProviderID)
		}
	})
}

// end makes an attempt give up, and waits until it has. There may be none.
func (a *attempt) end() {
	if a != nil {
		a.cancel()
		<-a.done
	}
}

// Gone removes the machine's Node. A machine that still tries to join stops trying. Telling it twice is harmless.
func (n *Nodes) Gone(ctx context.Context, node, providerID string) {
	n.mu.Lock()
	trying := n.joining[providerID]
	n.mu.Unlock()
	n.running.Go(func() {
		trying.end()
		n.untilDone(ctx, "remove", node, func(ctx context.Context) error { return n.unregister(ctx, node, providerID) })
	})
}

// Silence stops the machine's kubelet and leaves its Node to those who notice.
func (n *Nodes) Silence(ctx context.Context, node string) {
	n.running.Go(func() {
		n.untilDone(ctx, "silence", node, func(ctx context.Context) error { return n.silence(ctx, node) })
	})
}

// Rebooting lets the machine's kubelet say that it is not ready, and stops it. It is back once Booted is called.
func (n *Nodes) Rebooting(ctx context.Context, node string) {
	n.running.Go(func() {
		n.untilDone(ctx, "shut down", node, func(ctx context.Context) error {
			if err := n.silence(ctx, node); err != nil {
				return err
			}
			patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady",` +
				`"message":"node is shutting down"}]}}`)
			_, err := n.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	})
}

// Forget removes the Nodes whose machine went in the meantime. There reports whether a machine is there. Nodes
// that never had one stay: those of the control plane, and those that another provider made.
func (n *Nodes) Forget(ctx context.Context, there func(providerID string) bool) error {
	all, err := n.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range all.Items {
		if _, ours := node.Annotations[attached]; ours && node.Spec.ProviderID != "" && !there(node.Spec.ProviderID) {
			n.Gone(ctx, node.Name, node.Spec.ProviderID)
		}
	}
	return nil
}

// Wait returns when everything that was told is done or given up.
func (n *Nodes) Wait() { n.running.Wait() }

// untilDone tries until it succeeds or ctx ends; the API server may be away for a while.
func (n *Nodes) untilDone(ctx context.Context, what, node string, do func(context.Context) error) {
	for {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		n.log.Error(what+" node", "node", node, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func (n *Nodes) register(ctx context.Context, m Machine) error {
	node, err := n.client.CoreV1().Nodes().Create(ctx, Node(m, time.Now()), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return n.rejoin(ctx, m)
	}
	if err != nil {
		return err
	}
	n.log.Info("node joined", "node", m.Node, "machine", m.ProviderID)
	_, err = n.client.StorageV1().CSINodes().Create(ctx, CSINode(node, m.Drivers), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// rejoin has the kubelet of a machine that has booted anew go on with its Node.
func (n *Nodes) rejoin(ctx context.Context, m Machine) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, m.Node, metav1.GetOptions{})
	if err != nil || node.Spec.ProviderID != m.ProviderID || node.Status.NodeInfo.BootID == m.BootID {
		return err
	}
	node.Status.NodeInfo.BootID, node.Status.Conditions = m.BootID, Node(m, time.Now()).Status.Conditions
	if node, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	node.Annotations[Annotation] = AnnotationValue
	_, err = n.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	n.log.Info("node is back", "node", m.Node, "machine", m.ProviderID)
	return err
}

func (n *Nodes) unregister(ctx context.Context, name, providerID string) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if node.Spec.ProviderID != providerID {
		return nil // the name was taken over by another machine
	}
	if err := n.silence(ctx, name); err != nil {
		return err
	}
	err = n.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		n.log.Info("node removed", "node", name, "machine", providerID)
	}
	return err
}

// silence takes the annotation away by which the node is played.
func (n *Nodes) silence(ctx context.Context, name string) error {
	patch := []byte(`{"metadata":{"annotations":{"` + Annotation + `":null}}}`)
	_, err := n.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
