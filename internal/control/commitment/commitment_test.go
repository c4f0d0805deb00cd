package commitment_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	control "karpenter.sh/karpenter/internal/control/commitment"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// verdict gives every object one state.
type verdict commitment.State

func (v verdict) Commitments(_ context.Context, snap *cluster.Snapshot, _ time.Time) *commitment.Books {
	books := &commitment.Books{Coverage: 0.5}
	for d := range cluster.Commitments.All(snap) {
		books.Verdicts = append(books.Verdicts, commitment.Verdict{Object: d, State: commitment.State(v), Used: 0.25})
	}
	return books
}

func TestOwnersHearWhetherPlansCountOnTheirCommitment(t *testing.T) {
	for state, want := range map[commitment.State]struct{ failed, used string }{
		commitment.Certain:    {"", "0.25"},
		commitment.Ending:     {v1alpha1.ConditionTypeCertain, "0.25"},
		commitment.NotShared:  {v1alpha1.ConditionTypeCertain, ""},
		commitment.Ended:      {v1alpha1.ConditionTypeActive, ""},
		commitment.NotStarted: {v1alpha1.ConditionTypeActive, ""},
		commitment.Duplicate:  {v1alpha1.ConditionTypeValid, ""},
	} {
		t.Run(string(state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scheme := runtime.NewScheme()
				if err := v1alpha1.AddToScheme(scheme); err != nil {
					t.Fatal(err)
				}
				api, store := memapi.New(scheme), cluster.NewStore()
				read := func() *v1alpha1.CommitmentDiscount {
					d := &v1alpha1.CommitmentDiscount{}
					if err := api.Client("test").Get(t.Context(), client.ObjectKey{Name: "sp"}, d); err != nil {
						t.Fatal(err)
					}
					return d
				}
				api.Put(&v1alpha1.CommitmentDiscount{ObjectMeta: metav1.ObjectMeta{Name: "sp"}})
				store.Update(func(d *cluster.Draft) { d.Synced(true); cluster.Commitments.Put(d, read()) })
				metrics := telemetry.NewMetrics(prometheus.NewRegistry(), nil)
				ctx, stop := context.WithTimeout(telemetry.WithLog(t.Context(), slog.New(slog.DiscardHandler)), 2*time.Minute)
				defer stop()
				if err := control.New(store, api.Client("loop"), verdict(state), metrics).Run(ctx); err != nil {
					t.Fatal(err)
				}
				got := read()
				if condition.IsTrue(got, v1alpha1.ConditionTypeReady) != (want.failed == "") {
					t.Errorf("ready: %+v", got.Status.Conditions)
				}
				if want.failed != "" {
					if c := condition.Get(got, want.failed); c == nil || c.Status != metav1.ConditionFalse || c.Reason != string(state) || c.Message == "" {
						t.Errorf("%+v", c)
					}
				}
				if n := testutil.CollectAndCount(metrics.CommitmentUnused); (n == 1) != (want.used != "") {
					t.Errorf("%d series of what is unused", n)
				}
				if got := testutil.ToFloat64(metrics.CommitmentCoverage); got != 0.5 {
					t.Errorf("coverage %v", got)
				}
				if n := testutil.CollectAndCount(metrics.CommitmentUtilization); (n == 1) != (want.used != "") {
					t.Errorf("%d series of the utilization", n)
				}
			})
		})
	}
}
