// Package disruption carries out what core/disrupt proposes: it waits the validation delay, confirms, taints, opens the
// replacements, waits for them, deletes what they replace, and takes everything back when that fails.
//
// A command in progress is written as a record, an annotation on every claim that takes part. So after a restart at any line the next
// leader resumes it or rolls it back. All waiting is asynchronous: a step that waits never keeps another from being found or carried out.
package disruption

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Names of this loop, and of its care for commands that are under way, in logs and metrics.
const (
	name      = "disruption"
	queueName = "disruption.queue"
)

const (
	idlePoll     = 10 * time.Second // the longest time between two turns
	busyPoll     = time.Second      // between turns while commands are under way, and the shortest pause after any turn
	calmPoll     = 5 * time.Second  // the longest pause after a turn that found nothing, see rest
	unsyncedPoll = time.Second      // until the next try while the picture is incomplete

	// longGap is how long the fleet may go without a look before that is logged.
	longGap = 15 * time.Minute
)

// Settings are the tunables of the loop.
type Settings struct {
	Labels  label.Table // what the provider knows about labels
	Planner disrupt.Settings
	Repairs *lifecycle.Repairs // nil where broken nodes are not repaired
	// MayReboot asks the provider whether it would reboot the machine of a claim; see cloud.Rebooter.
	MayReboot func(context.Context, *v1.NodeClaim) error
	Engine    engine.Settings
}

// catalogs gives the pools that this provider serves, with what each can launch. notReady names the pools that must get no new nodes now.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
	Commitments(ctx context.Context, snap *cluster.Snapshot, now time.Time) *commitment.Books
}

// opener creates claims, exactly once for each seed, and records them and the pods that they are for in the store.
type opener interface {
	Names(seed string, openings []engine.Opening) []string
	Replace(ctx context.Context, seed, reason string, r engine.Replacement, annotations map[string]string) ([]*v1.NodeClaim, error)
}

// planner is the engine that what-if questions are asked of.
type planner interface {
	Plan(q engine.Question) *engine.Plan
}

// A Loop finds and carries out disruption.
type Loop struct {
	store    *cluster.Store
	client   client.Client
	catalogs catalogs
	opener   opener
	engine   planner
	memory   disrupt.Memory // of the planner
	tell     *teller
	settings Settings
	surge    *surger // nil where it is off

	watched, queue *telemetry.Loop
	aside          aside

	pending   disrupt.Queue
	commands  map[string]*command
	vacancies disrupt.Vacancies
	facts     disrupt.Facts

	confirming *v1alpha1.DisruptionPlan // nil while none is
	looked     time.Time                // when the fleet was last looked at, zero before the first time
}

// New returns a loop that does nothing until Run is called.
func New(store *cluster.Store, c client.Client, catalogs catalogs, o opener, tell Telling, settings Settings) *Loop {
	l := &Loop{
		store: store, client: c, catalogs: catalogs, opener: o, settings: settings,
		engine:   engine.New(settings.Labels),
		tell:     newTeller(tell),
		pending:  disrupt.Queue{},
		commands: map[string]*command{},
	}
	if settings.Planner.Surge {
		l.surge = newSurger(c)
	}
	return l
}

// Run works until ctx ends. Only the leader may run it.
func (l *Loop) Run(ctx context.Context) error {
	ctx = telemetry.WithController(ctx, name)
	l.watched, l.queue = l.tell.Metrics.Loop(name, 1), l.tell.Metrics.Loop(queueName, 1)
	defer l.tell.Metrics.End(l.watched)
	defer l.tell.Metrics.End(l.queue)
	for ctx.Err() == nil {
		snap := l.store.Snapshot()
		began := time.Now()
		next, calm := idlePoll, false
		l.watched.Turn(ctx, "looking for nodes to remove", func(ctx context.Context) error {
			next, calm = l.turn(ctx, snap)
			return nil
		})
		quiet := rest(time.Since(began), calm)
		if !sleep.For(ctx, quiet) {
			break
		}
		l.watched.Wait(ctx, max(0, next-quiet), snap.Stale())
	}
	return nil
}

