// Package ztime compares times of which the zero one is no time at all: something that has not been, or that never comes.
//
// That is the one meaning that a zero time.Time has where loops and the core say since when, until when and when again. So both
// comparisons leave it out: no time is neither sooner nor later than any.
package ztime

import "time"

// Sooner returns the earlier of two times, and zero only if both are.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times, and zero only if both are.
func Later(a, b time.Time) time.Time {
	if b.IsZero() || !a.IsZero() && a.After(b) {
		return a
	}
	return b
}
