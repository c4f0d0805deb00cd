package aws

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/ttl"
)

// homeLife is how long the zone counts that was chosen for the first machine of a cluster placement group.
const homeLife = 10 * time.Minute

// placing chooses where machines of a placement group go: the zone in which a cluster group begins, and the partition
// of each machine. It may be used concurrently.
type placing struct {
	env      *environment
	launches *launches
	mu       sync.Mutex
	homes    *ttl.Map[string, string]  // by cluster group: the zone that its first machine was asked for in
	coming   map[string]map[string]int // by group and partition: machines that are being launched
}

func newPlacing(env *environment, launches *launches) *placing {
	return &placing{env: env, launches: launches, homes: ttl.New[string, string](homeLife), coming: map[string]map[string]int{}}
}

// begin returns the zone in which a cluster group without machines begins: zone, or the zone that an earlier launch
// settled.
func (p *placing) begin(group, zone string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if home, ok := p.homes.Get(group); ok {
		return home
	}
	p.homes.Put(group, zone)
	return zone
}

// partition returns the partition with the fewest machines. Launches under way count until they call done.
func (p *placing) partition(group string, of []string, there map[string]int) (chosen string, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.coming[group] == nil {
		p.coming[group] = map[string]int{}
	}
	coming := p.coming[group]
	chosen = slices.MinFunc(of, func(a, b string) int {
		return cmp.Or(cmp.Compare(there[a]+coming[a], there[b]+coming[b]), cmp.Compare(a, b))
	})
	coming[chosen]++
	return chosen, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		coming[chosen]--
	}
}

// place narrows a claim to what its class's placement group leaves open: the zone of a cluster group, or one
// partition. The narrowed claim is not written anywhere. done is called when the launch has ended; dry says that
// there was no machine.
func (ms *machines) place(nc *awsv1.EC2NodeClass, claim *v1.NodeClaim,
	types []*cloud.InstanceType) (placed *v1.NodeClaim, done func(dry bool)) {
	g := nc.Status.PlacementGroup
	switch {
	case g == nil:
	case g.Strategy == awsv1.PlacementStrategyCluster && ms.placing.home(g.ID) == "":
		zones := fleet.Values(types, claim, corev1.LabelTopologyZone)
		if len(zones) == 0 {
			break
		}
		home := ms.placing.begin(g.ID, zones[0])
		return narrowed(claim, corev1.LabelTopologyZone, home), func(dry bool) {
			if dry {
				ms.placing.homes.Delete(g.ID)
			}
		}
	case g.PartitionCount > 0:
		partitions := fleet.Values(types, claim, awsv1.LabelPlacementGroupPartition)
		if len(partitions) == 0 {
			break
		}
		partition, end := ms.placing.partition(g.ID, partitions, ms.placing.membersBy(g.ID, awsv1.LabelPlacementGroupPartition))
		return narrowed(claim, awsv1.LabelPlacementGroupPartition, partition), func(bool) { end() }
	}
	return claim, func(bool) {}
}

// narrowed returns a claim that allows one value of a label only.
func narrowed(claim *v1.NodeClaim, key, value string) *v1.NodeClaim {
	out := *claim
	out.Spec.Requirements = append(slices.Clone(claim.Spec.Requirements), v1.NodeSelectorRequirementWithMinValues{
		Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value},
	})
	return &out
}

// home returns the only zone in which a cluster placement group takes machines: where it has some, or where its first
// machine is being launched; "" if it has none.
func (p *placing) home(group string) string {
	most := ""
	zones := p.membersBy(group, corev1.LabelTopologyZone)
	for zone, n := range zones { // there is one, unless a machine was launched by hand while the group was empty
		if most == "" || n > zones[most] || n == zones[most] && zone < most {
			most = zone
		}
	}
	if most == "" {
		most, _ = p.homes.Get(group)
	}
	return most
}

// membersBy counts the machines of a placement group by a label: those of claims, and those that were launched a moment ago.
func (p *placing) membersBy(group, key string) map[string]int {
	out, known := map[string]int{}, map[string]bool{}
	for claim := range p.env.claims.Each() {
		if claim.Labels[awsv1.LabelPlacementGroupID] == group && claim.Status.ProviderID != "" {
			out[claim.Labels[key]]++
			known[claim.Status.ProviderID] = true
		}
	}
	for _, m := range p.launches.machines.All() {
		if m.Labels[awsv1.LabelPlacementGroupID] == group && !known[m.ProviderID] {
			out[m.Labels[key]]++
		}
	}
	return out
}