// rest returns how long the loop pauses after a turn, however the cluster changes. The pause is at least as long as the turn took, so that
// the loop works at most half of the time. After a calm turn, in which there was nothing to do, it is a hundred times as long, up to
// calmPoll: clusters change all the time, and hardly any change makes a new step worthwhile.
func rest(took time.Duration, calm bool) time.Duration {
	least := max(busyPoll, took)
	if calm {
		return max(least, min(100*took, calmPoll))
	}
	return least
}

// turn does one pass: it advances commands, confirms steps that have waited, asks the planner for new steps, and starts or queues them. It
// returns when to look again at the latest, and whether the turn was calm: there is nothing to do as long as nothing changes.
func (l *Loop) turn(ctx context.Context, snap *cluster.Snapshot) (next time.Duration, calm bool) {
	if !snap.Synced() {
		return unsyncedPoll, false
	}
	if !snap.Fed() { // the picture is outdated: nothing is begun, finished or taken back by it, and steps that wait must be proposed again
		clear(l.pending)
		l.vacancies = disrupt.Vacancies{}
		return unsyncedPoll, false
	}
	l.safely("adopting commands", func() { l.adopt(ctx, snap) })
	l.safely("releasing nodes", func() { l.sweep(ctx, l.store.Snapshot()) })
	l.advanceCommands(ctx, snap)
	if !l.store.Snapshot().SparesPlaced() { // a node that looks empty may hold the free room of a capacity buffer
		return unsyncedPoll, false
	}
	now := time.Now()
	l.noteGap(ctx, now)
	l.safely("looking after plans", func() { l.tendPlans(ctx, l.store.Snapshot(), now) })
	w := l.world(ctx, l.store.Snapshot(), now)
	if l.confirm(ctx, w) {
		w = l.world(ctx, l.store.Snapshot(), now)
	}
	out := l.propose(ctx, w)
	surgeChanged := l.surge.consider(ctx, w.Snap, out.Blocks, now)
	l.safely("telling what was found", func() { l.tell.proposal(ctx, w, out, time.Since(now)) })
	tried := map[string]bool{}
	for _, step := range out.Steps {
		if crowds(w, step, tried) {
			continue // one of its pools may open only one machine at a time, because its last machines failed
		}
		if step.Method.Waits() {
			l.pending.Add(step, now)
		} else {
			l.safely("starting "+step.ID(), func() { l.start(ctx, step, nil) })
		}
	}
	l.safely("steering", func() { l.steer(ctx, out.Steering) })
	l.showSteps()
	if surgeChanged { // the proposal was made before it was known which Deployments may be restarted: look again soon
		return busyPoll, false
	}
	return l.next(now, out), out.Calm && len(l.commands)+len(l.pending) == 0
}

// noteGap logs if the last look at the fleet is longer ago than longGap: turns do not look while the picture is outdated.
func (l *Loop) noteGap(ctx context.Context, now time.Time) {
	if since := now.Sub(l.looked); !l.looked.IsZero() && since > longGap {
		telemetry.Log(ctx).Debug("abnormal time between runs", "name", name, "time_since", since)
	}
	l.looked = now
}

// advanceCommands advances the commands that are under way, oldest first. A panic in one of them does not keep the others from their turn.
func (l *Loop) advanceCommands(ctx context.Context, snap *cluster.Snapshot) {
	l.queue.Beat()
	for _, c := range l.ordered() {
		l.queue.Turn(ctx, "command "+c.ID, func(ctx context.Context) error {
			l.advance(ctx, snap, c)
			return nil
		})
	}
	l.queue.Waiting(len(l.commands))
}

