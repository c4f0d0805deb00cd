package replay

import (
	"maps"
	"math"
	"slices"
	"time"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/history/recording"
)

// A Result describes how a variant went. Its JSON is stable: fields are added, none changes its meaning.
type Result struct {
	Variant string    `json:"variant"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	// Dollars is the bill. Bound is about the least that any fleet for the same pods could have cost: the bound proven at
	// each point of Curve, taken for the time around it. Regret is by which part of the bound the fleet was dearer at these
	// points.
	Dollars float64 `json:"dollars"`
	Bound   float64 `json:"bound"`
	Regret  float64 `json:"regret"`

	MeanNodes float64 `json:"meanNodes"`
	PeakNodes int     `json:"peakNodes"`
	Launched  int     `json:"launched"`

	Pods              int     `json:"pods"`
	Evictions         int     `json:"evictions"`
	EvictionsByPodDay float64 `json:"evictionsPerPodAndDay"`
	// WaitSeconds are how long pods waited for a place, whether new or made anew after an eviction; without those that were there already.
	WaitSeconds Waits `json:"waitSeconds"`
	// Unplaced is how many pods had no place for five minutes or more when they or the recording ended.
	Unplaced int `json:"unplaced"`
	// SoldOut is how many machines were not to be had as they were planned.
	SoldOut int `json:"soldOut"`
	// Steps counts what was done to the fleet, by reason.
	Steps map[string]int `json:"steps"`
	Curve []Point        `json:"curve"`

	Fleet []Machine `json:"-"` // the machines at the end
}

// A Machine is one of a fleet, with what it costs in an hour.
type Machine struct {
	Type, Zone, CapacityType string
	Price                    cloud.NanoUSD
}

// Waits are the median, the 95th percentile and the maximum of the waiting times, in seconds.
type Waits struct {
	P50 int `json:"p50"`
	P95 int `json:"p95"`
	Max int `json:"max"`
}

// A Point is the fleet at one moment.
type Point struct {
	At      time.Time `json:"at"`
	Price   float64   `json:"pricePerHour"`
	Bound   float64   `json:"boundPerHour"`
	Nodes   int       `json:"nodes"`
	Pods    int       `json:"pods"`
	Waiting int       `json:"waiting"`
}

// longWait is how long a pod waits before it counts as one without a place.
const longWait = 5 * time.Minute

// A meter measures a run.
type meter struct {
	began, until time.Time
	rate         cloud.NanoUSD // what all machines cost in an hour
	spent, rest  int64         // billionths of dollars, and seconds times billionths of dollars per hour beyond
	machines     int
	peak, made   int
	machineTime  int64 // seconds
	podTime      int64
	placed       int // pods on machines now

	pods, evictions, unplaced int
	soldOut                   int
	waits                     []int
	reasons                   map[string]int
	curve                     []Point
	bounds                    *bounder
}

// begin starts to measure, and schedules the samples of the curve.
func (m *meter) begin(r *run, rec *recording.Recording) {
	m.began, m.until, m.reasons, m.bounds = rec.Begin, rec.End, map[string]int{}, newBounder(r)
	for i := range r.set.Samples { // in the middle of equal parts
		length := rec.End.Sub(rec.Begin)
		r.at(rec.Begin.Add(time.Duration(float64(length)*(float64(i)+0.5)/float64(r.set.Samples)).Truncate(
			time.Second)), func() { m.sample(r) })
	}
}

// pass counts the cost and use of the time between two events.
func (m *meter) pass(from, to time.Time) {
	seconds := int64(to.Sub(from) / time.Second)
	m.rest += int64(m.rate) * seconds
	m.spent += m.rest / 3600
	m.rest %= 3600
	m.machineTime += int64(m.machines) * seconds
	m.podTime += int64(m.placed) * seconds
}

// launched counts a new machine.
func (m *meter) launched(x *machine) {
	m.made++
	m.startPaying(x)
}

// startPaying adds the price of a machine from now on.
func (m *meter) startPaying(x *machine) {
	m.rate += x.price
	m.machines++
	m.peak = max(m.peak, m.machines)
}

// ended removes the price of a machine from now on.
func (m *meter) ended(x *machine) {
	m.rate -= x.price
	m.machines--
}

// podBound counts a pod that got a place, with how long it waited.
func (m *meter) podBound(p *pod, now time.Time) {
	m.placed++
	if !p.there {
		m.waits = append(m.waits, int(now.Sub(p.since)/time.Second))
	}
}

// podUnplaced counts a pod that ends without a place, if it waited for longWait or more.
func (m *meter) podUnplaced(p *pod, now time.Time) {
	if now.Sub(p.since) >= longWait {
		m.unplaced++
	}
}

// sample adds a point to the curve, and asks for the bound at this time.
func (m *meter) sample(r *run) {
	m.curve = append(m.curve, Point{At: r.now, Price: dollars(m.rate.Dollars()), Nodes: m.machines, Pods: len(r.pods),
		Waiting: len(r.waiting)})
	m.bounds.ask(r.Store.Snapshot(), r.listed, r.now)
}

// dollars rounds to hundredths of cents.
func dollars(d float64) float64 { return math.Round(d*1e4) / 1e4 }

// result returns the result at the end of the run. It waits for the last bound.
func (m *meter) result(r *run) *Result {
	for _, p := range r.waiting {
		m.podUnplaced(p, r.now)
	}
	m.bounds.stop()
	out := &Result{
		Variant: r.Name, From: m.began, To: m.until, Dollars: dollars(cloud.NanoUSD(m.spent).Dollars()),
		PeakNodes: m.peak, Launched: m.made,
		Pods: m.pods, Evictions: m.evictions, Unplaced: m.unplaced, SoldOut: m.soldOut, Steps: m.reasons, Curve: m.curve,
	}
	for _, name := range slices.Sorted(maps.Keys(r.machines)) {
		x := r.machines[name]
		out.Fleet = append(out.Fleet, Machine{x.offer.kind, x.offer.zone, x.offer.capacityType, x.price})
	}
	length := m.until.Sub(m.began)
	sum, paid := 0.0, 0.0
	for i, b := range m.bounds.found {
		out.Curve[i].Bound = dollars(b.Dollars())
		sum, paid = sum+b.Dollars(), paid+out.Curve[i].Price
	}
	out.Bound = dollars(sum / float64(max(1, len(m.curve))) * length.Hours())
	if sum > 0 {
		out.Regret = dollars(paid/sum - 1)
	}
	out.MeanNodes = math.Round(float64(m.machineTime)/length.Seconds()*10) / 10
	if m.podTime > 0 {
		out.EvictionsByPodDay = dollars(float64(m.evictions) / (float64(m.podTime) / (24 * 3600)))
	}
	if n := len(m.waits); n > 0 {
		slices.Sort(m.waits)
		out.WaitSeconds = Waits{m.waits[(n-1)/2], m.waits[(n-1)*95/100], m.waits[n-1]}
	}
	return out
}

// boundWork is how much a bound may cost. More moves it by less than what pods that come and go do in a minute.
const boundWork = work.Second / 4

// A bounder proves lower bounds in a goroutine beside the run, one after the other.
type bounder struct {
	asked chan engine.Question
	done  chan struct{}
	found []cloud.NanoUSD
	over  bool
}

// newBounder starts the goroutine. stop must be called.
func newBounder(r *run) *bounder {
	b := &bounder{asked: make(chan engine.Question, r.set.Samples+1), done: make(chan struct{})}
	settings := r.Engine
	settings.NodePrice, settings.Search = -1, boundWork
	go func() {
		defer close(b.done)
		e := engine.New(r.Labels)
		for q := range b.asked {
			q.Settings = settings
			plan := e.Plan(q)
			b.found = append(b.found, max(plan.ConfigBound, plan.VolumeBound))
		}
	}()
	return b
}

// ask requests a bound for the pods of a snapshot, as if all machines were bought anew.
func (b *bounder) ask(snap *cluster.Snapshot, pools []engine.Pool, now time.Time) {
	q := engine.Question{Snap: snap, Pools: pools, Gone: map[string]bool{}, Now: now}
	for n := range snap.Nodes() {
		q.Gone[n.Name] = true
	}
	for p := range snap.Pods() {
		if !p.DaemonSet {
			q.Pods = append(q.Pods, p)
		}
	}
	b.asked <- q
}

// stop waits until the last bound is proven. It may be called twice.
func (b *bounder) stop() {
	if !b.over {
		b.over = true
		close(b.asked)
	}
	<-b.done
}
