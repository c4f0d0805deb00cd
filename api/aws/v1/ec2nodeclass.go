package v1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EC2NodeClass says how machines are built on AWS: image, network, identity, disks and kubelet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ec2nodeclasses,singular=ec2nodeclass,scope=Cluster,shortName={ec2nc,ec2ncs},categories=karpenter
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether nodes can be launched from it"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Role",type="string",JSONPath=".spec.role",priority=1,description="IAM role of the nodes"
type EC2NodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +required
	Spec EC2NodeClassSpec `json:"spec"`
	// Status is what the selectors of the spec were found to mean.
	// +optional
	Status EC2NodeClassStatus `json:"status,omitempty"`
}

// EC2NodeClassList is a list of EC2NodeClasses.
//
// +kubebuilder:object:root=true
type EC2NodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EC2NodeClass `json:"items"`
}

// EC2NodeClassSpec is how machines are built.
//
// +kubebuilder:validation:XValidation:rule="has(self.role) != has(self.instanceProfile)",message="exactly one of role and instanceProfile must be set"
// +kubebuilder:validation:XValidation:rule="has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))",message="amiFamily must be set if amiSelectorTerms has no alias"
// +karpenter:amiFamilyMatchesAlias
type EC2NodeClassSpec struct {
	// SubnetSelectorTerms select the subnets that nodes may be launched into. Terms are ORed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="!self.all(t, has(t.id) && has(t.tags))",message="id may not be combined with tags"
	// +listType=atomic
	// +required
	SubnetSelectorTerms []SubnetSelectorTerm `json:"subnetSelectorTerms"`
	// SecurityGroupSelectorTerms select the security groups of the nodes. Terms are ORed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="!self.all(t, has(t.id) && (has(t.tags) || has(t.name)))",message="id may not be combined with tags or name"
	// +kubebuilder:validation:XValidation:rule="!self.all(t, has(t.name) && (has(t.tags) || has(t.id)))",message="name may not be combined with tags or id"
	// +listType=atomic
	// +required
	SecurityGroupSelectorTerms []SecurityGroupSelectorTerm `json:"securityGroupSelectorTerms"`
	// CapacityReservationSelectorTerms select the capacity reservations that nodes may use. Terms are ORed.
	// They are used only while the feature gate ReservedCapacity is on.
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || !self.all(t, has(t.id) && (has(t.tags) || has(t.ownerID) || has(t.instanceMatchCriteria)))",message="id may not be combined with tags, ownerID or instanceMatchCriteria"
	// +listType=atomic
	// +optional
	CapacityReservationSelectorTerms []CapacityReservationSelectorTerm `json:"capacityReservationSelectorTerms,omitempty"`
	// PlacementGroupSelector names the placement group that nodes are launched into.
	// +optional
	PlacementGroupSelector *PlacementGroupSelector `json:"placementGroupSelector,omitempty"`
	// AssociatePublicIPAddress reports whether nodes get a public address. If it is not set, the subnet decides.
	// +optional
	AssociatePublicIPAddress *bool `json:"associatePublicIPAddress,omitempty"`
	// IPPrefixCount is the number of address prefixes given to a node's primary interface.
	// +kubebuilder:validation:Minimum=0
	// +optional
	IPPrefixCount *int32 `json:"ipPrefixCount,omitempty"`
	// AMISelectorTerms select the machine images of the nodes. Terms are ORed; an alias must stand alone.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="!self.exists(t, has(t.alias)) || self.size() == 1",message="a term with alias must be the only term"
	// +listType=atomic
	// +required
	AMISelectorTerms []AMISelectorTerm `json:"amiSelectorTerms"`
	// AMIFamily says how user data is written and which disks a node has by default. It is needed unless an alias names the
	// family; with an alias it may only repeat that family or be Custom.
	// +kubebuilder:validation:Enum=AL2;AL2023;Bottlerocket;Custom;Windows2019;Windows2022;Windows2025
	// +optional
	AMIFamily *string `json:"amiFamily,omitempty"`
	// UserData is given to the machine when it boots, merged with what the AMI family needs to join the cluster.
	// +optional
	UserData *string `json:"userData,omitempty"`
	// Role is the IAM role of the nodes; instance profiles for it are made and removed by Karpenter. A path before
	// the name is allowed. Either role or instanceProfile must be set.
	// +kubebuilder:validation:XValidation:rule="self != ''",message="role may not be empty"
	// +optional
	Role string `json:"role,omitempty"`
	// InstanceProfile is an existing instance profile that the nodes use. Either role or instanceProfile must be set.
	// +kubebuilder:validation:XValidation:rule="self != ''",message="instanceProfile may not be empty"
	// +optional
	InstanceProfile *string `json:"instanceProfile,omitempty"`
	// Tags are put on everything that is made for the nodes in EC2: instances, volumes, network interfaces, spot requests,
	// fleets, launch templates, and instance profiles.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != '')",message="tag keys may not be empty"
	// +karpenter:restrictedTags
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// Kubelet is the kubelet's configuration, in the form of kubelet.config.k8s.io/v1beta1. Karpenter takes clusterDNS,
	// maxPods, podsPerCore, systemReserved, kubeReserved, evictionHard, evictionSoft, evictionSoftGracePeriod,
	// evictionMaxPodGracePeriod, imageGCHighThresholdPercent, imageGCLowThresholdPercent and cpuCFSQuota into account;
	// AL2023 nodes get every other field unchanged. What the kubelet or the AMI family would not accept is
	// reported by the condition ValidationSucceeded.
	// +optional
	Kubelet *KubeletConfiguration `json:"kubelet,omitempty"`
	// BlockDeviceMappings are the disks of the nodes. If there are any, they replace those of the AMI family.
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.filter(m, has(m.rootVolume) && m.rootVolume).size() <= 1",message="at most one mapping may have rootVolume: true"
	// +listType=atomic
	// +optional
	BlockDeviceMappings []*BlockDeviceMapping `json:"blockDeviceMappings,omitempty"`
	// InstanceStorePolicy says what happens with local disks. RAID0 joins them to one for pods' ephemeral storage.
	// +optional
	InstanceStorePolicy *InstanceStorePolicy `json:"instanceStorePolicy,omitempty"`
	// NetworkInterfaces of the nodes; they replace the single default interface. Card 0, device 0 must be of type interface.
	// +kubebuilder:validation:MaxItems=150
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.exists(n, n.networkCardIndex == 0 && n.deviceIndex == 0 && n.interfaceType == 'interface')",message="an interface of type interface is needed at networkCardIndex 0, deviceIndex 0"
	// +kubebuilder:validation:XValidation:rule="self.all(n, self.filter(o, o.networkCardIndex == n.networkCardIndex && o.deviceIndex == n.deviceIndex).size() == 1)",message="each pair of networkCardIndex and deviceIndex may be used once"
	// +kubebuilder:validation:XValidation:rule="self.all(n, n.interfaceType != 'efa-only' || self.filter(o, o.interfaceType == 'efa-only' && o.networkCardIndex == n.networkCardIndex).size() == 1)",message="a network card may have at most one efa-only interface"
	// +listType=atomic
	// +optional
	NetworkInterfaces []*NetworkInterface `json:"networkInterfaces,omitempty"`
	// DetailedMonitoring switches on CloudWatch metrics at one-minute intervals.
	// +optional
	DetailedMonitoring *bool `json:"detailedMonitoring,omitempty"`
	// MetadataOptions say how the instance metadata service of a node can be reached.
	// +kubebuilder:default={httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: required}
	// +optional
	MetadataOptions *MetadataOptions `json:"metadataOptions,omitempty"`
	// ConnectionTracking sets how long security groups remember idle connections. Only Nitro instance types can do it.
	// +optional
	ConnectionTracking *ConnectionTracking `json:"connectionTracking,omitempty"`
	// EnclaveOptions switch AWS Nitro Enclaves on. Only some instance types can run them.
	// +optional
	EnclaveOptions *EnclaveOptions `json:"enclaveOptions,omitempty"`
	// Context is passed to EC2 as the context of each fleet request.
	// +optional
	Context *string `json:"context,omitempty"`
	// CPUOptions of the nodes.
	// +optional
	CPUOptions *CPUOptions `json:"cpuOptions,omitempty"`
}

