// Package nodegroup reads node groups as other tools describe them, and says which NodePools and EC2NodeClasses buy the same machines.
package nodegroup

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A Group is a node group, from any source.
type Group struct {
	Name, Cluster string
	Types         []string
	CapacityTypes []string
	AMIType       string // as EKS names it; "" if not given
	DiskGiB       int64  // 0: as the image has it
	Role          string // name of the nodes' role, without its path; "" if not given
	Profile       string // an instance profile, where that was said instead
	SubnetIDs     []string
	Zones         []string // if no subnets were named
	GroupIDs      []string // security groups
	Labels        map[string]string
	Taints        []corev1.Taint
	Tags          map[string]string
	Min, Max      int
	Unavailable   string // how many nodes an update takes at a time: a number or a percentage; "" if not given
	Lost          []string
}

// lose notes something that has no equal.
func (g *Group) lose(format string, args ...any) {
	g.Lost = append(g.Lost, fmt.Sprintf(format, args...))
}

// Accepted says what Read reads.
const Accepted = "`aws eks describe-nodegroup`, `aws autoscaling describe-auto-scaling-groups`, or a ClusterConfig of eksctl"

var errNoGroup = errors.New("it is no node group; give the output of " + Accepted)

// Read reads all node groups of a file: JSON objects one after the other, or YAML.
func Read(text []byte) ([]Group, error) {
	var out []Group
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for n := 1; ; n++ {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: neither YAML nor JSON: %w", n, err)
		}
		groups, err := readOne(raw)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		out = append(out, groups...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no node group in it; give the output of %s", Accepted)
	}
	return out, nil
}

// readOne reads one document by what it holds.
func readOne(raw json.RawMessage) ([]Group, error) {
	var d struct {
		Kind              string
		Nodegroup         *managed `json:"nodegroup"`
		AutoScalingGroups []scaled
	}
	if string(raw) == "null" {
		return nil, nil
	}
	if err := unmarshal(raw, &d); err != nil {
		return nil, err
	}
	switch {
	case d.Nodegroup != nil:
		return []Group{d.Nodegroup.group()}, nil
	case d.AutoScalingGroups != nil:
		var out []Group
		for _, s := range d.AutoScalingGroups {
			out = append(out, s.group())
		}
		return out, nil
	case d.Kind == "ClusterConfig":
		return readClusterConfig(raw)
	}
	return nil, errNoGroup
}

// unmarshal reads JSON. Its error names the field that has another type.
func unmarshal(raw json.RawMessage, to any) error {
	err := json.Unmarshal(raw, to)
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if ok && wrong.Field == "" {
		return errNoGroup
	}
	if ok {
		return fmt.Errorf("%s cannot be a %s", wrong.Field, wrong.Value)
	}
	return err
}

// A managed is EKS' description of a managed node group.
type managed struct {
	NodegroupName, ClusterName, CapacityType, AmiType, NodeRole string
	InstanceTypes, Subnets                                      []string
	DiskSize                                                    int64
	Labels, Tags                                                map[string]string
	Taints                                                      []struct{ Key, Value, Effect string }
	ScalingConfig                                               struct{ MinSize, MaxSize int }
	UpdateConfig                                                struct{ MaxUnavailable, MaxUnavailablePercentage int }
	LaunchTemplate                                              *struct{ Name, ID, Version string }
	RemoteAccess                                                *struct {
		Ec2SshKey            string
		SourceSecurityGroups []string
	}
}

// group returns the node group, and notes what has no equal.
func (m *managed) group() Group {
	g := Group{Name: m.NodegroupName, Cluster: m.ClusterName, Types: m.InstanceTypes, AMIType: m.AmiType,
		DiskGiB: m.DiskSize, Role: path.Base(m.NodeRole),
		SubnetIDs: m.Subnets, Labels: m.Labels, Tags: m.Tags, Min: m.ScalingConfig.MinSize, Max: m.ScalingConfig.MaxSize}
	if m.NodeRole == "" {
		g.Role = ""
	}
	switch m.CapacityType {
	case "SPOT":
		g.CapacityTypes = []string{v1.CapacityTypeSpot}
	case "CAPACITY_BLOCK":
		g.CapacityTypes = []string{v1.CapacityTypeReserved}
		g.lose("name the capacity block in capacityReservationSelectorTerms")
	default:
		g.CapacityTypes = []string{v1.CapacityTypeOnDemand}
	}
	for _, t := range m.Taints {
		effect := map[string]corev1.TaintEffect{"NO_SCHEDULE": corev1.TaintEffectNoSchedule, "NO_EXECUTE": corev1.TaintEffectNoExecute,
			"PREFER_NO_SCHEDULE": corev1.TaintEffectPreferNoSchedule}[t.Effect]
		g.Taints = append(g.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: cmp.Or(effect, corev1.TaintEffect(t.Effect))})
	}
	switch u := m.UpdateConfig; {
	case u.MaxUnavailable > 0:
		g.Unavailable = strconv.Itoa(u.MaxUnavailable)
	case u.MaxUnavailablePercentage > 0:
		g.Unavailable = fmt.Sprintf("%d%%", u.MaxUnavailablePercentage)
	}
	if t := m.LaunchTemplate; t != nil {
		g.lose("launch template %s, version %s: copy its user data, security groups, disks and metadata options to the "+
			"EC2NodeClass by hand", t.Name+t.ID, t.Version)
	}
	if m.RemoteAccess != nil && m.RemoteAccess.Ec2SshKey != "" {
		g.lose("SSH key %s: nodes have none; use Session Manager", m.RemoteAccess.Ec2SshKey)
	}
	return g
}

