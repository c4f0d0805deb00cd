package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/kit/watchhealth"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	pageSize = 500
	// together is how many events of one watch are put into the store in one update at most.
	together = 256

	leastWait = 800 * time.Millisecond
	mostWait  = 30 * time.Second
	// absentWait is how long a kind that the API server does not know is left alone.
	absentWait = time.Minute

	// standing is how long a watch must have been open to count as working if nothing happens.
	standing = 5 * time.Second
	// overtime is how much longer than requested a watch may last, and listTime how long a page may take. After that the server is asked
	// again.
	overtime = 30 * time.Second
	listTime = 90 * time.Second
)

// source is where a feed gets its objects.
type source interface {
	List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}

// kind is what a feed does with one kind of object.
type kind struct {
	name string
	// read converts an object for put. nil: the object is used unchanged.
	read func(runtime.Object) (client.Object, error)
	// put puts an object into the store, and reports whether loops have to look at it (news).
	put func(*cluster.Draft, client.Object) (news bool)
	// known reports whether the store has this version of an object already, because a loop wrote it. nil: look at every version. It is
	// for kinds without a tag.
	known func(*cluster.Draft, metav1.Object) bool
	// remove undoes put. It gets only the name of the object and its tag.
	remove func(*cluster.Draft, removed)
	// tag returns what remove needs besides the name. nil: nothing.
	tag func(client.Object) string
	// optional kinds may be unknown to the API server, or forbidden to us from the start. They count as empty then.
	optional bool
	// minor kinds stop no loop if they can no longer be read: they improve plans, but no decision is unsafe without them.
	minor bool
	// devices kinds stop only plans for pods with resource claims if they can no longer be read.
	devices bool
}

// removed names an object that is gone.
type removed struct {
	types.NamespacedName
	tag string
}

// feed brings one kind into the store.
type feed struct {
	kind
	source source
	store  *cluster.Store
	listed func() // called after each complete list, and when an optional kind cannot be read

	ear    watchhealth.Ear                  // whether the feed works
	seen   bool                             // a list was complete once
	have   map[types.NamespacedName]*string // objects in the store, with their tags. nil: no tag, which saves memory for many pods
	broken map[types.NamespacedName]bool    // objects that cannot be read
}

// run lists and watches until ctx ends. A watch that fails is continued from its last version. Only if the API server no longer knows
// that version, everything is listed again.
func (f *feed) run(ctx context.Context) error {
	f.have, f.broken = map[types.NamespacedName]*string{}, map[types.NamespacedName]bool{}
	f.ear.Hear() // the time without an answer counts from now
	version, wait := "", leastWait
	for {
		next, err := f.once(ctx, version)
		if ctx.Err() != nil {
			return nil
		}
		version = next
		if err == nil {
			f.ear.Hear()
			wait = leastWait
			continue
		}
		f.ear.Fail(err)
		rest := wait/2 + rand.N(wait/2)
		switch {
		case errors.Is(err, errStartOver):
			version = ""
		case f.optional && f.absent(err):
			if !apierrors.IsForbidden(err) {
				f.ear.Hear() // there is nothing to be read
			}
			telemetry.Log(ctx).Debug("a kind cannot be read and counts as empty", "kind", f.name, "error", err)
			f.forgetAllBut(nil)
			f.listed()
			version, rest = "", absentWait
		default:
			telemetry.Log(ctx).Error("could not read from the API server", "kind", f.name, "error", err)
			wait = min(2*wait, mostWait)
		}
		if !sleep.For(ctx, rest) {
			return nil
		}
	}
}

// once lists if there is no version to watch from, else watches until the watch ends. It returns the version reached.
func (f *feed) once(ctx context.Context, version string) (string, error) {
	if version == "" {
		return f.list(ctx)
	}
	return f.watch(ctx, version)
}

// absent reports whether the API server does not know the kind, or has forbidden it from the start. If it is forbidden later, the objects
// still exist, and stay in the store.
func (f *feed) absent(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !f.seen
}

// errStartOver says that the API server no longer knows the version from which we would go on.
var errStartOver = errors.New("watch has to start over")

// list reads all objects, page by page, into the store, removes those that no longer exist, and returns the version from which to watch.
func (f *feed) list(ctx context.Context) (version string, err error) {
	seen := map[types.NamespacedName]bool{}
	for token := ""; ; {
		page, err := f.page(ctx, token)
		if apierrors.IsResourceExpired(err) && token != "" {
			return "", errStartOver
		}
		if err != nil {
			return "", err
		}
		items, err := meta.ExtractList(page)
		if err != nil {
			return "", err
		}
		f.store.Update(func(d *cluster.Draft) {
			for _, o := range items {
				name, _ := f.apply(ctx, d, o)
				seen[name] = true
			}
		})
		list, err := meta.ListAccessor(page)
		if err != nil {
			return "", err
		}
		version, token = list.GetResourceVersion(), list.GetContinue()
		if token == "" {
			break
		}
	}
	f.forgetAllBut(seen)
	f.seen = true
	f.listed()
	return version, nil
}

func (f *feed) page(ctx context.Context, token string) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	return f.source.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: token})
}

