// Package ledger records what machines cost and for which workloads, in ConfigMaps (the book), so that the next process goes on with it.
// core/ledger has the arithmetic.
//
// Every replica keeps the snapshots of the last minutes (looks). The leader charges them: it adds their cost to the book in memory (the
// meter), which it writes every WriteEvery. A replica that begins to lead charges the time since the last write of the former leader from
// its own snapshots.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/view"
	"karpenter.sh/karpenter/internal/history/costs"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// remembered is for how long a replica that does not lead keeps snapshots: a little longer than a leader leaves between two writes.
	remembered = ledger.WriteEvery + time.Minute
	// leastBetween is the least time between two looks.
	leastBetween = 2 * time.Second
	// turnBytes is how large a book may be when an hour ends. If it is larger, a new book begins, since the next hour may not fit.
	turnBytes = costs.MostBytes * 9 / 10
	// turnHours is how many hours a book holds at most, so that old books go after forty days.
	turnHours = 48
	// patience bounds one reading or writing of the book.
	patience = 30 * time.Second
)

// catalogs gives the instance types of pools, and what was bought in advance.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
	Commitments(ctx context.Context, snap *cluster.Snapshot, now time.Time) *commitment.Books
}

// Deps are what a Ledger reads and writes.
type Deps struct {
	Store    *cluster.Store
	Client   client.Client
	Catalogs catalogs
	Metrics  *telemetry.Metrics
	Engine   *engine.Engine // answers what the fleet could cost
	Verdicts *board.Board   // receives what the fleet could cost; may be nil
}

// Settings say where the ledger is kept and by which labels of pods it can be read.
type Settings struct {
	ConfigMaps client.ObjectKey // without their number
	Labels     []string
	Engine     engine.Settings
}

// A look is a snapshot and the second in which it was taken.
type look struct {
	at   int64
	snap *cluster.Snapshot
}

// Ledger notes what machines cost. Watch runs on every replica, Run and Sample on the leader.
type Ledger struct {
	Deps
	settings Settings
	keeper   *costs.Keeper
	meter    *ledger.Meter // nil before the book is read
	written  int64         // the second up to which the book is written, 0 for never
	tried    time.Time     // when the last attempt to read the book was made

	mu     sync.Mutex
	looks  []look
	missed map[holder]cloud.NanoUSD // what each cause costs in an hour, as last sampled
}

// New returns a ledger that has seen nothing.
func New(d Deps, s Settings) *Ledger {
	return &Ledger{Deps: d, settings: s, keeper: costs.NewKeeper(d.Client, s.ConfigMaps)}
}

// Watch keeps snapshots until ctx ends.
func (l *Ledger) Watch(ctx context.Context) error {
	watched := l.Metrics.Loop("ledger.watch", 1)
	defer l.Metrics.End(watched)
	for {
		snap := l.Store.Snapshot()
		if snap.Synced() {
			l.keep(look{time.Now().Unix(), snap})
		}
		if !sleep.For(ctx, leastBetween) || !watched.Wait(ctx, ledger.LookEvery-leastBetween, snap.Stale()) {
			return nil
		}
	}
}

// keep adds a look, one for each second at most, and drops looks that are too old.
func (l *Ledger) keep(next look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.looks); n > 0 && l.looks[n-1].at == next.at {
		return
	}
	l.looks = append(l.looks, next)
	for next.at-l.looks[0].at > int64(remembered/time.Second) {
		l.looks = l.looks[1:]
	}
}

// taken returns the looks that are not charged yet, and forgets them.
func (l *Ledger) taken() []look {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.looks
	l.looks = nil
	return out
}

// Run charges the looks and writes the book, until ctx ends. Then it does both once more, so that the next leader finds it complete.
func (l *Ledger) Run(ctx context.Context) error {
	l.Metrics.Repeat(ctx, telemetry.Chore{Name: "ledger", What: "charging what machines cost",
		Failed: "the ledger is not written; what is not written is charged with the next turn", Every: ledger.LookEvery, Turn: l.turn})
	if l.meter == nil {
		return nil
	}
	l.charge(context.WithoutCancel(ctx))
	if err := l.write(context.WithoutCancel(ctx)); err != nil {
		telemetry.Log(ctx).Info("the newest minutes of the ledger are not kept", "because", err)
	}
	return nil
}

// turn reads the book if that was not done yet, charges the looks, and writes the book if WriteEvery has passed since the last write.
func (l *Ledger) turn(ctx context.Context, now time.Time) error {
	if l.meter == nil {
		if now.Sub(l.tried) < time.Minute {
			return nil
		}
		l.tried = now
		if err := l.load(ctx, now.Unix()); err != nil {
			return err
		}
	}
	l.charge(ctx)
	if now.Unix()-l.written < int64(ledger.WriteEvery/time.Second) {
		return nil
	}
	return l.write(ctx)
}

