package ebs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/volume"

	"karpenter.sh/karpenter/internal/aws/hardware"
)

const (
	quiet = 50 * time.Millisecond // what happens within it is one turn's work
	retry = time.Second
)

// A Driver makes, attaches and deletes volumes.
type Driver struct {
	client kubernetes.Interface
	log    *slog.Logger
	events record.EventRecorder
	sink   record.EventBroadcaster
	woken  chan struct{}
	told   map[types.UID]string // why claims have no volume

	all         []informers.SharedInformerFactory
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	nodes       corelisters.NodeLister
	waiting     corelisters.PodLister // pods that have a node and do not run yet
	classes     storagelisters.StorageClassLister
	attachments storagelisters.VolumeAttachmentLister
}

// New returns a driver that writes with the given client.
func New(client kubernetes.Interface, log *slog.Logger) (*Driver, error) {
	all := informers.NewSharedInformerFactory(client, 0)
	pending := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "status.phase=Pending,spec.nodeName!="
	}))
	core, storage := all.Core().V1(), all.Storage().V1()
	sink := record.NewBroadcaster()
	d := &Driver{
		client: client, log: log, sink: sink, woken: make(chan struct{}, 1), told: map[types.UID]string{},
		events: sink.NewRecorder(scheme.Scheme, corev1.EventSource{Component: hardware.EBSDriver}),
		all:    []informers.SharedInformerFactory{all, pending},
		claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(), nodes: core.Nodes().Lister(),
		waiting: pending.Core().V1().Pods().Lister(), classes: storage.StorageClasses().Lister(),
		attachments: storage.VolumeAttachments().Lister(),
	}
	for _, i := range []cache.SharedIndexInformer{
		core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer(), storage.StorageClasses().Informer(),
		storage.VolumeAttachments().Informer(), pending.Core().V1().Pods().Informer(),
	} {
		if _, err := i.AddEventHandler(d.wakers()); err != nil {
			return nil, err
		}
	}
	// Heartbeats of nodes change nothing for volumes.
	_, err := core.Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { d.wake() },
		UpdateFunc: func(_, o any) {
			if n, is := o.(*corev1.Node); is && slices.ContainsFunc(n.Spec.Taints, isNotReady) {
				d.wake()
			}
		}})
	return d, err
}

// wakers wake the driver, whatever happens.
func (d *Driver) wakers() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { d.wake() }, UpdateFunc: func(any, any) { d.wake() }, DeleteFunc: func(any) { d.wake() },
	}
}

func (d *Driver) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// Run drives until ctx ends.
func (d *Driver) Run(ctx context.Context) {
	d.sink.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: d.client.CoreV1().Events("")})
	defer d.sink.Shutdown()
	for _, f := range d.all {
		f.StartWithContext(ctx)
		defer f.Shutdown()
	}
	for _, f := range d.all {
		f.WaitForCacheSyncWithContext(ctx)
	}
	for ctx.Err() == nil {
		wait := quiet
		if err := d.turn(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("drive volumes", "error", err)
			wait = retry
			d.wake()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		select {
		case <-ctx.Done():
		case <-d.woken:
		}
	}
}

// turn does what is to be done now. What fails is tried again, and holds up nothing else.
func (d *Driver) turn(ctx context.Context) error {
	attachments, err := d.attachments.List(labels.Everything())
	if err != nil {
		return err
	}
	return errors.Join(d.welcome(ctx), d.provision(ctx), d.remove(ctx, attachments), d.attach(ctx, attachments), d.mount(ctx, attachments))
}

// isNotReady reports whether a taint is the one with which pools keep pods off a node until the driver runs there.
func isNotReady(t corev1.Taint) bool { return t.Key == hardware.EBSDriver+"/agent-not-ready" }

// welcome marks nodes on which the driver runs there, which it does from their start.
func (d *Driver) welcome(ctx context.Context) error {
	nodes, err := d.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var failed []error
	for _, n := range nodes {
		if !slices.ContainsFunc(n.Spec.Taints, isNotReady) {
			continue
		}
		n = n.DeepCopy()
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isNotReady)
		_, err := d.client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		failed = append(failed, past(err))
	}
	return errors.Join(failed...)
}

// provision makes volumes for the claims that want one.
func (d *Driver) provision(ctx context.Context) error {
	claims, err := d.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	zones, err := d.zones()
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range claims {
		if asked(c) {
			failed = append(failed, d.provide(ctx, c, zones))
		}
	}
	return errors.Join(failed...)
}

