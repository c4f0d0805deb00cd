package bug

import (
	"context"
	"slices"
	"time"
)

// Panics calls do and reports whether it panics. It does not report the panic as a bug: it is for finding the cause of a panic that was
// reported.
func Panics(do func()) (panics bool) {
	defer func() { panics = recover() != nil }()
	do()
	return false
}

// Culprits finds out by trials which of some things make fails return true. Without bad and unknown it does not fail. unknown are the
// things that could not be tried because enough returned true. The last call of fails that returned false was with all good things.
func Culprits[T any](things []T, fails func([]T) bool, enough func() bool) (bad, unknown []T) {
	t := trial[T]{fails: fails, enough: enough}
	t.add(things, true)
	return t.bad, t.unknown
}

// Spoilers is Culprits for a few things that are of little use without each other, such as pools. It first tries to leave out one of
// them, and only if that does not help, it searches as Culprits does.
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

// Patience returns a function enough for Culprits: it returns true after 64 trials, after 20 seconds, or when ctx has ended.
func Patience(ctx context.Context) func() bool {
	const trials, most = 64, 20 * time.Second // bounded, because all good things wait meanwhile
	began, asked := time.Now(), 0
	return func() bool {
		asked++
		return asked > trials || time.Since(began) > most || ctx.Err() != nil
	}
}

// A trial is the state of Culprits.
type trial[T any] struct {
	fails  func([]T) bool
	enough func() bool

	good, bad, unknown []T
}

// add sorts things into good, bad and unknown, by trying them together with the good things and halving them if that fails. known says
// that a trial with them has failed already, so that it need not be repeated.
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
