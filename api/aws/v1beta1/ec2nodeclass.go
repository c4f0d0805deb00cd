// Package v1beta1 is the API version karpenter.k8s.aws/v1beta1: EC2NodeClass as its authors wrote it before v1. Nothing is stored in it
// and no loop reads it. The types are there for the schema that is generated from them; what v1 understands as well has the
// types and rules of v1.
//
// +groupName=karpenter.k8s.aws
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

// EC2NodeClass says how machines are built on AWS: image, network, identity and disks.
//
// +kubebuilder:resource:path=ec2nodeclasses,singular=ec2nodeclass,scope=Cluster,shortName={ec2nc,ec2ncs},categories=karpenter
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="karpenter.k8s.aws/v1beta1 EC2NodeClass is kept as karpenter.k8s.aws/v1; \"karpenter convert -f FILE\" writes the v1 manifest"
type EC2NodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +kubebuilder:validation:XValidation:rule="self.amiFamily != 'Custom' || (has(self.amiSelectorTerms) && self.amiSelectorTerms.size() > 0)",message="amiSelectorTerms is required when amiFamily == 'Custom'"
	// +kubebuilder:validation:XValidation:rule="!(has(self.role) && has(self.instanceProfile))",message="must specify exactly one of ['role', 'instanceProfile']: delete the line instanceProfile to let Karpenter make a profile for the role, or the line role to use the profile"
	// +kubebuilder:validation:XValidation:rule="has(self.role) || has(self.instanceProfile)",message="must specify exactly one of ['role', 'instanceProfile']: add role, the IAM role of the nodes, or instanceProfile"
	// +kubebuilder:validation:XValidation:rule="has(oldSelf.role) == has(self.role)",message="changing between role and instanceProfile is not supported: make another EC2NodeClass"
	// +required
	Spec EC2NodeClassSpec `json:"spec"`
	// Status is what the selectors of the spec were found to mean.
	// +optional
	Status awsv1.EC2NodeClassStatus `json:"status,omitempty"`
}

// EC2NodeClassSpec is how machines are built.
type EC2NodeClassSpec struct {
	// SubnetSelectorTerms select the subnets that nodes may be launched into. Terms are ORed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="!self.all(t, has(t.id) && has(t.tags))",message="id may not be combined with tags"
	// +listType=atomic
	// +required
	SubnetSelectorTerms []awsv1.SubnetSelectorTerm `json:"subnetSelectorTerms"`
	// SecurityGroupSelectorTerms select the security groups of the nodes. Terms are ORed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="!self.all(t, has(t.id) && (has(t.tags) || has(t.name)))",message="id may not be combined with tags or name"
	// +kubebuilder:validation:XValidation:rule="!self.all(t, has(t.name) && (has(t.tags) || has(t.id)))",message="name may not be combined with tags or id"
	// +listType=atomic
	// +required
	SecurityGroupSelectorTerms []awsv1.SecurityGroupSelectorTerm `json:"securityGroupSelectorTerms"`
	// AssociatePublicIPAddress reports whether nodes get a public address. If it is not set, the subnet decides.
	// +optional
	AssociatePublicIPAddress *bool `json:"associatePublicIPAddress,omitempty"`
	// AMISelectorTerms select the machine images of the nodes. Terms are ORed. Without any, the newest images of the family are used.
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="!self.exists(t, has(t.id) && (has(t.tags) || has(t.name) || has(t.owner)))",message="id may not be combined with tags, name or owner"
	// +listType=atomic
	// +optional
	AMISelectorTerms []AMISelectorTerm `json:"amiSelectorTerms,omitempty"`
	// AMIFamily says how user data is written, which disks a node has by default, and which images it gets if none are selected. Ubuntu
	// works only with images that are selected.
	// +kubebuilder:validation:Enum=AL2;AL2023;Bottlerocket;Ubuntu;Custom;Windows2019;Windows2022;Windows2025
	// +required
	AMIFamily *string `json:"amiFamily"`
	// UserData is given to the machine when it boots, merged with what the AMI family needs to join the cluster.
	// +optional
	UserData *string `json:"userData,omitempty"`
	// Role is the IAM role of the nodes; instance profiles for it are made and removed by Karpenter.
	// +kubebuilder:validation:XValidation:rule="self != ''",message="role may not be empty"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="role is immutable in v1beta1"
	// +optional
	Role string `json:"role,omitempty"`
	// InstanceProfile is an existing instance profile that the nodes use.
	// +kubebuilder:validation:XValidation:rule="self != ''",message="instanceProfile may not be empty"
	// +optional
	InstanceProfile *string `json:"instanceProfile,omitempty"`
	// Tags are put on everything that is made for the nodes in EC2.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != '')",message="tag keys may not be empty"
	// +karpenter:restrictedTags
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// BlockDeviceMappings are the disks of the nodes. If there are any, they replace those of the AMI family.
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.filter(m, has(m.rootVolume) && m.rootVolume).size() <= 1",message="at most one mapping may have rootVolume: true"
	// +listType=atomic
	// +optional
	BlockDeviceMappings []*BlockDeviceMapping `json:"blockDeviceMappings,omitempty"`
	// InstanceStorePolicy says what happens with local disks.
	// +optional
	InstanceStorePolicy *awsv1.InstanceStorePolicy `json:"instanceStorePolicy,omitempty"`
	// DetailedMonitoring switches on CloudWatch metrics at one-minute intervals.
	// +optional
	DetailedMonitoring *bool `json:"detailedMonitoring,omitempty"`
	// MetadataOptions say how the instance metadata service of a node can be reached.
	// +kubebuilder:default={httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 2, httpTokens: required}
	// +optional
	MetadataOptions *MetadataOptions `json:"metadataOptions,omitempty"`
	// Context is passed to EC2 as the context of each fleet request.
	// +optional
	Context *string `json:"context,omitempty"`
}

