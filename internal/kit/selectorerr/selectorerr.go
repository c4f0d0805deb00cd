// Package selectorerr holds the two errors that evaluating a device selector may return. It has no dependencies, so that the core can
// recognise them without linking the compiler of selectors. Its tests are those of package selector.
package selectorerr

// A MissingKey error reports that a selector reads an attribute that the device does not have.
type MissingKey struct {
	Key string
	Err error // in the words of the selector's language
}

func (e *MissingKey) Error() string { return e.Err.Error() }

// An Unusable error reports that a selector cannot be evaluated for any device.
type Unusable struct{ Err error }

func (e *Unusable) Error() string { return e.Err.Error() }
