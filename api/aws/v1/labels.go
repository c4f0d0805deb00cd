package v1

// Labels of Nodes and NodeClaims on AWS.
const (
	LabelNodeClass = Group + "/ec2nodeclass"

	LabelInstanceCategory                  = Group + "/instance-category"
	LabelInstanceGeneration                = Group + "/instance-generation"
	LabelInstanceFamily                    = Group + "/instance-family"
	LabelInstanceSize                      = Group + "/instance-size"
	LabelInstanceCapabilityFlex            = Group + "/instance-capability-flex"
	LabelInstanceCPU                       = Group + "/instance-cpu"
	LabelInstanceCPUManufacturer           = Group + "/instance-cpu-manufacturer"
	LabelInstanceCPUSustainedClockSpeedMhz = Group + "/instance-cpu-sustained-clock-speed-mhz"
	LabelInstanceMemory                    = Group + "/instance-memory"
	LabelInstanceHypervisor                = Group + "/instance-hypervisor"
	LabelInstanceEncryptionInTransit       = Group + "/instance-encryption-in-transit-supported"
	LabelInstanceEBSBandwidth              = Group + "/instance-ebs-bandwidth"
	LabelInstanceNetworkBandwidth          = Group + "/instance-network-bandwidth"
	LabelInstanceLocalNVME                 = Group + "/instance-local-nvme"
	LabelInstanceGPUName                   = Group + "/instance-gpu-name"
	LabelInstanceGPUManufacturer           = Group + "/instance-gpu-manufacturer"
	LabelInstanceGPUCount                  = Group + "/instance-gpu-count"
	LabelInstanceGPUMemory                 = Group + "/instance-gpu-memory"
	LabelInstanceAcceleratorName           = Group + "/instance-accelerator-name"
	LabelInstanceAcceleratorManufacturer   = Group + "/instance-accelerator-manufacturer"
	LabelInstanceAcceleratorCount          = Group + "/instance-accelerator-count"
	LabelInstanceTenancy                   = Group + "/instance-tenancy"
	LabelNitroSandbox                      = Group + "/nitro-sandbox"
	LabelCapacityReservationID             = Group + "/capacity-reservation-id"
	LabelCapacityReservationType           = Group + "/capacity-reservation-type"
	LabelCapacityReservationInterruptible  = Group + "/capacity-reservation-interruptible"
	LabelPlacementGroupID                  = Group + "/placement-group-id"
	LabelPlacementGroupPartition           = Group + "/placement-group-partition"

	LabelTopologyZoneID = "topology.k8s.aws/zone-id"
	// LabelEBSZone is the zone as the EBS CSI driver writes it; it means the same as Kubernetes' zone label.
	LabelEBSZone = "topology.ebs.csi.aws.com/zone"
)

// Values of LabelInstanceTenancy.
const (
	TenancyDefault   = "default"
	TenancyDedicated = "dedicated"
)

// Annotations of EC2NodeClasses and NodeClaims.
const (
	// On EC2NodeClasses and NodeClaims: the hash by which drift is found.
	AnnotationNodeClassHash = Group + "/ec2nodeclass-hash"
	// On EC2NodeClasses and NodeClaims: which way of hashing the hash is of.
	AnnotationNodeClassHashVersion = Group + "/ec2nodeclass-hash-version"
	// On NodeClaims: the instance profile that the machine was launched with.
	AnnotationInstanceProfileName = Group + "/instance-profile-name"
	// On NodeClaims: "true" once the machine has the tags that need the Node's name.
	AnnotationInstanceTagged = Group + "/tagged"
	// On NodeClaims: when EC2 recommended to rebalance the spot machine, with the setting replace-on-rebalance.
	AnnotationRebalanceRecommended = Group + "/rebalance-recommended"
	// On NodeClaims: "true" once an older machine was tagged with the cluster's name.
	AnnotationClusterNameTagged = "compatibility." + Group + "/cluster-name-tagged"

	// On EC2NodeClasses that v1beta1 wrote with the family Ubuntu: what had to be written otherwise, with commas
	// between amiFamily, blockDeviceMappings and incompatible. Of an incompatible class nothing can be launched
	// until it names images.
	AnnotationUbuntu = "compatibility." + Group + "/v1beta1-ubuntu"
	// On what v1beta1 shows of an EC2NodeClass: the version of the image's alias, unless it is latest.
	AnnotationAliasVersion = "compatibility." + Group + "/v1-alias-version"
)

// What AnnotationUbuntu may list.
const (
	UbuntuFamily       = "amiFamily"           // The family was Ubuntu; it is AL2, whose bootstrap Ubuntu shares.
	UbuntuDevices      = "blockDeviceMappings" // Ubuntu's default disk was written down.
	UbuntuIncompatible = "incompatible"        // No images were selected, and there is no alias for Ubuntu.
)

// PlaceholderAMI stands in the image selector of an incompatible Ubuntu class. No image has this ID.
const PlaceholderAMI = "ami-placeholder"

// Finalizers of EC2NodeClasses.
const (
	TerminationFinalizer = Group + "/termination" // Stays until nothing that was made for the class is left in AWS.
)

// Tags of AWS resources. They are how machines are found again, so their keys never change.
const (
	TagNodePool      = "karpenter.sh/nodepool"  // The NodePool that a machine belongs to.
	TagNodeClaim     = "karpenter.sh/nodeclaim" // The NodeClaim that a machine was launched for.
	TagNodeClass     = LabelNodeClass           // The EC2NodeClass that a resource was made for.
	TagClusterName   = "eks:eks-cluster-name"   // The cluster that a resource belongs to.
	TagClusterPrefix = "kubernetes.io/cluster/" // Followed by the cluster's name; value "owned".
	TagOrphan        = "karpenter.sh/orphan"    // "latched" while a machine without NodeClaim is kept until an operator decides.
	TagName          = "Name"                   // The Node's name, unless the user gave another.

	TagClusterOwned = "owned" // The value of the tag that begins with TagClusterPrefix.

	// What TagNodePool was called up to 0.31: the Provisioner that a machine was launched for.
	TagProvisioner = "karpenter.sh/provisioner-name"
	TagManagedBy   = "karpenter.sh/managed-by" // What TagClusterName was called from 0.28 to 0.37.
)

// Resources that machines on AWS may have.
const (
	ResourceNVIDIAGPU          = "nvidia.com/gpu"
	ResourceAMDGPU             = "amd.com/gpu"
	ResourceHabanaGaudi        = "habana.ai/gaudi"
	ResourceAWSNeuron          = "aws.amazon.com/neuron"
	ResourceAWSNeuronCore      = "aws.amazon.com/neuroncore"
	ResourceAWSPodENI          = "vpc.amazonaws.com/pod-eni"
	ResourcePrivateIPv4Address = "vpc.amazonaws.com/PrivateIPv4Address"
	ResourceEFA                = "vpc.amazonaws.com/efa"
	ResourceNitroSandbox       = "eks.amazonaws.com/nitro-sandbox"
)
