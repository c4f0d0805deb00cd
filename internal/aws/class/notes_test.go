package class

import "testing"

func TestNotesFollowTheMessage(t *testing.T) {
	for _, tc := range []struct {
		message string
		notes   []string
		want    string
	}{
		{"", nil, ""}, {"a", nil, "a"}, {"", []string{"b", "c"}, "b; c"}, {"a", []string{"b"}, "a; b"},
	} {
		if got := withNotes(tc.message, tc.notes); got != tc.want {
			t.Errorf("withNotes(%q, %q) = %q, want %q", tc.message, tc.notes, got, tc.want)
		}
	}
}
