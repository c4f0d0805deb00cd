package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// Times of a launch: how long one call may take, and how long to wait between calls that fail.
const (
	launchCall     = 2 * time.Minute
	firstRetry     = time.Second
	longestBackoff = time.Minute
)

// A launch is what is remembered of the launch of a claim's machine. A crash forgets it; then the same calls are made again with the same
// token.
type launch struct {
	machine  *cloud.Machine // started, but perhaps not yet written on the claim
	failures int            // calls that failed, in a row
	next     time.Time      // no call before this time
	asked    time.Time      // when the cloud was last asked whether the machine still runs
	counted  bool           // as a machine that did not become a node
	rebooted string         // the operation of the last reboot that the provider accepted
}

// launch asks the cloud for the claim's machine, unless that is known already, and writes it on the claim. It returns when to try again.
func (l *Loop) launch(ctx context.Context, step lifecycle.Step) (time.Time, error) {
	claim, mine := step.Claim, l.launches.of(step.Claim)
	if now := time.Now(); now.Before(mine.next) {
		return ztime.Sooner(mine.next, step.Until), nil
	}
	if mine.machine == nil {
		begun := time.Now().Truncate(time.Second) // clouds do not count finer
		call, cancel := context.WithTimeout(ctx, launchCall)
		m, err := l.machineFor(call, claim)
		cancel()
		if err != nil {
			return l.launchFailed(ctx, step, mine, err)
		}
		mine.machine = &m
		l.reportLaunched(ctx, claim, m)
		if m.Created.Before(begun) { // an earlier call started it, whose answer we never got
			l.Metrics.MachinesOrphaned.WithLabelValues("adopted").Inc()
		}
	}
	return time.Time{}, l.writeBoth(ctx, claim, lifecycle.Launched(claim, *mine.machine, time.Now(), l.settings.Words))
}

// machineFor starts the claim's machine. If the claim is to take over a machine (annotation AdoptsAnnotationKey), it returns that machine
// instead, provided that it runs, belongs to the claim's pool and no other claim has it.
func (l *Loop) machineFor(ctx context.Context, claim *v1.NodeClaim) (cloud.Machine, error) {
	id := claim.Annotations[v1.AdoptsAnnotationKey]
	if id == "" {
		return l.Cloud.Launch(ctx, claim.DeepCopy())
	}
	if row := l.Store.Snapshot().NodeByProviderID(id); row != nil && row.Claim != nil && row.Claim.UID != claim.UID {
		return cloud.Machine{}, fmt.Errorf("machine %s is that of claim %s", id, row.Claim.Name)
	}
	m, err := l.Cloud.Get(ctx, id)
	if err != nil {
		return m, err
	}
	pool := cluster.Pools.Get(l.Store.Snapshot(), claim.Labels[v1.NodePoolLabelKey])
	switch {
	case m.Deleting || pool == nil:
	case m.Provisioner != "" && m.Provisioner == pool.Provisioner() && (m.PoolName == "" || m.PoolName == pool.Name):
		return l.Cloud.Adopt(ctx, claim.DeepCopy(), id)
	case m.PoolName == pool.Name:
		return m, nil
	}
	return cloud.Machine{}, fmt.Errorf("machine %s is being stopped, or is not of the claim's pool", id)
}

// launchFailed reports that a launch failed. It deletes the claim if another try is useless; otherwise it writes the reason on the
// claim and returns when to try again. If the answer does not say that no machine was started, garbage collection looks for one.
func (l *Loop) launchFailed(ctx context.Context, step lifecycle.Step, mine *launch, err error) (time.Time, error) {
	claim := step.Claim
	if ctx.Err() != nil { // we are being stopped; that is not the cloud's failure
		return time.Time{}, nil
	}
	l.reportLaunchFailed(ctx, claim, err)
	failure := lifecycle.Failed(claim, err, time.Now())
	if failure.GiveUp != "" {
		return time.Time{}, l.remove(ctx, claim, failure.GiveUp, 0)
	}
	_, refused := errors.AsType[*cloud.LaunchError](err)
	_, ofClass := errors.AsType[*cloud.ClassNotReadyError](err)
	if !refused && !ofClass {
		l.suspect(claim)
	}
	mine.next = time.Now().Add(min(firstRetry<<min(mine.failures, 10), longestBackoff))
	mine.failures++
	return ztime.Sooner(mine.next, step.Until), l.writeBoth(ctx, claim, failure.Claim)
}

// suspect makes garbage collection look for a machine of the claim that is not written on it.
func (l *Loop) suspect(claim *v1.NodeClaim) {
	if l.Suspect != nil {
		l.Suspect(claim.Name)
	}
}

// writeBoth writes the metadata and then the status of a claim, as far as they differ from old.
func (l *Loop) writeBoth(ctx context.Context, old, claim *v1.NodeClaim) error {
	if err := l.writeMeta(ctx, old, claim); err != nil {
		return err
	}
	written := *old
	written.ObjectMeta = claim.ObjectMeta
	return l.writeStatus(ctx, &written, claim)
}
