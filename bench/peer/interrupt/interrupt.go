// Package interrupt plays what interruptions do to a fleet of spot machines: how many pods go at once, and what it
// costs, when launches name few pools or many.
//
// A pool is a type in a zone. Kinds says how pools differ; a hash of its name decides of which kind a pool is. A
// pool fails as a whole: every machine of it goes at the same moment, and for some hours it gives none. What EC2
// knows and nothing else, how much a pool has left, wavers from hour to hour and shrinks with what we took; a launch
// gets the cheapest of the pools on its list that have most left, as price-capacity-optimized promises. Where the
// list has nothing, the machine is bought on-demand until it has again. The same seed gives the same months.
package interrupt

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A Pool is a type in a zone.
type Pool struct{ Type, Zone string }

// An Offer is a pool that a launch names, and what a machine of it costs an hour.
type Offer struct {
	Pool
	Dollars float64
}

// A Claim is a machine: how many pods are on it, what its launch names, and what it costs on-demand.
type Claim struct {
	Pods     int
	Sent     []Offer
	OnDemand float64
}

// A Kind is how some pools are.
type Kind struct {
	Share    float64       // of all pools
	Machines float64       // that it gives, on average
	Every    time.Duration // it fails
}

const day = 24 * time.Hour

// Kinds are chosen, not measured: EC2 publishes only in five steps how often each type is interrupted in a month,
// from less than one in twenty machines to more than one in five.
func Kinds() []Kind {
	return []Kind{{0.50, 40, 60 * day}, {0.30, 20, 20 * day}, {0.15, 8, 5 * day}, {0.05, 3, day}}
}

const (
	away   = 3 * time.Hour // how long a pool that failed gives nothing
	near   = 0.6           // a pool that has this part of the most that one has counts as deep
	waver  = time.Hour     // how often what pools have left changes
	length = 90 * day      // how long a fleet is played
)

// An Outcome is what the months came to.
type Outcome struct {
	Pools    int     // that the fleet is in when it begins
	Failures float64 // a week that hit the fleet
	Mean     float64 // part of all pods that one failure ended
	Most     float64 // part of all pods that the worst failure ended
	Lost     float64 // failures of its machine that a pod saw in thirty days
	Dollars  float64 // an hour, on average
	OnDemand float64 // part of machine time
}

// A market is the pools as time passes.
type market struct {
	seed   uint64
	random *rand.Rand
	kinds  map[Pool]Kind
	taken  map[Pool]int
	back   map[Pool]time.Duration // when a pool that failed gives again
}

// lot is a number from 0 to 1 that depends on words.
func lot(words ...any) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, words...)
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// kind returns the kind of a pool.
func (m *market) kind(p Pool) Kind {
	if k, ok := m.kinds[p]; ok {
		return k
	}
	all := Kinds()
	k, x := all[len(all)-1], lot(m.seed, "kind", p)
	for _, other := range all {
		if x -= other.Share; x < 0 {
			k = other
			break
		}
	}
	m.kinds[p] = k
	return k
}

// left is how many machines a pool still gives at a time.
func (m *market) left(p Pool, at time.Duration) float64 {
	if at < m.back[p] {
		return 0
	}
	return m.kind(p).Machines*(0.5+lot(m.seed, p, int64(at/waver))) - float64(m.taken[p])
}

// launch is which of the offers a machine gets, −1 for none.
func (m *market) launch(sent []Offer, at time.Duration) int {
	most := 0.0
	for _, o := range sent {
		most = max(most, m.left(o.Pool, at))
	}
	if most < 1 {
		return -1
	}
	best := -1
	for i, o := range sent {
		if m.left(o.Pool, at) >= near*most && (best < 0 || o.Dollars < sent[best].Dollars) {
			best = i
		}
	}
	m.taken[sent[best].Pool]++
	return best
}

// A game is a fleet while it is played.
type game struct {
	*market
	fleet []Claim
	on    []int // the offer of each machine, −1 for on-demand
	now   time.Duration
	spent float64       // dollars
	dear  time.Duration // machine time on-demand
}

// Play plays a fleet for three months.
func Play(fleet []Claim, seed uint64) Outcome {
	g := &game{fleet: fleet, on: make([]int, len(fleet)), market: &market{
		seed: seed, random: rand.New(rand.NewPCG(seed, 1)), kinds: map[Pool]Kind{}, taken: map[Pool]int{}, back: map[Pool]time.Duration{},
	}}
	pods := 0
	for i := range fleet {
		g.on[i] = g.launch(fleet[i].Sent, 0)
		pods += fleet[i].Pods
	}
	out := Outcome{Pools: len(g.taken)}
	failures, lost := 0, 0
	for _, f := range g.failures() {
		g.pass(f.at)
		gone := g.fail(f.pool)
		if gone == 0 {
			continue
		}
		failures++
		lost += gone
		out.Most = max(out.Most, float64(gone)/float64(pods))
	}
	g.pass(length)
	out.Failures = float64(failures) / (float64(length) / float64(7*day))
	if failures > 0 {
		out.Mean = float64(lost) / float64(failures) / float64(pods)
	}
	out.Lost = float64(lost) / float64(pods) / (float64(length) / float64(30*day))
	out.Dollars = g.spent / length.Hours()
	out.OnDemand = float64(g.dear) / (float64(length) * float64(len(fleet)))
	return out
}

type failure struct {
	at   time.Duration
	pool Pool
}

// failures are those of all pools that the fleet may be in, the first first.
func (g *game) failures() []failure {
	known := map[Pool]bool{}
	var pools []Pool
	for i := range g.fleet {
		for _, o := range g.fleet[i].Sent {
			if !known[o.Pool] {
				known[o.Pool] = true
				pools = append(pools, o.Pool)
			}
		}
	}
	slices.SortFunc(pools, func(a, b Pool) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Zone, b.Zone)) })
	var all []failure
	for _, p := range pools {
		every := float64(g.kind(p).Every)
		for at := g.random.ExpFloat64() * every; at < float64(length); at += math.Max(g.random.ExpFloat64()*every, float64(away)) {
			all = append(all, failure{time.Duration(at), p})
		}
	}
	slices.SortStableFunc(all, func(a, b failure) int { return cmp.Compare(a.at, b.at) })
	return all
}

// pass lets time pass, hour by hour: machines on-demand go back to spot when there is some.
func (g *game) pass(to time.Duration) {
	for g.now < to {
		next := min(to, (g.now/waver+1)*waver)
		for i := range g.fleet {
			c := &g.fleet[i]
			if g.on[i] < 0 {
				g.on[i] = g.launch(c.Sent, g.now)
			}
			if g.on[i] < 0 {
				g.dear += next - g.now
				g.spent += c.OnDemand * (next - g.now).Hours()
			} else {
				g.spent += c.Sent[g.on[i]].Dollars * (next - g.now).Hours()
			}
		}
		g.now = next
	}
}

// fail ends all machines of a pool, launches others for them, and returns how many pods went.
func (g *game) fail(p Pool) int {
	g.back[p], g.taken[p] = g.now+away, 0
	gone := 0
	for i := range g.fleet {
		if c := &g.fleet[i]; g.on[i] >= 0 && c.Sent[g.on[i]].Pool == p {
			gone += c.Pods
			g.on[i] = g.launch(c.Sent, g.now)
		}
	}
	return gone
}
