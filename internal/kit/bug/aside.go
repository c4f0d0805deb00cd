package bug

import (
	"fmt"
	"iter"
	"maps"
	"time"
)

const (
	// AsideFor is how long an object over which a decision panics is left out of decisions. AllAsideFor is how long all are left out if
	// no decision works: then the cause is probably elsewhere in the cluster, and may be gone soon.
	AsideFor    = 10 * time.Minute
	AllAsideFor = time.Minute
)

// An Aside is a set of objects that are left out of decisions for a while because a decision panicked over them. The zero value is empty.
type Aside[K comparable] struct{ left map[K]left }

type left struct {
	until time.Time
	why   string
}

// Leave leaves an object out until a time, and returns the report to its owner. thing is its kind ("node"), and what says what
// Karpenter does not do with it ("does not disrupt it").
func (a *Aside[K]) Leave(key K, until time.Time, thing, what string, broken *Panic) (why string) {
	if a.left == nil {
		a.left = map[K]left{}
	}
	why = fmt.Sprintf("Karpenter runs into a bug of its own over this %s and %s until %s; please report it: %v",
		thing, what, until.UTC().Format(time.TimeOnly), broken.Value)
	a.left[key] = left{until, why}
	return why
}

// Sweep removes the objects whose time is over.
func (a *Aside[K]) Sweep(now time.Time) {
	maps.DeleteFunc(a.left, func(_ K, l left) bool { return !now.Before(l.until) })
}

// Has reports whether an object is left out, and returns the report to its owner.
func (a *Aside[K]) Has(key K) (why string, ok bool) {
	l, ok := a.left[key]
	return l.why, ok
}

// Empty reports whether no object is left out.
func (a *Aside[K]) Empty() bool { return len(a.left) == 0 }

// All yields the keys of the objects that are left out, in no order.
func (a *Aside[K]) All() iter.Seq[K] { return maps.Keys(a.left) }
