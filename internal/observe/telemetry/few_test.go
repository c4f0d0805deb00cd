package telemetry

import "testing"

func TestFirstFew(t *testing.T) {
	for want, list := range map[string][]string{
		"": nil, "a": {"a"}, "a, b, c, d, e": {"a", "b", "c", "d", "e"}, "a, b, c, d, e and 2 other(s)": {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := FirstFew(list, Itself); got != want {
			t.Errorf("FirstFew(%v) = %q, want %q", list, got, want)
		}
	}
}
