package observe

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// object is what this file needs of an object with conditions.
type object struct {
	ref        corev1.ObjectReference
	deleted    time.Time
	finalizers []string
	conditions []condition
	extra      []string // values of the extra labels of its kind
	version    any      // the pointer of the API object: another pointer is another version
}

func (o *object) kind() string { return strings.ToLower(o.ref.Kind) }

// group is the API group, the part of the API version before the slash.
func (o *object) group() string {
	group, _, ok := strings.Cut(o.ref.APIVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// old reports whether the kind also has the metrics under older names.
func (o *object) old() bool {
	return o.ref.Kind == "NodeClaim" || o.ref.Kind == "NodePool" || o.ref.Kind == "CapacityBuffer"
}

type condition struct {
	kind, status, reason, message string
	since                         time.Time
}

// each yields all objects whose conditions are reported.
func each(snap *cluster.Snapshot) iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for o := range few(snap) {
			if !yield(o) {
				return
			}
		}
		for n := range snap.Nodes() {
			for o := range ofRow(n) {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// few yields the objects of kinds of which there are few: pools, buffers and node classes.
func few(snap *cluster.Snapshot) iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for p := range cluster.Pools.All(snap) {
			o := &object{ref: telemetry.PoolRef(p), conditions: readConditions(p.Status.Conditions), version: p}
			if !yield(o.meta(p)) {
				return
			}
		}
		for b := range cluster.Buffers.All(snap) {
			o := &object{ref: telemetry.BufferRef(types.NamespacedName{Namespace: b.Namespace, Name: b.Name}, b.UID),
				conditions: readConditions(b.Status.Conditions), version: b}
			if !yield(o.meta(b)) {
				return
			}
		}
		for c := range snap.NodeClasses() {
			o := &object{
				ref:     corev1.ObjectReference{APIVersion: c.Group + "/v1", Kind: c.Kind, Name: c.Name, UID: c.UID},
				deleted: c.Deleted, finalizers: c.Finalizers, conditions: readConditions(c.Conditions), version: c,
			}
			if !yield(o) {
				return
			}
		}
	}
}

// ofRow yields the claim and the Node of a row.
func ofRow(n *cluster.Node) iter.Seq[*object] {
	return func(yield func(*object) bool) {
		class := []string{""}
		if n.Claim != nil {
			class = classLabel(n.Claim)
			o := &object{ref: telemetry.ClaimRef(n.Claim), conditions: readConditions(n.Claim.Status.Conditions), version: n.Claim}
			o.extra = append([]string{n.Claim.Labels[v1.NodePoolLabelKey]}, class...)
			if !yield(o.meta(n.Claim)) {
				return
			}
		}
		if n.Node != nil {
			o := &object{ref: telemetry.NodeRef(n.Node), conditions: readNode(n.Node.Status.Conditions), version: n.Node}
			o.extra = append([]string{n.Node.Labels[v1.NodePoolLabelKey], n.Node.Labels[v1.NodeInitializedLabelKey]}, class...)
			yield(o.meta(n.Node))
		}
	}
}

// classLabel is the value of the label that names the claim's node class.
func classLabel(c *v1.NodeClaim) []string {
	if c.Spec.NodeClassRef == nil {
		return []string{""}
	}
	return []string{c.Labels[v1.NodeClassLabelKey(c.Spec.NodeClassRef.GroupKind())]}
}

// meta sets the time of deletion and the finalizers.
func (o *object) meta(m metav1.Object) *object {
	if t := m.GetDeletionTimestamp(); t != nil {
		o.deleted = t.Time
	}
	o.finalizers = m.GetFinalizers()
	return o
}

func readConditions(in []metav1.Condition) []condition {
	out := make([]condition, 0, len(in))
	for i := range in {
		c := &in[i]
		out = append(out, condition{c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time})
	}
	return out
}

func readNode(in []corev1.NodeCondition) []condition {
	out := make([]condition, 0, len(in))
	for i := range in {
		c := &in[i]
		out = append(out, condition{string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time})
	}
	return out
}

// extra returns the values of the extra labels for the metrics of an object's kind: as many as the metrics have labels. ok is false for
// a kind that is not reported. Without a provider's label there is none for the node class.
func (o *Observer) extra(x *object) ([]string, bool) {
	want, ok := o.Kinds[x.kind()]
	if !ok {
		return nil, false
	}
	out := slices.Clone(x.extra)
	for len(out) < len(want) {
		out = append(out, "")
	}
	return out[:len(want)], true
}

// writeConditions writes the gauges about conditions and deletion: of each kind, and of some kinds also under older names.
func (o *Observer) writeConditions(out *telemetry.Text, snap *cluster.Snapshot, now time.Time) {
	byKind := map[string][]*object{}
	var old []*object
	for x := range each(snap) {
		extra, ok := o.extra(x)
		if !ok {
			continue
		}
		x.extra = extra
		byKind[x.kind()] = append(byKind[x.kind()], x)
		if x.old() {
			old = append(old, x)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(o.gauges)) {
		writeKind(out, o.gauges[kind], byKind[kind], now,
			func(labels []string, x *object) []string { return append(labels, x.ref.Namespace, x.ref.Name) })
	}
	for _, x := range old {
		x.extra = nil
	}
	writeKind(out, oldConditions, old, now, func(labels []string, x *object) []string {
		return append(labels, x.ref.Namespace, x.ref.Name, x.group(), x.ref.Kind)
	})
}

// writeKind writes the three families about some objects: conditions, how long they have lasted, and deletion. names appends the labels
// that name an object.
func writeKind(out *telemetry.Text, g telemetry.ConditionGauges, objects []*object, now time.Time,
	names func([]string, *object) []string) {
	var labels []string
	for _, f := range []struct {
		family telemetry.Family
		value  func(condition) float64
	}{
		{g.Count, func(condition) float64 { return 1 }},
		{g.Seconds, func(c condition) float64 { return now.Sub(c.since).Seconds() }},
	} {
		out.Begin(f.family)
		for _, x := range objects {
			labels = names(labels[:0], x)
			first := len(labels)
			for _, c := range x.conditions {
				labels = append(append(labels[:first], c.kind, c.status, c.reason), x.extra...)
				out.Gauge(f.value(c), labels)
			}
		}
	}
	out.Begin(g.Terminating)
	for _, x := range objects {
		if !x.deleted.IsZero() {
			out.Gauge(now.Sub(x.deleted).Seconds(), names(labels[:0], x), x.extra...)
		}
	}
}

var oldConditions = telemetry.OldConditionGauges()

// conditions reports the conditions that changed since the snapshot last, nil at the first look. Rows that have not changed are skipped.
func (o *Observer) conditions(last, snap *cluster.Snapshot) {
	var before, after objects
	if last != nil {
		before.add(few(last))
	}
	after.add(few(snap))
	for was, is := range snap.NodeChanges(last) {
		if was != nil {
			before.add(ofRow(was))
		}
		if is != nil {
			after.add(ofRow(is))
		}
	}
	for _, is := range after.list {
		if was := before.byUID[is.ref.UID]; was == nil || was.version != is.version {
			o.changed(was, is, last == nil)
		}
	}
	for _, was := range before.list {
		if after.byUID[was.ref.UID] == nil {
			o.vanished(was)
		}
	}
}

// objects are some objects in their order.
type objects struct {
	list  []*object
	byUID map[types.UID]*object
}

func (o *objects) add(seq iter.Seq[*object]) {
	if o.byUID == nil {
		o.byUID = map[types.UID]*object{}
	}
	for x := range seq {
		o.list = append(o.list, x)
		o.byUID[x.ref.UID] = x
	}
}

// changed counts the conditions that changed, measures how long the old status lasted, and publishes events, also about finalizers. was
// is nil for a new object, and for all objects at the first look. Then statuses are only counted.
func (o *Observer) changed(was, is *object, first bool) {
	extra, ok := o.extra(is)
	if !ok {
		return
	}
	for _, c := range is.conditions {
		var old *condition
		if was != nil {
			if i := slices.IndexFunc(was.conditions, func(b condition) bool { return b.kind == c.kind }); i >= 0 {
				old = &was.conditions[i]
			}
		}
		if old != nil && old.status == c.status {
			continue
		}
		o.Metrics.ConditionTransitions[is.kind()].WithLabelValues(append([]string{c.kind, c.status, c.reason}, extra...)...).Inc()
		if is.old() {
			o.Metrics.ConditionTransitionsOld.WithLabelValues(c.kind, c.status, c.reason, is.group(), is.ref.Kind).Inc()
		}
		if old == nil {
			if was == nil && !first && c.status == string(metav1.ConditionTrue) && is.ref.Kind == "NodeClaim" {
				o.transitioned(is, string(metav1.ConditionUnknown), c) // a claim may be launched between two looks
			}
			continue
		}
		stood := c.since.Sub(old.since).Seconds()
		o.Metrics.ConditionTransition[is.kind()].WithLabelValues(append([]string{c.kind, old.status, c.status}, extra...)...).Observe(stood)
		if is.old() {
			o.Metrics.ConditionTransitionOld.WithLabelValues(c.kind, old.status, c.status, is.group(), is.ref.Kind).Observe(stood)
		}
		o.transitioned(is, old.status, c)
	}
	if was != nil {
		o.finalized(was, is.finalizers)
	}
}

// transitioned publishes an event about the change of a condition.
func (o *Observer) transitioned(x *object, from string, c condition) {
	o.Events.Publish(telemetry.Event{
		Object: x.ref, Reason: telemetry.Reason(c.kind),
		Message: fmt.Sprintf("Status condition transitioned, Type: %s, Status: %s -> %s, Reason: %s%s", c.kind, from,
			c.status, c.reason, tail(c.message)),
	})
}

func tail(message string) string {
	if message == "" {
		return ""
	}
	return ", Message: " + message
}

// finalized publishes an event for each finalizer that was removed.
func (o *Observer) finalized(was *object, remaining []string) {
	for _, f := range was.finalizers {
		if !slices.Contains(remaining, f) {
			o.Events.Publish(telemetry.Event{Object: was.ref, Reason: telemetry.Finalized, Message: "Finalized " + f})
		}
	}
}

// vanished reports an object that no longer exists, and measures how long its deletion took.
func (o *Observer) vanished(was *object) {
	extra, ok := o.extra(was)
	if !ok {
		return
	}
	o.finalized(was, nil)
	if was.deleted.IsZero() {
		return
	}
	took := time.Since(was.deleted).Seconds()
	o.Metrics.ObjectTermination[was.kind()].WithLabelValues(extra...).Observe(took)
	if was.old() {
		o.Metrics.ObjectTerminationOld.WithLabelValues(was.group(), was.ref.Kind).Observe(took)
	}
}
