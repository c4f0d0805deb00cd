package claim

import (
	"context"
	"errors"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/drift"
)

// Whether an instance type still exists is asked for claims of some age, and not asked again soon once it is known to exist.
const (
	typeCheckAge   = time.Hour
	typeCheckEvery = 30 * time.Minute
)

// driftReason says why the claim no longer is what its pool and its node class ask for. What costs least is asked first.
func (l *Loop) driftReason(ctx context.Context, mine *kept, claim *v1.NodeClaim, pool *v1.NodePool, now time.Time) (string, error) {
	if reason := drift.Reason(pool, claim, l.Known); reason != "" {
		return reason, nil
	}
	gone, err := l.typeGone(ctx, mine, claim, pool, now)
	if gone || err != nil {
		return v1.ReasonInstanceTypeNotFound, err
	}
	reason, err := l.Cloud.Drifted(ctx, claim)
	if errors.Is(err, cloud.ErrNotFound) { // garbage collection deals with it
		return "", nil
	}
	return string(reason), err
}

func (l *Loop) typeGone(ctx context.Context, mine *kept, claim *v1.NodeClaim, pool *v1.NodePool, now time.Time) (bool, error) {
	if now.Before(claim.CreationTimestamp.Add(typeCheckAge)) || now.Before(mine.typeKnown.Add(typeCheckEvery)) {
		return false, nil
	}
	catalog, err := l.Cloud.Catalog(ctx, pool)
	if _, ok := errors.AsType[*cloud.ClassNotReadyError](err); ok { // nothing can be said now
		return false, nil
	}
	if err != nil || drift.InstanceTypeGone(claim, catalog, l.Known) {
		return err == nil, err
	}
	mine.typeKnown = now
	return false, nil
}
