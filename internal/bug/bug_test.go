package bug_test

import (
	"log/slog"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/bug"
)

func TestAnExpectedBugIsCountedAndLogged(t *testing.T) {
	var said strings.Builder
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	before := bug.Count()
	t.Run("a test that expects it", func(t *testing.T) {
		bug.Expect(t)
		bug.Reportf("two and two are %d", 5)
	})
	if n := bug.Count() - before; n != 1 || !strings.Contains(said.String(), "two and two are 5") {
		t.Errorf("counted %d, said %q; want one that is logged", n, said.String())
	}
	TestBugsPanicInTests(t) // again, once that test is over
}

func TestBugsPanicInTests(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "two and two are 5") {
			t.Errorf("panic = %q, want one that says what happened", text)
		}
	}()
	bug.Reportf("two and two are %d", 5)
	t.Error("a bug went unnoticed")
}
