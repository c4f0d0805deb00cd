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

// nothing says which terms of a class select nothing: a mistyped tag is seen at once. It begins with the words by which tools know it.
func nothing(selector, kind, field string, terms any) string {
	const most = 500
	words := fmt.Sprintf("%s did not match any %s", selector, kind)
	text, err := json.Marshal(terms)
	if err != nil || len(text) > most {
		return words + ": see spec." + field
	}
	return fmt.Sprintf("%s: spec.%s is %s", words, field, text)
}

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
		// The cluster was upgraded, or AWS withdrew them. What runs is not drifted by that, and new machines are better than none.
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

// recent adds the images that were found to those that were found before.
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

// placementGroup keeps looking at a group that was found: it may be deleted while no machine is in it, and made again under its name.
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

// instanceProfile reports a missing permission or role by the condition: nothing else would tell the user why machines
// do not get the role that the class asks for.
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

// validation waits for what it depends on, then asks the validator.
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

// statusEqual compares what is written: lists that are empty and lists that are missing are the same.
func statusEqual(a, b *awsv1.EC2NodeClassStatus) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
