package bug_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/kit/bug"
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

func TestAPanicBecomesAnError(t *testing.T) {
	bug.Expect(t)
	before := bug.Count()
	do := func() (err error) {
		defer bug.Catch(&err, "looking after pool a")
		var none []int
		_ = none[0]
		return nil
	}
	err := do()
	if _, ok := errors.AsType[*bug.Panic](err); !ok || !strings.Contains(err.Error(), "looking after pool a panicked: runtime error: index out of range") {
		t.Errorf("error = %v, want a panic that names what was done", err)
	}
	if n := bug.Count() - before; n != 1 {
		t.Errorf("counted %d bugs, want one", n)
	}
}

func TestWithoutPanicAnErrorStays(t *testing.T) {
	trouble := errors.New("trouble")
	do := func() (err error) {
		defer bug.Catch(&err, "anything")
		return trouble
	}
	if err := do(); !errors.Is(err, trouble) {
		t.Errorf("error = %v, want %v", err, trouble)
	}
}