// load reads the book, so that the meter goes on where the last process stopped. Of the looks before that moment it keeps only the
// last: what differs from it happened later. If the newest hours cannot be read, they stay, and a new ConfigMap is begun.
func (l *Ledger) load(ctx context.Context, now int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	file, err := l.keeper.Load(ctx)
	if torn, ok := errors.AsType[*costs.TornError](err); ok {
		telemetry.Log(ctx).Error("the newest hours of the ledger cannot be read; it goes on in the next ConfigMap", "error", torn)
		l.keeper.Turn()
	} else if err != nil {
		return err
	}
	if file == nil {
		l.meter = ledger.NewMeter(l.payer, now)
		return nil
	}
	if l.meter, err = ledger.Resume(l.payer, file); err != nil {
		return err
	}
	l.written = file.Until
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.looks) > 1 && l.looks[1].at <= file.Until {
		l.looks = l.looks[1:]
	}
	return nil
}

// charge adds the cost of the looks to the meter: of machines, once a minute of commitments, and what restrictions cost (see Sample).
func (l *Ledger) charge(ctx context.Context) {
	ctx = telemetry.WithController(ctx, "ledger")
	before := l.meter.Until()
	looks := l.taken()
	for _, look := range looks {
		pools, _ := l.Catalogs.Pools(ctx, look.snap)
		l.meter.Look(look.snap, look.at, func(pool string, labels map[string]string) (ledger.Quote, bool) {
			return quote(pools[pool], labels)
		})
	}
	if at := l.meter.Until(); len(looks) > 0 && at/60 != before/60 { // another minute
		snap := looks[len(looks)-1].snap
		l.meter.Commit(ledger.TermsOf(l.Catalogs.Commitments(ctx, snap, time.Unix(at, 0)), snap, at))
	}
	l.mu.Lock()
	missed := l.missed
	l.mu.Unlock()
	for _, h := range slices.SortedFunc(maps.Keys(missed), func(a, b holder) int { return cmp.Compare(a.String(), b.String()) }) {
		l.meter.Missed(h.String(), missed[h], before, l.meter.Until())
	}
}

// quote returns the price of a machine with some labels, and its list price on demand. known is false if the catalogue has no price.
func quote(in engine.Pool, labels map[string]string) (q ledger.Quote, known bool) {
	if q.Paid, known = in.Catalog.Price(labels); known {
		q.List = in.Catalog.OnDemand(labels, q.Paid)
	}
	return q, known
}

// payer returns the workload of a pod, and its labels by which the ledger can be read (key=value, with commas between them). A Job whose
// name ends with a minute of 8 digits was made by a CronJob: then the CronJob is the workload.
func (l *Ledger) payer(p *cluster.Pod) (workload, labels string) {
	var found []string
	for _, key := range l.settings.Labels {
		if p.Labels != nil && p.Labels.Map[key] != "" {
			found = append(found, key+"="+p.Labels.Map[key])
		}
	}
	workload = view.Owner(p)
	minute := workload[strings.LastIndex(workload, "-")+1:]
	if p.Owner != nil && p.Owner.Kind == "Job" && len(minute) == 8 && strings.Trim(minute, "0123456789") == "" {
		workload = "CronJob" + strings.TrimPrefix(strings.TrimSuffix(workload, "-"+minute), "Job")
	}
	return workload, strings.Join(found, ",")
}

// write writes the book, and begins a new one at the end of an hour if it is full or old. If another process has written the book
// meanwhile, the meter is dropped, and the next turn reads the book again.
func (l *Ledger) write(ctx context.Context) error {
	until := l.meter.Until()
	if until == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	packed, err := l.packed()
	if err == nil {
		err = l.keeper.Write(ctx, packed)
	}
	if err != nil {
		if apierrors.IsConflict(err) {
			l.meter = nil
		}
		return err
	}
	if until/3600 != l.written/3600 && (len(packed) > turnBytes || until-l.meter.Began() >= turnHours*3600) {
		l.meter.Turn()
		l.keeper.Turn()
	}
	l.written = until
	return nil
}

// packed returns the book in its compressed form, for a ConfigMap. If it does not fit, accounts are merged (Coarsen), twice at most.
func (l *Ledger) packed() ([]byte, error) {
	for try := 0; ; try++ {
		book, tabs := l.meter.Peek()
		packed, err := costs.Pack(book.File(l.meter.Until(), tabs))
		switch {
		case err != nil || len(packed) <= costs.MostBytes:
			return packed, err
		case try == 2:
			return nil, errors.New("an hour does not fit into a ConfigMap")
		}
		l.meter.Coarsen()
	}
}
