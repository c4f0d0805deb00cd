package class

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/placement"
	"karpenter.sh/karpenter/internal/aws/profile"
)

// How soon a step looks again.
const (
	shortInterval = time.Minute
	longInterval  = 5 * time.Minute
)

// Each step below checks one part of an EC2NodeClass, writes what it finds into the status, and returns a finding: the condition to set and
// when to look again. missing means that the class cannot be used as it was written; unsure means that a call failed, and leaves the
// condition unchanged.

// nothing returns the message for terms of a class that select nothing. It shows the terms, so that the user sees a mistyped tag at once.
// The first words are fixed, because tools recognize the message by them.
func nothing(selector, kind, field string, terms any) string {
	const most = 500
	words := fmt.Sprintf("%s did not match any %s", selector, kind)
	text, err := json.Marshal(terms)
	if err != nil || len(text) > most {
		return words + ": see spec." + field
	}
	return fmt.Sprintf("%s: spec.%s is %s", words, field, text)
}

// amis finds the images of a class. If the alias in its terms has no images any more, the images found before stay in use, as long as they
// were found for the present spec.
func (c *Controller) amis(ctx context.Context, nc *awsv1.EC2NodeClass) finding {
	if slices.ContainsFunc(nc.Spec.AMISelectorTerms, func(t awsv1.AMISelectorTerm) bool { return t.ID == awsv1.PlaceholderAMI }) {
		nc.Status.AMIs = nil // EC2 would not even take the ID for one
		return missing(awsv1.ReasonAMINotFound, "AMISelector did not match any AMIs: v1beta1 says amiFamily Ubuntu and "+
			"selects no images: name them in spec.amiSelectorTerms by id, name or tags", 0)
	}
	images, err := c.Images.Find(ctx, nc, c.Settings.Version())
	var unsupported *ami.UnsupportedAliasError
	var none *ami.NoAliasImagesError
	switch {
	case errors.As(err, &none) && len(nc.Status.AMIs) > 0 && condition.IsTrue(nc, awsv1.ConditionTypeAMIsReady) &&
		answered(nc, awsv1.ConditionTypeAMIsReady):
		// The cluster was upgraded, or AWS withdrew the images. Running machines do not drift for that, and a new machine with the former
		// image is better than none.
		return finding{status: metav1.ConditionTrue, reason: awsv1.ReasonFormerAMIs, message: none.Error() +
			"; the images that were found before are used", again: shortInterval}
	case errors.As(err, &none):
		nc.Status.AMIs = nil
		return missing(awsv1.ReasonAMINotFound, "AMISelector did not match any AMIs: "+none.Error(), shortInterval)
	case errors.As(err, &unsupported):
		nc.Status.AMIs = nil
		return missing(awsv1.ReasonUnsupportedAlias, unsupported.Message, 0)
	case err != nil:
		return unsure(err)
	}
	nc.Status.AMIs = images
	nc.Status.RecentAMIs = recent(nc.Status.RecentAMIs, images, nc.AMIFamily())
	if len(images) == 0 {
		return missing(awsv1.ReasonAMINotFound, nothing("AMISelector", "AMIs", "amiSelectorTerms",
			nc.Spec.AMISelectorTerms), shortInterval)
	}
	return found(longInterval)
}

// recent returns the images that were found now, followed by those found before, each image and family once. It drops the oldest beyond
// MaxRecentAMIs. A stopped rollout may go back to these images.
func recent(before []awsv1.RecentAMI, found []awsv1.AMI, family string) []awsv1.RecentAMI {
	out := make([]awsv1.RecentAMI, 0, len(found)+len(before))
	for _, image := range found {
		out = append(out, awsv1.RecentAMI{AMI: image, Family: family})
	}
	for _, old := range before {
		if old.Family != family || !slices.ContainsFunc(found, func(image awsv1.AMI) bool { return image.ID == old.ID }) {
			out = append(out, old)
		}
	}
	return out[:min(len(out), awsv1.MaxRecentAMIs)]
}

// reservations finds the capacity reservations of a class, and looks again when the first of them ends. A class is good without any.
func (c *Controller) reservations(ctx context.Context, nc *awsv1.EC2NodeClass) finding {
	if !c.Settings.Reservations {
		nc.Status.CapacityReservations = nil
		f := found(0)
		if len(nc.Spec.CapacityReservationSelectorTerms) > 0 {
			f.message = "spec.capacityReservationSelectorTerms has no effect: the feature gate ReservedCapacity is off"
		}
		return f
	}
	now := time.Now()
	selected, err := c.Reservations.Find(ctx, nc, now)
	if err != nil {
		return unsure(err)
	}
	nc.Status.CapacityReservations = selected.Usable
	again := shortInterval
	for _, r := range selected.Usable {
		if r.EndTime != nil {
			again = min(again, max(time.Second, r.EndTime.Sub(now)))
		}
	}
	f := found(again)
	if len(selected.Others) > 0 { // the class is good without them
		f.message = "not used, as this version does not know how to launch into reservations of their type: " +
			strings.Join(selected.Others, ", ")
	}
	return f
}

