package looptest

import (
	"context"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"karpenter.sh/karpenter/internal/testing/memapi"
)

// watching adds to a client of the API in memory what the provider's mirrors need.
type watching struct {
	*memapi.Client
	server *memapi.Server

	mu     sync.Mutex
	listed map[string][]runtime.Object // by kind, as last listed
}

var _ client.WithWatch = &watching{}

// List implements client.Client, and remembers what a watch is to go on from.
func (c *watching) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	kind, err := c.kindOf(list)
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed[kind] = items
	return err
}

func (c *watching) kindOf(list client.ObjectList) (string, error) {
	gvk, err := apiutil.GVKForObject(list, c.Scheme())
	return strings.TrimSuffix(gvk.Kind, "List"), err
}

// Watch implements client.WithWatch. It tells first of everything there is, and of what has gone since the last list.
func (c *watching) Watch(ctx context.Context, list client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
	kind, err := c.kindOf(list)
	if err != nil {
		return nil, err
	}
	gone := map[string]runtime.Object{}
	c.mu.Lock()
	for _, o := range c.listed[kind] {
		gone[o.(client.Object).GetName()] = o
	}
	c.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	f := &feed{events: make(chan watch.Event), stop: stop}
	go func() {
		defer close(f.events)
		c.server.Watch(ctx, 0, func(e memapi.Event) {
			if reflect.TypeOf(e.Object).Elem().Name() != kind {
				return
			}
			delete(gone, e.Object.GetName())
			if e.Deleted {
				f.tell(ctx, watch.Deleted, e.Object)
			} else {
				f.tell(ctx, watch.Modified, e.Object)
			}
		}, func() {
			for _, o := range gone {
				f.tell(ctx, watch.Deleted, o)
			}
		})
	}()
	return f, nil
}

// A feed is one watch.
type feed struct {
	events chan watch.Event
	stop   context.CancelFunc
}

func (f *feed) Stop()                          { f.stop() }
func (f *feed) ResultChan() <-chan watch.Event { return f.events }

func (f *feed) tell(ctx context.Context, what watch.EventType, o runtime.Object) {
	select {
	case f.events <- watch.Event{Type: what, Object: o.DeepCopyObject()}:
	case <-ctx.Done():
	}
}
