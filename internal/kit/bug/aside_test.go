package bug_test

import (
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/kit/bug"
)

func TestAside(t *testing.T) {
	var a bug.Aside[string]
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	if _, ok := a.Has("x"); ok || !a.Empty() {
		t.Error("the zero value leaves something out")
	}
	want := "Karpenter runs into a bug of its own over this pool and leaves it out until 12:10:00; please report it: odd"
	if why := a.Leave("x", noon.Add(bug.AsideFor), "pool", "leaves it out", &bug.Panic{Value: "odd"}); why != want {
		t.Errorf("told %q, want %q", why, want)
	}
	a.Sweep(noon.Add(bug.AsideFor - time.Second))
	if why, ok := a.Has("x"); !ok || why != want {
		t.Errorf("a second before its time is over it is left out: %t, %q", ok, why)
	}
	a.Sweep(noon.Add(bug.AsideFor))
	if _, ok := a.Has("x"); ok || !a.Empty() {
		t.Error("it is left out after its time is over")
	}
}
