package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

const (
	// orphanAge is how old a machine must be before it can be an orphan: its provider id may not be written on its claim yet.
	orphanAge = 30 * time.Second
	// massAge is how old a machine must be to count in Mass, and massLeast is the least number of orphans that are suspiciously many.
	massAge   = time.Minute
	massLeast = 3
)

// Orphaned reports whether a machine has no claim: the claim it was launched for is gone, is being deleted, or has another machine.
//
// byID is the claim with this machine's provider id, and byName the claim that is named in the machine's tags; either may be nil. If
// byName has no machine yet, the machine is no orphan: a crash cut the launch short, and the claim gets this machine when the launch is
// repeated. A machine that a launch of this process still waits for (Awaited) is none either.
func Orphaned(m cloud.Machine, byID, byName *v1.NodeClaim, now time.Time) bool {
	if m.Deleting || m.Awaited || byID != nil || now.Sub(m.Created) < orphanAge {
		return false
	}
	return byName == nil || byName.Status.ProviderID != "" || byName.DeletionTimestamp != nil
}

// Mass returns the orphans if they are so many that it must be a mistake: at least three, and more than half of all machines. Otherwise it
// returns nil. A restored backup or a second cluster of the same name looks like this; a crash never does. Machines younger than massAge,
// and those that are being deleted, count neither as orphans nor as machines.
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

// Adopting returns the claim that takes over a machine without claim; node is nil if the machine has no Node either. What the machine was
// launched for is not known any more, so the claim gets the present template of the pool.
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
