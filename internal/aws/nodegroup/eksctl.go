package nodegroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A clusterConfig is the part of eksctl's ClusterConfig that says something about node groups.
type clusterConfig struct {
	Metadata          struct{ Name string }
	ManagedNodeGroups []configured
	NodeGroups        []configured
}

// A configured is a node group in a ClusterConfig.
type configured struct {
	Name, InstanceType, AmiFamily, AMI string
	InstanceTypes, AvailabilityZones   []string
	Subnets                            []string
	Spot                               bool
	InstancesDistribution              *struct {
		InstanceTypes                       []string
		OnDemandBaseCapacity                *int
		OnDemandPercentageAboveBaseCapacity *int
	}
	MinSize, MaxSize, DesiredCapacity int
	VolumeSize                        int64
	Labels, Tags                      map[string]string
	Taints                            taintList
	IAM                               struct{ InstanceRoleARN, InstanceRoleName, InstanceProfileARN string }
	SecurityGroups                    struct{ AttachIDs []string }
	UpdateConfig                      struct{ MaxUnavailable, MaxUnavailablePercentage int }
	boot                              configuredBoot
}

// A configuredBoot is what a node group says about how its machines boot. It is written among the other fields.
type configuredBoot struct {
	PreBootstrapCommands     []string
	OverrideBootstrapCommand string
	SSH                      *struct{ Allow bool }
}

// UnmarshalJSON also reads the fields of boot, which stand among the others.
func (c *configured) UnmarshalJSON(text []byte) error {
	type plain configured
	return errors.Join(json.Unmarshal(text, (*plain)(c)), json.Unmarshal(text, &c.boot))
}

// A taintList is a list of taints, or, in older files, a map from key to "value:effect".
type taintList []corev1.Taint

func (l *taintList) UnmarshalJSON(text []byte) error {
	var older map[string]string
	if json.Unmarshal(text, &older) != nil {
		return json.Unmarshal(text, (*[]corev1.Taint)(l))
	}
	for key, said := range older {
		*l = append(*l, taintOf(key, said))
	}
	sortTaints(*l)
	return nil
}

// readClusterConfig reads the node groups of a ClusterConfig.
func readClusterConfig(raw json.RawMessage) ([]Group, error) {
	var c clusterConfig
	if err := unmarshal(raw, &c); err != nil {
		return nil, err
	}
	var out []Group
	for i := range c.ManagedNodeGroups {
		out = append(out, c.ManagedNodeGroups[i].group(c.Metadata.Name))
	}
	for i := range c.NodeGroups {
		out = append(out, c.NodeGroups[i].group(c.Metadata.Name))
	}
	return out, nil
}

// group returns the node group, and notes what has no equal.
func (c *configured) group(cluster string) Group {
	g := Group{Name: c.Name, Cluster: cluster, Types: c.InstanceTypes, AMIType: c.AmiFamily, DiskGiB: c.VolumeSize,
		Zones: c.AvailabilityZones, SubnetIDs: c.Subnets,
		GroupIDs: c.SecurityGroups.AttachIDs, Labels: c.Labels, Tags: c.Tags, Taints: c.Taints, Min: c.MinSize,
		Max:           max(c.MaxSize, c.DesiredCapacity),
		CapacityTypes: []string{v1.CapacityTypeOnDemand}, Role: c.IAM.InstanceRoleName, Profile: path.Base(c.IAM.InstanceProfileARN)}
	if c.IAM.InstanceRoleARN != "" {
		g.Role = path.Base(c.IAM.InstanceRoleARN)
	}
	if c.IAM.InstanceProfileARN == "" || g.Role != "" {
		g.Profile = ""
	}
	if c.InstanceType != "" && c.InstanceType != "mixed" {
		g.Types = append(g.Types, c.InstanceType)
	}
	if c.Spot {
		g.CapacityTypes = []string{v1.CapacityTypeSpot}
	}
	if d := c.InstancesDistribution; d != nil {
		g.Types = append(g.Types, d.InstanceTypes...)
		g.CapacityTypes = []string{v1.CapacityTypeSpot, v1.CapacityTypeOnDemand}
		g.lose("its share of on-demand: the cheaper one is bought; two pools with weights and limits, or a spread " +
			"over karpenter.sh/capacity-type, keep a share")
	}
	switch u := c.UpdateConfig; {
	case u.MaxUnavailable > 0:
		g.Unavailable = fmt.Sprint(u.MaxUnavailable)
	case u.MaxUnavailablePercentage > 0:
		g.Unavailable = fmt.Sprintf("%d%%", u.MaxUnavailablePercentage)
	}
	if c.AMI != "" {
		g.lose("image %s: name it in amiSelectorTerms", c.AMI)
	}
	if len(c.boot.PreBootstrapCommands) > 0 || c.boot.OverrideBootstrapCommand != "" {
		g.lose("its bootstrap commands: write them as userData of the EC2NodeClass")
	}
	if c.boot.SSH != nil && c.boot.SSH.Allow {
		g.lose("SSH: nodes have no key; use Session Manager")
	}
	return g
}