// A scaled is EC2 Auto Scaling's description of a group.
type scaled struct {
	AutoScalingGroupName, VPCZoneIdentifier string
	AvailabilityZones                       []string
	MinSize, MaxSize                        int
	Tags                                    []struct{ Key, Value string }
	MixedInstancesPolicy                    *struct {
		LaunchTemplate struct {
			Overrides []struct {
				InstanceType         string
				InstanceRequirements json.RawMessage
			}
		}
		InstancesDistribution struct {
			OnDemandBaseCapacity                int
			OnDemandPercentageAboveBaseCapacity *int
		}
	}
	Instances []struct{ InstanceType string }
}

// Tags that Cluster Autoscaler reads of a group.
const (
	autoscalerLabel = "k8s.io/cluster-autoscaler/node-template/label/"
	autoscalerTaint = "k8s.io/cluster-autoscaler/node-template/taint/"
	ownedCluster    = "kubernetes.io/cluster/"
)

// group returns the node group, and notes what has no equal. Labels and taints are in tags for Cluster Autoscaler.
func (s *scaled) group() Group {
	g := Group{Name: s.AutoScalingGroupName, Zones: s.AvailabilityZones, Min: s.MinSize, Max: s.MaxSize,
		CapacityTypes: []string{v1.CapacityTypeOnDemand}}
	if s.VPCZoneIdentifier != "" {
		g.SubnetIDs = strings.Split(s.VPCZoneIdentifier, ",")
	}
	s.mix(&g)
	if len(g.Types) == 0 { // then what runs says which types it has
		for _, i := range s.Instances {
			if !slices.Contains(g.Types, i.InstanceType) {
				g.Types = append(g.Types, i.InstanceType)
			}
		}
	}
	for _, t := range s.Tags {
		switch {
		case strings.HasPrefix(t.Key, autoscalerLabel):
			g.label(strings.TrimPrefix(t.Key, autoscalerLabel), t.Value)
		case strings.HasPrefix(t.Key, autoscalerTaint):
			value, effect, _ := strings.Cut(t.Value, ":")
			g.Taints = append(g.Taints, corev1.Taint{Key: strings.TrimPrefix(t.Key, autoscalerTaint), Value: value,
				Effect: corev1.TaintEffect(effect)})
		case strings.HasPrefix(t.Key, ownedCluster):
			g.Cluster = strings.TrimPrefix(t.Key, ownedCluster)
		case strings.HasPrefix(t.Key, "k8s.io/cluster-autoscaler/") || t.Key == "Name":
		default:
			g.tag(t.Key, t.Value)
		}
	}
	g.lose("its launch template is not in the description of the group: image, role, user data, disks and security " +
		"groups are to be filled in")
	return g
}

// mix reads which types the group mixes, and how they are bought.
func (s *scaled) mix(g *Group) {
	m := s.MixedInstancesPolicy
	if m == nil {
		return
	}
	for _, o := range m.LaunchTemplate.Overrides {
		if o.InstanceType != "" {
			g.Types = append(g.Types, o.InstanceType)
		}
		if len(o.InstanceRequirements) > 0 {
			g.lose("its instance requirements by attribute: say them as requirements of the NodePool (instance-cpu, instance-memory, …)")
		}
	}
	d := m.InstancesDistribution
	switch share := d.OnDemandPercentageAboveBaseCapacity; {
	case share == nil || *share == 100:
	case *share == 0 && d.OnDemandBaseCapacity == 0:
		g.CapacityTypes = []string{v1.CapacityTypeSpot}
	default:
		g.CapacityTypes = []string{v1.CapacityTypeSpot, v1.CapacityTypeOnDemand}
		g.lose("its share of on-demand (%d and %d %% above): the cheaper one is bought; two pools with weights and "+
			"limits, or a spread over karpenter.sh/capacity-type, keep a share", d.OnDemandBaseCapacity, *share)
	}
}

func (g *Group) label(key, value string) {
	if g.Labels == nil {
		g.Labels = map[string]string{}
	}
	g.Labels[key] = value
}

func (g *Group) tag(key, value string) {
	if g.Tags == nil {
		g.Tags = map[string]string{}
	}
	g.Tags[key] = value
}
