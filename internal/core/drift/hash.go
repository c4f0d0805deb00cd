package drift

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Versions of the hashes. A version stands for one set of mirror structs and one way to hash them: whoever changes either
// gives it a new text, and the hash controllers then rewrite what is stored instead of drifting the fleet.
const (
	PoolHashVersion  = "go1"
	ClassHashVersion = "go1"
)

// A Stamp is a hash and its version, as annotations hold them.
type Stamp struct{ Hash, Version string }

// The mirror structs are what is hashed. They never change under one version. Absent means omitted; a set has one order.

type poolMirror struct {
	Labels                 map[string]string `json:"labels,omitempty"`
	Annotations            map[string]string `json:"annotations,omitempty"`
	Taints                 []taintMirror     `json:"taints,omitempty"`
	StartupTaints          []taintMirror     `json:"startupTaints,omitempty"`
	NodeClass              *classRefMirror   `json:"nodeClassRef,omitempty"`
	TerminationGracePeriod *time.Duration    `json:"terminationGracePeriod,omitempty"`
	ExpireAfter            *time.Duration    `json:"expireAfter,omitempty"`
	Kubelet                string            `json:"kubelet,omitempty"` // of pools that v1beta1 wrote
}

type taintMirror struct {
	Key    string `json:"key,omitempty"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect,omitempty"`
}

type classRefMirror struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Name  string `json:"name,omitempty"`
}

// PoolStamp hashes what of a pool's template makes nodes what they are: labels, annotations, taints, node class, the times
// that claims take over, and the kubelet that v1beta1 kept with the pool. Requirements are judged by Requirements, and the rest of a pool says nothing about its nodes.
func PoolStamp(pool *v1.NodePool) Stamp {
	template := &pool.Spec.Template
	mirror := poolMirror{
		Labels:        template.Labels,
		Annotations:   template.Annotations,
		Taints:        taintMirrors(template.Spec.Taints),
		StartupTaints: taintMirrors(template.Spec.StartupTaints),
		ExpireAfter:   template.Spec.ExpireAfter.Duration,
		Kubelet:       pool.Annotations[v1.KubeletCompatibilityAnnotationKey],
	}
	if ref := template.Spec.NodeClassRef; ref != nil {
		mirror.NodeClass = &classRefMirror{Group: ref.Group, Kind: ref.Kind, Name: ref.Name}
	}
	if period := template.Spec.TerminationGracePeriod; period != nil {
		mirror.TerminationGracePeriod = &period.Duration
	}
	return Stamp{Hash: digest(mirror), Version: PoolHashVersion}
}

func taintMirrors(taints []corev1.Taint) []taintMirror {
	out := make([]taintMirror, len(taints))
	for i, t := range taints {
		out[i] = taintMirror{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
	}
	return set(out)
}

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

// ClassStamp hashes what of a node class goes into a machine when it is launched, with the cluster's CA bundle, which every
// machine is given. What selectors find is compared by the provider, and left out here. It fails when the kubelet
// configuration is not an object.
func ClassStamp(class *awsv1.EC2NodeClass, caBundle string) (Stamp, error) {
	spec := &class.Spec
	kubelet, err := spec.Kubelet.Canonical()
	if err != nil {
		return Stamp{}, err
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
	if cpu := spec.CPUOptions; cpu != nil {
		mirror.NestedVirtualization = cpu.NestedVirtualization
	}
	return Stamp{Hash: digest(mirror), Version: ClassHashVersion}, nil
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
		out = append(out, string(canonical(mirror)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

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

// set puts taints into one order and takes out repetitions: their order in a list means nothing.
func set(taints []taintMirror) []taintMirror {
	slices.SortFunc(taints, func(a, b taintMirror) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Value, b.Value))
	})
	return slices.Compact(taints)
}

// digest is the first 64 bits of the SHA-256 of the mirror's JSON, in decimal.
func digest(mirror any) string {
	sum := sha256.Sum256(canonical(mirror))
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8]), 10)
}

// canonical writes a mirror as JSON. Mirrors hold nothing that JSON cannot say, so there is no error to report.
func canonical(mirror any) []byte {
	text, err := json.Marshal(mirror)
	if err != nil {
		panic("drift: mirror cannot be written as JSON: " + err.Error())
	}
	return text
}
