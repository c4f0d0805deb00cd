package telemetry

import (
	"fmt"
	"strings"
)

// FirstFew returns the names of the first five of a list, and how many others there are.
func FirstFew[T any](list []T, name func(T) string) string {
	const few = 5
	names := make([]string, 0, few)
	for _, one := range list[:min(few, len(list))] {
		names = append(names, name(one))
	}
	text := strings.Join(names, ", ")
	if more := len(list) - few; more > 0 {
		text += fmt.Sprintf(" and %d other(s)", more)
	}
	return text
}

// Itself returns its argument: the function to name strings with.
func Itself(name string) string { return name }
