// Package identity writes the identity of a value that has several parts: a key of a map, or the input of a hash.
// Each part is written with its length or in a form that ends by itself, so two different sequences of parts of the
// same kinds never give the same bytes. Use it wherever a key is built from more than one part; where a comparable
// struct does the job, prefer the struct.
package identity

import "encoding/binary"

// Text appends a string to an identity.
func Text(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Texts appends a list of strings with its length. A nil list equals an empty one.
func Texts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = Text(b, s)
	}
	return b
}

// Number appends an integer.
func Number(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

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