// zones are those of nodes, by their names.
func (d *Driver) zones() (map[string]string, error) {
	nodes, err := d.nodes.List(labels.Everything())
	zones := map[string]string{}
	for _, n := range nodes {
		if zone := n.Labels[corev1.LabelTopologyZone]; zone != "" {
			zones[n.Name] = zone
		}
	}
	return zones, err
}

// provide makes the volume of one claim. The reason for having none is reported once, and on the claim.
func (d *Driver) provide(ctx context.Context, c *corev1.PersistentVolumeClaim, zones map[string]string) error {
	class, err := d.classes.Get(*c.Spec.StorageClassName)
	if err != nil {
		return err
	}
	v, err := makeVolume(c, class, zones)
	if errors.Is(err, errMoved) {
		return d.chooseAgain(ctx, c)
	}
	if err != nil {
		if d.told[c.UID] != err.Error() {
			d.told[c.UID] = err.Error()
			d.events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", err.Error())
		}
		return nil
	}
	delete(d.told, c.UID)
	_, err = d.client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("make a volume for %s/%s: %w", c.Namespace, c.Name, err)
	}
	d.events.Eventf(c, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", v.Name)
	return nil
}

// chooseAgain lets kube-scheduler choose another node, unless the chosen one is only too new to be known here.
func (d *Driver) chooseAgain(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	_, err := d.client.CoreV1().Nodes().Get(ctx, c.Annotations[volume.AnnSelectedNode], metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	c = c.DeepCopy()
	delete(c.Annotations, volume.AnnSelectedNode)
	_, err = d.client.CoreV1().PersistentVolumeClaims(c.Namespace).Update(ctx, c, metav1.UpdateOptions{})
	return past(err)
}

// remove deletes the volumes that are not needed any more.
func (d *Driver) remove(ctx context.Context, attachments []*storagev1.VolumeAttachment) error {
	all, err := d.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	var failed []error
	for _, v := range all {
		if unneeded(v, attachments) {
			only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))}
			failed = append(failed, past(d.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, only)))
		}
	}
	return errors.Join(failed...)
}

// attach marks volumes as attached. Detaching needs no mark: their attachments go.
func (d *Driver) attach(ctx context.Context, attachments []*storagev1.VolumeAttachment) error {
	var failed []error
	for _, a := range attachments {
		if a.Spec.Attacher == hardware.EBSDriver && !a.Status.Attached && a.DeletionTimestamp == nil {
			_, err := d.client.StorageV1().VolumeAttachments().Patch(ctx, a.Name, types.MergePatchType,
				[]byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
			failed = append(failed, past(err))
		}
	}
	return errors.Join(failed...)
}

// mount lets pods start, since their volumes are attached to their nodes.
func (d *Driver) mount(ctx context.Context, attachments []*storagev1.VolumeAttachment) error {
	waiting, err := d.waiting.List(labels.Everything())
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range waiting {
		if waits(p) && d.mountable(p, attachments) {
			patch := []byte(`{"status":{"conditions":[{"type":"` + string(corev1.PodReadyToStartContainers) + `","status":"True"}]}}`)
			_, err := d.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch,
				metav1.PatchOptions{}, "status")
			failed = append(failed, past(err))
		}
	}
	return errors.Join(failed...)
}

// mountable reports whether each of the pod's claims is bound, to a volume that is not ours or is attached to the pod's node.
func (d *Driver) mountable(p *corev1.Pod, attachments []*storagev1.VolumeAttachment) bool {
	for _, name := range claimsOf(p) {
		c, err := d.claims.PersistentVolumeClaims(p.Namespace).Get(name)
		if err != nil || c.Status.Phase != corev1.ClaimBound {
			return false
		}
		v, err := d.volumes.Get(c.Spec.VolumeName)
		if err != nil || ours(v) && !attachedTo(v, p.Spec.NodeName, attachments) {
			return false
		}
	}
	return true
}

func attachedTo(v *corev1.PersistentVolume, node string, attachments []*storagev1.VolumeAttachment) bool {
	for _, a := range attachments {
		if of(a, v) && a.Spec.NodeName == node && a.Status.Attached && a.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// past leaves out errors that say that the object has changed or gone since it was looked at: it is looked at again.
func past(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
