package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/fleet"
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
	mendable.Reboot = p.env.settings.Gates.RebootForRepair
	return []cloud.RepairPolicy{
		any(corev1.NodeReady, corev1.ConditionFalse), any(corev1.NodeReady, corev1.ConditionUnknown),
		mendable, broken,
		{ConditionType: accelerated, Status: corev1.ConditionFalse, Toleration: 30 * time.Minute, Grace: &later},
		any("StorageReady", corev1.ConditionFalse), any("NetworkingReady", corev1.ConditionFalse),
		any("KernelReady", corev1.ConditionFalse), any("ContainerRuntimeReady", corev1.ConditionFalse),
	}
}

// MayReboot implements cloud.Rebooter by a dry run.
func (p *Provider) MayReboot(ctx context.Context, claim *v1.NodeClaim) error {
	return p.machines.reboot(ctx, claim, &ec2.RebootInstancesInput{DryRun: aws.Bool(true)})
}

// Reboot implements cloud.Rebooter. EC2 does not tell two calls for one reboot apart.
func (p *Provider) Reboot(ctx context.Context, claim *v1.NodeClaim, _ string) error {
	return p.machines.reboot(ctx, claim, &ec2.RebootInstancesInput{})
}

// reboot makes a call for the machine of a claim.
func (ms *machines) reboot(ctx context.Context, claim *v1.NodeClaim, call *ec2.RebootInstancesInput) error {
	id := instanceID(claim.Status.ProviderID)
	if _, gone := ms.launches.gone.Get(id); id == "" || gone {
		return cloud.ErrNotFound
	}
	if ms.market.shifted(claim.Status.ProviderID) {
		return fmt.Errorf("reboot %s: %w", id, errShifted)
	}
	i, err := ms.fleet.Describe(ctx, id)
	switch {
	case errors.Is(err, fleet.ErrGone), errors.Is(err, fleet.ErrUnknown), err == nil && stopping(i):
		return cloud.ErrNotFound
	case err != nil:
		return err
	case !ms.ours(i):
		return fmt.Errorf("%w: it does not have the tags of Karpenter", cloud.ErrRebootRefused)
	}
	call.InstanceIds = []string{id}
	_, err = ms.env.clients.EC2.RebootInstances(ctx, call)
	switch {
	case err == nil, ec2api.DryRunPassed(err):
		return nil
	case ec2api.IsNotFound(err):
		return cloud.ErrNotFound
	case ec2api.IsDenied(err), slices.Contains(notRebooted, ec2api.Code(err)):
		return fmt.Errorf("%w: %s", cloud.ErrRebootRefused, ec2api.Explain(err))
	}
	return err
}

// notRebooted are the codes with which EC2 refuses to reboot a machine because of its state or type, such as a stopped machine.
var notRebooted = []string{"IncorrectInstanceState", "UnsupportedOperation"}
