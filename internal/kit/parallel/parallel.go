// Package parallel calls a function for each of many things, several at the same time, and returns the error of each.
//
// A failure of one does not affect the others, and a panic becomes the error of its thing. Errors are in the order of the things, so
// their text does not depend on which call was faster.
package parallel

import (
	"sync"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// Of calls do for each element of list, at most atOnce at the same time, and returns when all calls have returned. what describes what
// is done for an element, for the report of a panic. There is an error for each element, nil if its call succeeded.
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
