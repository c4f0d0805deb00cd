package observe

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/telemetry"
)

var (
	podState                 = telemetry.Gauge("karpenter_pods_state")
	podUnstarted             = telemetry.Gauge("karpenter_pods_unstarted_time_seconds")
	podUnbound               = telemetry.Gauge("karpenter_pods_unbound_time_seconds")
	podProvisioningUnbound   = telemetry.Gauge("karpenter_pods_provisioning_unbound_time_seconds")
	podProvisioningUnstarted = telemetry.Gauge("karpenter_pods_provisioning_unstarted_time_seconds")
	podUndecided             = telemetry.Gauge("karpenter_pods_provisioning_scheduling_undecided_time_seconds")
)

func (o *Observer) collectPods(out sink, snap *cluster.Snapshot, now time.Time) {
	for p := range snap.Pods() {
		var labels map[string]string
		if n := snap.Node(p.NodeName); p.NodeName != "" && n != nil && n.Node != nil {
			labels = n.Node.Labels
		}
		_, managed := labels[v1.NodePoolLabelKey]
		out.gauge(podState, 1, p.Name, p.Namespace, ownerPath(p), p.NodeName, strconv.FormatBool(p.NodeName != ""),
			labels[v1.NodePoolLabelKey], labels[corev1.LabelTopologyZone], labels[corev1.LabelArchStable], labels[v1.CapacityTypeLabelKey],
			labels[corev1.LabelInstanceTypeStable], string(p.Phase), strconv.FormatBool(p.Ready), strconv.FormatBool(managed))
		if p.Terminal() {
			continue
		}
		times, _ := o.Times.Get(p.UID)
		if !p.Ready {
			out.gauge(podUnstarted, now.Sub(p.Created).Seconds(), p.Name, p.Namespace)
			if !times.Schedulable.IsZero() {
				out.gauge(podProvisioningUnstarted, now.Sub(times.Schedulable).Seconds(), p.Name, p.Namespace)
			}
		}
		if p.NodeName != "" {
			continue
		}
		out.gauge(podUnbound, now.Sub(p.Created).Seconds(), p.Name, p.Namespace)
		if !times.Schedulable.IsZero() {
			out.gauge(podProvisioningUnbound, now.Sub(times.Schedulable).Seconds(), p.Name, p.Namespace)
		}
		if !times.Seen.IsZero() && times.Decided.IsZero() {
			out.gauge(podUndecided, now.Sub(times.Seen).Seconds(), p.Name, p.Namespace)
		}
	}
}

// ownerPath is where a pod's owner is found in the API, "" without owner.
func ownerPath(p *cluster.Pod) string {
	if p.Owner == nil {
		return ""
	}
	return "/apis/" + p.Owner.APIVersion + "/namespaces/" + p.Namespace + "/" + strings.ToLower(p.Owner.Kind) + "s/" + p.Owner.Name
}

// pods measures how long pods took to bind and to start. Only pods that this process saw pending count.
func (o *Observer) pods(last, snap *cluster.Snapshot) {
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

// started looks at a pod that is no longer pending. Binding is told once, starting when the pod is ready; after that, or when the
// pod has ended, it is forgotten.
func (o *Observer) started(was, is *cluster.Pod) {
	left := was == nil || was.UID != is.UID || was.Phase == corev1.PodPending
	if o.Detailed && left && !is.Scheduled.IsZero() {
		o.measure(is, is.Scheduled, o.Metrics.PodBound, o.Metrics.PodProvisioningBound)
	}
	if o.Detailed && is.Ready {
		o.measure(is, is.ReadySince, o.Metrics.PodStartup, o.Metrics.PodProvisioningStartup)
	}
	if is.Ready || is.Terminal() {
		delete(o.pending, is.UID)
		o.Times.Forget(is.UID)
	}
}

// measure tells how long a pod took until some time: since it was created, and since a plan first had a place for it.
func (o *Observer) measure(p *cluster.Pod, until time.Time, created, planned prometheus.Observer) {
	created.Observe(until.Sub(p.Created).Seconds())
	if times, _ := o.Times.Get(p.UID); !times.Schedulable.IsZero() {
		planned.Observe(max(0, until.Sub(times.Schedulable).Seconds()))
	}
}
