package aws

import (
	"context"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/clusterinfo"
	"karpenter.sh/karpenter/internal/aws/interrupt"
	"karpenter.sh/karpenter/internal/aws/spotrisk"
	"karpenter.sh/karpenter/internal/aws/turns"
	"karpenter.sh/karpenter/internal/kit/watchhealth"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// How often loops look.
const (
	discoverEvery = 12 * time.Hour
	versionEvery  = 5 * time.Minute
	collectEvery  = 30 * time.Minute
)

// Always returns the loops that run on every replica: they only look, and keep a standby warm.
func (p *Provider) Always() []func(context.Context) error {
	loops := []func(context.Context) error{
		p.classes.objects.Run, p.classes.pools.Run,
		p.env.every("providers.instancetype", discoverEvery, discoverEvery, p.env.discover),
		p.env.every("providers.pricing", 0, discoverEvery, p.market.prices.Refresh),
		p.env.every("providers.version", versionEvery, versionEvery, p.env.refreshVersion),
		p.env.every("providers.dns", time.Minute, time.Minute, p.env.facts.RefreshDNS),
		p.env.every("providers.instancetype.capacity", 0, time.Minute, p.market.measureMemory),
	}
	loops = append(loops, p.env.every("providers.spotrisk", 0, time.Minute, p.market.countSpotHours))
	if p.market.shifts != nil {
		loops = append(loops, p.env.every("providers.zonalshift", shiftEvery, shiftEvery, p.market.shifts.Refresh))
	}
	return loops
}

// Leader returns the loops that only the leading replica runs.
func (p *Provider) Leader() []func(context.Context) error {
	loops := []func(context.Context) error{
		p.classes.classLoop, p.classes.templateLoop,
		p.env.every("providers.ssm.invalidation", collectEvery, collectEvery, p.classes.images.Forget),
		p.machines.tagLoop,
		p.env.every("interruption.instancestatus", time.Minute, time.Minute, p.machines.poller().Poll),
		p.env.every("capacityreservation.capacitytype", time.Minute, time.Minute, p.machines.demote),
		p.env.every("capacityreservation.expiration", time.Minute, time.Minute, p.machines.leaveBlocks),
	}
	if p.market.shifts != nil {
		loops = append(loops, p.env.every("zonalshift", 0, shiftEvery, p.market.tellShifts()))
	}
	if p.env.settings.InterruptionQueue != "" {
		queue := &interrupt.Queue{API: p.env.clients.SQS, Name: p.env.settings.InterruptionQueue, Act: p.machines.interrupted,
			Metrics: p.env.in.Metrics}
		loops = append(loops, queue.Run)
	}
	if !p.env.settings.IsolatedVPC {
		loops = append(loops, p.env.every("instanceprofile.garbagecollection", time.Minute, collectEvery, p.classes.collectProfiles))
	}
	return loops
}

// Ears returns, by a name for people, when each watch that the provider runs itself last received something.
func (p *Provider) Ears() map[string]*watchhealth.Ear {
	return map[string]*watchhealth.Ear{
		"EC2NodeClass (the provider's copy)": p.classes.objects.Ear(),
		"NodePool (the provider's copy)":     p.classes.pools.Ear(),
	}
}

func (ms *machines) poller() *interrupt.Poller {
	return &interrupt.Poller{API: ms.env.clients.EC2, Act: ms.interrupted, Metrics: ms.env.in.Metrics}
}

// every runs a task after first and then every period. A task that fails is repeated after a second,
// then after twice as long each time, up to the period.
func (e *environment) every(name string, first, period time.Duration, task func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx = telemetry.WithController(ctx, name)
		watched := e.in.Metrics.Loop(name, 1)
		defer e.in.Metrics.End(watched)
		refreshed := e.in.Metrics.Refreshed.WithLabelValues(name)
		refreshed.SetToCurrentTime() // what never succeeds has failed since now
		defer e.in.Metrics.Refreshed.DeleteLabelValues(name)
		wait, failures := first, 0
		for watched.Wait(ctx, wait, nil) {
			wait = period
			if err := watched.Turn(ctx, name, task); err != nil && ctx.Err() == nil {
				telemetry.Log(ctx).WarnContext(ctx, "a periodic task failed and is tried again", "error", err)
				wait = min(period, time.Second<<min(failures, 9))
				failures++
			} else if err == nil {
				failures = 0
				refreshed.SetToCurrentTime()
			}
		}
		return nil
	}
}

// templateLoop deletes launch templates that are no longer used.
func (c *classes) templateLoop(ctx context.Context) error {
	const name = "launchtemplate"
	watched := c.env.in.Metrics.Loop(name, 1)
	defer c.env.in.Metrics.End(watched)
	return c.templates.Run(telemetry.WithController(ctx, name), watched)
}

func (e *environment) discover(ctx context.Context) error {
	_, err := e.inventory.Refresh(ctx)
	return err
}

