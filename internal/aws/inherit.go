package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/fleet"
)

// provisioner returns the Provisioner that a machine of this cluster was launched for; "" if there is none, or if the
// machine is of another cluster.
func (ms *machines) provisioner(tags map[string]string) string {
	if tags[awsv1.TagClusterPrefix+ms.env.settings.ClusterName] != awsv1.TagClusterOwned {
		return ""
	}
	for _, key := range []string{awsv1.TagClusterName, awsv1.TagManagedBy} {
		if cluster, said := tags[key]; said && cluster != ms.env.settings.ClusterName {
			return ""
		}
	}
	return tags[awsv1.TagProvisioner]
}

// Inherited returns the machines of this cluster that were launched for Provisioners.
func (ms *machines) Inherited(ctx context.Context) ([]cloud.Machine, error) {
	found, err := ms.fleet.List(ctx, ec2api.Filter("tag-key", awsv1.TagProvisioner),
		ec2api.Filter("tag:"+awsv1.TagClusterPrefix+ms.env.settings.ClusterName, awsv1.TagClusterOwned))
	if err != nil {
		return nil, err
	}
	var out []cloud.Machine
	for _, i := range found {
		if m := ms.machine(ctx, i, ms.claimsByMachine); m.Provisioner != "" {
			out = append(out, m)
		}
	}
	return out, nil
}

// Adopt gives a machine of a Provisioner the tags by which Karpenter finds it. Its other tags stay, so that it can be
// given back.
func (ms *machines) Adopt(ctx context.Context, claim *v1.NodeClaim, providerID string) (cloud.Machine, error) {
	id, pool := instanceID(providerID), claim.Labels[v1.NodePoolLabelKey]
	if id == "" || pool == "" {
		return cloud.Machine{}, cloud.ErrNotFound
	}
	nc, err := ms.classes.readyClassFor(ctx, claim.Spec.NodeClassRef.Name, claim.Annotations)
	if err != nil {
		return cloud.Machine{}, err
	}
	i, err := ms.fleet.Describe(ctx, id)
	if errors.Is(err, fleet.ErrGone) || errors.Is(err, fleet.ErrUnknown) {
		return cloud.Machine{}, cloud.ErrNotFound
	}
	if err != nil {
		return cloud.Machine{}, err
	}
	tags := ec2api.TagMap(i.Tags)
	if has, adopted := tags[awsv1.TagNodePool]; ms.provisioner(tags) == "" || adopted && has != pool {
		return cloud.Machine{}, cloud.ErrNotFound
	}
	ours := map[string]string{awsv1.TagNodePool: pool, awsv1.TagNodeClaim: claim.Name, awsv1.TagNodeClass: nc.Name,
		awsv1.TagClusterName: ms.env.settings.ClusterName}
	_, err = ms.env.clients.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: ec2api.Tags(ours)})
	if ec2api.IsDenied(err) {
		return cloud.Machine{}, fmt.Errorf("tag %s, to take it over: %s", id, ec2api.Denial(err))
	}
	if err != nil {
		return cloud.Machine{}, err
	}
	maps.Copy(tags, ours)
	i.Tags = ec2api.Tags(tags)
	m := ms.machine(ctx, i, ms.claimsByMachine)
	m.Annotations = ms.classes.annotations(nc)
	return m, nil
}
