package judge

import (
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// A feed is an informer without an API server: what is put into it is known to everybody at once.
type feed struct {
	cache.SharedIndexInformer // what nobody calls
	indexer                   cache.Indexer
	handlers                  []cache.ResourceEventHandler
}

func newFeed() *feed {
	return &feed{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
}

func (f *feed) put(object any) {
	runtime.Must(f.indexer.Add(object))
	for _, h := range f.handlers {
		h.OnAdd(object, false)
	}
}

func (f *feed) remove(object any) {
	runtime.Must(f.indexer.Delete(object))
	for _, h := range f.handlers {
		h.OnDelete(object)
	}
}

// objects returns what is in it, always in the same order.
func (f *feed) objects() []any {
	var out []any
	for _, key := range slices.Sorted(slices.Values(f.indexer.ListKeys())) {
		found, _, _ := f.indexer.GetByKey(key)
		out = append(out, found)
	}
	return out
}

func (f *feed) GetIndexer() cache.Indexer { return f.indexer }
func (f *feed) GetStore() cache.Store     { return f.indexer }
func (f *feed) HasSynced() bool           { return true }

func (f *feed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.handlers = append(f.handlers, h)
	return nil, nil
}

// csiNodes is what a picture knows of CSI.
type csiNodes struct{ *picture }

func (c csiNodes) Get(name string) (*storagev1.CSINode, error) {
	if n := c.csi[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("there is no CSINode %s", name)
}

func (c csiNodes) List() ([]*storagev1.CSINode, error) {
	var out []*storagev1.CSINode
	for _, name := range c.names() {
		if n := c.csi[name]; n != nil {
			out = append(out, n)
		}
	}
	return slices.Clip(out), nil
}