// refreshVersion reads the cluster's version again, and logs a change.
func (e *environment) refreshVersion(ctx context.Context) error {
	old := e.facts.Version()
	if err := e.facts.RefreshVersion(ctx); err != nil {
		return err
	}
	if now := e.facts.Version(); now != old {
		telemetry.Log(ctx).InfoContext(ctx, "the cluster's version changed", "from", old, "to", now)
		warnOfVersion(ctx, now)
	}
	return nil
}

func warnOfVersion(ctx context.Context, version string) {
	if !clusterinfo.Supported(version) {
		telemetry.Log(ctx).ErrorContext(ctx, "this version of Kubernetes is not supported", "version", version)
	}
}

// classLoop keeps the status of every EC2NodeClass up to date, and finalizes deleted ones. A deleted class is tried
// again whenever a NodeClaim disappears.
func (c *classes) classLoop(ctx context.Context) error {
	const name = "nodeclass"
	ctx = telemetry.WithController(ctx, name)
	queue := &turns.Turns{}
	c.objects.Subscribe(ctx, queue.Call)
	c.env.claims.Subscribe(ctx, func(name string) {
		if _, ok := c.env.claims.Get(name); ok {
			return
		}
		for _, nc := range c.objects.All() {
			if nc.DeletionTimestamp != nil {
				queue.Call(nc.Name)
			}
		}
	})
	if !c.objects.WaitForSync(ctx) || !c.env.claims.WaitForSync(ctx) || !c.pools.WaitForSync(ctx) {
		return nil
	}
	for _, nc := range c.objects.All() {
		queue.Call(nc.Name)
	}
	watched := c.env.in.Metrics.Loop(name, turns.Workers)
	defer c.env.in.Metrics.End(watched)
	return queue.Run(ctx, watched, func(ctx context.Context, name string) (time.Duration, error) {
		nc, ok := c.objects.Get(name)
		if !ok {
			return 0, nil
		}
		again, err := c.class.Reconcile(ctx, nc)
		if err != nil && ctx.Err() == nil {
			telemetry.Log(ctx).ErrorContext(ctx, "an EC2NodeClass could not be brought up to date", "EC2NodeClass", name, "error", err)
		}
		return again, err
	})
}

// collectProfiles removes instance profiles that no class and no claim uses.
func (c *classes) collectProfiles(ctx context.Context) error {
	if !c.objects.WaitForSync(ctx) || !c.env.claims.WaitForSync(ctx) {
		return nil
	}
	used := map[string]bool{}
	for _, nc := range c.objects.All() {
		used[nc.Status.InstanceProfile] = true
	}
	for _, claim := range c.env.claims.All() {
		used[claim.Annotations[awsv1.AnnotationInstanceProfileName]] = true
	}
	return c.profiles.Collect(ctx, used)
}

// countSpotHours adds the hours of spot machines to the evidence about interruptions. The evidence counts only where
// the user has set what an interruption costs.
func (k *market) countSpotHours(ctx context.Context) error {
	if !k.env.claims.WaitForSync(ctx) || !k.classes.pools.WaitForSync(ctx) {
		return nil
	}
	if !k.risky() {
		k.risks.Ignore()
		return nil
	}
	var running []spotrisk.Machine
	for claim := range k.env.claims.Each() {
		if isSpot(claim) && claim.Status.ProviderID != "" {
			running = append(running, spotrisk.Machine{Pool: offeringOf(claim), Since: claim.CreationTimestamp.Time})
		}
	}
	k.risks.Observe(running)
	return nil
}

// risky reports whether the user has set what an interruption costs, for the cluster or for a pool.
func (k *market) risky() bool {
	if k.env.settings.Spot.InterruptionCost > 0 {
		return true
	}
	for _, pool := range k.classes.pools.All() {
		if pool.Annotations[v1.InterruptionCostAnnotationKey] != "" {
			return true
		}
	}
	return false
}

func isSpot(claim *v1.NodeClaim) bool {
	return claim.Labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeSpot
}

// measureMemory records how much memory registered nodes really have, by their type and the images of their class.
// Later plans use that instead of the estimate.
func (k *market) measureMemory(ctx context.Context) error {
	if !k.env.claims.WaitForSync(ctx) || !k.env.nodes.WaitForSync(ctx) || !k.classes.objects.WaitForSync(ctx) {
		return nil
	}
	for _, claim := range k.env.claims.All() {
		k.measureClaim(claim)
	}
	return nil
}

// measureClaim records the memory of one claim's node, if it is registered.
func (k *market) measureClaim(claim *v1.NodeClaim) {
	if claim.Status.NodeName == "" || claim.Spec.NodeClassRef == nil {
		return
	}
	node, ok := k.env.nodes.Get(claim.Status.NodeName)
	nc, known := k.classes.objects.Get(claim.Spec.NodeClassRef.Name)
	if !ok || !known || node.Labels[v1.NodeRegisteredLabelKey] != "true" {
		return
	}
	k.recordMemory(nc, claim, node)
}
