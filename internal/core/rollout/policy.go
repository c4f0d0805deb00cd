package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/budget"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// A Policy is a RolloutPolicy with the pools to which it applies.
type Policy struct {
	Object *v1alpha1.RolloutPolicy
	Pools  []*v1.NodePool // by name
	// Overlap names the pools that it selects but to which an older policy applies.
	Overlap  []string
	selector error // why its selector cannot be read; it applies to no pool then
}

// Read returns all policies of a snapshot, the oldest first, and for each pool with a policy the one policy that applies to it, by the name
// of the pool: the oldest that selects it. Without policies both are nil.
func Read(snap *cluster.Snapshot) (all []*Policy, of map[string]*Policy) {
	for o := range cluster.Rollouts.All(snap) {
		all = append(all, &Policy{Object: o})
	}
	if len(all) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(all, func(a, b *Policy) int {
		return cmp.Or(a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	of = map[string]*Policy{}
	for _, p := range all {
		selector, err := metav1.LabelSelectorAsSelector(&p.Object.Spec.NodePoolSelector)
		if err != nil {
			p.selector = fmt.Errorf("spec.nodePoolSelector: %w", err)
			continue
		}
		for pool := range cluster.Pools.All(snap) {
			switch {
			case !selector.Matches(labels.Set(pool.Labels)):
			case of[pool.Name] != nil:
				p.Overlap = append(p.Overlap, pool.Name)
			default:
				of[pool.Name] = p
				p.Pools = append(p.Pools, pool)
			}
		}
	}
	return all, of
}

// Unread returns what is wrong with the spec so that it cannot be read, nil if nothing is. While something is, no drifted node of its pools
// is replaced.
func (p *Policy) Unread() error {
	errs := []error{p.selector}
	for i := range p.Object.Spec.Steps {
		if _, err := stepNodes(&p.Object.Spec.Steps[i], 1); err != nil {
			errs = append(errs, fmt.Errorf("spec.steps[%d].nodes: %w", i, err))
		}
	}
	_, _, err := p.window(time.Unix(0, 0))
	return errors.Join(append(errs, err)...)
}

// window reports whether drifted nodes may be replaced at a time, and when a window opens next. Without windows it is always open. next is
// zero if no window will open.
func (p *Policy) window(now time.Time) (open bool, next time.Time, err error) {
	windows := p.Object.Spec.Windows
	open = len(windows) == 0
	for i := range windows {
		w := &windows[i]
		on, at, err := budget.Window(w.Schedule, cmp.Or(w.TimeZone, "UTC"), w.Duration.Duration, now)
		if err != nil {
			return false, time.Time{}, fmt.Errorf("spec.windows[%d]: %w", i, err)
		}
		open, next = open || on, ztime.Sooner(next, at)
	}
	return open, next, nil
}

// stepNodes returns how many machines a step adds in a pool with so many nodes, at least 1. A percentage is rounded up.
func stepNodes(s *v1alpha1.RolloutStep, nodes int) (int, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(&s.Nodes, nodes, true)
	return max(1, n), err
}

// target returns how many new machines a pool may have while step number passed (from 0) is being taken: the sum of the steps up to it. It
// returns 0 if one of them cannot be read.
func (p *Policy) target(passed, nodes int) (sum int) {
	for i := range p.Object.Spec.Steps[:passed+1] {
		n, err := stepNodes(&p.Object.Spec.Steps[i], nodes)
		if err != nil {
			return 0
		}
		sum += n
	}
	return sum
}

// bake returns how long the machines of a step are watched. Machines opened after the last step are watched as long as those of the last
// step.
func (p *Policy) bake(step int) time.Duration {
	steps := p.Object.Spec.Steps
	if len(steps) == 0 {
		return 0
	}
	return steps[min(step, len(steps)-1)].Bake.Duration
}

// Entry returns the entry of a pool in the status, nil if there is none.
func (p *Policy) Entry(pool string) *v1alpha1.RolloutPool {
	for i := range p.Object.Status.Pools {
		if e := &p.Object.Status.Pools[i]; e.Name == pool {
			return e
		}
	}
	return nil
}

// Revision returns a digest of what users wrote and new machines are made from: template and requirements of the pool, and the class. A
// rollout begins anew when it changes.
func Revision(snap *cluster.Snapshot, pool *v1.NodePool) string {
	of := struct {
		Template     string
		Requirements []v1.NodeSelectorRequirementWithMinValues
		Class        string
		Generation   int64
	}{Template: drift.PoolStamp(pool).Hash, Requirements: pool.Spec.Template.Spec.Requirements}
	if class := snap.NodeClass(pool.Spec.Template.Spec.NodeClassRef); class != nil {
		of.Class, of.Generation = string(class.UID), class.Generation
	}
	return drift.Digest(of)
}

// Expiry returns when a claim is older than expireAfter (soft), and when it is removed for that whatever budgets say (hard). Both are the
// same unless a policy replaces expired nodes within budgets first. ok is false if the claim has no expireAfter.
func Expiry(snap *cluster.Snapshot, claim *v1.NodeClaim) (soft, hard time.Time, ok bool) {
	soft, ok = lifecycle.Expiry(claim)
	hard = soft
	if !ok {
		return soft, hard, false
	}
	if _, of := Read(snap); of != nil {
		if p := of[claim.Labels[v1.NodePoolLabelKey]]; p != nil && p.Object.Spec.Expiry != nil && p.Object.Spec.Expiry.WithinBudgets {
			hard = soft.Add(p.Object.Spec.Expiry.HardAfter.Duration)
		}
	}
	return soft, hard, true
}
