package work

import "testing"

// TestALimitCutsWhereTheClockDid does the same work twice: under a clock that ends it somewhere, and under the limit that this gave.
func TestALimitCutsWhereTheClockDid(t *testing.T) {
	// run does work in steps and returns after how many it was cut.
	run := func(m *Meter) int {
		for i := range 100_000 {
			if m.Cut() {
				return i
			}
			m.Charge(Units(i % 7 * 1000))
		}
		return -1
	}
	for after := range 30 {
		asked := 0
		m := NewMeter(0, func() bool { asked++; return asked > after })
		at := run(m)
		if at < 0 || m.CutAt() == 0 {
			t.Fatalf("after %d looks at the clock it was not cut", after)
		}
		if again := run(NewMeter(m.CutAt(), nil)); again != at {
			t.Errorf("cut at step %d, and at %d by the limit", at, again)
		}
		if !m.Cut() {
			t.Error("what was cut goes on")
		}
	}
}

// TestTheClockIsAskedNowAndThen charges a second of work in small steps.
func TestTheClockIsAskedNowAndThen(t *testing.T) {
	asked := 0
	m := NewMeter(0, func() bool { asked++; return false })
	for m.Spent() < Second {
		if m.Cut() {
			t.Fatal("cut")
		}
		m.Charge(50)
	}
	if want := int(Second / askEvery); asked < want*9/10 || asked > want+1 {
		t.Errorf("the clock was asked %d times in a second of work, want about %d", asked, want)
	}
}
