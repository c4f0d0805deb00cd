// Package bug reports what cannot happen and did.
//
// In a test such a thing panics, so that it is found. In production it is counted and logged and the program goes on, because
// one broken invariant is no reason to stop caring for a cluster.
package bug

import (
	"flag"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
)

var count, expected atomic.Int64

// Count is how many bugs were reported since the program started.
func Count() int64 { return count.Load() }

// Expect makes a bug in this test as in production. It is for tests of what holds when one shows, and not for parallel ones:
// the bugs of others would go unnoticed meanwhile.
func Expect(t interface{ Cleanup(func()) }) {
	expected.Add(1)
	t.Cleanup(func() { expected.Add(-1) })
}

// tested reports whether this is the binary of a test, which has flags that begin with "test.". Package testing
// would say so too, but then every controller would link it.
func tested() bool { return flag.Lookup("test.v") != nil }

// Reportf reports something that cannot happen.
func Reportf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if tested() && expected.Load() == 0 {
		panic("bug: " + text)
	}
	count.Add(1)
	slog.Error("this cannot happen; please report it", "bug", text)
}

// FalseBound reports a lower bound that is above the cost of the very plan that it was proven for. The core calls it, which makes no text.
func FalseBound(cost, bound int64) {
	Reportf("a plan for %d nano-dollars has a bound of %d", cost, bound)
}

// A Panic is an error that was a panic.
type Panic struct {
	What  string // was being done
	Value any    // that the panic carried
}

func (p *Panic) Error() string { return fmt.Sprintf("%s panicked: %v", p.What, p.Value) }

// Recovered reports the value of a panic and returns it as an error. what says what was being done, and names the object.
func Recovered(value any, what string) *Panic {
	p := &Panic{what, value}
	Reportf("%v\n%s", p, debug.Stack())
	return p
}

// Catch, when it is deferred, turns a panic of the function into its error. What is done for one object of many is wrapped in it, so that
// the others do not suffer.
func Catch(err *error, what string) {
	if value := recover(); value != nil {
		*err = Recovered(value, what)
	}
}
