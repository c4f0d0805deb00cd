package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"karpenter.sh/karpenter/internal/kit/sleep"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !sleep.For(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("paused %v, want a minute", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if sleep.For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("paused %v, want to be woken after a second", time.Since(began))
		}
	})
}
