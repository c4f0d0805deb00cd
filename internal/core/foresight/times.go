package foresight

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

const (
	// defaultLead is the lead time that is assumed before any machine was measured.
	defaultLead = 90 * time.Second
	// longestMeasured is the longest time that is recorded for one machine: an outlier counts as this much.
	longestMeasured = 10 * time.Minute
	// mostMeasured is how many machines of one kind are remembered.
	mostMeasured = 16
)

// Times remembers how long machines took from the creation of their claim to an initialized node, by pool and instance family.
type Times struct {
	took map[kind][]time.Duration // the newest last
	seen map[types.UID]bool       // claims that were initialized at the last call of Learn
}

// A kind is a pool and an instance family. An empty family stands for all machines of the pool, and an empty pool for all machines.
type kind struct{ pool, family string }

// family returns the part of an instance type's name before the size: "m5" for "m5.large".
func family(instanceType string) string {
	before, _, _ := strings.Cut(instanceType, ".")
	return before
}

// Learn records the machines that got ready since its last call. It reads the times from the claims, so a restart of the controller loses
// only those of machines that are gone.
func (t *Times) Learn(snap *cluster.Snapshot) {
	seen := map[types.UID]bool{}
	if t.took == nil {
		t.took = map[kind][]time.Duration{}
	}
	for n := range snap.Nodes() {
		if n.Claim == nil {
			continue
		}
		ready := condition.Get(n.Claim, v1.ConditionTypeInitialized)
		if ready == nil || ready.Status != "True" {
			continue
		}
		seen[n.Claim.UID] = true
		took := ready.LastTransitionTime.Sub(n.Claim.CreationTimestamp.Time)
		if t.seen[n.Claim.UID] || took <= 0 {
			continue
		}
		for _, k := range []kind{{n.Pool(), family(n.Labels()[corev1.LabelInstanceTypeStable])}, {n.Pool(), ""}, {}} {
			list := append(t.took[k], min(took, longestMeasured))
			t.took[k] = list[max(0, len(list)-mostMeasured):]
		}
	}
	t.seen = seen
}

// Lead returns how long a machine of a pool takes to get ready. The machine may be of any of the instance types, so the slowest of their
// families counts. If instanceTypes is nil, Lead ignores the pool and returns the longest time of all kinds, at least defaultLead.
func (t *Times) Lead(pool string, instanceTypes []string) time.Duration {
	lead := time.Duration(0)
	if instanceTypes == nil {
		lead = defaultLead
		for k := range t.took {
			lead = max(lead, t.slow(k))
		}
		return lead
	}
	for _, name := range instanceTypes {
		lead = max(lead, t.slow(kind{pool, family(name)}, kind{pool, ""}, kind{}))
	}
	return lead
}

// slow returns the time within which nine in ten machines of a kind got ready, for the first of the kinds that has been measured;
// defaultLead if none has.
func (t *Times) slow(kinds ...kind) time.Duration {
	for _, k := range kinds {
		if list := slices.Sorted(slices.Values(t.took[k])); len(list) > 0 {
			return list[len(list)-1-len(list)/10]
		}
	}
	return defaultLead
}