// forgetAllBut removes from the store all objects that are not in seen. With nil it removes all.
func (f *feed) forgetAllBut(seen map[types.NamespacedName]bool) {
	f.store.Update(func(d *cluster.Draft) {
		for name := range f.have {
			if !seen[name] {
				f.drop(d, name)
			}
		}
		for name := range f.broken {
			if !seen[name] {
				f.drop(d, name)
			}
		}
	})
}

// watch follows changes until the watch ends and returns the version that was reached.
func (f *feed) watch(ctx context.Context, version string) (string, error) {
	timeout := int64(300 + rand.N(300))
	ctx, cancel := context.WithTimeout(ctx, time.Duration(timeout)*time.Second+overtime)
	defer cancel()
	w, err := f.source.Watch(ctx, metav1.ListOptions{
		ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &timeout,
	})
	if err != nil {
		return version, forgotten(err)
	}
	defer w.Stop()
	began := time.Now()
	works := time.After(standing)
	for got := false; ; got = true {
		select {
		case <-ctx.Done():
			return version, fmt.Errorf("the watch did not end: %w", ctx.Err())
		case <-works:
			f.ear.Hear()
		case e, ok := <-w.ResultChan():
			if !ok && !got && time.Since(began) < time.Second {
				return version, errors.New("the watch ended at once")
			}
			if !ok {
				return version, nil
			}
			if version, err = f.follow(ctx, version, e, w.ResultChan()); err != nil {
				return version, err
			}
			f.ear.Hear()
		}
	}
}

// forgotten returns errStartOver if the server no longer knows the version from which to watch, else err.
func forgotten(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return errStartOver
	}
	return err
}

// follow applies an event and those that wait behind it (up to together) in one update of the store, and returns the version reached.
func (f *feed) follow(ctx context.Context, version string, first apiwatch.Event, more <-chan apiwatch.Event) (string, error) {
	var err error
	f.store.Observe(func(d *cluster.Draft) (news bool) {
		e, ok := first, true
		for n := 0; ok; n++ {
			var is bool
			if version, is, err = f.event(ctx, d, version, e); err != nil {
				return news
			}
			news = news || is
			if n == together {
				return news
			}
			select {
			case e, ok = <-more:
			default:
				return news
			}
		}
		return news
	})
	return version, err
}

// event applies one event. It returns the version reached, and whether it is news for the loops.
func (f *feed) event(ctx context.Context, d *cluster.Draft, version string, e apiwatch.Event) (_ string, news bool, err error) {
	if e.Type == apiwatch.Error {
		return version, false, forgotten(apierrors.FromObject(e.Object))
	}
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return version, false, err
	}
	switch e.Type {
	case apiwatch.Added, apiwatch.Modified:
		_, news = f.apply(ctx, d, e.Object)
	case apiwatch.Deleted:
		news = true
		f.drop(d, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	return o.GetResourceVersion(), news, nil
}

// apply puts an object into the store. If the object cannot be read, apply notes that in the store, and an earlier version of the
// object stays.
func (f *feed) apply(ctx context.Context, d *cluster.Draft, raw runtime.Object) (name types.NamespacedName, news bool) {
	acc, err := meta.Accessor(raw)
	if err != nil {
		telemetry.Log(ctx).Error("an object has no name", "kind", f.name, "error", err)
		return name, false
	}
	name = types.NamespacedName{Namespace: acc.GetNamespace(), Name: acc.GetName()}
	tag, news, err := f.try(d, acc, raw)
	if err != nil {
		if !f.broken[name] {
			telemetry.Log(ctx).Error("an object cannot be read and is left out", "kind", f.name, "namespace",
				name.Namespace, "name", name.Name, "error", err)
		}
		f.broken[name] = true
		d.PutBroken(cluster.Broken{Kind: f.name, Namespace: name.Namespace, Name: name.Name, Err: err.Error()})
		return name, true
	}
	if f.broken[name] {
		delete(f.broken, name)
		d.DeleteBroken(f.name, name.Namespace, name.Name)
	}
	f.have[name] = tag
	return name, news
}

// try reads an object and puts it into the store. A panic becomes an error.
func (f *feed) try(d *cluster.Draft, acc metav1.Object, raw runtime.Object) (tag *string, news bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if f.known != nil && f.known(d, acc) {
		return nil, false, nil
	}
	o, ok := raw.(client.Object)
	if f.read != nil {
		if o, err = f.read(raw); err != nil {
			return nil, false, err
		}
	} else if !ok {
		return nil, false, fmt.Errorf("%T is no object", raw)
	}
	if f.tag != nil {
		t := f.tag(o)
		tag = &t
	}
	return tag, f.put(d, o), nil
}

// drop removes an object that is gone: from the store if it was put there, and from the list of objects that cannot be read.
func (f *feed) drop(d *cluster.Draft, name types.NamespacedName) {
	if tag, ok := f.have[name]; ok {
		gone := removed{NamespacedName: name}
		if tag != nil {
			gone.tag = *tag
		}
		f.remove(d, gone)
		delete(f.have, name)
	}
	if f.broken[name] {
		delete(f.broken, name)
		d.DeleteBroken(f.name, name.Namespace, name.Name)
	}
}