// SubnetSelectorTerm selects subnets; what it names is ANDed.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) || (has(self.tags) && self.tags.size() > 0)",message="one of tags and id must be set"
type SubnetSelectorTerm struct {
	// Tags that the subnet must have; the value "*" accepts any.
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != '' && self[k] != '')",message="tag keys and values may not be empty"
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="tags may not be an empty map: leave it out or name a tag"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the subnet.
	// +kubebuilder:validation:Pattern=`subnet-[0-9a-z]+`
	// +optional
	ID string `json:"id,omitempty"`
}

// SecurityGroupSelectorTerm selects security groups; what it names is ANDed.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) || has(self.name) || (has(self.tags) && self.tags.size() > 0)",message="one of tags, id and name must be set"
type SecurityGroupSelectorTerm struct {
	// Tags that the security group must have; the value "*" accepts any.
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != '' && self[k] != '')",message="tag keys and values may not be empty"
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="tags may not be an empty map: leave it out or name a tag"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the security group.
	// +kubebuilder:validation:Pattern=`sg-[0-9a-z]+`
	// +optional
	ID string `json:"id,omitempty"`
	// Name is the group's own name, not its tag "Name".
	// +optional
	Name string `json:"name,omitempty"`
}

// CapacityReservationSelectorTerm selects capacity reservations; what it names is ANDed.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) || has(self.instanceMatchCriteria) || (has(self.tags) && self.tags.size() > 0)",message="one of tags, id and instanceMatchCriteria must be set"
type CapacityReservationSelectorTerm struct {
	// Tags that the reservation must have; the value "*" accepts any.
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != '' && self[k] != '')",message="tag keys and values may not be empty"
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="tags may not be an empty map: leave it out or name a tag"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the reservation.
	// +kubebuilder:validation:Pattern=`^cr-[0-9a-z]+$`
	// +optional
	ID string `json:"id,omitempty"`
	// OwnerID is the account that owns the reservation.
	// +kubebuilder:validation:Pattern=`^[0-9]{12}$`
	// +optional
	OwnerID string `json:"ownerID,omitempty"`
	// InstanceMatchCriteria is how the reservation is used: by every matching instance (open), or by those that name
	// it (targeted).
	// +kubebuilder:validation:Enum=open;targeted
	// +optional
	InstanceMatchCriteria string `json:"instanceMatchCriteria,omitempty"`
}

