package hardware

import (
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// EBSDriver is the CSI driver of EBS volumes.
const EBSDriver = "ebs.csi.aws.com"

// volumeLimit is the number of EBS volumes that pods may attach to a node of type t.
//
// EC2 states how many volumes a machine takes beside its first network interface and its local disks. Of these go the
// volumes that the machine boots with. Where volumes share the limit with interfaces, so do the other interfaces
// that it is launched with, and the spare interface that the VPC network plug-in attaches before the driver counts.
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
