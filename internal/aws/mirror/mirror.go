// Package mirror keeps copies of the cluster's objects of one kind, for a provider that must not see the rest.
//
// A mirror lists and then watches. Its rows are versions: an event replaces a row and never edits one, so a pointer
// comparison reports whether an object changed.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/kit/watchhealth"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// A Mirror holds the objects of one cluster-scoped kind. It may be read concurrently.
type Mirror[T client.Object] struct {
	kube client.WithWatch
	list func() client.ObjectList
	ear  watchhealth.Ear

	mu     sync.RWMutex
	rows   map[string]T
	synced chan struct{}
	once   sync.Once
	tell   map[*func(string)]struct{}
}

// New returns a mirror that is empty until Run.
func New[T client.Object](kube client.WithWatch, list func() client.ObjectList) *Mirror[T] {
	return &Mirror[T]{kube: kube, list: list, rows: map[string]T{}, synced: make(chan struct{}), tell: map[*func(string)]struct{}{}}
}

// Subscribe calls f with the name of each object that is added, changed or deleted, until ctx ends. f must not block.
func (m *Mirror[T]) Subscribe(ctx context.Context, f func(name string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell[&f] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.tell, &f)
	})
}

// Get returns one object.
func (m *Mirror[T]) Get(name string) (T, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	row, ok := m.rows[name]
	return row, ok
}

// All returns every object, sorted by name.
func (m *Mirror[T]) All() []T {
	m.mu.RLock()
	out := slices.Collect(maps.Values(m.rows))
	m.mu.RUnlock()
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

// WaitForSync blocks until the first list has been read. It returns false if ctx ends first.
func (m *Mirror[T]) WaitForSync(ctx context.Context) bool {
	select {
	case <-m.synced:
		return true
	case <-ctx.Done():
		return false
	}
}

// Synced reports whether the first list has been read.
func (m *Mirror[T]) Synced() bool {
	select {
	case <-m.synced:
		return true
	default:
		return false
	}
}

// Ear returns the record of when the API server last sent something.
func (m *Mirror[T]) Ear() *watchhealth.Ear { return &m.ear }

// Run lists and watches until ctx ends, and begins again after an error, with growing pauses.
func (m *Mirror[T]) Run(ctx context.Context) error {
	m.ear.Hear() // from now on it is waited for
	wait := time.Second
	for ctx.Err() == nil {
		begun := time.Now()
		if err := m.follow(ctx); err != nil && ctx.Err() == nil {
			m.ear.Fail(err)
			telemetry.Log(ctx).Warn("watching failed and begins anew", "kind", fmt.Sprintf("%T", m.list()), "error", err)
		}
		if time.Since(begun) > time.Minute {
			wait = time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
	}
	return nil
}

// follow lists once and watches until the watch ends.
func (m *Mirror[T]) follow(ctx context.Context) (err error) {
	defer bug.Catch(&err, "following the cluster")
	list := m.list()
	if err := m.read(ctx, list); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	next := make(map[string]T, len(items))
	for _, item := range items {
		if row, ok := item.(T); ok {
			next[row.GetName()] = trimmed(row)
		}
	}
	m.replace(next)
	m.ear.Hear()
	m.once.Do(func() { close(m.synced) })
	for version := list.GetResourceVersion(); ; {
		latest, err := m.watch(ctx, version)
		if err != nil || latest == "" {
			return err
		}
		version = latest
	}
}

const (
	// listTime is how long a list may take.
	listTime = time.Minute
	// watchTime is how long the API server is asked to let a watch last, at least, in seconds. A watch that is renewed
	// shows that it works. overtime is how much longer it may last before this process ends it.
	watchTime = 300
	overtime  = 30 * time.Second
	// standing is after how long a watch without events counts as working.
	standing = 5 * time.Second
)

func (m *Mirror[T]) read(ctx context.Context, list client.ObjectList) error {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	return m.kube.List(ctx, list)
}

// watch applies the events after a version until the watch ends. It returns the version that was reached, "" if ctx
// ended.
func (m *Mirror[T]) watch(ctx context.Context, version string) (string, error) {
	timeout := int64(watchTime + rand.N(watchTime))
	limited, cancel := context.WithTimeout(ctx, time.Duration(timeout)*time.Second+overtime)
	defer cancel()
	w, err := m.kube.Watch(limited, m.list(), &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &timeout,
	}})
	if err != nil {
		return "", err
	}
	defer w.Stop()
	return m.apply(ctx, limited, w, version)
}

