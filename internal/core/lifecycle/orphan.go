package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

const (
	// orphanAge is how old a machine must be before it can be an orphan: its claim may not have learnt of it yet.
	orphanAge = 30 * time.Second
	// massAge is how old a machine must be to count when orphans are suspiciously many, and massLeast how many of them are many.
	massAge   = time.Minute
	massLeast = 3
)

// Orphaned reports whether no claim answers for a machine: its claim is gone, or the claim has another machine. A
// claim without a machine that bears the name in the machine's tags is about to adopt it, by repeating the launch
// that a crash or a lost answer cut short; a machine that a launch still waits for gets its claim with the answer.
// byID is the claim that has this machine, byName the claim that it was launched for; either may be nil.
func Orphaned(m cloud.Machine, byID, byName *v1.NodeClaim, now time.Time) bool {
	if m.Deleting || m.Awaited || byID != nil || now.Sub(m.Created) < orphanAge {
		return false
	}
	return byName == nil || byName.Status.ProviderID != "" || byName.DeletionTimestamp != nil
}

// Mass returns those of the orphans that are so many that it must be a mistake: more than half of all machines, and three at
// least. A restored backup and a second cluster of the same name look like this; a crash never does. Machines of less than a
// minute do not count on either side.
func Mass(machines, orphans []cloud.Machine, now time.Time) []cloud.Machine {
	var all int
	var out []cloud.Machine
	grown := func(m cloud.Machine) bool { return !m.Deleting && now.Sub(m.Created) >= massAge }
	for _, m := range machines {
		if grown(m) {
			all++
		}
	}
	for _, m := range orphans {
		if grown(m) {
			out = append(out, m)
		}
	}
	if len(out) < massLeast || 2*len(out) <= all {
		return nil
	}
	return out
}

// Adopting returns the claim that takes over a machine that has no claim; node is nil if it has no Node either. It
// is not known any more what it was launched for, so the claim says what the pool says now.
func Adopting(pool *v1.NodePool, node *corev1.Node, m cloud.Machine) *v1.NodeClaim {
	spec := &pool.Spec.Template.Spec
	yes := true
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: claimName(pool, node, m), Finalizers: []string{v1.TerminationFinalizer}, Labels: adopted(pool),
		Annotations: merge(merge(pool.Spec.Template.NodeAnnotations(), stamped(pool)),
			map[string]string{v1.AdoptsAnnotationKey: m.ProviderID}),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: "NodePool",
			Name: pool.Name, UID: pool.UID, BlockOwnerDeletion: &yes}},
	}}
	c.Spec = v1.NodeClaimSpec{
		NodeClassRef: spec.NodeClassRef, Taints: spec.Taints, StartupTaints: spec.StartupTaints, Requirements: spec.Requirements,
		ExpireAfter: spec.ExpireAfter, TerminationGracePeriod: spec.TerminationGracePeriod,
	}
	return c.DeepCopy()
}
