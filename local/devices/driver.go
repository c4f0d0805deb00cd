package devices

import (
	"context"
	"errors"
	"log/slog"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"

	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// moment is how long it takes at most until devices are published.
const moment = time.Second

// Drivers publish the devices of all nodes.
type Drivers struct {
	client   kubernetes.Interface
	log      *slog.Logger
	all      informers.SharedInformerFactory
	nodes    corelisters.NodeLister
	slices   resourcelisters.ResourceSliceLister
	machines map[string]*awsdata.InstanceType // by name
}

// New returns drivers that write with the given client.
func New(client kubernetes.Interface, log *slog.Logger) *Drivers {
	all := informers.NewSharedInformerFactory(client, 0)
	d := &Drivers{client: client, log: log, all: all, nodes: all.Core().V1().Nodes().Lister(),
		slices: all.Resource().V1().ResourceSlices().Lister(), machines: map[string]*awsdata.InstanceType{}}
	for _, m := range awsdata.Types() {
		d.machines[m.Name] = m
	}
	return d
}

// Run publishes until ctx ends.
func (d *Drivers) Run(ctx context.Context) {
	d.all.StartWithContext(ctx)
	defer d.all.Shutdown()
	d.all.WaitForCacheSyncWithContext(ctx)
	for ctx.Err() == nil {
		if err := d.turn(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("publish devices", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(moment):
		}
	}
}

// turn publishes what is not published yet. What fails is tried again, and holds up nothing else.
func (d *Drivers) turn(ctx context.Context) error {
	nodes, err := d.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var failed []error
	for _, n := range nodes {
		for _, s := range of(n, d.machines) {
			if _, err := d.slices.Get(s.Name); apierrors.IsNotFound(err) {
				failed = append(failed, d.publish(ctx, s))
			}
		}
	}
	return errors.Join(failed...)
}

// publish makes a slice, unless there is one: of an earlier node by that name, which is still to be collected, or made since we looked.
func (d *Drivers) publish(ctx context.Context, s *resourcev1.ResourceSlice) error {
	_, err := d.client.ResourceV1().ResourceSlices().Create(ctx, s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
