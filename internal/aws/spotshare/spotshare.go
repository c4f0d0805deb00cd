// Package spotshare keeps one type in one zone from being too large a part of the spot machines of a pool, and of those of one workload.
//
// A launch may give any of the offerings that it names. So launches that are under way at the same time get different
// parts of the offerings, and no offering is named by more launches than it may have. The limit never stops a launch:
// if every offering has its share already, the launch may name the offerings that have the least of it.
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
	free, parts := l.free(q, total), l.parts(q.Share, total[Machines])
	l.turn[q.NodePool]++
	if kept = len(free) > 0; kept {
		mine := []price.Pool{}
		for i, o := range free {
			if i%parts == l.turn[q.NodePool]%parts {
				mine = append(mine, o)
			}
		}
		if len(mine) > 0 {
			free = mine
		}
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

// parts returns into how many parts offerings are divided among launches, so that no offering is named by more
// launches than it may have.
func (l *Ledger) parts(share float64, total int) int {
	return int(math.Ceil(float64(total) / float64(most(share, total))))
}

// most returns how many of a total one offering may have; at least 1.
func most(share float64, total int) int { return max(1, int(share*float64(total)+1e-9)) }

// loads returns what each offering has, or may get from launches that are under way.
func (l *Ledger) loads(q *Question) map[price.Pool]Weights {
	out := map[price.Pool]Weights{}
	add := func(o price.Pool, w Weights) {
		if out[o] == nil {
			out[o] = Weights{}
		}
		out[o].add(w)
	}
	for _, m := range q.Running {
		add(m.Pool, m.Weights)
	}
	for c := range l.coming {
		for o := range c.as {
			if c.pool == q.NodePool {
				add(o, c.of)
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
