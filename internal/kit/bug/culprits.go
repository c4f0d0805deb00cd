package bug

import (
	"context"
	"slices"
	"time"
)

// Panics calls do and reports whether it panics, without a report: it is for finding out what a panic that was reported hangs on.
func Panics(do func()) (panics bool) {
	defer func() { panics = recover() != nil }()
	do()
	return false
}

// Culprits finds out which of some things make something fail, by trying it with some of them only. Without bad and
// unknown it works; unknown are those that were not tried before the patience ended. The last call of fails that
// said no was with all that are good.
func Culprits[T any](things []T, fails func([]T) bool, enough func() bool) (bad, unknown []T) {
	t := trial[T]{fails: fails, enough: enough}
	t.add(things, true)
	return t.bad, t.unknown
}

// Spoilers is like Culprits for a few things that mean little without each other: it first looks whether it works without one of them.
func Spoilers[T any](things []T, fails func([]T) bool, enough func() bool) (bad, unknown []T) {
	for i := range things {
		if len(things) < 2 || enough() {
			break
		}
		if !fails(slices.Delete(slices.Clone(things), i, i+1)) {
			return things[i : i+1], nil
		}
	}
	return Culprits(things, fails, enough)
}

// Patience returns an enough for Culprits: after some trials, after some time, or when ctx has ended.
func Patience(ctx context.Context) func() bool {
	const trials, most = 64, 20 * time.Second // whatever is not the culprit waits meanwhile
	began, asked := time.Now(), 0
	return func() bool {
		asked++
		return asked > trials || time.Since(began) > most || ctx.Err() != nil
	}
}

type trial[T any] struct {
	fails  func([]T) bool
	enough func() bool

	good, bad, unknown []T
}

// add tries things together with those that are good. It is known that they fail if there is a culprit among them,
// and nothing else is known of them.
func (t *trial[T]) add(things []T, known bool) {
	switch {
	case len(things) == 0:
	case known && len(things) == 1:
		t.bad = append(t.bad, things...)
	case t.enough():
		t.unknown = append(t.unknown, things...)
	case !known && !t.fails(append(t.good[:len(t.good):len(t.good)], things...)):
		t.good = append(t.good, things...)
	case len(things) == 1:
		t.bad = append(t.bad, things...)
	default:
		half := len(things) / 2
		before := len(t.bad) + len(t.unknown)
		t.add(things[:half], false)
		t.add(things[half:], len(t.bad)+len(t.unknown) == before)
	}
}
