// Package class keeps the status of EC2NodeClasses: what their selectors find and whether they can be launched. When a
// class is deleted, it removes what was made for the class in AWS.
//
// Each part of the status is a step (steps.go), which asks AWS and returns a finding. All steps run, also after one
// failed; a failed step leaves its part of the status as it was. One patch per turn writes the result (class.go).
// validate.go tries launches by dry runs, stamp.go hashes a class for drift, and edit.go predicts which machines an edit
// would replace. kubelet.go, schema.go and ignored.go check fields.
package class

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/network"
	"karpenter.sh/karpenter/internal/aws/reservation"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// images finds machine images.
type images interface {
	Find(ctx context.Context, nc *awsv1.EC2NodeClass, version string) ([]awsv1.AMI, error)
}

type networks interface {
	Subnets(context.Context, *awsv1.EC2NodeClass) (network.Subnets, error)
	SecurityGroups(context.Context, *awsv1.EC2NodeClass) ([]awsv1.SecurityGroup, error)
}

type reservations interface {
	Find(context.Context, *awsv1.EC2NodeClass, time.Time) (reservation.Found, error)
}

type groups interface {
	Find(context.Context, *awsv1.PlacementGroupSelector) (*awsv1.PlacementGroup, error)
}

type profiles interface {
	Ensure(context.Context, *awsv1.EC2NodeClass) (string, error)
	Exists(ctx context.Context, name string) (bool, error)
	DeleteFor(context.Context, *awsv1.EC2NodeClass) error
}

type templates interface {
	DeleteFor(ctx context.Context, class string) error
}

// claims are the NodeClaims of the cluster.
type claims interface{ All() []*v1.NodeClaim }

// Settings of a Controller.
type Settings struct {
	Cluster      string
	CABundle     string
	Reservations bool // the feature gate
	Isolated     bool // IAM cannot be reached when a class is deleted
	Version      func() string
	// Waiting is called when a deleted class waits for NodeClaims; Gone when a class is gone. Either may be nil.
	Waiting func(nc *awsv1.EC2NodeClass, message string)
	Gone    func(name string)
	// Unready is called for a condition that has become False, or is so for another reason, and of images that are none of the class any
	// more. It may be nil.
	Unready func(nc *awsv1.EC2NodeClass, c metav1.Condition)
	// BootstrapsTwice is called for a class whose user data bootstraps the node, which Karpenter does as well. It may be nil.
	BootstrapsTwice func(nc *awsv1.EC2NodeClass)
	// Wrote receives each object as written.
	Wrote func(*awsv1.EC2NodeClass)
}

// A Controller keeps classes. It may be used concurrently for different classes.
type Controller struct {
	Settings     Settings
	Kube         client.Client
	Images       images
	Networks     networks
	Reservations reservations
	Groups       groups
	Profiles     profiles
	Templates    templates
	Claims       claims
	Validator    *Validator
}

// A finding is the result of a step.
type finding struct {
	status          metav1.ConditionStatus // "" leaves the condition as it was
	reason, message string
	again           time.Duration // 0 for never
	err             error
}

// found returns a finding that all is well, to be looked at again after a while.
func found(again time.Duration) finding {
	return finding{status: metav1.ConditionTrue, again: again}
}

// missing returns a finding that something is wrong.
func missing(reason, message string, again time.Duration) finding {
	return finding{status: metav1.ConditionFalse, reason: reason, message: message, again: again}
}

// unsure returns a finding that a step failed.
func unsure(err error) finding { return finding{err: err} }

// Reconcile brings one class up to date: finalizer, hash, status. It returns when to look again, 0 if only a change
// matters.
func (c *Controller) Reconcile(ctx context.Context, stored *awsv1.EC2NodeClass) (time.Duration, error) {
	if stored.DeletionTimestamp != nil {
		return c.finalize(ctx, stored)
	}
	nc := stored.DeepCopy()
	if !slices.Contains(nc.Finalizers, awsv1.TerminationFinalizer) {
		nc.Finalizers = append(nc.Finalizers, awsv1.TerminationFinalizer)
		if err := c.patch(ctx, stored, nc); err != nil {
			return c.conflict(err)
		}
		stored = nc.DeepCopy()
	}
	stampErr := c.stamp(ctx, stored, nc)
	if apierrors.IsConflict(stampErr) || apierrors.IsNotFound(stampErr) {
		return c.conflict(stampErr)
	}
	if stampErr != nil { // a claim that cannot be written keeps the hash as it was, and nothing else
		nc = stored.DeepCopy()
	}
	stored = nc.DeepCopy()
	if c.Settings.BootstrapsTwice != nil && bootstrapsTwice(nc) {
		c.Settings.BootstrapsTwice(nc)
	}
	again, err := c.look(ctx, nc)
	err = errors.Join(stampErr, err)
	if patchErr := c.patchStatus(ctx, stored, nc); patchErr != nil {
		wait, patchErr := c.conflict(patchErr)
		return least(wait, again), errors.Join(err, patchErr)
	}
	return again, err
}