// apply applies events until the watch ends, ctx ends, or the watch has lasted longer than the API server was asked
// to let it (limited).
func (m *Mirror[T]) apply(ctx, limited context.Context, w watch.Interface, version string) (string, error) {
	began, stands := time.Now(), time.After(standing)
	for got := false; ; got = true {
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return "", nil
			}
			return "", fmt.Errorf("the watch did not end: %w", limited.Err())
		case <-stands:
			m.ear.Hear()
		case e, ok := <-w.ResultChan():
			if !ok && !got && time.Since(began) < time.Second {
				return "", errors.New("the watch ended at once")
			}
			if !ok {
				return version, nil
			}
			row, is := e.Object.(T)
			switch {
			case e.Type == watch.Error:
				return "", fmt.Errorf("watch: %v", e.Object)
			case !is:
				continue
			case e.Type == watch.Deleted:
				m.put(row.GetName(), nil)
			case e.Type != watch.Bookmark:
				row = trimmed(row)
				m.put(row.GetName(), &row)
			}
			version = row.GetResourceVersion()
			m.ear.Hear()
		}
	}
}

// trimmed removes managed fields, which nothing here reads.
func trimmed[T client.Object](row T) T {
	row.SetManagedFields(nil)
	return row
}

// replace makes a list the present rows, and notifies subscribers of objects that differ. Rows that are equal stay
// the same pointers.
func (m *Mirror[T]) replace(next map[string]T) {
	m.mu.Lock()
	var changed []string
	for name, old := range m.rows {
		row, ok := next[name]
		switch {
		case !ok:
			changed = append(changed, name)
		case row.GetResourceVersion() == old.GetResourceVersion() && row.GetUID() == old.GetUID():
			next[name] = old
		}
	}
	for name, row := range next {
		if old, ok := m.rows[name]; !ok || any(old) != any(row) {
			changed = append(changed, name)
		}
	}
	m.rows = next
	m.mu.Unlock()
	slices.Sort(changed)
	for _, name := range slices.Compact(changed) {
		m.notify(name)
	}
}

// put replaces a row, or deletes it for nil, and notifies subscribers.
func (m *Mirror[T]) put(name string, row *T) {
	m.mu.Lock()
	if row == nil {
		delete(m.rows, name)
	} else {
		m.rows[name] = *row
	}
	m.mu.Unlock()
	m.notify(name)
}

// Note stores an object that this process just wrote, so that it reads its own writes. If the watch is ahead, its
// state stays: an object that it deleted stays deleted, and a newer version stays.
func (m *Mirror[T]) Note(row T) {
	row = trimmed(row.DeepCopyObject().(T))
	name := row.GetName()
	m.mu.Lock()
	old, ok := m.rows[name]
	fresh := ok && old.GetUID() == row.GetUID() && !newer(old, row)
	if fresh {
		m.rows[name] = row
	}
	m.mu.Unlock()
	if fresh {
		m.notify(name)
	}
}

// newer reports whether a has a higher version than b; versions of one object are numbers that grow.
func newer(a, b client.Object) bool {
	x, err1 := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	y, err2 := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	return err1 == nil && err2 == nil && x > y
}

// notify calls all subscribers.
func (m *Mirror[T]) notify(name string) {
	m.mu.RLock()
	tell := slices.Collect(maps.Keys(m.tell))
	m.mu.RUnlock()
	for _, f := range tell {
		(*f)(name)
	}
}
