package volumes

import "testing"

func TestAttachLimits(t *testing.T) {
	b := NewBook(2)
	b.Open([]Use{{Count: 1, Limit: 3}}, []int{7}) // the second driver is unlimited
	steps := []struct {
		name string
		vols []Volume
		full int
	}{
		{"a volume that is attached already costs nothing", []Volume{{0, 7}}, -1},
		{"two more fit", []Volume{{0, 1}, {0, 2}}, -1},
		{"three more do not", []Volume{{0, 1}, {0, 2}, {0, 3}}, 0},
		{"another driver does not count here", []Volume{{1, 1}, {1, 2}, {1, 3}, {1, 4}}, -1},
		{"attached and new ones together", []Volume{{0, 7}, {0, 1}, {0, 2}, {0, 3}}, 0},
	}
	for _, s := range steps {
		if got := b.Full(0, s.vols); got != s.full {
			t.Errorf("%s: Full = %d, want %d", s.name, got, s.full)
		}
	}
	b.Attach(0, []Volume{{0, 1}, {0, 7}, {0, 2}})
	if b.With(0, 0, nil) != 3 || b.Full(0, []Volume{{0, 9}}) != 0 || b.Full(0, []Volume{{0, 2}}) != -1 {
		t.Errorf("after attaching two: %d", b.With(0, 0, nil))
	}
}
