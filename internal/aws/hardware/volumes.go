package hardware

import (
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// EBSDriver is the CSI driver of EBS volumes.
const EBSDriver = "ebs.csi.aws.com"

// volumeLimit returns how many EBS volumes pods may attach to a node of type t. EC2 says how many volumes a machine
// takes beside its first network interface and local disks. The volumes that it boots with are subtracted. Where
// volumes share the limit with interfaces, so are its other interfaces, and the spare interface that the VPC plug-in
// attaches.
func volumeLimit(t *awsdata.InstanceType, c *Class) int {
	limit := t.EBS.MaxAttachments - bootVolumes(c)
	if t.EBS.AttachmentLimit == "shared" {
		limit -= max(1, len(c.Interfaces)) - 1
		if WindowsBuild(c.Family) == "" && defaultCardInterfaces(t) > max(1, len(c.Interfaces)) {
			limit--
		}
	}
	return max(0, limit)
}

// bootVolumes returns how many EBS volumes a machine boots with.
func bootVolumes(c *Class) int {
	if len(c.BlockDevices) == 0 {
		if c.Family == awsv1.AMIFamilyBottlerocket {
			return 2
		}
		return 1
	}
	n := 0
	for _, b := range c.BlockDevices {
		if b.IsEBS {
			n++
		}
	}
	return max(1, n)
}