// safely does one part of a turn. A panic ends that part only; it is counted and returned as an error.
func (l *Loop) safely(what string, do func()) (err error) {
	defer func() {
		if err != nil {
			l.watched.Panicked()
		}
	}()
	defer bug.Catch(&err, what)
	do()
	return nil
}

// next returns how long until something is due: a step that waits, a command, or what the proposal names; idlePoll at most, 0 for now.
func (l *Loop) next(now time.Time, out *disrupt.Proposal) time.Duration {
	wait := idlePoll
	for _, p := range l.pending {
		wait = min(wait, p.Due.Sub(now))
	}
	if len(l.commands) > 0 {
		wait = min(wait, busyPoll)
	}
	if !out.Next.IsZero() {
		wait = min(wait, out.Next.Sub(now))
	}
	return max(0, wait)
}

// world returns what the planner sees. Nodes of commands, of steps that wait and of plans that are open or denied are marked as busy, so
// that no second step includes them. Pools whose last machines failed are added to notReady. It also drops from the store the vacant seats
// that are over.
func (l *Loop) world(ctx context.Context, snap *cluster.Snapshot, now time.Time) *disrupt.World {
	pools, notReady := l.catalogs.Pools(ctx, snap)
	notReady = maps.Clone(notReady)
	for name, in := range pools {
		if waits(snap, in.Pool, now) {
			if notReady == nil {
				notReady = map[string]bool{}
			}
			notReady[name] = true
		}
	}
	landing, over := seat.Landing(snap, now)
	if !over.IsZero() {
		l.store.Update(func(d *cluster.Draft) { d.DropVacant(over) })
	}
	w := &disrupt.World{
		Snap: snap, Pools: pools, NotReady: notReady, Now: now,
		Busy: map[types.UID]bool{}, Promised: map[string]int{}, Ahead: true, Landing: landing,
		Vacant: l.vacancies.Look(snap, now), Facts: &l.facts,
		Repairs: l.settings.Repairs, Settings: l.settings.Planner, Engine: l.engine, Terms: l.settings.Engine,
		Ended: func() bool { return ctx.Err() != nil }, Commitments: l.catalogs.Commitments(ctx, snap, now),
		Rollouts: rollout.Allowances(snap, now),
	}
	for _, c := range l.commands {
		for _, name := range c.Replacements { // a replacement takes part in no other step
			if n := snap.ClaimNode(name); n != nil {
				landing[n.Name] = true
			}
		}
	}
	l.surge.show(w)
	l.aside.apply(w)
	approval.Hold(w, l.confirming)
	l.pending.Hold(w)
	for _, c := range l.commands {
		for _, m := range c.Candidates {
			w.Busy[m.UID] = true
		}
	}
	return w
}

// confirm asks the planner again about the steps whose delay is over, and starts those that still hold. The others go back into the queue
// if only their turn has not come, or are dropped. It returns true if any step was started or dropped: w is outdated then.
func (l *Loop) confirm(ctx context.Context, w *disrupt.World) (decided bool) {
	round := l.pending.Round(w.Now)
	for id, p := range round.Due() {
		l.confirming = p.Plan
		view := l.world(ctx, l.store.Snapshot(), w.Now)
		l.confirming = nil
		var step *disrupt.Step
		var refusal disrupt.Refusal
		if err := l.safely("confirming "+id, func() { step, refusal, l.memory = disrupt.Confirm(view, l.memory, p.Step) }); err != nil {
			l.memory = l.memory.Afresh()
			refusal.Code = disrupt.Scheduling // counts as a failure: the nodes are left alone, for longer each time
		}
		if refusal.Code == "" {
			l.safely("starting "+id, func() { l.start(ctx, step, p.Plan) })
			decided = true
			continue
		}
		var waits bool
		if waits, l.memory = round.Refused(id, p, refusal, l.memory); waits {
			continue
		}
		decided = true
		l.tell.rejected(p.Step, view.Snap, refusal.Code)
		if p.Plan != nil {
			l.refused(ctx, p.Plan, refusal)
		}
	}
	return decided
}
