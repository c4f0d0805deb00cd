package parallel

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"karpenter.sh/karpenter/internal/kit/bug"
)

func name(i int) string { return fmt.Sprintf("counting %d", i) }

func TestNoMoreThanSoManyAtTheSameTime(t *testing.T) {
	for _, atOnce := range []int{1, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			now, most, done := 0, 0, 0
			add := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				now += n
				most = max(most, now)
				if n < 0 {
					done++
				}
			}
			list := make([]int, 20)
			began := time.Now()
			Of(list, atOnce, name, func(int) error {
				add(1)
				time.Sleep(time.Second)
				add(-1)
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			rounds := (len(list) + atOnce - 1) / atOnce
			if took := time.Since(began); most != min(atOnce, len(list)) || done != len(list) || took != time.Duration(rounds)*time.Second {
				t.Errorf("with %d at once: at most %d at the same time, %d done in %v; want all %d in %d rounds", atOnce, most, done, took, len(list), rounds)
			}
		})
	}
}

func TestErrorsStandInTheOrderOfTheThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := errors.New("odd")
		errs := Of([]int{3, 2, 1}, 3, name, func(i int) error {
			time.Sleep(time.Duration(i) * time.Second) // the last is the first to fail
			if i%2 == 1 {
				return fmt.Errorf("%d: %w", i, odd)
			}
			return nil
		})
		if got := fmt.Sprint(errs); got != "[3: odd <nil> 1: odd]" {
			t.Errorf("errors = %s", got)
		}
	})
}

func TestAPanicIsAnErrorOfTheOneThatItWasAbout(t *testing.T) {
	bug.Expect(t)
	errs := Of([]int{1, 2, 3}, 1, name, func(i int) error {
		if i == 2 {
			panic("oh")
		}
		return nil
	})
	if _, panicked := errors.AsType[*bug.Panic](errs[1]); errs[0] != nil || errs[2] != nil || !panicked || !strings.Contains(errs[1].Error(), "counting 2 panicked: oh") {
		t.Errorf("errors = %v, want one about the second", errs)
	}
}

func TestNothingIsDoneForNobody(t *testing.T) {
	if errs := Of(nil, 5, name, func(int) error { return errors.New("somebody") }); len(errs) != 0 {
		t.Errorf("errors = %v", errs)
	}
}
