package replay

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"

	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/history/recording"
)

// A Variant is a way to run the recorded pods.
type Variant struct {
	Name  string
	Store *cluster.Store // all objects besides pods and machines; the run changes it
	Pools []engine.Pool
	// Engine, Planner and Labels are the controller's settings.
	Engine  engine.Settings
	Planner disrupt.Settings
	Labels  label.Table

	Edits []Edit // in the order of their times

	fleet []standing // the machines that exist when the recording begins
}

// Settings are the times of the model, all of whole seconds, and how closely it looks.
type Settings struct {
	// of a machine, from its launch until it is ready, and from the end of its pods until it costs nothing
	Boot, Stop          time.Duration
	BatchIdle, BatchMax time.Duration
	// Pace is how long there is at least between two searches for a cheaper fleet. The controller looks more often; over weeks that is
	// most of the work.
	Pace time.Duration
	// Samples is at how many moments the bound is proven.
	Samples int
	// Market is what the cloud takes back and has not; nil for a cloud that has everything, for ever.
	Market Market
}

// GCPercent is the GOGC of a program that does nothing but replay. Snapshots make much garbage compared with the live
// heap, and with the default the collector takes a quarter of the time.
const GCPercent = 400

// A Progress hears how far a run is, 0 to 1.
type Progress func(part float64)

// A run is a variant while it is played.
type run struct {
	Variant
	clock
	set      Settings
	end      time.Time
	pools    map[string]engine.Pool // Pools, by name
	listed   []engine.Pool          // Pools with complete catalogues; those of Pools lack what is sold out now
	dried    map[offerKey]time.Time // what is known to be sold out, until when
	axes     axes
	pods     map[cluster.PodKey]*pod
	waiting  []*pod // the longest first
	machines map[string]*machine
	open     []*machine // that take pods, in the order in which they became ready
	classes  map[string]*class
	serial   int

	daemons []*appsv1.DaemonSet
	budgets []*policyv1.PodDisruptionBudget

	provisioner provisioner
	disruption  disruption
	meter       meter
}

// Run plays a recording and returns the result. It calls tell with its progress, and returns the error of ctx when
// that ends.
func Run(ctx context.Context, rec *recording.Recording, v Variant, s Settings, tell Progress) (*Result, error) {
	if len(v.Pools) == 0 {
		return nil, fmt.Errorf("variant %s has no pool", v.Name)
	}
	r := newRun(rec, v, s)
	r.meter.begin(r, rec)
	defer r.meter.bounds.stop()
	events, length := 0, rec.End.Sub(rec.Begin)
	for len(r.next) > 0 && !r.next[0].at.After(r.end) {
		if events++; events%256 == 0 {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			tell(float64(r.now.Sub(rec.Begin)) / float64(length))
		}
		r.step()
	}
	r.meter.pass(r.now, r.end)
	r.now = r.end
	tell(1)
	return r.meter.result(r), nil
}

// step advances the clock to the next alarm and carries it out.
func (r *run) step() {
	x := heap.Pop(&r.next).(alarm)
	r.meter.pass(r.now, x.at)
	r.now = x.at
	x.do()
}

// newRun returns a run with the machines that exist at the beginning, and the beginnings of all lives scheduled.
func newRun(rec *recording.Recording, v Variant, s Settings) *run {
	r := &run{
		Variant: v, set: s, clock: clock{now: rec.Begin}, end: rec.End, axes: axes{}, dried: map[offerKey]time.Time{},
		pods: map[cluster.PodKey]*pod{}, machines: map[string]*machine{}, classes: map[string]*class{},
	}
	r.provisioner = provisioner{engine: engine.New(v.Labels)}
	r.disruption = newDisruption(v.Labels)
	r.setPools(v.Pools)
	snap := r.Store.Snapshot()
	r.daemons, r.budgets = slices.Collect(cluster.DaemonSets.All(snap)), slices.Collect(cluster.PDBs.All(snap))
	for i := range rec.Lives {
		r.axes.add(rec.Lives[i].Pod)
	}
	for _, ds := range r.daemons {
		r.axes.addSpec(&ds.Spec.Template.Spec)
	}
	for i := range r.fleet {
		r.addStanding(&r.fleet[i])
	}
	r.judgeDrift(nil)
	for i := range v.Edits {
		e := &v.Edits[i]
		r.at(e.At, func() { r.applyEdit(e) })
	}
	for _, placed := range []bool{true, false} { // pods on nodes come first, so that other pods do not take their room
		for i := range rec.Lives {
			if life := &rec.Lives[i]; placed == (life.On != "") {
				r.at(life.From, func() { r.arrive(life) })
			}
		}
	}
	return r
}

// update edits the store at the run's time.
func (r *run) update(edit func(*cluster.Draft)) {
	r.Store.Update(func(d *cluster.Draft) {
		d.At(r.now)
		edit(d)
	})
}

// byKey orders pods by their names.
func byKey(a, b *pod) int { return a.key.Compare(b.key) }