// PlacementGroupSelector names a placement group.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.id)",message="exactly one of name and id must be set"
type PlacementGroupSelector struct {
	// Name of the placement group.
	// +kubebuilder:validation:MinLength=1
	// +optional
	Name string `json:"name,omitempty"`
	// ID of the placement group.
	// +kubebuilder:validation:Pattern=`^pg-[0-9a-z]+$`
	// +optional
	ID string `json:"id,omitempty"`
}

// AMISelectorTerm selects machine images; what it names is ANDed.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) || has(self.name) || has(self.alias) || has(self.ssmParameter) || (has(self.tags) && self.tags.size() > 0)",message="one of tags, id, name, alias and ssmParameter must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.id) || !(has(self.alias) || has(self.tags) || has(self.name) || has(self.owner))",message="id may not be combined with alias, tags, name or owner"
// +kubebuilder:validation:XValidation:rule="!has(self.alias) || !(has(self.id) || has(self.tags) || has(self.name) || has(self.owner))",message="alias may not be combined with id, tags, name or owner"
type AMISelectorTerm struct {
	// Alias names an image that AWS publishes for EKS, as family@version: the family is al2, al2023, bottlerocket, windows2019,
	// windows2022 or windows2025; the version is that of a release, or latest. Windows knows latest only.
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9]+@[^@]+$`
	// +kubebuilder:validation:XValidation:rule="self.split('@')[0] in ['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']",message="the family of an alias must be al2, al2023, bottlerocket, windows2019, windows2022 or windows2025"
	// +kubebuilder:validation:XValidation:rule="!(self.split('@')[0] in ['windows2019', 'windows2022', 'windows2025']) || self.endsWith('@latest')",message="the version of a Windows alias must be latest"
	// +optional
	Alias string `json:"alias,omitempty"`
	// Tags that the image must have; the value "*" accepts any.
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != '' && self[k] != '')",message="tag keys and values may not be empty"
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="tags may not be an empty map: leave it out or name a tag"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the image.
	// +kubebuilder:validation:Pattern=`ami-[0-9a-z]+`
	// +optional
	ID string `json:"id,omitempty"`
	// Name of the image; "*" and "?" stand for any text and any character.
	// +optional
	Name string `json:"name,omitempty"`
	// Owner of the image: an account, self, amazon or aws-marketplace. It counts together with name or tags only.
	// +optional
	Owner string `json:"owner,omitempty"`
	// SSMParameter is the name or ARN of an SSM parameter that holds the id of an image.
	// +optional
	SSMParameter string `json:"ssmParameter,omitempty"`
}

// InstanceStorePolicy says what happens with local disks.
//
// +kubebuilder:validation:Enum=RAID0
type InstanceStorePolicy string

// InstanceStorePolicyRAID0 joins all local disks to one.
const InstanceStorePolicyRAID0 InstanceStorePolicy = "RAID0"

// BlockDeviceMapping is one disk of a node.
type BlockDeviceMapping struct {
	// DeviceName is what EC2 calls the disk, "/dev/xvda" for instance.
	// +optional
	DeviceName *string `json:"deviceName,omitempty"`
	// EBS says what the disk is.
	// +kubebuilder:validation:XValidation:rule="has(self.snapshotID) || has(self.volumeSize)",message="one of snapshotID and volumeSize must be set"
	// +kubebuilder:validation:XValidation:rule="!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",message="volumeInitializationRate needs snapshotID"
	// +optional
	EBS *BlockDevice `json:"ebs,omitempty"`
	// RootVolume marks the disk whose size counts as the node's ephemeral storage.
	// +optional
	RootVolume bool `json:"rootVolume,omitempty"`
}

// BlockDevice is an EBS volume.
type BlockDevice struct {
	// DeleteOnTermination reports whether the volume goes with the machine.
	// +optional
	DeleteOnTermination *bool `json:"deleteOnTermination,omitempty"`
	// Encrypted reports whether the volume is encrypted.
	// +optional
	Encrypted *bool `json:"encrypted,omitempty"`
	// IOPS that the volume provides.
	// +optional
	IOPS *int64 `json:"iops,omitempty"`
	// KMSKeyID is the key that the volume is encrypted with.
	// +optional
	KMSKeyID *string `json:"kmsKeyID,omitempty"`
	// SnapshotID is the snapshot that the volume is made from.
	// +optional
	SnapshotID *string `json:"snapshotID,omitempty"`
	// Throughput of the volume in MiB/s.
	// +optional
	Throughput *int64 `json:"throughput,omitempty"`
	// VolumeInitializationRate is how fast the snapshot's blocks are loaded, in MiB/s.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=300
	// +optional
	VolumeInitializationRate *int32 `json:"volumeInitializationRate,omitempty"`
	// VolumeSize is a whole number of Gi (1 to 59000), G (1 to 64000), Ti (1 to 58) or T (1 to 64).
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Pattern=`^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$`
	// +optional
	VolumeSize *resource.Quantity `json:"volumeSize,omitempty"`
	// VolumeType of the volume.
	// +kubebuilder:validation:Enum=standard;io1;io2;gp2;sc1;st1;gp3
	// +optional
	VolumeType *string `json:"volumeType,omitempty"`
}

// InterfaceType says what a network interface can do.
//
// +kubebuilder:validation:Enum=interface;efa-only
type InterfaceType string

// The interface types.
const (
	InterfaceTypeInterface InterfaceType = "interface"
	InterfaceTypeEFAOnly   InterfaceType = "efa-only"
)

// NetworkInterface is one network interface of a node.
type NetworkInterface struct {
	// NetworkCardIndex is the network card that the interface is on.
	// +kubebuilder:validation:Minimum=0
	// +required
	NetworkCardIndex int32 `json:"networkCardIndex"`
	// DeviceIndex is the interface's place on its card.
	// +kubebuilder:validation:Minimum=0
	// +required
	DeviceIndex int32 `json:"deviceIndex"`
	// InterfaceType is interface, or efa-only for an interface that carries no IP traffic.
	// +required
	InterfaceType InterfaceType `json:"interfaceType"`
}

// MetadataOptions say how the instance metadata service can be reached.
type MetadataOptions struct {
	// HTTPEndpoint switches the service on or off.
	// +kubebuilder:validation:Enum=enabled;disabled
	// +kubebuilder:default=enabled
	// +optional
	HTTPEndpoint *string `json:"httpEndpoint,omitempty"`
	// HTTPProtocolIPv6 switches the service's IPv6 address on or off.
	// +kubebuilder:validation:Enum=enabled;disabled
	// +kubebuilder:default=disabled
	// +optional
	HTTPProtocolIPv6 *string `json:"httpProtocolIPv6,omitempty"`
	// HTTPPutResponseHopLimit is the number of network hops that answers may travel; pods need 2.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=1
	// +optional
	HTTPPutResponseHopLimit *int64 `json:"httpPutResponseHopLimit,omitempty"`
	// HTTPTokens reports whether session tokens (IMDSv2) are required.
	// +kubebuilder:validation:Enum=required;optional
	// +kubebuilder:default=required
	// +optional
	HTTPTokens *string `json:"httpTokens,omitempty"`
}

// ConnectionTracking sets how long security groups remember idle connections.
//
// +kubebuilder:validation:XValidation:rule="has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",message="one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout must be set"
type ConnectionTracking struct {
	// TCPEstablishedTimeout for established TCP connections, in seconds.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=432000
	// +optional
	TCPEstablishedTimeout *int32 `json:"tcpEstablishedTimeout,omitempty"`
	// UDPStreamTimeout for UDP flows that saw more than one request and response, in seconds.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=180
	// +optional
	UDPStreamTimeout *int32 `json:"udpStreamTimeout,omitempty"`
	// UDPTimeout for other UDP flows, in seconds.
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=60
	// +optional
	UDPTimeout *int32 `json:"udpTimeout,omitempty"`
}

// EnclaveOptions say whether a node can run AWS Nitro Enclaves.
type EnclaveOptions struct {
	// Enabled lets the node run enclaves. Only instance types that support them are launched then.
	// +required
	Enabled bool `json:"enabled"`
}

// CPUOptions of a node.
type CPUOptions struct {
	// NestedVirtualization reports whether virtual machines can run on the node. Only some instance types can do it.
	// +kubebuilder:validation:Enum=enabled;disabled
	// +optional
	NestedVirtualization *string `json:"nestedVirtualization,omitempty"`
}

// EC2NodeClassStatus is what the selectors of the spec were found to mean.
type EC2NodeClassStatus struct {
	// Subnets that nodes may be launched into, those with the most free addresses first.
	// +optional
	Subnets []Subnet `json:"subnets,omitempty"`
	// SecurityGroups of the nodes.
	// +optional
	SecurityGroups []SecurityGroup `json:"securityGroups,omitempty"`
	// CapacityReservations that nodes may use.
	// +optional
	CapacityReservations []CapacityReservation `json:"capacityReservations,omitempty"`
	// PlacementGroup that nodes are launched into; it is missing when none is selected or the selected one was not found.
	// +optional
	PlacementGroup *PlacementGroup `json:"placementGroup,omitempty"`
	// AMIs that nodes are launched from, newest first. The first one whose requirements a machine satisfies is used for it.
	// +optional
	AMIs []AMI `json:"amis,omitempty"`
	// RecentAMIs are the last AMIs that were found, those in use among them, last found first. A RolloutPolicy goes back to no others.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	RecentAMIs []RecentAMI `json:"recentAMIs,omitempty"`
	// InstanceProfile that nodes use.
	// +optional
	InstanceProfile string `json:"instanceProfile,omitempty"`
	// Conditions say whether nodes can be launched, and if not, why.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Subnet is a subnet that was found.
type Subnet struct {
	// ID of the subnet.
	// +required
	ID string `json:"id"`
	// Zone of the subnet.
	// +required
	Zone string `json:"zone"`
	// ZoneID is the zone's name across accounts.
	// +optional
	ZoneID string `json:"zoneID,omitempty"`
}

// SecurityGroup is a security group that was found.
type SecurityGroup struct {
	// ID of the security group.
	// +required
	ID string `json:"id"`
	// Name of the security group.
	// +optional
	Name string `json:"name,omitempty"`
}

// PlacementGroup is a placement group that was found.
type PlacementGroup struct {
	// ID of the placement group.
	// +required
	ID string `json:"id"`
	// Name of the placement group.
	// +optional
	Name string `json:"name,omitempty"`
	// Strategy by which EC2 places machines: cluster, partition or spread.
	// +required
	Strategy string `json:"strategy"`
	// PartitionCount is the number of partitions, for the strategy partition.
	// +optional
	PartitionCount int32 `json:"partitionCount,omitempty"`
}

// The placement strategies.
const (
	PlacementStrategyCluster   = "cluster"
	PlacementStrategyPartition = "partition"
	PlacementStrategySpread    = "spread"
)

// AMI is a machine image that was found.
type AMI struct {
	// ID of the image.
	// +required
	ID string `json:"id"`
	// Deprecated says that the image's owner no longer recommends it.
	// +optional
	Deprecated bool `json:"deprecated,omitempty"`
	// Name of the image.
	// +optional
	Name string `json:"name,omitempty"`
	// Requirements that a machine must satisfy for this image.
	// +required
	Requirements []corev1.NodeSelectorRequirement `json:"requirements"`
}

// MaxRecentAMIs is how many images the status of a class remembers.
const MaxRecentAMIs = 50

// RecentAMI is a machine image that was found for a family of nodes.
type RecentAMI struct {
	AMI `json:",inline"`
	// Family of the class when the image was found: user data is written for it.
	// +required
	Family string `json:"family"`
}

// CapacityReservationType is the kind of a capacity reservation.
//
// +kubebuilder:validation:Enum=default;capacity-block
type CapacityReservationType string

// The capacity reservation types.
const (
	CapacityReservationTypeDefault       CapacityReservationType = "default"
	CapacityReservationTypeCapacityBlock CapacityReservationType = "capacity-block"
)

// CapacityReservationState is the state of a capacity reservation that can be used.
//
// +kubebuilder:validation:Enum=active;expiring
type CapacityReservationState string

// The capacity reservation states.
const (
	CapacityReservationStateActive   CapacityReservationState = "active"
	CapacityReservationStateExpiring CapacityReservationState = "expiring"
)

// CapacityReservation is a capacity reservation that was found.
type CapacityReservation struct {
	// AvailabilityZone that the reservation is in.
	// +required
	AvailabilityZone string `json:"availabilityZone"`
	// EndTime is when the reservation ends; it is missing if it does not.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// ID of the reservation.
	// +kubebuilder:validation:Pattern=`^cr-[0-9a-z]+$`
	// +required
	ID string `json:"id"`
	// InstanceMatchCriteria is how the reservation is used: open or targeted.
	// +kubebuilder:validation:Enum=open;targeted
	// +required
	InstanceMatchCriteria string `json:"instanceMatchCriteria"`
	// InstanceType that is reserved.
	// +required
	InstanceType string `json:"instanceType"`
	// OwnerID is the account that owns the reservation.
	// +kubebuilder:validation:Pattern=`^[0-9]{12}$`
	// +required
	OwnerID string `json:"ownerID"`
	// ReservationType is default or capacity-block.
	// +kubebuilder:default=default
	// +optional
	ReservationType CapacityReservationType `json:"reservationType,omitempty"`
	// Interruptible says that EC2 may take the machines back.
	// +optional
	Interruptible bool `json:"interruptible,omitempty"`
	// State is active, or expiring shortly before a capacity block ends.
	// +kubebuilder:default=active
	// +optional
	State CapacityReservationState `json:"state,omitempty"`
}

// The AMI families.
const (
	AMIFamilyAL2          = "AL2"
	AMIFamilyAL2023       = "AL2023"
	AMIFamilyBottlerocket = "Bottlerocket"
	AMIFamilyCustom       = "Custom"
	AMIFamilyWindows2019  = "Windows2019"
	AMIFamilyWindows2022  = "Windows2022"
	AMIFamilyWindows2025  = "Windows2025"
)

// AliasFamilies returns the AMI families that an alias can name, by the word that stands for them in an alias.
func AliasFamilies() map[string]string {
	return map[string]string{
		"al2": AMIFamilyAL2, "al2023": AMIFamilyAL2023, "bottlerocket": AMIFamilyBottlerocket,
		"windows2019": AMIFamilyWindows2019, "windows2022": AMIFamilyWindows2022, "windows2025": AMIFamilyWindows2025,
	}
}

// Alias is the parsed form of AMISelectorTerm.Alias.
type Alias struct {
	Family  string // one of the AMI families; "" if the alias names none that is known
	Version string
}

// AliasVersionLatest is the version that follows new releases.
const AliasVersionLatest = "latest"

// Alias returns the alias that selects the images, nil if none does.
func (c *EC2NodeClass) Alias() *Alias {
	for _, term := range c.Spec.AMISelectorTerms {
		if term.Alias == "" {
			continue
		}
		word, version, _ := strings.Cut(term.Alias, "@")
		return &Alias{Family: AliasFamilies()[word], Version: version}
	}
	return nil
}

// AMIFamily returns the family that nodes are built for: spec.amiFamily if it is set, else the alias's, else Custom.
func (c *EC2NodeClass) AMIFamily() string {
	if c.Spec.AMIFamily != nil {
		return *c.Spec.AMIFamily
	}
	if alias := c.Alias(); alias != nil && alias.Family != "" {
		return alias.Family
	}
	return AMIFamilyCustom
}
