package memapi

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An Event is one change. The object must not be changed.
type Event struct {
	Object  client.Object
	Deleted bool
}

// watcher is a queue of changes that one Watch has still to see.
type watcher struct {
	mu    sync.Mutex
	queue []timedEvent
	news  chan struct{} // holds a token while there may be something in queue
}

type timedEvent struct {
	Event
	at time.Time
}

// Watch calls see for every object there is, kind by kind, and then for every change, in order, each lag after it happened. It
// returns when ctx ends. listed is called once, after the objects that were there at the start.
func (s *Server) Watch(ctx context.Context, lag time.Duration, see func(Event), listed func()) {
	w := &watcher{news: make(chan struct{}, 1)}
	s.mu.Lock()
	start := make([]client.Object, 0, len(s.objects))
	for _, kind := range s.kinds {
		for k := range s.shelf(kind).all() {
			start = append(start, s.objects[k])
		}
	}
	s.watchers = append(s.watchers, w)
	s.mu.Unlock()
	defer s.unwatch(w)
	for _, o := range start {
		see(Event{Object: o})
	}
	listed()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.news:
		}
		for _, e := range w.take() {
			if wait := time.Until(e.at.Add(lag)); wait > 0 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
			}
			see(e.Event)
		}
	}
}

func (w *watcher) take() []timedEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.queue
	w.queue = nil
	return queue
}

func (s *Server) tell(o client.Object, deleted bool) {
	for _, w := range s.watchers {
		w.mu.Lock()
		w.queue = append(w.queue, timedEvent{Event{o, deleted}, time.Now()})
		w.mu.Unlock()
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}

func (s *Server) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.watchers {
		if other == w {
			s.watchers = append(s.watchers[:i:i], s.watchers[i+1:]...)
			return
		}
	}
}
