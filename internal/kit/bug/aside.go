package bug

import (
	"fmt"
	"iter"
	"maps"
	"time"
)

const (
	// AsideFor is how long what a decision panics over is left out of decisions, and AllAsideFor how long where nothing could be decided
	// without panic: then it hangs on what is in the cluster, and may be over soon.
	AsideFor    = 10 * time.Minute
	AllAsideFor = time.Minute
)

// An Aside is what is left out of decisions for a while because one panicked over it. The zero value leaves nothing out.
type Aside[K comparable] struct{ left map[K]left }

type left struct {
	until time.Time
	why   string
}

// Leave leaves something out until then, and returns the report to its owners. thing names it, and what what is not done.
func (a *Aside[K]) Leave(key K, until time.Time, thing, what string, broken *Panic) (why string) {
	if a.left == nil {
		a.left = map[K]left{}
	}
	why = fmt.Sprintf("Karpenter runs into a bug of its own over this %s and %s until %s; please report it: %v",
		thing, what, until.UTC().Format(time.TimeOnly), broken.Value)
	a.left[key] = left{until, why}
	return why
}

// Sweep forgets what is left out no longer.
func (a *Aside[K]) Sweep(now time.Time) {
	maps.DeleteFunc(a.left, func(_ K, l left) bool { return !now.Before(l.until) })
}

// Has reports whether something is left out, and the report to its owners.
func (a *Aside[K]) Has(key K) (why string, ok bool) {
	l, ok := a.left[key]
	return l.why, ok
}

// Empty reports whether nothing is left out.
func (a *Aside[K]) Empty() bool { return len(a.left) == 0 }

// All yields what is left out, in no order.
func (a *Aside[K]) All() iter.Seq[K] { return maps.Keys(a.left) }
