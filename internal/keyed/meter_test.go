package keyed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/keyed"
	"karpenter.sh/karpenter/internal/telemetry"
)

// One worker, and four objects: the first step hangs, the second fails once, the others wait for them.
func TestMetricsOfALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cluster.NewStore()
		metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		troubles := map[string]func() error{
			"a": func() error { time.Sleep(25 * time.Second); return nil },
			"b": func() error { return errors.New("boom") },
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- keyed.Work[*v1.NodePool]{
				Name: "loop", Metrics: metrics, Workers: 1, MinWait: time.Minute,
				Rows: pools,
				Step: func(_ context.Context, _ *cluster.Snapshot, key string) (time.Time, error) {
					trouble := troubles[key]
					delete(troubles, key)
					if trouble == nil {
						return time.Time{}, nil
					}
					return time.Time{}, trouble()
				},
			}.Run(ctx, store)
		}()
		for _, name := range []string{"a", "b", "c", "d"} {
			store.Update(func(d *cluster.Draft) { d.PutPool(&v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
			synctest.Wait()
		}
		want := func(when string, figures map[prometheus.Collector]float64) {
			t.Helper()
			synctest.Wait()
			for metric, want := range figures {
				if got := testutil.ToFloat64(metric); got != want {
					t.Errorf("%s: %v = %v, want %v", when, metric.(prometheus.Metric).Desc(), got, want)
				}
			}
		}
		time.Sleep(20 * time.Second)
		want("while the first step hangs", map[prometheus.Collector]float64{
			metrics.WorkqueueDepth.WithLabelValues("loop", "loop"): 3,
			metrics.ReconcileActiveWorkers.WithLabelValues("loop"): 1,
		})
		// What hangs shows although nothing else happens, at most ten seconds late.
		for _, m := range []*prometheus.GaugeVec{metrics.WorkqueueUnfinished, metrics.WorkqueueLongest} {
			if got := testutil.ToFloat64(m.WithLabelValues("loop", "loop")); got < 10 || got > 20 {
				t.Errorf("a step has hung for 20 s, the gauges say %v", got)
			}
		}
		time.Sleep(20 * time.Second)
		want("when every step was taken once", map[prometheus.Collector]float64{
			metrics.WorkqueueDepth.WithLabelValues("loop", "loop"):      0,
			metrics.WorkqueueUnfinished.WithLabelValues("loop", "loop"): 0,
			metrics.WorkqueueLongest.WithLabelValues("loop", "loop"):    0,
			metrics.WorkqueueAdds.WithLabelValues("loop", "loop"):       4,
			metrics.WorkqueueRetries.WithLabelValues("loop", "loop"):    1,
			metrics.ReconcileErrors.WithLabelValues("loop"):             1,
			metrics.ReconcileTotal.WithLabelValues("loop", "success"):   3,
		})
		time.Sleep(time.Minute)
		want("when the troubles are over", map[prometheus.Collector]float64{
			metrics.WorkqueueRetries.WithLabelValues("loop", "loop"):  1,
			metrics.ReconcileTotal.WithLabelValues("loop", "success"): 4,
		})
		stop()
		<-done
	})
}
