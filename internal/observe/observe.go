// Package observe reports the state of the cluster in two ways. Gauges are made from the newest snapshot at each scrape (Scrape).
// Durations and changes of conditions are found by comparing snapshots (Run).
//
// It reads and never acts. Only the leader reports on the cluster; a standby reports only on itself.
package observe

import (
	"context"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// catalogs gives the instance types of pools, for what nodes cost.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
}

// Deps are what an Observer reads and reports to.
type Deps struct {
	Store    *cluster.Store
	Metrics  *telemetry.Metrics
	Events   *telemetry.Events
	Times    *telemetry.PodTimes
	Catalogs catalogs
	// NodeLabels are the label keys that series about nodes carry.
	NodeLabels []string
	// Kinds are the kinds whose conditions are reported on, by lower-case name, with the extra labels of their series.
	Kinds map[string][]string
	// Leading reports whether this replica acts.
	Leading func() bool
	// Missing names what the store still waits for, and since when.
	Missing func() ([]string, time.Duration)
	// Detailed says that single nodes, pods, pools and conditions are reported.
	Detailed bool
	// OpenCost says that nodes have series under OpenCost's names.
	OpenCost bool
	// Historic says that series also have the names of earlier releases.
	Historic bool
}

// Observer reports the state of the cluster. Its gauges are not a prometheus.Collector, which makes an object of every series: at 5,000
// nodes and 100,000 pods that takes hundreds of megabytes for each scrape.
type Observer struct {
	Deps
	nodeLabels []nodeLabel
	gauges     map[string]telemetry.ConditionGauges

	mu      sync.Mutex
	pending map[types.UID]bool // pods that this process saw waiting to start
}

// New returns an observer that has seen nothing.
func New(d Deps) *Observer {
	o := &Observer{
		Deps: d, nodeLabels: nodeLabels(d.NodeLabels), pending: map[types.UID]bool{},
		gauges: map[string]telemetry.ConditionGauges{},
	}
	for kind, extra := range d.Kinds {
		o.gauges[kind] = telemetry.NewConditionGauges(kind, extra)
	}
	return o
}

// leastInterval and mostInterval are the least and the most time between two comparisons.
const (
	leastInterval = time.Second
	mostInterval  = 10 * time.Second
)

// Run compares snapshots until ctx ends.
func (o *Observer) Run(ctx context.Context) error {
	const name = "observer"
	ctx = telemetry.WithController(ctx, name)
	watched := o.Metrics.Loop(name, 1)
	defer o.Metrics.End(watched)
	var last *cluster.Snapshot
	for {
		snap := o.Store.Snapshot()
		if snap.Synced() {
			watched.Turn(ctx, "comparing snapshots", func(ctx context.Context) error { o.compare(ctx, last, snap); return nil })
			last = snap // also after a panic, because the same comparison would panic again
		}
		if !sleep.For(ctx, leastInterval) || !watched.Wait(ctx, mostInterval, snap.Stale()) {
			return nil
		}
	}
}

// compare reports what happened between two snapshots; last is nil at first.
func (o *Observer) compare(ctx context.Context, last, snap *cluster.Snapshot) {
	o.pods(last, snap)
	o.broken(snap)
	if o.Detailed {
		o.conditions(last, snap)
		o.costErrors(ctx, last, snap)
	}
}

// broken publishes events about objects that could not be read. Equal events are deduplicated, so each is sent only once in a while.
func (o *Observer) broken(snap *cluster.Snapshot) {
	for b := range snap.Broken() {
		o.Events.Publish(telemetry.Event{
			Object: corev1.ObjectReference{Kind: b.Kind, Namespace: b.Namespace, Name: b.Name},
			Reason: telemetry.UnreadableObject, Key: []string{b.Kind, b.Namespace, b.Name},
			Message: "The object cannot be read and is left out: " + b.Err,
		})
	}
}

// Scrape writes the gauges about the present state of the cluster, family by family. On a standby, or before the store is synced, it writes
// only the state of the store.
func (o *Observer) Scrape(w io.Writer) error {
	snap, now, out := o.Store.Snapshot(), time.Now(), telemetry.NewText(w)
	o.writeSync(out, snap)
	if o.Leading() && snap.Synced() {
		one(out, clusterNodeCount, float64(snap.NodeCount()))
		if o.Detailed {
			o.writeNodes(out, snap, now)
			o.writePools(out, snap)
			o.writeBuffers(out, snap)
			writeQuotas(out, snap)
			if o.OpenCost {
				o.writeOpenCost(out, snap)
			}
			o.writePods(out, snap, now)
			writeWithoutRequests(out, snap)
			o.writeConditions(out, snap, now)
		}
	}
	return out.Flush()
}

// names returns a family, and with Historic the same family under the names of earlier releases.
func (o *Observer) names(f telemetry.Family) []telemetry.Family {
	if !o.Historic {
		return []telemetry.Family{f}
	}
	return append([]telemetry.Family{f}, telemetry.HistoricFamilies(f)...)
}

// one writes a family of one series without labels.
func one(out *telemetry.Text, f telemetry.Family, value float64) {
	out.Begin(f)
	out.Gauge(value, nil)
}

// writeSync writes whether the store is synced, how long it has not been, and how many feeds have failed.
func (o *Observer) writeSync(out *telemetry.Text, snap *cluster.Snapshot) {
	_, unsynced := o.Missing()
	synced := 0.0
	if snap.Synced() {
		synced = 1
	}
	one(out, clusterSynced, synced)
	one(out, clusterUnsyncedTime, unsynced.Seconds())
	failed := 0
	for range snap.FailedFeeds() {
		failed++
	}
	one(out, clusterFailedFeeds, float64(failed))
}
