package upstream

import (
	"context"
	"strings"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// hookRetry is when a registration hook is asked again that failed or names no time.
const hookRetry = 5 * time.Second

// registrationHook asks the provider's hooks whether a Node may be registered. It returns the names of those that are not done, "" if all
// are, and the shortest time after which one wants to be asked again.
func (a *adapter) registrationHook(ctx context.Context, claim *v1.NodeClaim) (pending string, again time.Duration) {
	var names []string
	for _, h := range a.hooks {
		asked, err := convert[karpv1.NodeClaim](claim) // each hook gets its own: it may change it
		var result cloudprovider.NodeLifecycleHookResult
		if err == nil {
			result, err = h.Registered(a.providerContext(ctx), asked)
		}
		switch {
		case err != nil:
			telemetry.Log(ctx).Error("a registration hook failed", "hook", h.Name(), "NodeClaim", claim.Name, "error", err)
		case result == cloudprovider.NodeLifecycleHookResult{}:
			continue
		}
		names = append(names, h.Name())
		wait := hookRetry
		if err == nil && result.RequeueAfter > 0 {
			wait = result.RequeueAfter
		}
		if again == 0 || wait < again {
			again = wait
		}
	}
	return strings.Join(names, ", "), again
}
