package observe

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

var (
	podState                 = telemetry.Gauge("karpenter_pods_state")
	podUnstarted             = telemetry.Gauge("karpenter_pods_unstarted_time_seconds")
	podUnbound               = telemetry.Gauge("karpenter_pods_unbound_time_seconds")
	podProvisioningUnbound   = telemetry.Gauge("karpenter_pods_provisioning_unbound_time_seconds")
	podProvisioningUnstarted = telemetry.Gauge("karpenter_pods_provisioning_unstarted_time_seconds")
	podUndecided             = telemetry.Gauge("karpenter_pods_provisioning_scheduling_undecided_time_seconds")
	podsWithoutRequests      = telemetry.Gauge("karpenter_pods_without_requests")
)

// writePods writes the gauges about single pods: their state, and how long they have been waiting.
func (o *Observer) writePods(out *telemetry.Text, snap *cluster.Snapshot, now time.Time) {
	owners := map[ownerKey]string{}
	out.Begin(podState)
	for p := range snap.Pods() {
		var labels map[string]string
		if n := snap.Node(p.NodeName); p.NodeName != "" && n != nil && n.Node != nil {
			labels = n.Node.Labels
		}
		_, managed := labels[v1.NodePoolLabelKey]
		out.Gauge(1, nil, p.Name, p.Namespace, ownerPath(owners, p), p.NodeName, strconv.FormatBool(p.NodeName != ""),
			labels[v1.NodePoolLabelKey], labels[corev1.LabelTopologyZone], labels[corev1.LabelArchStable], labels[v1.CapacityTypeLabelKey],
			labels[corev1.LabelInstanceTypeStable], string(p.Phase), strconv.FormatBool(p.Ready), strconv.FormatBool(managed))
	}
	for _, f := range o.podAges() {
		for _, name := range o.names(f.family) {
			out.Begin(name)
			o.writeAges(out, snap, f, now)
		}
	}
}

// writeAges writes one family of waiting times, for the pods that wait.
func (o *Observer) writeAges(out *telemetry.Text, snap *cluster.Snapshot, f podAge, now time.Time) {
	for p := range snap.Pods() {
		if p.Terminal() || p.Ready && p.NodeName != "" { // nothing is waited for
			continue
		}
		times, _ := o.Times.Get(p.UID)
		if since := f.since(p, times); !since.IsZero() {
			labels := []string{p.Name, p.Namespace}
			if f.binding {
				labels = append(labels, dynamicResources(p))
			}
			out.Gauge(now.Sub(since).Seconds(), nil, labels...)
		}
	}
}

// writeWithoutRequests writes how many pods request no CPU, or no memory, by namespace. Plans count them as using nothing, so they
// overload nodes.
func writeWithoutRequests(out *telemetry.Text, snap *cluster.Snapshot) {
	lacking := map[*podclass.Class][]corev1.ResourceName{}
	counts := map[corev1.ResourceName]map[string]int{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}}
	for p := range snap.Pods() {
		if p.Terminal() {
			continue
		}
		lacks, known := lacking[p.Class]
		if !known {
			asked := usageOf(p.Class.Spec).requests
			for r := range counts {
				if asked[r] == 0 {
					lacks = append(lacks, r)
				}
			}
			lacking[p.Class] = lacks
		}
		for _, r := range lacks {
			counts[r][p.Namespace]++
		}
	}
	out.Begin(podsWithoutRequests)
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		for _, namespace := range slices.Sorted(maps.Keys(counts[r])) {
			out.Gauge(float64(counts[r][namespace]), nil, namespace, resourceType(r))
		}
	}
}

// A podAge is a gauge of how long pods wait for something. since returns since when a pod has waited, zero if it does not.
type podAge struct {
	family telemetry.Family
	since  func(*cluster.Pod, telemetry.PodTime) time.Time
	// binding says that it is about being bound. Pods that use devices may wait longer for that, so a label distinguishes them.
	binding bool
}

