package lifecycle

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// Repairs are the repair policies of a provider, checked and compiled.
//
// A condition of a node concerns those policies whose type and status it has and whose expression matches its reason. The fallback, the one
// policy without expression, concerns every condition whose type and status occur in the set. So a fault for which there is a mild remedy
// still gets the fallback's once that is due.
type Repairs struct {
	policies []cloud.RepairPolicy
	reasons  []*regexp.Regexp // beside policies, nil for the fallback
	ranks    []float64        // beside policies: how many lower priorities there are
}

// ageing is how long a fault must last to count as much as one of the next higher priority.
const ageing = 30 * time.Minute

// NewRepairs compiles policies that cloud.CheckRepairPolicies finds nothing wrong with.
func NewRepairs(policies []cloud.RepairPolicy) *Repairs {
	r := &Repairs{policies: policies, reasons: make([]*regexp.Regexp, len(policies)), ranks: make([]float64, len(policies))}
	for i, p := range policies {
		if p.Reason != "" {
			r.reasons[i] = regexp.MustCompile(p.Reason)
		}
		lower := map[int]bool{}
		for _, q := range policies {
			if q.Priority < p.Priority {
				lower[q.Priority] = true
			}
		}
		r.ranks[i] = float64(len(lower))
	}
	return r
}

// A Fault is what is wrong with a node, by the policies that concern it.
type Fault struct {
	Condition corev1.NodeCondition
	// Due is when the node may be repaired at the earliest: the condition has stood for as long as a policy tolerates it.
	Due time.Time
	// Grace bounds the drain of a node that is due: the shortest of its policies and its claim. nil: nothing bounds it.
	Grace *time.Duration
	// Score orders the nodes that are due: those whose faults do most harm, or are oldest, have the highest.
	Score float64
	// Reboot says that every policy that is due is content with a reboot, and that earlier reboots do not speak against another one.
	Reboot bool
}

// Reboots reports whether there are faults that a reboot may mend.
func (r *Repairs) Reboots() bool {
	return r != nil && slices.ContainsFunc(r.policies, func(p cloud.RepairPolicy) bool { return p.Reboot })
}

// Of returns what is wrong with a node now, nil if nothing is. A condition that stood before a reboot counts from the end of
// the reboot. A condition without the time of its transition counts as no fault.
// Without policies no node has one, and none while its machine is being rebooted.
func (r *Repairs) Of(node *corev1.Node, claim *v1.NodeClaim, now time.Time) *Fault {
	if r == nil || condition.IsTrue(claim, v1.ConditionTypeRebooting) {
		return nil
	}
	var out *Fault
	named := -1 // the policy that names the fault, -1 while none is due; until then the fault is the condition that is due first
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.LastTransitionTime.IsZero() || !r.knows(c) {
			continue
		}
		since := ztime.Later(c.LastTransitionTime.Time, rebootedAt(claim))
		for j := range r.policies {
			if !r.concerns(j, c) {
				continue
			}
			p, due := &r.policies[j], since.Add(r.policies[j].Toleration)
			if out == nil {
				out = &Fault{Condition: *c, Due: due, Reboot: true}
			}
			if due.After(now) {
				if named < 0 && due.Before(out.Due) {
					out.Condition, out.Due = *c, due
				}
				continue
			}
			if named < 0 || r.before(j, due, c, named, out) {
				named, out.Condition, out.Due = j, *c, due
			}
			if p.Grace != nil && (out.Grace == nil || *p.Grace < *out.Grace) {
				out.Grace = p.Grace
			}
			out.Score = max(out.Score, r.ranks[j]+float64(now.Sub(due))/float64(ageing))
			out.Reboot = out.Reboot && p.Reboot
		}
	}
	if out == nil {
		return nil
	}
	out.Reboot = out.Reboot && !rebootsExhausted(claim, now)
	if own := claim.Spec.TerminationGracePeriod; own != nil && (out.Grace == nil || own.Duration < *out.Grace) {
		out.Grace = &own.Duration
	}
	return out
}

// knows reports whether a condition's type and status occur in the policies.
func (r *Repairs) knows(c *corev1.NodeCondition) bool {
	return slices.ContainsFunc(r.policies, func(p cloud.RepairPolicy) bool { return p.ConditionType == c.Type && p.Status == c.Status })
}

// concerns reports whether policy i is about a condition whose type and status are known.
func (r *Repairs) concerns(i int, c *corev1.NodeCondition) bool {
	p := &r.policies[i]
	return r.reasons[i] == nil || p.ConditionType == c.Type && p.Status == c.Status && r.reasons[i].MatchString(c.Reason)
}

// before reports whether policy j, due then, names the fault rather than the named policy does: the highest priority first, then what was
// due first, then the type of the condition.
func (r *Repairs) before(j int, due time.Time, c *corev1.NodeCondition, named int, out *Fault) bool {
	return cmp.Or(
		cmp.Compare(r.policies[named].Priority, r.policies[j].Priority),
		due.Compare(out.Due),
		cmp.Compare(c.Type, out.Condition.Type)) < 0
}

// RepairForbidden returns which of a Node and its claim forbids repair by the annotation do-not-repair, "" if neither does.
func RepairForbidden(node *corev1.Node, claim *v1.NodeClaim) string {
	switch {
	case node.Annotations[v1.DoNotRepairAnnotationKey] == "true":
		return "Node"
	case claim.Annotations[v1.DoNotRepairAnnotationKey] == "true":
		return "NodeClaim"
	}
	return ""
}
