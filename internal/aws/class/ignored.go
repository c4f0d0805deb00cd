package class

import (
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/hardware"
)

// Ignored returns a sentence for each field of a class that its image family does not apply. Such a class can be
// launched, so the sentences go into the message of a condition that is True.
func Ignored(nc *awsv1.EC2NodeClass) []string {
	family := nc.AMIFamily()
	custom := family == awsv1.AMIFamilyCustom
	var out []string
	if p := nc.Spec.InstanceStorePolicy; p != nil && *p == awsv1.InstanceStorePolicyRAID0 {
		switch {
		case custom:
			out = append(out, "spec.instanceStorePolicy: pods are planned for the local disks, and with amiFamily Custom "+
				"spec.userData must join and mount them")
		case hardware.WindowsBuild(family) != "":
			out = append(out, "spec.instanceStorePolicy has no effect on "+family)
		}
	}
	if custom && nc.Spec.Kubelet != nil {
		out = append(out, "spec.kubelet: pods are planned for it, and with amiFamily Custom spec.userData must configure the kubelet alike")
	}
	return out
}
