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
	launchCall    = 2 * time.Minute
	firstLaunchIn = time.Second
	lastLaunchIn  = time.Minute
)

// A launch was begun for a claim. A crash forgets it, and the same calls are made again with the same token.
type launch struct {
	machine  *cloud.Machine // started, but perhaps not yet written down
	failures int
	next     time.Time // not to be tried before
	asked    time.Time // when the cloud was last asked whether the machine still runs
	counted  bool      // as a machine that did not become a node
	rebooted string    // the operation of the last reboot that the provider accepted
}

// launch asks the cloud for the claim's machine and writes down what came of it.
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

// machineFor starts the claim's machine, or finds the machine that the claim is to take over.
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
	mine.next = time.Now().Add(min(firstLaunchIn<<min(mine.failures, 10), lastLaunchIn))
	mine.failures++
	return ztime.Sooner(mine.next, step.Until), l.writeBoth(ctx, claim, failure.Claim)
}

// suspect makes garbage collection look for a machine of the claim that we do not know of.
func (l *Loop) suspect(claim *v1.NodeClaim) {
	if l.Suspect != nil {
		l.Suspect(claim.Name)
	}
}

// writeBoth writes metadata and then status of a claim.
func (l *Loop) writeBoth(ctx context.Context, old, claim *v1.NodeClaim) error {
	if err := l.writeMeta(ctx, old, claim); err != nil {
		return err
	}
	written := *old
	written.ObjectMeta = claim.ObjectMeta
	return l.writeStatus(ctx, &written, claim)
}
