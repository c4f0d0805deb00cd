package nodememory

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTheSmallestNodeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		m.See("ami-1", "m5.large", 100)
		first := m.Sequence()
		m.See("ami-1", "m5.large", 120)
		if m.Seen("ami-1", "m5.large") != 100 || m.Sequence() != first {
			t.Error("a larger node changes the figure")
		}
		m.See("ami-1", "m5.large", 90)
		if m.Seen("ami-1", "m5.large") != 90 || m.Sequence() == first {
			t.Error("a smaller node does not change the figure")
		}
		if m.Seen("ami-2", "m5.large") != 0 || m.Seen("ami-1", "m5.xlarge") != 0 {
			t.Error("the figure counts for other images or types")
		}
		m.See("ami-1", "c5.large", 0)
		if m.Seen("ami-1", "c5.large") != 0 {
			t.Error("a node without memory is believed")
		}
		time.Sleep(61 * 24 * time.Hour)
		if m.Seen("ami-1", "m5.large") != 0 {
			t.Error("a figure outlives sixty days")
		}
		m.See("ami-3", "m5.large", 100)
		if n := len(m.seen.All()); n != 1 {
			t.Errorf("%d figures are kept, want those of living images only", n)
		}
	})
}
