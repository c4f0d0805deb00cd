package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/workqueue"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// One worker, and four objects: the first step hangs, the second fails once, the others wait for them.
func TestMetricsOfALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cluster.NewStore()
		registry := prometheus.NewRegistry()
		metrics := telemetry.NewMetrics(registry, telemetry.ConditionKinds())
		troubles := map[string]func() error{
			"a": func() error { time.Sleep(25 * time.Second); return nil },
			"b": func() error { return errors.New("boom") },
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- workqueue.Work[*v1.NodePool]{
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
			store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
			synctest.Wait()
		}
		want := func(when string, figures string) {
			t.Helper()
			synctest.Wait()
			if got := gathered(t, registry); !strings.Contains(got, figures) {
				t.Errorf("%s: %s\nwant %s", when, got, figures)
			}
		}
		time.Sleep(20 * time.Second)
		want("while the first step hangs", `
controller_runtime_active_workers 1
controller_runtime_max_concurrent_reconciles 1
`)
		want("while the first step hangs", `
workqueue_depth 3
workqueue_longest_running_processor_seconds 20
workqueue_retries_total 0
workqueue_unfinished_work_seconds 20
`)
		time.Sleep(20 * time.Second)
		want("when every step was taken once", `
controller_runtime_reconcile_errors_total 1
controller_runtime_reconcile_panics_total 0
controller_runtime_reconcile_timeouts_total 0
controller_runtime_reconcile_total{error} 1
controller_runtime_reconcile_total{requeue_after} 0
controller_runtime_reconcile_total{success} 3
controller_runtime_terminal_reconcile_errors_total 0
karpenter_loop_silent_seconds 15
`)
		want("when every step was taken once", `
workqueue_adds_total 4
workqueue_depth 0
workqueue_longest_running_processor_seconds 0
workqueue_retries_total 1
workqueue_unfinished_work_seconds 0
`)
		time.Sleep(time.Minute)
		want("when the troubles are over", `
controller_runtime_reconcile_total{success} 4
`)
		want("when the troubles are over", `
workqueue_retries_total 1
`)
		stop()
		<-done
	})
}

// gathered is what is told of one loop, a line for each figure, with the result in braces.
func gathered(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteByte('\n')
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Histogram != nil || len(m.Label) == 0 {
				continue
			}
			b.WriteString(f.GetName())
			for _, l := range m.Label {
				if l.GetName() == "result" {
					fmt.Fprintf(&b, "{%s}", l.GetValue())
				}
			}
			fmt.Fprintf(&b, " %v\n", m.GetGauge().GetValue()+m.GetCounter().GetValue())
		}
	}
	return b.String()
}
