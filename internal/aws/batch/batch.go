// Package batch joins calls. Callers hand in items; the items that arrive within a short window and share a key are sent
// in one call, and each caller gets the result of its item.
//
// A window belongs to one key, so that calls of one kind never wait for another kind. The joined call has a context of
// its own, so a caller that gives up does not fail the call for others. A caller's own context ends only its waiting.
package batch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// Settings are the limits of a Batcher.
type Settings struct {
	Idle time.Duration // a batch is sent when no item joined it for this long,
	Max  time.Duration // at the latest this long after its first item,
	Size int           // or when it has this many items
	// Workers is how many batches may be out at the same time; zero means 100.
	Workers int
	// Observe receives the size of each batch and how long its window was open; nil to leave it.
	Observe func(size int, open time.Duration)
}

// A Result is what one caller gets.
type Result[Out any] struct {
	Value Out
	Err   error
}

// A Batcher joins calls. Its send function must return a result for every item, in order.
type Batcher[K comparable, In, Out any] struct {
	base     context.Context // of the joined calls: that of the whole program, not of a caller
	settings Settings
	send     func(ctx context.Context, key K, items []In) []Result[Out]
	slots    chan struct{}

	mu   sync.Mutex
	open map[K]*window[In, Out]
	out  sync.WaitGroup
}

// A window is a batch that still takes items. It is sent when one of its two timers ends or it is full.
type window[In, Out any] struct {
	items   []In
	waiters []chan Result[Out]
	begun   time.Time
	idle    *time.Timer
	last    *time.Timer
}

// New returns a Batcher that hands batches to send, with a context that ends when base does.
func New[K comparable, In, Out any](base context.Context, s Settings,
	send func(context.Context, K, []In) []Result[Out]) *Batcher[K, In, Out] {
	if s.Workers == 0 {
		s.Workers = 100
	}
	return &Batcher[K, In, Out]{base: base, settings: s, send: send, slots: make(chan struct{}, s.Workers), open: map[K]*window[In, Out]{}}
}

// Do adds an item to the open batch of its key and waits for its part of the answer. When ctx ends first, the call may
// still have its effect: the outcome is unknown.
func (b *Batcher[K, In, Out]) Do(ctx context.Context, key K, item In) (Out, error) {
	// The buffer lets the batch deliver to callers who left.
	waiter := make(chan Result[Out], 1)
	b.join(key, item, waiter)
	select {
	case r := <-waiter:
		return r.Value, r.Err
	case <-ctx.Done():
		var none Out
		return none, context.Cause(ctx)
	}
}

// Wait blocks until every batch that went out has been answered.
func (b *Batcher[K, In, Out]) Wait() { b.out.Wait() }

// join adds an item to the open window of its key, or opens one. It sends the batch if it is full.
func (b *Batcher[K, In, Out]) join(key K, item In, waiter chan Result[Out]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.open[key]
	if w == nil {
		w = &window[In, Out]{begun: time.Now()}
		flush := func() { b.flush(key, w) }
		w.idle = time.AfterFunc(b.settings.Idle, flush)
		w.last = time.AfterFunc(b.settings.Max, flush)
		b.open[key] = w
		b.out.Add(1)
	} else {
		w.idle.Reset(b.settings.Idle)
	}
	w.items = append(w.items, item)
	w.waiters = append(w.waiters, waiter)
	if len(w.items) >= b.settings.Size {
		b.close(key, w)
		go b.deliver(key, w)
	}
}

// flush sends a window whose timer ended, unless it was sent already.
func (b *Batcher[K, In, Out]) flush(key K, w *window[In, Out]) {
	b.mu.Lock()
	mine := b.open[key] == w
	if mine {
		b.close(key, w)
	}
	b.mu.Unlock()
	if mine {
		b.deliver(key, w)
	}
}

// close removes a window, so that later items open another. The caller holds the lock.
func (b *Batcher[K, In, Out]) close(key K, w *window[In, Out]) {
	delete(b.open, key)
	w.idle.Stop()
	w.last.Stop()
}

// deliver sends a batch, when fewer than Workers are being sent, and gives each caller its result.
func (b *Batcher[K, In, Out]) deliver(key K, w *window[In, Out]) {
	defer b.out.Done()
	if b.settings.Observe != nil {
		b.settings.Observe(len(w.items), time.Since(w.begun))
	}
	b.slots <- struct{}{}
	defer func() { <-b.slots }()
	results, err := b.safely(key, w.items)
	for i, waiter := range w.waiters {
		if err != nil {
			waiter <- Result[Out]{Err: err}
		} else {
			waiter <- results[i]
		}
	}
}

// safely calls send. A panic becomes the error of the batch, because its callers wait for an answer.
func (b *Batcher[K, In, Out]) safely(key K, items []In) (results []Result[Out], err error) {
	defer bug.Catch(&err, fmt.Sprintf("a joined call of %d", len(items)))
	return b.send(b.base, key, items), nil
}
