package bug_test

import (
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/bug"
)

func TestBugsPanicInTests(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "two and two are 5") {
			t.Errorf("panic = %q, want one that says what happened", text)
		}
	}()
	bug.Reportf("two and two are %d", 5)
	t.Error("a bug went unnoticed")
}
