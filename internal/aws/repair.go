package aws

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
)

// Faults of NVIDIA GPUs that EKS' node monitoring agent names in the reason of AcceleratedHardwareReady, such as
// NvidiaXID48Error. Numbers are matched whole: 4 and 480 are not 48.
const (
	faultsThatARebootMends = `(?i)XID ?(46|48|54|62|63|95|109|110|136|140|143|155|156|158)([^0-9]|$)`
	faultsOfBrokenGPUs     = `(?i)XID ?(64|74|79|119|120)([^0-9]|$)`
)

// Priorities of repairs: a GPU that computes wrongly harms more than a node on which nothing new starts.
const (
	priorityOfNodes = iota
	priorityOfGPUs
)

const accelerated corev1.NodeConditionType = "AcceleratedHardwareReady"

// RepairPolicies returns the conditions of broken machines. Conditions other than Ready come from EKS' node
// monitoring agent.
func (p *Provider) RepairPolicies() []cloud.RepairPolicy {
	soon, later := 5*time.Minute, 10*time.Minute
	any := func(t corev1.NodeConditionType, status corev1.ConditionStatus) cloud.RepairPolicy {
		return cloud.RepairPolicy{ConditionType: t, Status: status, Reason: ".*", Toleration: 30 * time.Minute, Grace: &later}
	}
	gpu := cloud.RepairPolicy{ConditionType: accelerated, Status: corev1.ConditionFalse, Toleration: 10 * time.Minute, Grace: &soon,
		Priority: priorityOfGPUs}
	mendable, broken := gpu, gpu
	mendable.Reason, broken.Reason = faultsThatARebootMends, faultsOfBrokenGPUs
	return []cloud.RepairPolicy{
		any(corev1.NodeReady, corev1.ConditionFalse), any(corev1.NodeReady, corev1.ConditionUnknown),
		mendable, broken,
		{ConditionType: accelerated, Status: corev1.ConditionFalse, Toleration: 30 * time.Minute, Grace: &later},
		any("StorageReady", corev1.ConditionFalse), any("NetworkingReady", corev1.ConditionFalse),
		any("KernelReady", corev1.ConditionFalse), any("ContainerRuntimeReady", corev1.ConditionFalse),
	}
}