// placementGroup finds the placement group of a class. It also looks again at a group that was found, because the user may delete it while
// no machine is in it, and create another with its name. If AWS does not answer, the group found before stays in use while it is selected.
func (c *Controller) placementGroup(ctx context.Context, nc *awsv1.EC2NodeClass) finding {
	selector := nc.Spec.PlacementGroupSelector
	if selector == nil {
		nc.Status.PlacementGroup = nil
		return found(0)
	}
	group, err := c.Groups.Find(ctx, selector)
	var f finding
	switch {
	case ec2api.IsDenied(err):
		f = missing(awsv1.ReasonPlacementGroupResolutionFailed, ec2api.Denial(err), 0)
		f.err = err
	case err != nil:
		f = unsure(err)
	case group == nil:
		f = missing(awsv1.ReasonPlacementGroupNotFound,
			nothing("PlacementGroupSelector", "available placement groups", "placementGroupSelector", selector)+
				"; create the group in this region, or correct the name or id", shortInterval)
	default:
		nc.Status.PlacementGroup = group
		return found(shortInterval)
	}
	if !placement.Is(selector, nc.Status.PlacementGroup) || err == nil {
		nc.Status.PlacementGroup = nil // machines must not go into a group that is selected no more
	}
	return f
}

// subnets finds the subnets of a class. In a cluster with IPv6, subnets without an IPv6 range are not used, and the message names them.
func (c *Controller) subnets(ctx context.Context, nc *awsv1.EC2NodeClass) finding {
	selected, err := c.Networks.Subnets(ctx, nc)
	if err != nil {
		return unsure(err)
	}
	nc.Status.Subnets = selected.Usable
	unfit := ""
	if len(selected.Unfit) > 0 {
		unfit = "the cluster's pods have IPv6 addresses, and these subnets have no IPv6 range, so that they are not " +
			"used (associate a range, or select others): " + strings.Join(selected.Unfit, ", ")
	}
	switch {
	case len(selected.Usable) > 0:
		f := found(shortInterval)
		f.message = unfit
		return f
	case unfit != "":
		return missing(awsv1.ReasonSubnetsNotFound, "SubnetSelector did not match any Subnets that can be used: "+unfit, shortInterval)
	}
	return missing(awsv1.ReasonSubnetsNotFound, nothing("SubnetSelector", "Subnets", "subnetSelectorTerms",
		nc.Spec.SubnetSelectorTerms), shortInterval)
}

// securityGroups finds the security groups of a class.
func (c *Controller) securityGroups(ctx context.Context, nc *awsv1.EC2NodeClass) finding {
	list, err := c.Networks.SecurityGroups(ctx, nc)
	if err != nil {
		return unsure(err)
	}
	nc.Status.SecurityGroups = list
	if len(list) == 0 {
		return missing(awsv1.ReasonSecurityGroupsNotFound, nothing("SecurityGroupSelector", "SecurityGroups",
			"securityGroupSelectorTerms", nc.Spec.SecurityGroupSelectorTerms), shortInterval)
	}
	return found(longInterval)
}

// instanceProfile makes sure that the class has an instance profile with its role. The condition says if the permission or the role for
// that is missing, because nothing else would tell the user why machines do not get the role.
func (c *Controller) instanceProfile(ctx context.Context, nc *awsv1.EC2NodeClass) finding {
	name, err := c.Profiles.Ensure(ctx, nc)
	var f finding
	var noRole *profile.NoRoleError
	switch {
	case err == nil:
		nc.Status.InstanceProfile = name
		return found(longInterval)
	case errors.Is(err, profile.ErrUnchecked): // no reason to stop using it
	case ec2api.IsDenied(err):
		f = missing(awsv1.ReasonUnauthorized, ec2api.Denial(err), 0)
	case errors.As(err, &noRole):
		f = missing(awsv1.ReasonRoleNotFound, "role "+noRole.Role+" does not exist; create it or correct spec.role", 0)
	}
	f.err = err
	return f
}

// validation asks the validator. To a class that is valid it adds notes about fields that are ignored.
func (c *Controller) validation(ctx context.Context, nc *awsv1.EC2NodeClass) finding {
	f := c.Validator.validate(ctx, nc)
	if f.status == metav1.ConditionTrue {
		f.message = withNotes(f.message, Ignored(nc))
	}
	return f
}

// withNotes adds notes to a message, which may be empty.
func withNotes(message string, notes []string) string {
	if message != "" {
		notes = append([]string{message}, notes...)
	}
	return strings.Join(notes, "; ")
}

// statusEqual reports whether two statuses are the same once they are written: an empty list equals a missing one.
func statusEqual(a, b *awsv1.EC2NodeClassStatus) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
