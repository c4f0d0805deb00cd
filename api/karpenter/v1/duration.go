package v1

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Never is the text that switches a duration off.
const Never = "Never"

// NillableDuration is a duration that the text "Never" switches off.
//
// It writes back the very bytes it was read from, so that "60m" stays "60m" and tools that compare manifests see no
// difference. Only the parsed duration has a meaning.
//
// +kubebuilder:validation:Type=string
type NillableDuration struct {
	// Duration is nil for "Never".
	*time.Duration `json:"-"`
	// Raw is the JSON text that Duration was read from; empty if the value was made by a program.
	Raw []byte `json:"-"`
}

// After returns a NillableDuration made by a program.
func After(d time.Duration) NillableDuration { return NillableDuration{Duration: &d} }

// MustParseNillableDuration reads a duration or "Never" and panics if it is neither.
func MustParseNillableDuration(text string) NillableDuration {
	d, err := ParseNillableDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// ParseNillableDuration reads a duration or "Never".
func ParseNillableDuration(text string) (NillableDuration, error) {
	raw, err := json.Marshal(text)
	if err != nil {
		return NillableDuration{}, err
	}
	var d NillableDuration
	err = d.UnmarshalJSON(raw)
	return d, err
}

// UnmarshalJSON reads a duration text or "Never".
func (d *NillableDuration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	if text == Never {
		*d = NillableDuration{Raw: slices.Clone(b)}
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is neither a duration nor %q: %w", text, Never, err)
	}
	*d = NillableDuration{Duration: &parsed, Raw: slices.Clone(b)}
	return nil
}

// MarshalJSON writes the text it was read from, or Go's form of the duration, or "Never".
func (d NillableDuration) MarshalJSON() ([]byte, error) {
	switch {
	case len(d.Raw) > 0:
		return slices.Clone(d.Raw), nil
	case d.Duration != nil:
		return json.Marshal(d.Duration.String())
	default:
		return json.Marshal(Never)
	}
}

// String returns the duration in Go's form, or "Never".
func (d NillableDuration) String() string {
	if d.Duration == nil {
		return Never
	}
	return d.Duration.String()
}
