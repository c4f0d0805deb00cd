// Package ztime compares times of which zero means no time: something that has not happened, or never will. Loops and the core use zero
// in this sense for since, until and when to look again. Both comparisons ignore a zero time.
package ztime

import "time"

// Sooner returns the earlier of two times. It ignores a zero time, and returns zero only if both are zero.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times. It returns zero only if both are zero.
func Later(a, b time.Time) time.Time {
	if b.IsZero() || !a.IsZero() && a.After(b) {
		return a
	}
	return b
}
