package aws

import (
	"context"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/clusterinfo"
	"karpenter.sh/karpenter/internal/aws/interrupt"
	"karpenter.sh/karpenter/internal/aws/turns"
	"karpenter.sh/karpenter/internal/kit/watchhealth"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// How often loops look.
const (
	discoverEvery = 12 * time.Hour
	versionEvery  = 5 * time.Minute
	collectEvery  = 30 * time.Minute
	minute        = time.Minute
)

// Always returns the loops that run on every replica: they only look, and keep a standby warm.
func (p *Provider) Always() []func(context.Context) error {
	loops := []func(context.Context) error{
		p.classes.Run, p.pools.Run,
		p.every("providers.instancetype", discoverEvery, discoverEvery, p.discover),
		p.every("providers.pricing", 0, discoverEvery, p.prices.Refresh),
		p.every("providers.version", versionEvery, versionEvery, p.refreshVersion),
		p.every("providers.dns", minute, minute, p.facts.RefreshDNS),
		p.every("providers.instancetype.capacity", 0, minute, p.measureMemory),
	}
	if p.shifts != nil {
		loops = append(loops, p.every("providers.zonalshift", shiftEvery, shiftEvery, p.shifts.Refresh))
	}
	return loops
}

// Leader returns the loops that only the leading replica runs.
func (p *Provider) Leader() []func(context.Context) error {
	loops := []func(context.Context) error{
		p.classLoop, p.templateLoop,
		p.every("providers.ssm.invalidation", collectEvery, collectEvery, p.images.Forget),
		p.tagLoop,
		p.every("interruption.instancestatus", minute, minute, p.poller().Poll),
		p.every("capacityreservation.capacitytype", minute, minute, p.demote),
		p.every("capacityreservation.expiration", minute, minute, p.leaveBlocks),
	}
	if p.shifts != nil {
		loops = append(loops, p.every("zonalshift", 0, shiftEvery, p.tellShifts()))
	}
	if p.settings.InterruptionQueue != "" {
		queue := &interrupt.Queue{API: p.clients.SQS, Name: p.settings.InterruptionQueue, Act: p.interrupted, Metrics: p.in.Metrics}
		loops = append(loops, queue.Run)
	}
	if !p.settings.IsolatedVPC {
		loops = append(loops, p.every("instanceprofile.garbagecollection", time.Minute, collectEvery, p.collectProfiles))
	}
	return loops
}

// Ears tell when the cluster's objects that the provider follows itself were last heard of, by what they are.
func (p *Provider) Ears() map[string]*watchhealth.Ear {
	return map[string]*watchhealth.Ear{
		"EC2NodeClass (the provider's copy)": p.classes.Ear(),
		"NodePool (the provider's copy)":     p.pools.Ear(),
	}
}

func (p *Provider) poller() *interrupt.Poller {
	return &interrupt.Poller{API: p.clients.EC2, Act: p.interrupted, Metrics: p.in.Metrics}
}

// every runs a task after first and then every period. A task that fails is repeated sooner, later and later.
func (p *Provider) every(name string, first, period time.Duration, task func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx = telemetry.WithController(ctx, name)
		watched := p.in.Metrics.Loop(name, 1)
		defer p.in.Metrics.End(watched)
		refreshed := p.in.Metrics.Refreshed.WithLabelValues(name)
		refreshed.SetToCurrentTime() // what never succeeds has failed since now
		defer p.in.Metrics.Refreshed.DeleteLabelValues(name)
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
func (p *Provider) templateLoop(ctx context.Context) error {
	const name = "launchtemplate"
	watched := p.in.Metrics.Loop(name, 1)
	defer p.in.Metrics.End(watched)
	return p.templates.Run(telemetry.WithController(ctx, name), watched)
}

func (p *Provider) discover(ctx context.Context) error {
	_, err := p.inventory.Refresh(ctx)
	return err
}

func (p *Provider) refreshVersion(ctx context.Context) error {
	old := p.facts.Version()
	if err := p.facts.RefreshVersion(ctx); err != nil {
		return err
	}
	if now := p.facts.Version(); now != old {
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

// classLoop keeps the status of every EC2NodeClass.
func (p *Provider) classLoop(ctx context.Context) error {
	const name = "nodeclass"
	ctx = telemetry.WithController(ctx, name)
	queue := &turns.Turns{}
	p.classes.Subscribe(ctx, queue.Call)
	p.claims.Subscribe(ctx, func(name string) {
		if _, ok := p.claims.Get(name); ok {
			return
		}
		for _, nc := range p.classes.All() {
			if nc.DeletionTimestamp != nil {
				queue.Call(nc.Name)
			}
		}
	})
	if !p.classes.WaitForSync(ctx) || !p.claims.WaitForSync(ctx) || !p.pools.WaitForSync(ctx) {
		return nil
	}
	for _, nc := range p.classes.All() {
		queue.Call(nc.Name)
	}
	watched := p.in.Metrics.Loop(name, turns.Workers)
	defer p.in.Metrics.End(watched)
	return queue.Run(ctx, watched, func(ctx context.Context, name string) (time.Duration, error) {
		nc, ok := p.classes.Get(name)
		if !ok {
			return 0, nil
		}
		again, err := p.class.Reconcile(ctx, nc)
		if err != nil && ctx.Err() == nil {
			telemetry.Log(ctx).ErrorContext(ctx, "an EC2NodeClass could not be brought up to date", "EC2NodeClass", name, "error", err)
		}
		return again, err
	})
}

// collectProfiles removes instance profiles that no class and no claim uses.
func (p *Provider) collectProfiles(ctx context.Context) error {
	if !p.classes.WaitForSync(ctx) || !p.claims.WaitForSync(ctx) {
		return nil
	}
	used := map[string]bool{}
	for _, nc := range p.classes.All() {
		used[nc.Status.InstanceProfile] = true
	}
	for _, claim := range p.claims.All() {
		used[claim.Annotations[awsv1.AnnotationInstanceProfileName]] = true
	}
	return p.profiles.Collect(ctx, used)
}

// measureMemory takes note of how much memory registered nodes have, by their type and the images of their class.
func (p *Provider) measureMemory(ctx context.Context) error {
	if !p.claims.WaitForSync(ctx) || !p.nodes.WaitForSync(ctx) || !p.classes.WaitForSync(ctx) {
		return nil
	}
	for _, claim := range p.claims.All() {
		p.measure(claim)
	}
	return nil
}

func (p *Provider) measure(claim *v1.NodeClaim) {
	if claim.Status.NodeName == "" || claim.Spec.NodeClassRef == nil {
		return
	}
	node, ok := p.nodes.Get(claim.Status.NodeName)
	nc, known := p.classes.Get(claim.Spec.NodeClassRef.Name)
	if !ok || !known || node.Labels[v1.NodeRegisteredLabelKey] != "true" {
		return
	}
	p.see(nc, claim, node)
}
