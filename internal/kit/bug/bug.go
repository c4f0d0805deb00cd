// Package bug reports broken invariants: things that cannot happen and did.
//
// In a test a bug panics, so that it is found. In production it is counted and logged, and the program goes on, because one broken
// invariant is no reason to stop managing a cluster. aside.go and culprits.go help loops to go on after a panic: they find the objects
// that cause it and leave them out.
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

// Expect makes bugs be handled as in production until the test ends. It is for tests of that handling. They must not be parallel,
// because bugs in other tests would not be noticed meanwhile.
func Expect(t interface{ Cleanup(func()) }) {
	expected.Add(1)
	t.Cleanup(func() { expected.Add(-1) })
}

// tested reports whether the program is a test, by its flags. Package testing could report that too, but then every controller would
// link it.
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

// FalseBound reports a lower bound that is above the cost of the plan that it was proven for. It is for the core, which does not format
// texts.
func FalseBound(cost, bound int64) {
	Reportf("a plan for %d nano-dollars has a bound of %d", cost, bound)
}

// A Panic is a panic as an error.
type Panic struct {
	What  string // what was being done
	Value any    // the value of the panic
}

func (p *Panic) Error() string { return fmt.Sprintf("%s panicked: %v", p.What, p.Value) }

// Recovered reports a panic (Reportf) and returns it as an error. what describes what was being done, with the name of the object.
func Recovered(value any, what string) *Panic {
	p := &Panic{what, value}
	Reportf("%v\n%s", p, debug.Stack())
	return p
}

// Catch must be deferred. It turns a panic of the function into its error. It is used where a loop handles many objects, so that a
// panic over one object does not affect the others.
func Catch(err *error, what string) {
	if value := recover(); value != nil {
		*err = Recovered(value, what)
	}
}
