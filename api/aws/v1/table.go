package v1

import (
	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/label"
)

// Labels is what the AWS provider knows about node labels.
func Labels() label.Table {
	return label.Table{
		RestrictedDomains: []string{Group},
		Labels: []label.Label{
			{Key: LabelNodeClass, Requirable: true, Doc: "The EC2NodeClass that the machine was built from."},
			{Key: LabelInstanceCategory, WellKnown: true, Doc: "The letters that an instance type begins with, \"c\" for instance."},
			{Key: LabelInstanceGeneration, WellKnown: true, Numeric: true, Doc: "The generation of the instance type, 4 for g4dn."},
			{Key: LabelInstanceFamily, WellKnown: true, Doc: "The instance type up to the dot, \"g4dn\" for instance."},
			{Key: LabelInstanceSize, WellKnown: true, Doc: "The instance type after the dot, \"8xlarge\" for instance."},
			{Key: LabelInstanceCapabilityFlex, WellKnown: true, Values: booleans(), Doc: "Whether it is a flex instance type."},
			{Key: LabelInstanceCPU, WellKnown: true, Numeric: true, Doc: "The number of vCPUs."},
			{Key: LabelInstanceCPUManufacturer, WellKnown: true, Doc: "Who made the processor: intel, amd, aws."},
			{Key: LabelInstanceCPUSustainedClockSpeedMhz, WellKnown: true, Numeric: true,
				Doc: "The processor's clock speed in MHz, 0 if EC2 does not say."},
			{Key: LabelInstanceMemory, WellKnown: true, Numeric: true, Doc: "The nominal memory in MiB."},
			{Key: LabelInstanceHypervisor, WellKnown: true, Doc: "nitro, xen, or empty for bare metal."},
			{Key: LabelInstanceEncryptionInTransit, WellKnown: true, Values: booleans(),
				Doc: "Whether traffic between machines is encrypted by the network."},
			{Key: LabelInstanceEBSBandwidth, WellKnown: true, Numeric: true,
				Doc: "The most bandwidth to EBS volumes, in Mbit/s; only where EBS optimisation is on by default."},
			{Key: LabelInstanceNetworkBandwidth, WellKnown: true, Numeric: true,
				Doc: "The baseline network bandwidth in Mbit/s, where it is known."},
			{Key: LabelInstanceLocalNVME, WellKnown: true, Numeric: true, Doc: "The size of all local NVMe disks in GB."},
			{Key: LabelInstanceGPUName, WellKnown: true, Doc: "The GPU model."},
			{Key: LabelInstanceGPUManufacturer, WellKnown: true, Doc: "Who made the GPU."},
			{Key: LabelInstanceGPUCount, WellKnown: true, Numeric: true, Doc: "The number of GPUs."},
			{Key: LabelInstanceGPUMemory, WellKnown: true, Numeric: true, Doc: "The memory of one GPU in MiB."},
			{Key: LabelInstanceAcceleratorName, WellKnown: true, Doc: "The accelerator model."},
			{Key: LabelInstanceAcceleratorManufacturer, WellKnown: true, Doc: "Who made the accelerator."},
			{Key: LabelInstanceAcceleratorCount, WellKnown: true, Numeric: true, Doc: "The number of accelerators."},
			{Key: LabelInstanceTenancy, WellKnown: true, Values: []string{TenancyDefault, TenancyDedicated},
				Closed: true, Doc: "Whether the hardware is shared with other accounts."},
			{Key: LabelNitroSandbox, WellKnown: true, Values: booleans(), Doc: "Whether the machine can run Nitro enclaves."},
			{Key: LabelCapacityReservationID, WellKnown: true, Reservation: true,
				Doc: "The capacity reservation that the machine runs in."},
			{Key: LabelCapacityReservationType, WellKnown: true, Reservation: true,
				Values: []string{string(CapacityReservationTypeDefault), string(CapacityReservationTypeCapacityBlock)},
				Doc:    "The kind of capacity reservation that the machine runs in."},
			{Key: LabelCapacityReservationInterruptible, WellKnown: true, Reservation: true, Values: booleans(),
				Doc: "Whether EC2 may take the reserved machine back."},
			{Key: LabelPlacementGroupID, WellKnown: true, Doc: "The placement group that the machine runs in."},
			{Key: LabelPlacementGroupPartition, WellKnown: true, Numeric: true,
				Doc: "The partition of the placement group that the machine runs in."},
			{Key: LabelTopologyZoneID, WellKnown: true, Doc: "The zone's name across accounts."},
			{Key: corev1.LabelWindowsBuild, WellKnown: true},
			{Key: corev1.LabelTopologyZone, WellKnown: true, Aliases: []string{LabelEBSZone}},
		},
	}
}

func booleans() []string { return []string{"true", "false"} }
