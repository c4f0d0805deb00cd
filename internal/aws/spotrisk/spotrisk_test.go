package spotrisk

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/core/hazard"
)

var m5 = price.Pool{Type: "m5.large", Zone: "z-a"}

func rate(m *Memory, p price.Pool) int64 { nano, _ := m.Of(p); return nano }

func rests(m *Memory, p price.Pool) bool { _, rests := m.Of(p); return rests }

func TestWhatIsPublished(t *testing.T) {
	for name, tc := range map[string]struct {
		region, instanceType string
		band                 int
	}{
		"a size in its own region":               {"ap-southeast-1", "m5.large", 0},
		"another size":                           {"ap-southeast-1", "m5a.2xlarge", 3},
		"the middle of the family elsewhere":     {"us-east-1", "c5a.large", 3},
		"a family that is taken back everywhere": {"us-east-1", "i3.large", 4},
		"a size that is not listed":              {"ap-southeast-1", "i3.metal", 4},
		"a family that is not listed":            {"us-east-1", "m8g.large", 1},
	} {
		if got := rate(New(tc.region), price.Pool{Type: tc.instanceType, Zone: "z"}); got != hazard.Nano(hazard.OfBand(tc.band)) {
			t.Errorf("%s: %d, want that of band %d", name, got, tc.band)
		}
	}
	if _, err := bandsOf("region x\nm5 large=7", "x"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a band that there is not: error %v", err)
	}
}

func TestEvidenceCountsWhileItIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("us-east-1")
		before, sequence := rate(m, m5), m.Sequence()
		m.Failed(m5)
		m.Interrupted(m5)
		if rate(m, m5) != before || rests(m, m5) || m.Sequence() != sequence {
			t.Error("evidence changes something that is not followed")
		}
		m.Observe(nil)
		if rate(m, m5) <= before || !rests(m, m5) || m.Sequence() == sequence {
			t.Error("evidence changes nothing")
		}
		if other := (price.Pool{Type: "m5.large", Zone: "z-b"}); rate(m, other) != before || rests(m, other) {
			t.Error("evidence about one zone counts in another")
		}
		sequence = m.Sequence()
		time.Sleep(2 * time.Hour)
		m.Observe(nil)
		if rests(m, m5) || m.Sequence() == sequence {
			t.Error("it still rests after two hours")
		}
		time.Sleep(20 * hazard.HalfLife)
		m.Observe(nil)
		if rate(m, m5) != before || len(m.records)+len(m.known) > 0 {
			t.Errorf("after 20 weeks it is %d, want %d; %d records", rate(m, m5), before, len(m.records))
		}
		sequence = m.Sequence()
		m.Observe(nil)
		if m.Sequence() != sequence {
			t.Error("the sequence moved although nothing changed")
		}
	})
}

// Hours of machines are counted once, and after a restart as if there had been none.
func TestHoursOfMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, running := New("us-east-1"), []Machine{{m5, time.Now()}, {m5, time.Now()}}
		for range 5 * 24 * 60 {
			m.Observe(running)
			time.Sleep(time.Minute)
		}
		m.Observe(running)
		restarted := New("us-east-1")
		restarted.Observe(running)
		had, has := m.records[m5].Hours, restarted.records[m5].Hours
		if had < 180 || had > 240 || has < 0.98*had || has > 1.02*had {
			t.Errorf("two machines of five days count %.1f hours, after a restart %.1f", had, has)
		}
		if rate(m, m5) >= rate(New("us-east-1"), m5) {
			t.Error("machines that run say nothing")
		}
	})
}