// bootstrapsTwice reports whether the user's own script bootstraps the node, which Karpenter does too. Such a node
// joins without the labels, taints and limits that it was chosen for, and pods could start before it has them. AL2023
// images have no such script, so it fails there.
func bootstrapsTwice(nc *awsv1.EC2NodeClass) bool {
	switch nc.AMIFamily() {
	case awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023:
		return nc.Spec.UserData != nil && strings.Contains(*nc.Spec.UserData, "/etc/eks/bootstrap.sh")
	}
	return false
}

// conflict turns the refusal of an outdated write into another turn after a second, when the newer object is here. An
// object that is gone is no error.
func (c *Controller) conflict(err error) (time.Duration, error) {
	if apierrors.IsConflict(err) {
		return time.Second, nil
	}
	return 0, client.IgnoreNotFound(err)
}

// least returns the sooner of two times; 0 means never.
func least(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// look runs every step on the class's status, also after one failed, and sets its conditions. It returns when to look
// again.
func (c *Controller) look(ctx context.Context, nc *awsv1.EC2NodeClass) (time.Duration, error) {
	object := c.judged(nc)
	condition.Init(object)
	var again time.Duration
	var errs []error
	for _, step := range []struct {
		condition string
		run       func(context.Context, *awsv1.EC2NodeClass) finding
	}{
		{awsv1.ConditionTypeAMIsReady, c.amis},
		{awsv1.ConditionTypeCapacityReservationsReady, c.reservations},
		{awsv1.ConditionTypePlacementGroupReady, c.placementGroup},
		{awsv1.ConditionTypeSubnetsReady, c.subnets},
		{awsv1.ConditionTypeSecurityGroupsReady, c.securityGroups},
		{awsv1.ConditionTypeInstanceProfileReady, c.instanceProfile},
		{awsv1.ConditionTypeValidationSucceeded, c.validation},
	} {
		f := step.run(ctx, nc)
		if f.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.condition, f.err))
			f = showError(object, step.condition, f)
		}
		if f.status != "" {
			condition.Set(object, metav1.Condition{Type: step.condition, Status: f.status, Reason: f.reason,
				Message: f.message}, time.Now())
		}
		again = least(again, f.again)
	}
	return again, errors.Join(errs...)
}

// showError puts the error of a step into a condition that has no answer for this generation yet: otherwise the user of a
// class that does not get ready would have to read the controller's log. An answer of before stays, and so does
// everything while AWS is only slow or broken.
func showError(object condition.Object, conditionType string, f finding) finding {
	if f.status == "" && !answered(object, conditionType) && !ec2api.IsThrottled(f.err) && !ec2api.IsServerFault(f.err) {
		f.status, f.reason, f.message = metav1.ConditionUnknown, awsv1.ReasonLookupFailed, ec2api.Explain(f.err)
	}
	return f
}

// answered reports whether a condition is True or False for the present generation.
func answered(object condition.Object, conditionType string) bool {
	c := condition.Get(object, conditionType)
	return c != nil && c.Status != metav1.ConditionUnknown && c.ObservedGeneration == object.GetGeneration()
}

// judged returns the class with the rules for its Ready condition: without reservations if they are not managed.
func (c *Controller) judged(nc *awsv1.EC2NodeClass) condition.Object {
	if c.Settings.Reservations {
		return nc
	}
	return nc.WithoutCapacityReservations()
}

// stamp writes the hash of the class into its annotations. When the version of the hash changes, the claims are
// rewritten first, so that the change does not make them drift.
func (c *Controller) stamp(ctx context.Context, stored, nc *awsv1.EC2NodeClass) error {
	present, err := stampOf(nc, c.Settings.CABundle)
	if err != nil {
		return nil // a kubelet configuration that cannot be read is reported by validation
	}
	old := Stored(nc.Annotations)
	if old == present {
		return nil
	}
	read := func(claim *v1.NodeClaim) drift.Stamp { return Stored(claim.Annotations) }
	for _, r := range drift.Migrate(old, present, c.claimsOf(nc.Name), read) {
		next := r.Claim.DeepCopy()
		annotate(next, r.Stamp)
		if err := c.Kube.Patch(ctx, next, client.MergeFrom(r.Claim)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("restamp NodeClaim %s: %w", r.Claim.Name, err)
		}
	}
	annotate(nc, present)
	return c.patch(ctx, stored, nc)
}

