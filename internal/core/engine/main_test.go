package engine

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage lie for longer: a sixth of the time went into collecting it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(300)
	os.Exit(m.Run())
}
