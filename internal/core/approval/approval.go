// Package approval decides about DisruptionPlans: which steps need approval ([Pools]), how a plan describes a step ([StepOf], [PlanOf]),
// which plans the rules of pools approve without a person ([Approve]), and whether a step is still what was approved ([Compare]).
package approval

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
)

const (
	// Window is the time in which a plan can be approved: a working day. After that prices and pods have changed too much.
	Window = 8 * time.Hour
	// Kept is the time for which a finished plan is kept for people to read.
	Kept = time.Hour
)

// Pools returns the pools whose approval a step needs, sorted by name. If a Node's label names another pool than its claim, both count.
func Pools(snap *cluster.Snapshot, step *disrupt.Step) []*v1.NodePool {
	found := map[string]*v1.NodePool{}
	for _, c := range step.Remove {
		for _, name := range []string{c.Pool.Name, c.Node.Claim.Labels[v1.NodePoolLabelKey]} {
			if p := cluster.Pools.Get(snap, name); p != nil && p.AsksApproval() {
				found[name] = p
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *v1.NodePool) int { return cmp.Compare(a.Name, b.Name) })
}

// Hold marks the nodes of plans as busy in w, so that no other step includes them, and counts those of open plans against the budgets of
// their pools (Promised). It leaves out the plan but, whose step is being confirmed; but may be nil.
func Hold(w *disrupt.World, but *v1alpha1.DisruptionPlan) {
	for plan := range w.Snap.DisruptionPlans() {
		if !plan.Holds() || but != nil && plan.Name == but.Name {
			continue
		}
		for _, r := range plan.Status.Step.Remove {
			w.Busy[r.UID] = true
			if p := cluster.Pools.Get(w.Snap, r.NodePool); plan.Open() && p != nil && p.AsksApproval() {
				w.Promised[r.NodePool]++
			}
		}
	}
}

// dollars returns a price as plans have it: dollars with four decimals.
func dollars(p cloud.NanoUSD) string { return strconv.FormatFloat(p.Dollars(), 'f', 4, 64) }

// StepOf returns the description of a step in a plan.
func StepOf(step *disrupt.Step) *v1alpha1.DisruptionStep {
	out := &v1alpha1.DisruptionStep{Reason: step.Reason, Method: string(step.Method), Pods: step.Pods(), Saves: dollars(step.Saves())}
	for _, c := range step.Remove {
		labels := c.Node.Labels()
		out.Remove = append(out.Remove, v1alpha1.DisruptedNode{
			NodeClaim: c.Node.Claim.Name, UID: c.Node.Claim.UID, Node: c.Name(), NodePool: c.Pool.Name, Price: dollars(c.Price),
			InstanceType: labels[corev1.LabelInstanceTypeStable], CapacityType: labels[v1.CapacityTypeLabelKey],
		})
	}
	for i := range step.Open {
		o := &step.Open[i]
		out.Open = append(out.Open, v1alpha1.OpenedNode{NodePool: o.Pool, InstanceType: o.Type, Types: len(o.Types),
			CapacityType: o.CapacityType, Price: dollars(o.Price)})
	}
	moved := map[workload]int{}
	for _, c := range step.Remove {
		for _, p := range c.Pods {
			moved[workloadOf(p)]++
		}
	}
	for w, n := range moved {
		out.Evictions = append(out.Evictions, v1alpha1.DisruptedWorkload{Namespace: w.namespace, Kind: w.kind, Name: w.name, Pods: n})
	}
	slices.SortFunc(out.Remove, func(a, b v1alpha1.DisruptedNode) int { return cmp.Compare(a.NodeClaim, b.NodeClaim) })
	slices.SortFunc(out.Evictions, func(a, b v1alpha1.DisruptedWorkload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// A workload is the owner of some pods.
type workload struct{ namespace, kind, name string }

// workloadOf returns the owner of a pod, or the pod itself if it has none.
func workloadOf(p *cluster.Pod) workload {
	if p.Owner == nil {
		return workload{p.Namespace, "Pod", p.Name}
	}
	return workload{p.Namespace, p.Owner.Kind, p.Owner.Name}
}

// PlanOf returns the plan of a step. Its name includes a hash of its contents, so that a change of them is noticed (Genuine).
func PlanOf(step *v1alpha1.DisruptionStep, now time.Time) *v1alpha1.DisruptionPlan {
	p := &v1alpha1.DisruptionPlan{Status: v1alpha1.DisruptionPlanStatus{
		Phase: v1alpha1.DisruptionPending, ExpiresAt: metav1.NewTime(now.Add(Window).UTC().Truncate(time.Second)), Step: step,
	}}
	p.Name = nameOf(p)
	return p
}

// nameOf returns the name of a plan: its reason, and a hash of its step and expiry.
func nameOf(p *v1alpha1.DisruptionPlan) string {
	text, err := json.Marshal([]any{p.Status.Step, p.Status.ExpiresAt.Unix()})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(string(p.Status.Step.Reason)) + "-" + hex.EncodeToString(sum[:6])
}

// Genuine reports whether the contents of a plan are those with which it was made.
func Genuine(p *v1alpha1.DisruptionPlan) bool { return p.Status.Step != nil && p.Name == nameOf(p) }

// Restore returns the step of a plan, with the fields that confirming it needs; false if one of its nodes or pools is gone.
func Restore(snap *cluster.Snapshot, plan *v1alpha1.DisruptionPlan) (*disrupt.Step, bool) {
	s := plan.Status.Step
	out := &disrupt.Step{Reason: s.Reason, Method: disrupt.Method(s.Method), Before: amount(s.Saves)}
	for _, r := range s.Remove {
		n := snap.ClaimNode(r.NodeClaim)
		if n == nil || n.Node == nil || n.Claim == nil || n.Claim.UID != r.UID || n.Claim.DeletionTimestamp != nil {
			return nil, false
		}
		pool := cluster.Pools.Get(snap, r.NodePool)
		if pool == nil {
			return nil, false
		}
		out.Remove = append(out.Remove, &disrupt.Candidate{Node: n, Pool: pool})
	}
	return out, len(out.Remove) > 0
}

// amount reads what dollars wrote. A text that cannot be read counts as a million dollars, so that no step saves as much as what was
// approved.
func amount(text string) cloud.NanoUSD {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		f = 1e6
	}
	return cloud.NanoUSD(f * 1e9)
}

// A Difference says in what a step differs from the approved one.
type Difference string

// The differences.
const (
	None     Difference = ""
	Why      Difference = "reason"   // the nodes would go for another reason
	Nodes    Difference = "nodes"    // other nodes would go
	Machines Difference = "machines" // other machines would come: of another pool or capacity type, or more
	Pods     Difference = "pods"     // pods would move that are not in the plan
	Saving   Difference = "saving"   // less would be saved
	Ruled    Difference = "ruled"    // a rule approved it and does not any more, and no person has approved it
)

// least is the part of the approved saving that a step must still have. Prices change all the time.
const least = 0.9

// Compare returns the first difference between a step and the approved one, or None. A step may differ in this: fewer pods of an owner
// move, machines have other types, and the saving is smaller by at most a tenth.
func Compare(approved, now *v1alpha1.DisruptionStep) Difference {
	switch {
	case approved.Reason != now.Reason:
		return Why
	case !slices.Equal(claims(approved), claims(now)):
		return Nodes
	case !slices.Equal(machines(approved), machines(now)):
		return Machines
	}
	allowed := map[workload]int{}
	for _, e := range approved.Evictions {
		allowed[workload{e.Namespace, e.Kind, e.Name}] = e.Pods
	}
	for _, e := range now.Evictions {
		if e.Pods > allowed[workload{e.Namespace, e.Kind, e.Name}] {
			return Pods
		}
	}
	was, is := amount(approved.Saves), amount(now.Saves)
	if float64(is) < float64(was)-(1-least)*max(float64(was), -float64(was)) {
		return Saving
	}
	return None
}

// claims returns the claims that a step removes, sorted, to compare steps.
func claims(s *v1alpha1.DisruptionStep) []string {
	var out []string
	for _, r := range s.Remove {
		out = append(out, r.NodeClaim+" "+string(r.UID))
	}
	slices.Sort(out)
	return out
}

// machines returns the pool and capacity type of each machine that a step opens, sorted, to compare steps.
func machines(s *v1alpha1.DisruptionStep) []string {
	var out []string
	for _, o := range s.Open {
		out = append(out, o.NodePool+" "+o.CapacityType)
	}
	slices.Sort(out)
	return out
}
