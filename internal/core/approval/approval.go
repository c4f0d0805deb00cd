// Package approval knows which steps need approval, how a plan describes a step, which plans the rules of pools approve by themselves,
// and whether a step is still the approved one.
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
	// Window is how long a plan can be approved: a working day. Prices and pods do not stand still for longer.
	Window = 8 * time.Hour
	// Kept is how long a plan that is done with can be looked at.
	Kept = time.Hour
)

// Pools are the pools of a step that want to be asked, by name. A Node may say of itself that it is of another pool
// than its claim: both count.
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

// Hold keeps the nodes of plans from being looked at, but for those of a plan that is confirmed at this moment.
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

// dollars is a price as plans say it.
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

type workload struct{ namespace, kind, name string }

func workloadOf(p *cluster.Pod) workload {
	if p.Owner == nil {
		return workload{p.Namespace, "Pod", p.Name}
	}
	return workload{p.Namespace, p.Owner.Kind, p.Owner.Name}
}

// PlanOf is the plan of a step. Its name says what is in it, so that a plan whose contents were changed is known by its name.
func PlanOf(step *v1alpha1.DisruptionStep, now time.Time) *v1alpha1.DisruptionPlan {
	p := &v1alpha1.DisruptionPlan{Status: v1alpha1.DisruptionPlanStatus{
		Phase: v1alpha1.DisruptionPending, ExpiresAt: metav1.NewTime(now.Add(Window).UTC().Truncate(time.Second)), Step: step,
	}}
	p.Name = nameOf(p)
	return p
}

func nameOf(p *v1alpha1.DisruptionPlan) string {
	text, err := json.Marshal([]any{p.Status.Step, p.Status.ExpiresAt.Unix()})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(string(p.Status.Step.Reason)) + "-" + hex.EncodeToString(sum[:6])
}

// Genuine reports whether a plan says what it said when it was made.
func Genuine(p *v1alpha1.DisruptionPlan) bool { return p.Status.Step != nil && p.Name == nameOf(p) }

// Restore makes a step of a plan again, as far as confirming it needs one; false where a node is gone.
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

// amount reads what dollars wrote. What cannot be read is more than anything: then nothing is as good as what was approved.
func amount(text string) cloud.NanoUSD {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		f = 1e6
	}
	return cloud.NanoUSD(f * 1e9)
}

// A Difference says what is no longer as it was approved.
type Difference string

// The differences.
const (
	None     Difference = ""
	Why      Difference = "reason"   // the nodes would go for another reason
	Nodes    Difference = "nodes"    // other nodes would go
	Machines Difference = "machines" // other machines would come: of another pool, paid for otherwise, more
	Pods     Difference = "pods"     // pods would move of which the plan does not speak
	Saving   Difference = "saving"   // less would be saved
	Ruled    Difference = "ruled"    // no rule approves it any more, and nothing else has
)

// least is the part of the saving that was approved which must be left: prices move all the time.
const least = 0.9

// Compare reports whether a step is what was approved: the same nodes for the same reason, machines of the same
// pools that are paid for alike, no pods of others and no more of each owner, and nine tenths of the saving.
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

func claims(s *v1alpha1.DisruptionStep) []string {
	var out []string
	for _, r := range s.Remove {
		out = append(out, r.NodeClaim+" "+string(r.UID))
	}
	slices.Sort(out)
	return out
}

func machines(s *v1alpha1.DisruptionStep) []string {
	var out []string
	for _, o := range s.Open {
		out = append(out, o.NodePool+" "+o.CapacityType)
	}
	slices.Sort(out)
	return out
}
