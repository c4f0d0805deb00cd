package class

import (
	"cmp"
	"slices"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/core/drift"
)

// hashVersion stands for one set of mirror structs and one way to hash them, as drift.PoolHashVersion does for pools.
const hashVersion = "go1"

// Stored reads the stamp of a node class from annotations, its own or a claim's. What is missing is "".
func Stored(annotations map[string]string) drift.Stamp {
	return drift.Stamp{
		Hash:    annotations[awsv1.AnnotationNodeClassHash],
		Version: annotations[awsv1.AnnotationNodeClassHashVersion],
	}
}

// The mirror structs are what is hashed. They never change under one version. Absent means omitted; a set has one order.

// A classMirror holds what is hashed of a class. Mirror structs never change under one hashVersion. Absent fields are
// omitted; a set is written in one order.
type classMirror struct {
	Family                   string                   `json:"family,omitempty"`
	CABundle                 string                   `json:"caBundle,omitempty"`
	Kubelet                  string                   `json:"kubelet,omitempty"`
	PlacementGroup           *placementGroupMirror    `json:"placementGroup,omitempty"`
	AssociatePublicIPAddress *bool                    `json:"associatePublicIPAddress,omitempty"`
	UserData                 *string                  `json:"userData,omitempty"`
	Role                     string                   `json:"role,omitempty"`
	InstanceProfile          *string                  `json:"instanceProfile,omitempty"`
	Tags                     map[string]string        `json:"tags,omitempty"`
	BlockDevices             []string                 `json:"blockDevices,omitempty"`
	InstanceStorePolicy      *string                  `json:"instanceStorePolicy,omitempty"`
	NetworkInterfaces        []networkInterfaceMirror `json:"networkInterfaces,omitempty"`
	DetailedMonitoring       *bool                    `json:"detailedMonitoring,omitempty"`
	Metadata                 *metadataMirror          `json:"metadata,omitempty"`
	ConnectionTracking       *trackingMirror          `json:"connectionTracking,omitempty"`
	Context                  *string                  `json:"context,omitempty"`
	NestedVirtualization     *string                  `json:"nestedVirtualization,omitempty"`
	Enclaves                 bool                     `json:"enclaves,omitempty"` // false is what a class without the option means
}

type placementGroupMirror struct {
	Name string `json:"name,omitempty"`
	ID   string `json:"id,omitempty"`
}

type blockDeviceMirror struct {
	DeviceName               *string `json:"deviceName,omitempty"`
	RootVolume               bool    `json:"rootVolume,omitempty"`
	EBS                      bool    `json:"ebs,omitempty"`
	DeleteOnTermination      *bool   `json:"deleteOnTermination,omitempty"`
	Encrypted                *bool   `json:"encrypted,omitempty"`
	IOPS                     *int64  `json:"iops,omitempty"`
	KMSKeyID                 *string `json:"kmsKeyID,omitempty"`
	SnapshotID               *string `json:"snapshotID,omitempty"`
	Throughput               *int64  `json:"throughput,omitempty"`
	VolumeInitializationRate *int32  `json:"volumeInitializationRate,omitempty"`
	VolumeSize               string  `json:"volumeSize,omitempty"`
	VolumeType               *string `json:"volumeType,omitempty"`
}

type networkInterfaceMirror struct {
	Card   int32  `json:"card"`
	Device int32  `json:"device"`
	Type   string `json:"type,omitempty"`
}

type metadataMirror struct {
	HTTPEndpoint            *string `json:"httpEndpoint,omitempty"`
	HTTPProtocolIPv6        *string `json:"httpProtocolIPv6,omitempty"`
	HTTPPutResponseHopLimit *int64  `json:"httpPutResponseHopLimit,omitempty"`
	HTTPTokens              *string `json:"httpTokens,omitempty"`
}

