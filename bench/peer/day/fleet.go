package day

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/history/kubescore"
	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/history/replay"
)

const (
	boot    = 40 * time.Second // from the launch of a machine until it takes pods
	stop    = 30 * time.Second // from the end of its pods until it costs nothing
	tooLong = 5 * time.Minute  // a pod that waited this long counts as one without a place
)

// A fleet is machines and pods in simulated time, whose autoscaler is not this project's. Its rules for pods, boot,
// stop, waiting and the bill are those of internal/history/replay. Pods ask for CPU and memory and have no constraints.
type fleet struct {
	now, end time.Time
	next     alarms
	made     int
	random   *rand.Rand // for equal nodes
	scaler   scaler

	machines []*machine // that cost something, in the order of their launch
	waiting  []*pod     // in the order in which they began to wait
	rate     cloud.NanoUSD
	spent    int64 // nano-dollars an hour, times seconds
	result   replay.Result
	waits    []int
	err      error
}

// A scaler is an autoscaler. The fleet calls it when something happens; it buys, closes and drains machines.
type scaler interface {
	begin(*fleet)
	waits(*pod)          // a pod that is new found no place
	bound(*pod)          // a pod is on a machine now
	left(*pod, *machine) // a pod is gone, from no machine where it waited
	joined(*machine)     // a machine takes pods from now on
	ended(*machine)      // a machine is gone
}

// A pod is the present pod of a life.
type pod struct {
	life  *recording.Life
	name  string
	asks  kubescore.Asked
	on    *machine // nil while it waits
	since time.Time
	first bool // it existed when the day began, so that its first wait does not count
	moves int
}

// A machine is bought, and ready after its boot.
type machine struct {
	name          string
	it            *cloud.InstanceType
	offer         *cloud.Offering
	load          kubescore.Load
	slots         int
	pods          []*pod
	ready, closed bool // it takes pods if it is ready and not closed
	drained, gone bool
}

// playFleet plays a recording and returns how it went, without a bound.
func playFleet(ctx context.Context, rec *recording.Recording, name string, s scaler) (*replay.Result, error) {
	f := &fleet{now: rec.Begin, end: rec.End, random: rand.New(rand.NewPCG(1, 18)), scaler: s}
	f.result = replay.Result{Variant: name, From: rec.Begin, To: rec.End, Pods: len(rec.Lives)}
	for i := range rec.Lives {
		l := &rec.Lives[i]
		p := &pod{life: l, name: l.Pod.Name, asks: kubescore.Of(l.Pod), first: l.From.Equal(rec.Begin)}
		f.at(l.From, func() { f.create(p) })
		if !l.To.IsZero() {
			f.at(l.To, func() { f.remove(p); f.retry() })
		}
	}
	s.begin(f)
	for len(f.next) > 0 && !f.next[0].at.After(f.end) && f.err == nil && ctx.Err() == nil {
		x := heap.Pop(&f.next).(alarm)
		f.pass(x.at)
		x.do()
	}
	f.pass(f.end)
	for _, p := range f.waiting {
		f.unplaced(p)
	}
	for _, m := range f.machines {
		f.result.Fleet = append(f.result.Fleet, replay.Machine{Type: m.it.Name, Zone: m.offer.Zone(), CapacityType: m.offer.CapacityType(),
			Price: m.offer.Price})
	}
	f.result.Dollars = cloud.NanoUSD(f.spent / 3600).Dollars()
	if n := len(f.waits); n > 0 {
		slices.Sort(f.waits)
		f.result.WaitSeconds = replay.Waits{P50: f.waits[(n-1)/2], P95: f.waits[(n-1)*95/100], Max: f.waits[n-1]}
	}
	if f.err == nil {
		f.err = ctx.Err()
	}
	return &f.result, f.err
}

// pass advances the time, and pays for it.
func (f *fleet) pass(to time.Time) {
	f.spent += int64(f.rate) * int64(to.Sub(f.now)/time.Second)
	f.now = to
}

// create makes a pod, which waits if no machine has room.
func (f *fleet) create(p *pod) {
	p.since = f.now
	if !f.place(p) {
		f.waiting = append(f.waiting, p)
		f.scaler.waits(p)
	}
}

