package buffer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/buffer"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// opened is the reason of claims in metrics.
	opened = "buffer"
	// roomInterval is how often room is looked for while nothing changes that a user wrote: prices and what is sold out change without
	// it.
	roomInterval = 10 * time.Second
	// planTime is how long a plan may take by the clock. Nothing waits for it.
	planTime = 10 * time.Second
)

// missing is the room that would have to be bought, as a number of pods.
type missing struct {
	pods        int
	first, last time.Time // since when some room is missing, and since when as much as now
}

// due notes how much is missing now, and reports whether it is to be bought. It waits until the number has been the same for
// Settings.Idle, at most Settings.Max: while pods bind one after the other more and more is missing, and one node for all of it is
// cheaper than many.
func (m *missing) due(pods int, s Settings, now time.Time) bool {
	if pods != m.pods {
		if m.pods == 0 {
			m.first = now
		}
		m.pods, m.last = pods, now
	}
	return pods > 0 && (now.Sub(m.last) >= s.Idle || now.Sub(m.first) >= s.Max)
}

// room asks the engine where there is room for the spares, opens nodes for those without room once that is due, and writes into the store
// where each spare has room. It does nothing if neither news nor time give a reason to look again.
func (l *Loop) room(ctx context.Context, snap *cluster.Snapshot, now time.Time) error {
	if l.news == snap.News() && now.Before(l.until) {
		return nil
	}
	l.aside.Sweep(now)
	var all []*cluster.Spares
	wanted := 0
	for s := range snap.Spares() {
		all = append(all, s)
		wanted += len(s.Pods)
	}
	look := newLook()
	if wanted == 0 {
		l.missing = missing{}
	} else {
		in := l.question(ctx, snap, now)
		plan := l.plan(ctx, in, all)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		look.read(snap, plan)
		look.wait(&l.ahead.times, now)
	}
	err := l.buy(ctx, snap, look, now)
	l.note(snap, all, look)
	l.news, l.until = snap.News(), now.Add(roomInterval)
	if look.waits > 0 {
		l.until = now.Add(min(roomInterval, look.waits))
	}
	if l.missing.pods > 0 {
		l.until = now
	}
	return err
}

// question returns the question about the pods of users, to which plan adds the spares: so pods of users get their places first. Pools
// that are not ready, static, broken or held open no nodes for spares.
func (l *Loop) question(ctx context.Context, snap *cluster.Snapshot, now time.Time) engine.Question {
	began := time.Now()
	in := engine.Question{
		Snap: snap, Pods: waiting(snap, now), Settings: l.settings.Engine, Now: now,
		Stop: func() bool { return time.Since(began) > planTime }, Ended: func() bool { return ctx.Err() != nil },
	}
	in.Settings.Unproven = true // no proof of the bound is needed here
	if now.Before(l.alone) {
		in.Pods = nil
	}
	known, notReady := l.Catalogs.Pools(ctx, snap)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		p := known[name]
		broken := lifecycle.TroubleOf(p.Pool).Broken() // such a pool is not tried for pods that may never come
		if !notReady[name] && !p.Pool.IsStatic() && !broken && lifecycle.Held(snap, p.Pool, now) == nil {
			in.Pools = append(in.Pools, p)
		}
	}
	return in
}

// waiting returns the pods of users that need a place: those that wait now or soon, and those of nodes that are marked for removal.
func waiting(snap *cluster.Snapshot, now time.Time) []*cluster.Pod {
	out := slices.DeleteFunc(snap.ProvisionableSoon(), func(p *cluster.Pod) bool { return snap.Held(p.PodKey) })
	var budgets []movable.PDB
	for b := range cluster.PDBs.All(snap) {
		budgets = append(budgets, movable.Compile(b))
	}
	pdbs := movable.NewPDBs(budgets)
	for n := range snap.Nodes() {
		if !n.MarkedForRemoval {
			continue
		}
		for _, p := range n.Pods {
			if pdbs.CurrentlyReschedulable(p, now) {
				out = append(out, p)
			}
		}
	}
	return out
}

// plan asks the engine about the question with the spares of all. If it panics, plan finds the buffers that cause it and leaves them
// out for a while. If it panics even without buffers, the pods of users are left out instead (l.alone).
func (l *Loop) plan(ctx context.Context, in engine.Question, all []*cluster.Spares) *engine.Plan {
	kept := slices.DeleteFunc(slices.Clone(all), func(s *cluster.Spares) bool {
		_, left := l.aside.Has(keyOfSpares(s))
		return left || len(s.Pods) == 0
	})
	plan, err := l.planRecovering(with(in, kept))
	if err == nil {
		return plan
	}
	l.watched.Panicked()
	fails := func(some []*cluster.Spares) bool { return bug.Panics(func() { plan = l.Engine.Plan(with(in, some)) }) }
	if fails(nil) { // the pods of users have a part in it, and the provisioner finds out which
		in.Pods, l.alone = nil, in.Now.Add(bug.AsideFor)
		if !fails(kept) {
			return plan
		}
	}
	plan = &engine.Plan{}
	bad, unknown := bug.Culprits(kept, fails, bug.Patience(ctx))
	until := in.Now.Add(bug.AsideFor)
	if len(bad)+len(unknown) == len(kept) {
		until = in.Now.Add(bug.AllAsideFor)
	}
	for _, s := range slices.Concat(bad, unknown) {
		l.leave(ctx, s, until, err)
	}
	return plan
}