type trackingMirror struct {
	TCPEstablished *int32 `json:"tcpEstablished,omitempty"`
	UDPStream      *int32 `json:"udpStream,omitempty"`
	UDP            *int32 `json:"udp,omitempty"`
}

// stampOf hashes everything of a node class that goes into a machine at launch, with the cluster's CA bundle. What
// selectors find is compared by the provider, so it is left out. It fails if the kubelet configuration is not an
// object.
func stampOf(class *awsv1.EC2NodeClass, caBundle string) (drift.Stamp, error) {
	spec := &class.Spec
	kubelet, err := spec.Kubelet.Canonical()
	if err != nil {
		return drift.Stamp{}, err
	}
	mirror := classMirror{
		Family: class.AMIFamily(), CABundle: caBundle, Kubelet: kubelet,
		AssociatePublicIPAddress: spec.AssociatePublicIPAddress, UserData: spec.UserData,
		Role: spec.Role, InstanceProfile: spec.InstanceProfile, Tags: spec.Tags,
		BlockDevices: blockDevices(spec.BlockDeviceMappings), InstanceStorePolicy: (*string)(spec.InstanceStorePolicy),
		NetworkInterfaces: networkInterfaces(spec.NetworkInterfaces), DetailedMonitoring: spec.DetailedMonitoring,
		Context: spec.Context,
	}
	if group := spec.PlacementGroupSelector; group != nil {
		mirror.PlacementGroup = &placementGroupMirror{Name: group.Name, ID: group.ID}
	}
	if m := spec.MetadataOptions; m != nil {
		mirror.Metadata = &metadataMirror{m.HTTPEndpoint, m.HTTPProtocolIPv6, m.HTTPPutResponseHopLimit, m.HTTPTokens}
	}
	if c := spec.ConnectionTracking; c != nil {
		mirror.ConnectionTracking = &trackingMirror{c.TCPEstablishedTimeout, c.UDPStreamTimeout, c.UDPTimeout}
	}
	if e := spec.EnclaveOptions; e != nil {
		mirror.Enclaves = e.Enabled
	}
	if cpu := spec.CPUOptions; cpu != nil {
		mirror.NestedVirtualization = cpu.NestedVirtualization
	}
	return drift.Stamp{Hash: drift.Digest(mirror), Version: hashVersion}, nil
}

// blockDevices writes each mapping as text, so that the set of them has one order.
func blockDevices(mappings []*awsv1.BlockDeviceMapping) []string {
	var out []string
	for _, m := range mappings {
		if m == nil {
			continue
		}
		mirror := blockDeviceMirror{DeviceName: m.DeviceName, RootVolume: m.RootVolume}
		if e := m.EBS; e != nil {
			mirror.EBS = true
			mirror.DeleteOnTermination, mirror.Encrypted, mirror.IOPS = e.DeleteOnTermination, e.Encrypted, e.IOPS
			mirror.KMSKeyID, mirror.SnapshotID, mirror.Throughput = e.KMSKeyID, e.SnapshotID, e.Throughput
			mirror.VolumeInitializationRate, mirror.VolumeType = e.VolumeInitializationRate, e.VolumeType
			if e.VolumeSize != nil {
				mirror.VolumeSize = e.VolumeSize.String()
			}
		}
		out = append(out, string(drift.Canonical(mirror)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// networkInterfaces returns interfaces in one order, each once.
func networkInterfaces(interfaces []*awsv1.NetworkInterface) []networkInterfaceMirror {
	var out []networkInterfaceMirror
	for _, n := range interfaces {
		if n != nil {
			out = append(out, networkInterfaceMirror{Card: n.NetworkCardIndex, Device: n.DeviceIndex, Type: string(n.InterfaceType)})
		}
	}
	slices.SortFunc(out, func(a, b networkInterfaceMirror) int {
		return cmp.Or(cmp.Compare(a.Card, b.Card), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Type, b.Type))
	})
	return slices.Compact(out)
}