// place puts a pod on the machine that kube-scheduler would choose, and reports whether there is one.
func (f *fleet) place(p *pod) bool {
	var best *machine
	var most int64
	equal := 0
	for _, m := range f.machines {
		if !m.ready || m.closed || !m.holds(p.asks.Request) {
			continue
		}
		switch score := m.load.Score(p.asks); {
		case best == nil || score > most:
			best, most, equal = m, score, 1
		case score == most:
			if equal++; f.random.IntN(equal) == 0 {
				best = m
			}
		}
	}
	if best == nil {
		return false
	}
	p.on = best
	best.add(p)
	if !p.first {
		f.waits = append(f.waits, int(f.now.Sub(p.since)/time.Second))
	}
	f.scaler.bound(p)
	return true
}

// retry places pods that wait, the longest first.
func (f *fleet) retry() { f.waiting = slices.DeleteFunc(f.waiting, f.place) }

// remove ends a pod.
func (f *fleet) remove(p *pod) {
	m := p.on
	if m == nil {
		f.unplaced(p)
		f.waiting = slices.DeleteFunc(f.waiting, func(x *pod) bool { return x == p })
	} else {
		m.pods = slices.DeleteFunc(m.pods, func(x *pod) bool { return x == p })
		m.slots++
		m.load.Used, m.load.Guessed = m.load.Used.Minus(p.asks.Request), m.load.Guessed.Minus(p.asks.Guessed)
	}
	p.on = nil
	f.scaler.left(p, m)
}

// unplaced counts a pod that ends while it waits, if that was long.
func (f *fleet) unplaced(p *pod) {
	if f.now.Sub(p.since) >= tooLong {
		f.result.Unplaced++
	}
}

// buy launches a machine.
func (f *fleet) buy(it *cloud.InstanceType, offer *cloud.Offering) *machine {
	f.result.Launched++
	m := newMachine(fmt.Sprintf("node-%05d", f.result.Launched), it, offer)
	f.machines = append(f.machines, m)
	f.rate += offer.Price
	f.at(f.now.Add(boot), func() {
		if !m.drained {
			m.ready = true
			f.scaler.joined(m)
			f.retry()
		}
	})
	return m
}

// newMachine returns a machine without pods.
func newMachine(name string, it *cloud.InstanceType, offer *cloud.Offering) *machine {
	has := it.Allocatable(offer)
	m := &machine{name: name, it: it, offer: offer, slots: int(has.Pods().Value())}
	m.load.Has = kubescore.Request{CPU: has.Cpu().MilliValue(), Memory: has.Memory().Value()}
	return m
}

// copy returns a machine to which pods can be added in a simulation.
func (m *machine) copy() *machine {
	c := *m
	c.pods = slices.Clone(m.pods)
	return &c
}

// drain evicts all pods of a machine and stops it. The pods' owners create them anew.
func (f *fleet) drain(m *machine) {
	if m.drained {
		return
	}
	m.closed, m.drained = true, true
	for _, p := range slices.Clone(m.pods) {
		f.remove(p)
		f.result.Evictions++
		p.moves++
		p.name, p.first = fmt.Sprintf("%s-again-%d", p.life.Pod.Name, p.moves), false
		f.create(p)
	}
	f.at(f.now.Add(stop), func() {
		m.gone = true
		f.rate -= m.offer.Price
		f.machines = slices.DeleteFunc(f.machines, func(x *machine) bool { return x == m })
		f.scaler.ended(m)
	})
}

// holds reports whether a machine has room for a pod.
func (m *machine) holds(r kubescore.Request) bool {
	after := m.load.Used.Plus(r)
	return m.slots > 0 && after.CPU <= m.load.Has.CPU && after.Memory <= m.load.Has.Memory
}

// add counts a pod on the machine.
func (m *machine) add(p *pod) {
	m.pods = append(m.pods, p)
	m.slots--
	m.load.Used, m.load.Guessed = m.load.Used.Plus(p.asks.Request), m.load.Guessed.Plus(p.asks.Guessed)
}

// An alarm is one call that is due at a time; those of one time are called in the order in which they were added.
type alarm struct {
	at     time.Time
	number int
	do     func()
}

func (f *fleet) at(t time.Time, do func()) {
	f.made++
	heap.Push(&f.next, alarm{t, f.made, do})
}

type alarms []alarm

func (a alarms) Len() int { return len(a) }
func (a alarms) Less(i, j int) bool {
	return a[i].at.Before(a[j].at) || a[i].at.Equal(a[j].at) && a[i].number < a[j].number
}
func (a alarms) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)   { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}
