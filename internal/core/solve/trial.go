package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// A reading is a class of pods, read as one of its variants, with the groups that it has to do with.
type reading struct {
	class   problem.ClassID
	variant int
	c       *problem.Class
	v       *problem.Variant
	*touches
}

// A trial is one question: may one more pod join a bin? Each kind of constraint narrows the choices or refuses. Then commit places the
// pod with the choices and domains that the trial holds. A state has memory for one trial at a time, so that asking allocates nothing.
type trial struct {
	reading
	bin problem.BinID
	// mask is the choices that remain for a new bin; it means nothing for an existing one.
	mask bits.Set
	// domain is, for each topology key that the pod has to do with, the domain in which it would be counted.
	domain []int32
	// Domains are settled key by key, with backtracking. By depth: the choices left so far (steps[0] is mask), and the domains in the
	// order in which they are tried.
	steps  []bits.Set
	orders [][]int32
}

// A verdict is the zero value when the pod may join. A final refusal stays true for the rest of the run, in which pods are
// only ever added.
type verdict struct {
	code  reason.Code
	final bool
}

func newTrial(f *facts) trial {
	q := trial{domain: make([]int32, len(f.p.Keys)), steps: make([]bits.Set, len(f.p.Keys)+1), orders: make([][]int32, len(f.p.Keys)+1)}
	for i := range q.steps {
		q.steps[i] = bits.Make(64 * f.width)
	}
	q.mask = q.steps[0]
	return q
}

// try asks whether one more pod may join bin. It changes nothing but the trial.
func (f *fleet) try(q *trial, bin problem.BinID) verdict {
	f.facts.meter.Charge(tryWork + work.Units(len(q.host.shunned)+len(q.host.owned)+len(q.keys))*groupWork)
	q.bin = bin
	return f.admit(q)
}

// mostAtOnce returns how many pods, from 1 up to want, may be committed together after a trial that was admitted. It is 1 if the first pod
// may change what the rules answer to the next.
func (f *fleet) mostAtOnce(q *trial, want int) int {
	if q.oneByOne || len(q.c.Ports) > 0 || len(q.c.Volumes) > 0 || len(q.c.Devices) > 0 {
		return 1
	}
	if n := f.bins.node(q.bin); n != nil && len(f.bins.template(n).Min) > 0 {
		return 1
	}
	n := q.c.Need.Times(f.bins.roomOf(q.bin), want)
	for i, g := range q.host.owned {
		n = f.census.groups[g].HostRoom(int(q.bin), q.host.self[i], n)
	}
	return max(n, 1)
}
