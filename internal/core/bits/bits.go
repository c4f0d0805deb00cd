// Package bits has sets of small numbers as words of 64 bits.
//
// A Set has a fixed length, chosen when it is made. Sets that are combined must have the same length, unless the method says otherwise.
// Methods change their receiver; only Make, Full, Of, Grow and Clone allocate memory.
package bits

import (
	"iter"
	mathbits "math/bits"
	"slices"
)

// A Set is a set of the numbers 0 … 64·len−1.
type Set []uint64

// Make returns an empty set that can hold the numbers below n.
func Make(n int) Set { return make(Set, Words(n)) }

// Words returns how many words a set of the numbers below n needs.
func Words(n int) int { return (n + 63) / 64 }

// Full returns the set of all numbers below n.
func Full(n int) Set {
	s := Make(n)
	s.Fill(n)
	return s
}

// Of returns a set that can hold the numbers below n and has these members.
func Of(n int, members ...int) Set {
	s := Make(n)
	for _, m := range members {
		s.Add(m)
	}
	return s
}

// Fill makes s the set of all numbers below n.
func (s Set) Fill(n int) {
	for i := range s {
		switch rest := n - 64*i; {
		case rest >= 64:
			s[i] = ^uint64(0)
		case rest > 0:
			s[i] = 1<<rest - 1
		default:
			s[i] = 0
		}
	}
}

// Has reports whether i is in s. Numbers beyond the length of s are not.
func (s Set) Has(i int) bool {
	w := i >> 6
	return w < len(s) && s[w]>>(i&63)&1 != 0
}

// Add puts i into s.
func (s Set) Add(i int) { s[i>>6] |= 1 << (i & 63) }

// Remove takes i out of s.
func (s Set) Remove(i int) { s[i>>6] &^= 1 << (i & 63) }

// Grow returns s, made long enough for i if need be. Use the result instead of s.
func (s Set) Grow(i int) Set {
	for i>>6 >= len(s) {
		s = append(s, 0)
	}
	return s
}

// Clear empties s.
func (s Set) Clear() { clear(s) }

// Clone returns a copy.
func (s Set) Clone() Set { return slices.Clone(s) }

// Any reports whether s has a member.
func (s Set) Any() bool {
	for _, w := range s {
		if w != 0 {
			return true
		}
	}
	return false
}

// Count returns the number of members.
func (s Set) Count() int {
	n := 0
	for _, w := range s {
		n += mathbits.OnesCount64(w)
	}
	return n
}

// And removes from s the members that t does not have. t may be shorter or longer.
func (s Set) And(t Set) {
	n := min(len(s), len(t))
	for i, w := range t[:n] {
		s[i] &= w
	}
	clear(s[n:])
}

// Keep is And, except that a nil t stands for all numbers and changes nothing.
func (s Set) Keep(t Set) {
	if t != nil {
		s.And(t)
	}
}

// Only removes the members for which wanted returns false.
func (s Set) Only(wanted func(i int) bool) {
	for i := range s.All() {
		if !wanted(i) {
			s.Remove(i)
		}
	}
}

// Or adds the members of t, which must not be longer.
func (s Set) Or(t Set) {
	for i, w := range t {
		s[i] |= w
	}
}

// AndNot removes the members of t, which must not be longer.
func (s Set) AndNot(t Set) {
	for i, w := range t {
		s[i] &^= w
	}
}

// Copy makes s equal to t.
func (s Set) Copy(t Set) { copy(s, t) }

// Meets reports whether s and t share a member.
func (s Set) Meets(t Set) bool {
	for i := range min(len(s), len(t)) {
		if s[i]&t[i] != 0 {
			return true
		}
	}
	return false
}

// Meets3 reports whether s, t and u share a member.
func (s Set) Meets3(t, u Set) bool {
	for i := range min(len(s), len(t), len(u)) {
		if s[i]&t[i]&u[i] != 0 {
			return true
		}
	}
	return false
}

// Within reports whether every member of s is in t.
func (s Set) Within(t Set) bool {
	for i, w := range s {
		if i >= len(t) {
			if w != 0 {
				return false
			}
			continue
		}
		if w&^t[i] != 0 {
			return false
		}
	}
	return true
}

// Equal reports whether s and t have the same length and members.
func (s Set) Equal(t Set) bool { return slices.Equal(s, t) }

// Next returns the smallest member that is at least i, or -1.
func (s Set) Next(i int) int {
	if i < 0 {
		i = 0
	}
	w := i >> 6
	if w >= len(s) {
		return -1
	}
	word := s[w] >> (i & 63) << (i & 63)
	for word == 0 {
		w++
		if w == len(s) {
			return -1
		}
		word = s[w]
	}
	return w<<6 + mathbits.TrailingZeros64(word)
}

// All yields the members in ascending order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for w, word := range s {
			for word != 0 {
				if !yield(w<<6 + mathbits.TrailingZeros64(word)) {
					return
				}
				word &= word - 1
			}
		}
	}
}
