package definition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A slow client takes a minute for each create.
type slow struct{ client.Client }

func (slow) Create(ctx context.Context, _ client.Object, _ ...client.CreateOption) error {
	select {
	case <-time.After(time.Minute):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A caller does not wait for the slow request of another one beyond its own deadline, and drains nothing then.
func TestASlowRequestHoldsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(slow{})
		first := make(chan bool)
		go func() { first <- w.Gone(t.Context()) }()
		synctest.Wait()
		begun := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if !w.Gone(short) {
			t.Error("a caller that learns nothing may drain")
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the second caller waited %s", took)
		}
		if <-first {
			t.Error("an answer without an error says that the definition is gone")
		}
	})
}
