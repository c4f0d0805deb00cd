package crashtest

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage lie for longer: little is alive in these worlds, and a third of the time went into collecting it again and again.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
