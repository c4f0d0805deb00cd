// Package spotshare keeps one type in one zone from being too large a part of the spot machines of a pool, and of those of one workload.
//
// A launch may give any of the offerings that it names. So no offering is named by more launches at the same time than
// it may have machines. Where more launches wait than an offering has room for, they name it by turns, and each
// gets another part of the offerings. The limit never stops a launch: if every offering has its share already, the launch
// may name the offerings that have the least of it.
package spotshare

import (
	"maps"
	"math"
	"slices"
	"sync"

	"karpenter.sh/karpenter/internal/aws/price"
)

// Few is the number of machines, or of a workload's pods, from which on shares are kept.
const Few = 4

// fewest is how many offerings a launch may name at least when they are divided among launches, if so many are free.
const fewest = 5

// Machines is the key under which Weights count machines.
const Machines = ""

// Weights are how much a machine counts: 1 for Machines, and for each workload the pods that it was opened for.
type Weights map[string]int

// A Machine is a spot machine that runs.
type Machine struct {
	price.Pool
	Weights
}

// A Question is about one launch.
type Question struct {
	NodePool string
	Share    float64
	Of       Weights
	Running  []Machine    // of the pool, spot
	Waiting  []Weights    // of the pool, that may become spot; the launch itself is one of them
	Offered  []price.Pool // cheapest first
	Near     int          // how many of Offered the launch would name if there were no shares; 0: all
}

// A Ledger knows which launches are under way. It may be used concurrently.
type Ledger struct {
	mu     sync.Mutex
	turn   map[string]int // by pool
	coming map[*coming]bool
}

// A coming is a launch that is under way, with the offerings that it may become.
type coming struct {
	pool string
	of   Weights
	as   map[price.Pool]bool
}

// New returns a Ledger of no launches.
func New() *Ledger { return &Ledger{turn: map[string]int{}, coming: map[*coming]bool{}} }

// Begin returns the offerings that a launch may name, nil for all of them, and whether the shares are kept with
// these. done is called when the launch has ended.
func (l *Ledger) Begin(q *Question) (named map[price.Pool]bool, kept bool, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := Weights{}
	for _, m := range q.Running {
		total.add(m.Weights)
	}
	for _, w := range q.Waiting {
		total.add(w)
	}
	if total[Machines] < Few || len(q.Offered) == 0 {
		return nil, true, func() {}
	}
	free := l.free(q, total)
	l.turn[q.NodePool]++
	if kept = len(free) > 0; kept {
		free = l.mine(q, free, total)
	} else {
		free = l.least(q, total)
	}
	c := &coming{pool: q.NodePool, of: q.Of, as: map[price.Pool]bool{}}
	for _, o := range free {
		c.as[o] = true
	}
	l.coming[c] = true
	return maps.Clone(c.as), kept, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.coming, c)
	}
}

func (w Weights) add(more Weights) {
	for key, n := range more {
		w[key] += n
	}
}

// add adds weights to those of an offering.
func add(loads map[price.Pool]Weights, o price.Pool, w Weights) {
	if loads[o] == nil {
		loads[o] = Weights{}
	}
	loads[o].add(w)
}

// mine returns the part of the free offerings that a launch names. Each offering has a number of turns: so many that all
// launches that wait find room when each names it in one turn. An offering with room for all of them is named by each.
//
// Only offerings about as cheap as without shares are divided. Otherwise a launch would name dear ones in place of those
// that others name.
func (l *Ledger) mine(q *Question, free []price.Pool, total Weights) []price.Pool {
	loads, longest := map[price.Pool]Weights{}, 1
	for _, m := range q.Running {
		add(loads, m.Pool, m.Weights)
	}
	turns := func(o price.Pool) int { return (max(1, len(q.Waiting))-1)/max(1, q.room(loads[o], total)) + 1 }
	for _, o := range free {
		longest = max(longest, turns(o))
	}
	if near := max(q.Near, longest*fewest); q.Near > 0 && near < len(free) {
		free = free[:near]
	}
	var mine []price.Pool
	for i, o := range free {
		if n := turns(o); i%n == l.turn[q.NodePool]%n {
			mine = append(mine, o)
		}
	}
	if len(mine) == 0 {
		return free
	}
	return mine
}

// room returns how many launches like that of the question an offering with this load has room for.
func (q *Question) room(load, total Weights) int {
	out := math.MaxInt
	for key, n := range q.Of {
		if total[key] >= Few && n > 0 {
			out = min(out, (most(q.Share, total[key])-load[key])/n)
		}
	}
	return out
}

// most returns how many of a total one offering may have; at least 1.
func most(share float64, total int) int { return max(1, int(share*float64(total)+1e-9)) }

// loads returns what each offering has, or may get from launches that are under way.
func (l *Ledger) loads(q *Question) map[price.Pool]Weights {
	out := map[price.Pool]Weights{}
	for _, m := range q.Running {
		add(out, m.Pool, m.Weights)
	}
	for c := range l.coming {
		for o := range c.as {
			if c.pool == q.NodePool {
				add(out, o, c.of)
			}
		}
	}
	return out
}

// free returns the offerings that keep every share with this launch. An offering without any load of a workload may
// always take one machine.
func (l *Ledger) free(q *Question, total Weights) []price.Pool {
	loads := l.loads(q)
	return slices.DeleteFunc(slices.Clone(q.Offered), func(o price.Pool) bool {
		for key, n := range q.Of {
			if total[key] >= Few && loads[o][key] > 0 && loads[o][key]+n > most(q.Share, total[key]) {
				return true
			}
		}
		return false
	})
}

// least returns the offerings whose largest share would be the smallest with this launch.
func (l *Ledger) least(q *Question, total Weights) (out []price.Pool) {
	loads, lowest := l.loads(q), math.Inf(1)
	for _, o := range q.Offered {
		largest := 0.0
		for key, n := range q.Of {
			if total[key] >= Few {
				largest = max(largest, float64(loads[o][key]+n)/float64(total[key]))
			}
		}
		switch {
		case largest < lowest:
			out, lowest = []price.Pool{o}, largest
		case largest == lowest:
			out = append(out, o)
		}
	}
	return out
}