// planRecovering plans, and returns a panic of the engine as an error instead of ending the turn.
func (l *Loop) planRecovering(in engine.Question) (plan *engine.Plan, err *bug.Panic) {
	defer func() {
		if value := recover(); value != nil {
			err = bug.Recovered(value, "looking for room for capacity buffers")
		}
	}()
	return l.Engine.Plan(in), nil
}

// with returns the question with the pods of some spares added.
func with(in engine.Question, spares []*cluster.Spares) engine.Question {
	in.Pods = slices.Clone(in.Pods)
	for _, s := range spares {
		in.Pods = append(in.Pods, s.Pods...)
	}
	return in
}

func keyOfSpares(s *cluster.Spares) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Buffer}
}

// leave leaves a buffer out of plans until a time, because the engine panicked over it, and tells its owner by an event.
func (l *Loop) leave(ctx context.Context, s *cluster.Spares, until time.Time, broken *bug.Panic) {
	key := keyOfSpares(s)
	telemetry.Log(ctx).Error("a capacity buffer is left out of plans because of a bug", "CapacityBuffer",
		key.String(), "until", until, "error", broken)
	why := l.aside.Leave(key, until, "buffer", "keeps no room for it", broken)
	if r := l.known[key]; r != nil {
		l.Events.Publish(telemetry.Event{Object: telemetry.BufferRef(key, r.uid), Reason: telemetry.LeftOut,
			Key: []string{string(r.uid)}, Message: why})
	}
}

// look is the result of looking for room for the spares.
type look struct {
	at    map[*cluster.Pod]string // the claim or node that has room for a spare
	ready map[*cluster.Pod]bool   // that node is initialized
	why   map[*cluster.Pod]string // why there is no room for a spare
	open  []engine.Opening        // nodes that only spares need
	pods  int                     // spares of these openings
	waits time.Duration           // until an opening is due that is left out for now; 0 for none
}

func newLook() *look {
	return &look{at: map[*cluster.Pod]string{}, ready: map[*cluster.Pod]bool{}, why: map[*cluster.Pod]string{}}
}

// read takes from a plan the places of spares, and the openings that only spares need. An opening with a pod of a user is left out: the
// provisioner makes it, and spares may use the room that is left once it exists.
func (k *look) read(snap *cluster.Snapshot, plan *engine.Plan) {
	for _, p := range plan.Place {
		if p.Pod.Spare == nil {
			continue
		}
		n := snap.Node(p.Node)
		k.at[p.Pod], k.ready[p.Pod] = p.Node, n == nil || n.Initialized()
		if n != nil && n.Claim != nil {
			k.at[p.Pod] = n.Claim.Name
		}
	}
	for _, r := range plan.Refused {
		if r.Pod.Spare != nil {
			k.why[r.Pod] = sentence.Explanation(r.Reasons)
		}
	}
	for _, o := range plan.Open {
		if slices.ContainsFunc(o.Pods, func(p *cluster.Pod) bool { return p.Spare == nil }) {
			continue
		}
		k.open = append(k.open, o)
		k.pods += len(o.Pods)
	}
}

// buy opens the nodes of k if missing.due says so, and notes in k where the spares go then. After a failure it waits 2 to 16 seconds
// longer.
func (l *Loop) buy(ctx context.Context, snap *cluster.Snapshot, k *look, now time.Time) error {
	if !l.missing.due(k.pods, l.settings, now) {
		return nil
	}
	telemetry.Log(ctx).Info("computed new nodeclaim(s) for capacity buffers", "nodeclaims", len(k.open), "spares", k.pods)
	for i := range k.open {
		l.explain(&k.open[i], now)
	}
	claims, err := l.Opener.Open(ctx, lifecycle.Seed("buffers", snap), opened, k.open)
	l.missing = missing{}
	for i, c := range claims {
		l.tellAhead(c)
		for _, p := range k.open[i].Pods {
			if c != nil {
				k.at[p] = c.Name
			} else if err != nil {
				k.why[p] = err.Error()
			}
		}
	}
	if err == nil {
		l.failures = 0
		return nil
	}
	l.failures = min(l.failures+1, 4)
	l.missing = missing{pods: k.pods, first: now.Add(time.Second << l.failures), last: now.Add(time.Second << l.failures)}
	return fmt.Errorf("open nodes for capacity buffers: %w", err)
}

// note writes into the store where spares have room, if that has changed, and counts for each buffer how many have room (tally).
func (l *Loop) note(snap *cluster.Snapshot, all []*cluster.Spares, k *look) {
	changed := map[*cluster.Spares][]string{}
	for _, s := range all {
		at, tally, same := make([]string, len(s.Pods)), buffer.Tally{}, s.Placed
		for i, p := range s.Pods {
			at[i] = k.at[p]
			same = same && at[i] == p.Spare.At
			switch {
			case at[i] == "":
				tally.None++
				tally.Why = cmp.Or(tally.Why, k.why[p])
			case k.ready[p]:
				tally.Ready++
			default:
				tally.Coming++
			}
		}
		if !same {
			changed[s] = at
		}
		if r := l.known[keyOfSpares(s)]; r != nil {
			r.tally = tally
		}
	}
	if len(changed) == 0 {
		return
	}
	l.Store.Update(func(d *cluster.Draft) {
		for s, at := range changed {
			d.PlaceSpares(s.Namespace, s.Buffer, at)
		}
	})
}
