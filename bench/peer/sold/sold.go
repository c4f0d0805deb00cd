// Package sold shows our catalogue to Karpenter: the same EC2 types, room, zones and prices as instance types of its own kind.
package sold

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	peerv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/test"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/testing/awsmodel/boot"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// Machines is the catalogue with the memory that machines report when they have joined. A plan for EC2 has to guess
// it until it has seen one, as ours does here and Karpenter does on EC2; its KWOK provider knows it from the start.
func Machines() (*cloud.Catalog, error) {
	guessed, err := offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
	if err != nil {
		return nil, err
	}
	hardware := map[string]*awsdata.InstanceType{}
	for _, t := range awsdata.Types() {
		hardware[t.Name] = t
	}
	out := &cloud.Catalog{}
	for _, it := range guessed.Types {
		real := *it
		real.Capacity = it.Capacity.DeepCopy()
		real.Capacity[corev1.ResourceMemory] = *resource.NewQuantity(boot.VisibleMemory(hardware[it.Name]), resource.BinarySI)
		out.Types = append(out.Types, &real)
	}
	return out, nil
}

// Pool is our pool as one of theirs, with the same requirements.
func Pool(pool *v1.NodePool) *peerv1.NodePool {
	out := test.NodePool(peerv1.NodePool{})
	out.Name = pool.Name
	out.Spec.Template.Spec.Requirements, out.Spec.Limits = nil, nil
	for _, r := range pool.Spec.Template.Spec.Requirements {
		out.Spec.Template.Spec.Requirements = append(out.Spec.Template.Spec.Requirements,
			peerv1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	return out
}

// Types are all types of a catalogue but the exotic ones, which its AWS provider leaves out of a launch that can do
// without. Its core knows no EC2, so that labels of EC2 are made known to it as its AWS provider does.
func Types(catalog *cloud.Catalog) []*cloudprovider.InstanceType {
	var out []*cloudprovider.InstanceType
	for _, it := range catalog.Types {
		for key := range it.Labels {
			if !peerv1.WellKnownLabels.Has(key) { // fleets that are played at the same time read it
				peerv1.WellKnownLabels = peerv1.WellKnownLabels.Insert(key)
			}
		}
		if !it.Exotic {
			out = append(out, Type(it))
		}
	}
	return out
}

// Type is our type as one of theirs.
func Type(it *cloud.InstanceType) *cloudprovider.InstanceType {
	out := &cloudprovider.InstanceType{Name: it.Name, Capacity: it.Capacity,
		Requirements: scheduling.NewRequirements(), Overhead: &cloudprovider.InstanceTypeOverhead{
			KubeReserved: it.Overhead.KubeReserved, SystemReserved: it.Overhead.SystemReserved,
			EvictionThreshold: it.Overhead.EvictionThreshold,
		}}
	for key, values := range it.Labels {
		operator := corev1.NodeSelectorOpIn
		if len(values) == 0 {
			operator = corev1.NodeSelectorOpDoesNotExist
		}
		out.Requirements.Add(scheduling.NewRequirement(key, operator, values...))
	}
	for i := range it.Offerings {
		o := &it.Offerings[i]
		reqs := scheduling.NewRequirements()
		for key, value := range o.Labels {
			reqs.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, value))
		}
		out.Offerings = append(out.Offerings, &cloudprovider.Offering{Requirements: reqs, Price: o.Price.Dollars(),
			Available: o.Available})
	}
	return out
}
