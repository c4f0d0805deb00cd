// Package quotas writes on CapacityQuotas how much their nodes use and whether the quota is enforced. Package open enforces them, without
// waiting for what is written here.
//
// The kind is shared with Cluster Autoscaler. If that writes a quota's status, this loop writes only the condition Enforced.
package quotas

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/status"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/quota"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// lookInterval is how often use is counted at most. Nothing is counted again while nothing changed.
const lookInterval = 10 * time.Second

// clusterAutoscaler is the condition that Cluster Autoscaler writes on the quotas that it keeps.
const clusterAutoscaler = "cluster-autoscaler.kubernetes.io/valid"

// catalogs gives the instance types of pools.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
}

// Deps are what the loop works with.
type Deps struct {
	Store    *cluster.Store
	Client   client.Client
	Catalogs catalogs
	Known    *label.Vocabulary
	Metrics  *telemetry.Metrics
	Events   *telemetry.Events
}

// Loop writes the status of CapacityQuotas.
type Loop struct{ deps Deps }

// New returns a loop that has not started.
func New(d Deps) *Loop { return &Loop{deps: d} }

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	l.deps.Metrics.Repeat(ctx, telemetry.Chore{Name: "capacityquota.controller", What: "counting what quotas allow",
		Failed: "writing the status of quotas failed", Every: lookInterval, Turn: l.turn})
	return nil
}

// turn writes the status of every quota that has changed. What cannot be written is tried again in the next turn.
func (l *Loop) turn(ctx context.Context, now time.Time) error {
	snap := l.deps.Store.Snapshot()
	if !snap.Synced() {
		return nil
	}
	var all []*autoscalingv1beta1.CapacityQuota
	for o := range cluster.Quotas.All(snap) {
		all = append(all, o)
	}
	if len(all) == 0 {
		return nil
	}
	pools, _ := l.deps.Catalogs.Pools(ctx, snap)
	market := engine.MarketOf(pools)
	var errs []error
	for _, o := range all {
		errs = append(errs, l.tell(ctx, snap, o, market, now))
	}
	return errors.Join(errs...)
}

// tell works out the status of one quota and writes it if it has changed.
func (l *Loop) tell(ctx context.Context, snap *cluster.Snapshot, o *autoscalingv1beta1.CapacityQuota, m quota.Market, now time.Time) error {
	told := o.DeepCopy()
	if q, err := quota.Read(o); err != nil {
		l.setReconciled(told, false, autoscalingv1beta1.ReasonReconciliationFailed, err.Error(), now)
		condition.SetFalse(told, autoscalingv1beta1.ConditionTypeEnforced, autoscalingv1beta1.ReasonInvalidQuota, err.Error(), now)
	} else {
		used := q.Used(snap, m, (*cluster.Node).Deleting)
		if l.setReconciled(told, true, autoscalingv1beta1.ReasonReconciliationSucceeded, "", now) {
			told.Status.ObservedGeneration = o.Generation
			told.Status.Used = &autoscalingv1beta1.CapacityQuotaLimits{Resources: amounts(used)}
		}
		l.setEnforced(told, &q, used, l.unforeseen(snap, &q, m), now)
	}
	return status.Write(ctx, l.deps.Store, l.deps.Client, cluster.Quotas.Put, told, o)
}

// setReconciled sets the condition about reading the quota. It returns false, and sets nothing, if Cluster Autoscaler
// writes the status.
func (l *Loop) setReconciled(o *autoscalingv1beta1.CapacityQuota, ok bool, why, message string, now time.Time) bool {
	if condition.Get(o, clusterAutoscaler) != nil {
		return false
	}
	if ok {
		setTrue(o, autoscalingv1beta1.ConditionTypeReconciled, why, message, now)
	} else {
		condition.SetFalse(o, autoscalingv1beta1.ConditionTypeReconciled, why, message, now)
	}
	return true
}

// setEnforced sets the condition about keeping to the quota. It publishes an event if more is used than it allows.
// unforeseen is a label of its selector that keeps it from being enforced, "" if there is none.
func (l *Loop) setEnforced(o *autoscalingv1beta1.CapacityQuota, q *quota.Quota, used corev1.ResourceList, unforeseen string,
	now time.Time) {
	over := q.Limits.Exceeded(used)
	switch {
	case unforeseen != "":
		condition.SetFalse(o, autoscalingv1beta1.ConditionTypeEnforced, autoscalingv1beta1.ReasonUnforeseenLabel,
			"no pool and no instance type sets label "+unforeseen+", so that no new node is held back", now)
	case over != "":
		limit, have := q.Limits[over], used[over]
		message := fmt.Sprintf("%s of %s are used, and %s are allowed: nothing is removed, and nothing that counts is opened",
			have.String(), over, limit.String())
		setTrue(o, autoscalingv1beta1.ConditionTypeEnforced, autoscalingv1beta1.ReasonExceeded, message, now)
		l.deps.Events.Publish(telemetry.Event{Object: telemetry.QuotaRef(o), Reason: telemetry.QuotaExceeded, Key: []string{string(o.UID)},
			Message: message})
	default:
		setTrue(o, autoscalingv1beta1.ConditionTypeEnforced, autoscalingv1beta1.ReasonEnforced, "", now)
	}
}

// unforeseen returns a label of the quota's selector that no pool and no instance type sets, "" if there is none. The pool's label and
// well-known labels count as set. Whether a new node will have another label is not known, so the quota cannot hold it back.
func (l *Loop) unforeseen(snap *cluster.Snapshot, q *quota.Quota, m quota.Market) string {
	foreseen := map[string]bool{}
	for p := range cluster.Pools.All(snap) {
		for key := range p.NodeLabels() {
			foreseen[key] = true
		}
		for _, r := range p.Spec.Template.Spec.Requirements {
			foreseen[r.Key] = true
		}
	}
	for _, c := range m {
		for _, it := range c.Types {
			for key := range it.Labels {
				foreseen[key] = true
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(q.Needs()), strings.Compare) {
		if !foreseen[key] && key != v1.NodePoolLabelKey && !l.deps.Known.WellKnown(l.deps.Known.Normalize(key)) {
			return key
		}
	}
	return ""
}

func setTrue(o *autoscalingv1beta1.CapacityQuota, name, why, message string, now time.Time) {
	condition.Set(o, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: why, Message: message}, now)
}

func amounts(list corev1.ResourceList) autoscalingv1beta1.QuotaAmounts {
	out := autoscalingv1beta1.QuotaAmounts{}
	for name, q := range list {
		out[autoscalingv1beta1.ResourceName(name)] = q
	}
	return out
}
