// Package identity encodes a value with several parts as bytes: a key of a map, or the input of a hash. Each part is written with its
// length or in a form that ends by itself, so two different sequences of parts of the same kinds never give the same bytes. Use it
// wherever a key is built from more than one part, unless a comparable struct will do.
package identity

import (
	"encoding/binary"
	"slices"
)

// Text appends a string to an identity.
func Text(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Texts appends a list of strings with its length. A nil list equals an empty one.
func Texts(b []byte, list []string) []byte {
	b = Count(b, len(list))
	for _, s := range list {
		b = Text(b, s)
	}
	return b
}

// Map appends a map of strings with its size, in the order of its keys. A nil map equals an empty one.
func Map(b []byte, m map[string]string) []byte {
	keys := make([]string, 0, 16) // on the stack
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = Count(b, len(m))
	for _, k := range keys {
		b = Text(Text(b, k), m[k])
	}
	return b
}

// Count appends the length of a list whose elements the caller appends.
func Count(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

// Number appends an integer.
func Number(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

// Numbers appends a list of integers with its length. A nil list equals an empty one.
func Numbers[N ~int | ~int32 | ~int64 | ~uint64](b []byte, list []N) []byte {
	b = Count(b, len(list))
	for _, n := range list {
		b = Number(b, int64(n))
	}
	return b
}

// Flag appends a truth value.
func Flag(b []byte, yes bool) []byte {
	if yes {
		return append(b, 1)
	}
	return append(b, 0)
}

// Of returns the identity of a fixed number of strings, as a key of a map.
func Of(parts ...string) string {
	b := make([]byte, 0, 128)
	for _, p := range parts {
		b = Text(b, p)
	}
	return string(b)
}
