// Package parallel does the same for each of many things, several at the same time, and returns the error of each.
//
// Whatever happens to one of them, the others have their turn: a panic is an error of its own thing. Errors stand in the order
// of the things, so the text of them does not depend on which was faster.
package parallel

import (
	"sync"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// Of calls do for every one of list, at most atOnce at the same time, and returns when the last is done. what names one of them for who
// looks into a panic. The errors are as many as the things, nil where nothing went wrong.
func Of[T any](list []T, atOnce int, what func(T) string, do func(T) error) []error {
	errs := make([]error, len(list))
	slots := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i, one := range list {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			defer func() {
				if value := recover(); value != nil {
					errs[i] = bug.Recovered(value, what(one))
				}
			}()
			errs[i] = do(one)
		})
	}
	wait.Wait()
	return errs
}
