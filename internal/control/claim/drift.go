package claim

import (
	"context"
	"errors"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/drift"
)

const (
	// typeCheckAge is how old a claim must be before its instance type is looked up, and typeCheckEvery how long the answer that the
	// type exists is good for.
	typeCheckAge   = time.Hour
	typeCheckEvery = 30 * time.Minute
)

// driftReason returns why a claim differs from what its pool and its node class ask for now, "" if it does not. The cheapest check comes
// first: hashes and requirements, then the catalogue, then calls to the cloud.
func (l *Loop) driftReason(ctx context.Context, mine *kept, claim *v1.NodeClaim, pool *v1.NodePool, now time.Time) (string, error) {
	if reason := drift.Reason(pool, claim, l.Known); reason != "" {
		return reason, nil
	}
	gone, err := l.typeGone(ctx, mine, claim, pool, now)
	if err != nil {
		return "", err
	}
	if gone {
		return v1.ReasonInstanceTypeNotFound, nil
	}
	reason, err := l.Cloud.Drifted(ctx, claim)
	if errors.Is(err, cloud.ErrNotFound) { // garbage collection deals with it
		return "", nil
	}
	return string(reason), err
}

// typeGone reports whether the pool's catalogue no longer has the instance type of a claim. It is false without a look at the catalogue
// while the claim is young or the last look was a short while ago, and false if the node class is not ready.
func (l *Loop) typeGone(ctx context.Context, mine *kept, claim *v1.NodeClaim, pool *v1.NodePool, now time.Time) (bool, error) {
	if now.Before(claim.CreationTimestamp.Add(typeCheckAge)) || now.Before(mine.typeKnown.Add(typeCheckEvery)) {
		return false, nil
	}
	catalog, err := l.Cloud.Catalog(ctx, pool)
	if _, ok := errors.AsType[*cloud.ClassNotReadyError](err); ok { // nothing can be said now
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if drift.InstanceTypeGone(claim, catalog, l.Known) {
		return true, nil
	}
	mine.typeKnown = now
	return false, nil
}