// podAges returns the gauges of waiting times.
func (o *Observer) podAges() []podAge {
	unless := func(over bool, since time.Time) time.Time {
		if over {
			return time.Time{}
		}
		return since
	}
	bound := func(p *cluster.Pod) bool { return p.NodeName != "" }
	return []podAge{
		{podUnstarted, func(p *cluster.Pod, _ telemetry.PodTime) time.Time { return unless(o.hasStarted(p), p.Created) }, false},
		{podProvisioningUnstarted, func(p *cluster.Pod, t telemetry.PodTime) time.Time {
			return unless(o.hasStarted(p), t.Schedulable)
		}, false},
		{podUnbound, func(p *cluster.Pod, _ telemetry.PodTime) time.Time { return unless(bound(p), p.Created) }, true},
		{podProvisioningUnbound, func(p *cluster.Pod, t telemetry.PodTime) time.Time { return unless(bound(p), t.Schedulable) }, true},
		{podUndecided, func(p *cluster.Pod, t telemetry.PodTime) time.Time {
			return unless(bound(p) || !t.Decided.IsZero(), t.Seen)
		}, false},
	}
}

// hasStarted reports whether a pod is ready or has been: a pod that fails a probe after a month has not been starting for a month. A
// pod that is not pending and that this process never saw pending counts as started.
func (o *Observer) hasStarted(p *cluster.Pod) bool {
	if p.Ready || p.Phase == corev1.PodPending {
		return p.Ready
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.pending[p.UID]
}

type ownerKey struct{ version, namespace, kind, name string }

// ownerPath returns the path of a pod's owner in the API, "" if it has none. known caches it, so that pods of one owner share the string.
func ownerPath(known map[ownerKey]string, p *cluster.Pod) string {
	if p.Owner == nil {
		return ""
	}
	key := ownerKey{p.Owner.APIVersion, p.Namespace, p.Owner.Kind, p.Owner.Name}
	path, ok := known[key]
	if !ok {
		path = "/apis/" + key.version + "/namespaces/" + key.namespace + "/" + strings.ToLower(key.kind) + "s/" + key.name
		known[key] = path
	}
	return path
}

// pods measures how long pods took to bind and to start. Only pods that this process saw pending count.
func (o *Observer) pods(last, snap *cluster.Snapshot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for was, is := range snap.PodChanges(last) {
		if is == nil {
			delete(o.pending, was.UID)
			o.Times.Forget(was.UID)
			continue
		}
		if was != nil && was.UID != is.UID {
			delete(o.pending, was.UID)
			o.Times.Forget(was.UID)
		}
		switch {
		case is.Phase == corev1.PodPending:
			o.pending[is.UID] = true
		case o.pending[is.UID]:
			o.started(was, is)
		}
	}
}

// started measures a pod that is no longer pending. It measures binding once, and the start when the pod is ready. After that, or if
// the pod has ended, the pod is forgotten.
func (o *Observer) started(was, is *cluster.Pod) {
	left := was == nil || was.UID != is.UID || was.Phase == corev1.PodPending
	if o.Detailed && left && !is.Scheduled.IsZero() {
		devices := dynamicResources(is)
		o.measure(is, is.Scheduled, o.Metrics.PodBound.WithLabelValues(devices), o.Metrics.PodProvisioningBound.WithLabelValues(devices))
	}
	if o.Detailed && is.Ready {
		o.measure(is, is.ReadySince, o.Metrics.PodStartup, o.Metrics.PodProvisioningStartup)
	}
	if is.Ready || is.Terminal() {
		delete(o.pending, is.UID)
		o.Times.Forget(is.UID)
	}
}

// dynamicResources returns the value of the label for whether a pod uses resource claims.
func dynamicResources(p *cluster.Pod) string {
	return strconv.FormatBool(len(p.Class.Spec.ResourceClaims) > 0)
}

// measure observes how long a pod took until a time: since it was created, and since a plan first had a place for it.
func (o *Observer) measure(p *cluster.Pod, until time.Time, created, planned prometheus.Observer) {
	created.Observe(until.Sub(p.Created).Seconds())
	if times, _ := o.Times.Get(p.UID); !times.Schedulable.IsZero() {
		planned.Observe(max(0, until.Sub(times.Schedulable).Seconds()))
	}
}
