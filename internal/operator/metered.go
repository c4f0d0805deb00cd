package operator

import (
	"context"
	"errors"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// metered is a provider that times its calls and counts their errors, by the loop that makes them. In metrics,
// methods have the names that existing dashboards for Karpenter use.
type metered struct {
	cloud.Provider
	metrics *telemetry.Metrics
}

func meter(p cloud.Provider, m *telemetry.Metrics) *metered { return &metered{p, m} }

// call begins to measure a call for a NodePool, "" where it is for none or the pool is not known. The function that it returns ends the
// measurement; it reads the error of the call when it runs, so it can be deferred.
func (p *metered) call(ctx context.Context, method, pool string) func(*error) {
	controller, provider, began := telemetry.Controller(ctx), p.Name(), time.Now()
	return func(err *error) {
		p.metrics.CloudCalls.WithLabelValues(controller, method, provider).Observe(time.Since(began).Seconds())
		if *err != nil {
			p.metrics.CloudErrors.WithLabelValues(controller, method, provider, errorName(*err), pool).Inc()
		}
	}
}

// errorName returns the name under which dashboards know an error.
func errorName(err error) string {
	var dry *cloud.NoCapacityError
	var class *cloud.ClassNotReadyError
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		return "NodeClaimNotFoundError"
	case errors.As(err, &dry):
		return "InsufficientCapacityError"
	case errors.As(err, &class):
		return "NodeClassNotReadyError"
	}
	return "unknown"
}

// poolOf returns the name of the NodePool of a claim.
func poolOf(claim *v1.NodeClaim) string { return claim.Labels[v1.NodePoolLabelKey] }

func (p *metered) Catalog(ctx context.Context, pool *v1.NodePool) (c *cloud.Catalog, err error) {
	defer p.call(ctx, "GetInstanceTypes", pool.Name)(&err)
	return p.Provider.Catalog(ctx, pool)
}

func (p *metered) Launch(ctx context.Context, claim *v1.NodeClaim) (m cloud.Machine, err error) {
	defer p.call(ctx, "Create", poolOf(claim))(&err)
	return p.Provider.Launch(ctx, claim)
}

func (p *metered) Terminate(ctx context.Context, providerID string) (err error) {
	defer p.call(ctx, "Delete", "")(&err)
	return p.Provider.Terminate(ctx, providerID)
}

func (p *metered) SetLatch(ctx context.Context, providerID string, latched bool) (err error) {
	defer p.call(ctx, "SetLatch", "")(&err)
	return p.Provider.SetLatch(ctx, providerID, latched)
}

func (p *metered) Inherited(ctx context.Context) (m []cloud.Machine, err error) {
	defer p.call(ctx, "Inherited", "")(&err)
	return p.Provider.Inherited(ctx)
}

func (p *metered) Adopt(ctx context.Context, claim *v1.NodeClaim, providerID string) (m cloud.Machine, err error) {
	defer p.call(ctx, "Adopt", poolOf(claim))(&err)
	return p.Provider.Adopt(ctx, claim, providerID)
}

func (p *metered) Get(ctx context.Context, providerID string) (m cloud.Machine, err error) {
	defer p.call(ctx, "Get", "")(&err)
	return p.Provider.Get(ctx, providerID)
}

func (p *metered) List(ctx context.Context) (m []cloud.Machine, err error) {
	defer p.call(ctx, "List", "")(&err)
	return p.Provider.List(ctx)
}

// MayReboot implements cloud.Rebooter. It is not one of the calls that dashboards know.
func (p *metered) MayReboot(ctx context.Context, claim *v1.NodeClaim) error {
	if r, ok := p.Provider.(cloud.Rebooter); ok {
		return r.MayReboot(ctx, claim)
	}
	return cloud.ErrRebootRefused
}

func (p *metered) Reboot(ctx context.Context, claim *v1.NodeClaim, operation string) (err error) {
	defer p.call(ctx, "Reboot", poolOf(claim))(&err)
	if r, ok := p.Provider.(cloud.Rebooter); ok {
		return r.Reboot(ctx, claim, operation)
	}
	return cloud.ErrRebootRefused
}

func (p *metered) Drifted(ctx context.Context, claim *v1.NodeClaim) (r cloud.DriftReason, err error) {
	defer p.call(ctx, "IsDrifted", poolOf(claim))(&err)
	return p.Provider.Drifted(ctx, claim)
}
