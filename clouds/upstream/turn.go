package upstream

import "context"

// A turn lets one caller in at a time. Unlike with a mutex, a caller that waits gives up when its context ends: what is done during a turn
// may wait for the provider.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t.release()
	return t
}

// take waits for the caller's turn. The caller has to release it, unless there is an error.
func (t turn) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-t:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) release() { t <- struct{}{} }
