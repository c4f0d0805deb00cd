package preflight

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/network"
)

// fewAddresses is less than one larger machine with its pods wants.
const fewAddresses = 32

// tag returns the command that tags something for discovery.
func (l *look) tag(what string) string {
	return l.aws("ec2 create-tags --resources %s --tags Key=%s/discovery,Value=%s", what, v1.Group, l.Cluster)
}

// checkSubnets checks the subnets that classes select.
func (l *look) checkSubnets(ctx context.Context) ([]Finding, error) {
	var found []Finding
	for _, c := range l.all() {
		var subnets []ec2types.Subnet
		for _, filters := range network.SubnetQueries(c.Spec.SubnetSelectorTerms) {
			pages := ec2.NewDescribeSubnetsPaginator(l.ec2, &ec2.DescribeSubnetsInput{Filters: filters})
			for pages.HasMorePages() {
				page, err := pages.NextPage(ctx)
				if err != nil {
					return found, err
				}
				subnets = append(subnets, page.Subnets...)
			}
		}
		found = append(found, l.judgeSubnets(about(&c), subnets)...)
	}
	return found, nil
}

// judgeSubnets returns the finding about the subnets of a class.
func (l *look) judgeSubnets(class string, subnets []ec2types.Subnet) []Finding {
	zones := map[string]bool{}
	free := 0
	for _, s := range subnets {
		zones[aws.ToString(s.AvailabilityZone)] = true
		free += int(aws.ToInt32(s.AvailableIpAddressCount))
	}
	switch {
	case len(subnets) == 0:
		return one(Missing, l.tag("SUBNET-ID..."), "%s selects no subnet", class)
	case free < fewAddresses:
		return one(Missing, l.tag("LARGER-SUBNET-ID..."), "the %d subnets of %s have %d free addresses together",
			len(subnets), class, free)
	case len(zones) == 1:
		return one(Warning, l.tag("SUBNET-ID-OF-ANOTHER-ZONE..."),
			"the subnets of %s are in one zone: when it has no machines, there are none", class)
	}
	return one(OK, "", "%s: %d in %d zones, %d free addresses", class, len(subnets), len(zones), free)
}

// checkSecurityGroups checks that classes select security groups.
func (l *look) checkSecurityGroups(ctx context.Context) ([]Finding, error) {
	var found []Finding
	for _, c := range l.all() {
		n := 0
		for _, filters := range network.GroupQueries(c.Spec.SecurityGroupSelectorTerms) {
			pages := ec2.NewDescribeSecurityGroupsPaginator(l.ec2, &ec2.DescribeSecurityGroupsInput{Filters: filters})
			for pages.HasMorePages() {
				page, err := pages.NextPage(ctx)
				if err != nil {
					return found, err
				}
				n += len(page.SecurityGroups)
			}
		}
		if n == 0 {
			group := `"$(` + l.aws("eks describe-cluster --name %s --query "+
				"cluster.resourcesVpcConfig.clusterSecurityGroupId --output text", l.Cluster) + `)"`
			found = append(found, one(Missing, l.tag(group), "%s selects no security group", about(&c))...)
			continue
		}
		found = append(found, one(OK, "", "%s: %d", about(&c), n)...)
	}
	return found, nil
}

// checkImages checks that classes select images.
func (l *look) checkImages(ctx context.Context) ([]Finding, error) {
	if l.minor == "" {
		return one(Unknown, "", "which image is right depends on the cluster's version, which is not known"), nil
	}
	finder := ami.NewFinder(l.ec2, l.ssm, time.Minute)
	var found []Finding
	for _, c := range l.all() {
		command := "kubectl edit ec2nodeclass " + c.Name
		images, err := finder.Find(ctx, &c, l.minor)
		switch {
		case err != nil:
			found = append(found, one(Missing, command, "%s: %v", about(&c), err)...)
		case len(images) == 0:
			found = append(found, one(Missing, command, "%s selects no image", about(&c))...)
		default:
			found = append(found, one(OK, "", "%s: %d", about(&c), len(images))...)
		}
	}
	return found, nil
}
