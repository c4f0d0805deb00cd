package cloud

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A RepairPolicy says that a node is broken if its condition has had Status for longer than Toleration.
type RepairPolicy struct {
	ConditionType corev1.NodeConditionType
	Status        corev1.ConditionStatus
	// Reason is a regular expression that the condition's reason must match. Exactly one policy of a provider has no Reason: it is the
	// fallback, which also applies to the types and statuses of all other policies.
	Reason     string
	Toleration time.Duration
	// Grace bounds how long the drain waits for pods; nil leaves that to the claim.
	Grace    *time.Duration
	Priority int  // 0 to MostRepairPriority; of several broken nodes the node with the highest goes first
	Reboot   bool // a reboot may repair it; the provider should be a Rebooter
}

// A Rebooter is a provider that can reboot machines. Providers need not be one: their broken machines are replaced.
//
// Both methods return ErrNotFound where the machine is gone, and ErrRebootRefused where it would not help to try again. After any other
// error the call is repeated for some minutes.
type Rebooter interface {
	// MayReboot reports, as an error, whether the cloud would refuse to reboot the machine of a claim now. It changes nothing.
	MayReboot(ctx context.Context, claim *v1.NodeClaim) error
	// Reboot returns when the cloud has accepted to reboot the machine of a claim. Calls with one operation, also by another process, are
	// about one reboot; a cloud that can tell reboots the machine once for all of them.
	Reboot(ctx context.Context, claim *v1.NodeClaim, operation string) error
}

// MostRepairPriority is the highest priority of a RepairPolicy.
const MostRepairPriority = 100

// CheckRepairPolicies returns everything that is wrong with the policies of a provider, nil if nothing is.
func CheckRepairPolicies(policies []RepairPolicy) error {
	var errs []error
	fallbacks := 0
	for i, p := range policies {
		check := func(ok bool, format string, args ...any) {
			if !ok {
				what := fmt.Sprintf(format, args...)
				errs = append(errs, fmt.Errorf("repair policy %d (%s is %s): %s", i+1, p.ConditionType, p.Status, what))
			}
		}
		check(p.ConditionType != "", "the type of the condition is missing")
		check(p.Status == corev1.ConditionTrue || p.Status == corev1.ConditionFalse || p.Status == corev1.ConditionUnknown,
			"the status is neither True, False nor Unknown")
		check(p.Toleration >= 0 && (p.Grace == nil || *p.Grace >= 0), "toleration and grace period must not be negative")
		check(p.Priority >= 0 && p.Priority <= MostRepairPriority,
			"the priority %d is not between 0 and %d", p.Priority, MostRepairPriority)
		_, err := regexp.Compile(p.Reason)
		check(err == nil, "reason: %v", err)
		if p.Reason == "" {
			fallbacks++
			check(!p.Reboot, "the policy without a reason is the fallback, which replaces")
		}
	}
	if fallbacks != 1 {
		errs = append(errs, fmt.Errorf("%d repair policies have no reason; exactly one must, as the fallback of all", fallbacks))
	}
	return errors.Join(errs...)
}