// annotate writes a hash into annotations.
func annotate(o client.Object, s drift.Stamp) {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[awsv1.AnnotationNodeClassHash] = s.Hash
	annotations[awsv1.AnnotationNodeClassHashVersion] = s.Version
	o.SetAnnotations(annotations)
}

// claimsOf returns the claims of a class.
func (c *Controller) claimsOf(class string) []*v1.NodeClaim {
	var out []*v1.NodeClaim
	for _, claim := range c.Claims.All() {
		if ref := claim.Spec.NodeClassRef; ref != nil && ref.Group == awsv1.Group && ref.Name == class {
			out = append(out, claim)
		}
	}
	return out
}

// patch writes metadata, and takes over the answer but for the status, which is written later.
func (c *Controller) patch(ctx context.Context, stored, nc *awsv1.EC2NodeClass) error {
	next := nc.DeepCopy()
	if err := c.Kube.Patch(ctx, next, patch.Over(stored)); err != nil {
		return err
	}
	next.Status = nc.Status
	*nc = *next
	c.wrote(nc)
	return nil
}

// patchStatus writes the status if it changed, and reports what went wrong.
func (c *Controller) patchStatus(ctx context.Context, stored, nc *awsv1.EC2NodeClass) error {
	if statusEqual(&stored.Status, &nc.Status) {
		return nil
	}
	if err := c.Kube.Status().Patch(ctx, nc, patch.Over(stored)); err != nil {
		return err
	}
	c.wrote(nc)
	c.tell(stored, nc)
	return nil
}

// tell calls Unready for each condition that became wrong, or is wrong for another reason, since the class was last
// written. Conditions that only depend on others are left out.
func (c *Controller) tell(old, nc *awsv1.EC2NodeClass) {
	if c.Settings.Unready == nil {
		return
	}
	for _, is := range nc.Status.Conditions {
		wrong := is.Status == metav1.ConditionFalse && is.Type != condition.Ready && is.Reason != awsv1.ReasonDependenciesNotReady
		if !wrong && is.Reason != awsv1.ReasonFormerAMIs {
			continue
		}
		was := condition.Get(old, is.Type)
		if was == nil || was.Status != is.Status || was.Reason != is.Reason || was.Message != is.Message {
			c.Settings.Unready(nc, is)
		}
	}
}

func (c *Controller) wrote(nc *awsv1.EC2NodeClass) {
	if c.Settings.Wrote != nil {
		c.Settings.Wrote(nc)
	}
}

const waitForClaims = 10 * time.Minute

// finalize removes what was made in AWS for a deleted class, once no claim needs it, and then the finalizer.
func (c *Controller) finalize(ctx context.Context, stored *awsv1.EC2NodeClass) (time.Duration, error) {
	if !slices.Contains(stored.Finalizers, awsv1.TerminationFinalizer) {
		return 0, nil
	}
	if users := c.claimsOf(stored.Name); len(users) > 0 {
		if c.Settings.Waiting != nil {
			c.Settings.Waiting(stored, "waiting for NodeClaims to terminate: "+telemetry.FirstFew(users, (*v1.NodeClaim).GetName))
		}
		return waitForClaims, nil
	}
	if stored.Spec.InstanceProfile == nil && !c.Settings.Isolated {
		if err := c.Profiles.DeleteFor(ctx, stored); err != nil {
			return 0, err
		}
	}
	if err := c.Templates.DeleteFor(ctx, stored.Name); err != nil {
		return 0, err
	}
	nc := stored.DeepCopy()
	nc.Finalizers = slices.DeleteFunc(nc.Finalizers, func(f string) bool { return f == awsv1.TerminationFinalizer })
	err := c.Kube.Patch(ctx, nc, patch.Over(stored))
	if client.IgnoreNotFound(err) != nil {
		return c.conflict(err)
	}
	c.Validator.Forget(stored.Name)
	if c.Settings.Gone != nil {
		c.Settings.Gone(stored.Name)
	}
	return 0, nil
}
