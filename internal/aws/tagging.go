package aws

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// tagPause is between two calls: they draw on the same allowance as launches.
const tagPause = time.Second

// tagLoop tags machines whenever claims changed, and repeats what failed.
func (ms *machines) tagLoop(ctx context.Context) error {
	const name = "nodeclaim.tagging"
	ctx = telemetry.WithController(ctx, name)
	watched := ms.env.in.Metrics.Loop(name, 1)
	defer ms.env.in.Metrics.End(watched)
	changed := make(chan struct{}, 1)
	ms.env.claims.Subscribe(ctx, func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	wait := time.Duration(0)
	for watched.Wait(ctx, wait, changed) {
		wait = time.Hour
		if err := watched.Turn(ctx, "tagging machines", ms.tagMachines); err != nil && ctx.Err() == nil {
			telemetry.Log(ctx).WarnContext(ctx, "machines could not be tagged and are tried again", "error", err)
			wait = 10 * tagPause
		}
		sleep.For(ctx, tagPause) // while a hundred machines start, claims change all the time
	}
	return nil
}

// tagMachines gives registered machines the tags that were not known at launch.
func (ms *machines) tagMachines(ctx context.Context) error {
	if !ms.env.claims.WaitForSync(ctx) {
		return nil
	}
	var errs []error
	for _, claim := range ms.env.claims.All() {
		if !needsTags(claim) || ms.market.shifted(claim.Status.ProviderID) {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		called, err := ms.tag(ctx, claim)
		if err != nil {
			errs = append(errs, err)
		}
		if called {
			sleep.For(ctx, tagPause)
		}
	}
	return errors.Join(errs...)
}

// needsTags reports whether a claim's machine has registered and its tags were not checked yet.
func needsTags(claim *v1.NodeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Status.NodeName != "" && instanceID(claim.Status.ProviderID) != "" &&
		condition.IsTrue(claim, v1.ConditionTypeLaunched) &&
		(claim.Annotations[awsv1.AnnotationInstanceTagged] != "true" || claim.Annotations[awsv1.AnnotationClusterNameTagged] != "true")
}

// tag adds the tags that the machine lacks; a tag that it has stays, because it may be the user's. called reports
// whether EC2 was called to tag.
func (ms *machines) tag(ctx context.Context, claim *v1.NodeClaim) (called bool, err error) {
	defer bug.Catch(&err, "tagging the machine of NodeClaim "+claim.Name)
	id := instanceID(claim.Status.ProviderID)
	i, err := ms.fleet.Describe(ctx, id)
	if errors.Is(err, fleet.ErrGone) || errors.Is(err, fleet.ErrUnknown) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if missing := missingTags(ec2api.TagMap(i.Tags), claim, ms.env.settings.ClusterName); len(missing) > 0 {
		called = true
		tags := &ec2.CreateTagsInput{Resources: []string{id}, Tags: ec2api.Tags(missing)}
		if _, err := ms.env.clients.EC2.CreateTags(ctx, tags); err != nil {
			if ec2api.IsDenied(err) {
				telemetry.Log(ctx).ErrorContext(ctx, "a machine cannot be tagged", "NodeClaim", claim.Name, "error", ec2api.Denial(err))
			}
			return called, err
		}
	}
	return called, ms.env.annotate(ctx, claim, map[string]string{
		awsv1.AnnotationInstanceTagged: "true", awsv1.AnnotationClusterNameTagged: "true",
	})
}

// missingTags returns the tags that a registered machine lacks: the name of its node, its claim, its cluster.
func missingTags(has map[string]string, claim *v1.NodeClaim, cluster string) map[string]string {
	out := map[string]string{}
	for key, value := range map[string]string{
		awsv1.TagName: claim.Status.NodeName, awsv1.TagNodeClaim: claim.Name, awsv1.TagClusterName: cluster,
	} {
		if _, ok := has[key]; !ok {
			out[key] = value
		}
	}
	return out
}