// AMISelectorTerm selects machine images; what it names is ANDed.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) || has(self.name) || (has(self.tags) && self.tags.size() > 0)",message="one of tags, id and name must be set"
type AMISelectorTerm struct {
	// Tags that the image must have; the value "*" accepts any.
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != '' && self[k] != '')",message="tag keys and values may not be empty"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the image.
	// +kubebuilder:validation:Pattern=`ami-[0-9a-z]+`
	// +optional
	ID string `json:"id,omitempty"`
	// Name of the image; "*" and "?" stand for any text and any character.
	// +optional
	Name string `json:"name,omitempty"`
	// Owner of the image: an account, self, amazon or aws-marketplace.
	// +optional
	Owner string `json:"owner,omitempty"`
}

// BlockDeviceMapping is one disk of a node.
type BlockDeviceMapping struct {
	// DeviceName is what EC2 calls the disk, "/dev/xvda" for instance.
	// +optional
	DeviceName *string `json:"deviceName,omitempty"`
	// EBS says what the disk is.
	// +kubebuilder:validation:XValidation:rule="has(self.snapshotID) || has(self.volumeSize)",message="one of snapshotID and volumeSize must be set"
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
	// VolumeSize is a whole number of Gi, G, Ti or T.
	// +kubebuilder:validation:Pattern=`^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$`
	// +optional
	VolumeSize string `json:"volumeSize,omitempty"`
	// VolumeType of the volume.
	// +kubebuilder:validation:Enum=standard;io1;io2;gp2;sc1;st1;gp3
	// +optional
	VolumeType *string `json:"volumeType,omitempty"`
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
	// +kubebuilder:default=2
	// +optional
	HTTPPutResponseHopLimit *int64 `json:"httpPutResponseHopLimit,omitempty"`
	// HTTPTokens reports whether session tokens (IMDSv2) are required.
	// +kubebuilder:validation:Enum=required;optional
	// +kubebuilder:default=required
	// +optional
	HTTPTokens *string `json:"httpTokens,omitempty"`
}
