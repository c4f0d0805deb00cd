// Package commitment tells the owners of CommitmentDiscounts whether plans count on them and, by metrics, how much of them is used.
// core/commitment decides that; plans do not wait for the conditions that are written here. An Importer also keeps such objects for what
// the cloud says was bought.
package commitment

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/status"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// lookInterval is how often commitments are looked at: they begin and end with clock hours.
const lookInterval = 30 * time.Second

// reader reads the commitments of a snapshot.
type reader interface {
	Commitments(ctx context.Context, snap *cluster.Snapshot, now time.Time) *commitment.Books
}

// Loop writes conditions on CommitmentDiscounts.
type Loop struct {
	store   *cluster.Store
	client  client.Client
	reader  reader
	metrics *telemetry.Metrics
}

// New returns a loop that has not started.
func New(store *cluster.Store, c client.Client, r reader, m *telemetry.Metrics) *Loop {
	return &Loop{store: store, client: c, reader: r, metrics: m}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	l.metrics.Repeat(ctx, telemetry.Chore{Name: "commitmentdiscount.controller", What: "telling about commitments",
		Failed: "telling about commitments failed", Every: lookInterval, Turn: l.turn})
	return nil
}

// turn writes the conditions that changed. What fails is tried again in the next turn.
func (l *Loop) turn(ctx context.Context, now time.Time) error {
	snap := l.store.Snapshot()
	if !snap.Synced() {
		return nil
	}
	l.metrics.CommitmentUtilization.Reset()
	l.metrics.CommitmentUnused.Reset()
	l.metrics.CommitmentCoverage.Reset()
	books := l.reader.Commitments(ctx, snap, now)
	if books == nil {
		return nil
	}
	verdicts := books.Verdicts
	l.metrics.CommitmentCoverage.WithLabelValues().Set(books.Coverage)
	var errs []error
	for i := range verdicts {
		if v := &verdicts[i]; v.Counted() {
			l.metrics.CommitmentUtilization.WithLabelValues(v.Object.Name).Set(v.Used)
			l.metrics.CommitmentUnused.WithLabelValues(v.Object.Name).Set(v.Unused.Dollars())
		}
		errs = append(errs, l.tell(ctx, &verdicts[i], now))
	}
	return errors.Join(errs...)
}

// tell writes the conditions of one CommitmentDiscount, if they have changed.
func (l *Loop) tell(ctx context.Context, v *commitment.Verdict, now time.Time) error {
	told := v.Object.DeepCopy()
	conditions(told, v, now)
	return status.Write(ctx, l.store, l.client, cluster.Commitments.Put, told, v.Object)
}

// conditions sets Valid, Active and Certain in this order. The state decides which is the first that is False; it and those after it are
// False with the state as their reason, those before it are True.
func conditions(d *v1alpha1.CommitmentDiscount, v *commitment.Verdict, now time.Time) {
	firstFalse := map[commitment.State]int{commitment.Invalid: 0, commitment.Duplicate: 0, commitment.NotStarted: 1, commitment.Ended: 1,
		commitment.Certain: 3}
	failed, known := firstFalse[v.State]
	if !known {
		failed = 2 // Certain is the first that is False
	}
	for i, name := range []string{v1alpha1.ConditionTypeValid, v1alpha1.ConditionTypeActive, v1alpha1.ConditionTypeCertain} {
		if i >= failed {
			condition.SetFalse(d, name, string(v.State), sentence.Commitment(v), now)
		} else {
			condition.SetTrue(d, name, now)
		}
	}
}
