package telemetry

import (
	"fmt"
	"strings"
)

// FirstFew names the first of a long list, and says how many more there are.
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

// Itself is the name of what is one already.
func Itself(name string) string { return name }
