// Package follow gives providers the objects of one kind in the store, NodeClaims or Nodes, and no others. So providers need no watch of
// their own, and see at once what the controller wrote itself.
package follow

import (
	"cmp"
	"context"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/bug"
)

// Objects are the objects of one kind. They must not be changed: a pointer is a version. They may be read concurrently.
type Objects[T object] struct {
	store *cluster.Store
	row   func(snap *cluster.Snapshot, name string) *cluster.Node // returns the row of the object of a name, nil if there is none
	of    func(*cluster.Node) T                                   // returns the object of a row, nil if it has none
}

type object interface {
	comparable
	metav1.Object
}

// Claims returns the NodeClaims of the store.
func Claims(store *cluster.Store) *Objects[*v1.NodeClaim] {
	return &Objects[*v1.NodeClaim]{store, (*cluster.Snapshot).ClaimNode, func(row *cluster.Node) *v1.NodeClaim { return row.Claim }}
}

// Nodes returns the Nodes of the store, without the fields that it does not keep.
func Nodes(store *cluster.Store) *Objects[*corev1.Node] {
	return &Objects[*corev1.Node]{store, (*cluster.Snapshot).Node, func(row *cluster.Node) *corev1.Node { return row.Node }}
}

// Get returns one object.
func (o *Objects[T]) Get(name string) (T, bool) {
	var none T
	found := o.in(o.store.Snapshot(), name)
	return found, found != none
}

// in returns an object in a snapshot, nil if there is none.
func (o *Objects[T]) in(snap *cluster.Snapshot, name string) (found T) {
	if row := o.row(snap, name); row != nil {
		found = o.of(row)
	}
	return found
}

// Each yields every object once, in no order.
func (o *Objects[T]) Each() iter.Seq[T] {
	return func(yield func(T) bool) {
		var none T
		snap := o.store.Snapshot()
		for row := range snap.Nodes() {
			// Nodes with the same provider ID may share a claim: it is yielded for one of the rows.
			if found := o.of(row); found != none && o.row(snap, found.GetName()) == row && !yield(found) {
				return
			}
		}
	}
}

// All returns every object, sorted by name.
func (o *Objects[T]) All() []T {
	return slices.SortedFunc(o.Each(), func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// WaitForSync blocks until the store has read the whole cluster. It returns false if ctx ends first.
func (o *Objects[T]) WaitForSync(ctx context.Context) bool {
	for {
		snap := o.store.Snapshot()
		if snap.Synced() {
			return true
		}
		select {
		case <-snap.Stale():
		case <-ctx.Done():
			return false
		}
	}
}

// Subscribe starts a goroutine that calls f with the name of each object that is added, changed or removed, until ctx ends.
func (o *Objects[T]) Subscribe(ctx context.Context, f func(name string)) {
	last := o.store.Snapshot()
	go func() {
		for {
			select {
			case <-last.Stale():
			case <-ctx.Done():
				return
			}
			now := o.store.Snapshot()
			o.notify(last, now, f)
			last = now
		}
	}()
}

// notify calls f for every change between two snapshots. A panic of f loses the changes of this call.
func (o *Objects[T]) notify(last, now *cluster.Snapshot, f func(name string)) {
	var err error // a bug, which is reported where it is caught
	defer bug.Catch(&err, "telling of changes")
	for name := range o.changes(last, now) {
		f(name)
	}
}

// changes returns the names of the objects that differ between two snapshots.
func (o *Objects[T]) changes(last, now *cluster.Snapshot) map[string]bool {
	var none T
	names := map[string]bool{}
	for was, is := range now.NodeChanges(last) {
		for _, row := range []*cluster.Node{was, is} {
			if row == nil || o.of(row) == none {
				continue
			}
			if name := o.of(row).GetName(); o.in(last, name) != o.in(now, name) {
				names[name] = true
			}
		}
	}
	return names
}
