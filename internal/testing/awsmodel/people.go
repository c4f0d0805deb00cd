package awsmodel

import (
	"cmp"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Calls that only people make: Karpenter has no need of it.

// rebootInstances answers as EC2 does, which says nothing: a machine that boots anew stays the machine that it is.
func (c *call) rebootInstances(in *ec2.RebootInstancesInput) (*ec2.RebootInstancesOutput, error) {
	some, err := c.some(in.InstanceIds)
	if err != nil {
		return nil, err
	}
	for _, m := range some {
		if m.state() != ec2types.InstanceStateNameRunning {
			return nil, refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be rebooted.", m.id())
		}
	}
	return &ec2.RebootInstancesOutput{}, nil
}

func (c *call) describeInstanceAttribute(in *ec2.DescribeInstanceAttributeInput) (*ec2.DescribeInstanceAttributeOutput, error) {
	some, err := c.some([]string{aws.ToString(in.InstanceId)})
	if err != nil {
		return nil, err
	}
	m := some[0]
	out := &ec2.DescribeInstanceAttributeOutput{InstanceId: in.InstanceId}
	switch in.Attribute {
	case ec2types.InstanceAttributeNameUserData:
		out.UserData = &ec2types.AttributeValue{Value: aws.String(base64.StdEncoding.EncodeToString([]byte(m.UserData)))}
	case ec2types.InstanceAttributeNameInstanceType:
		out.InstanceType = &ec2types.AttributeValue{Value: aws.String(string(m.Now.InstanceType))}
	case ec2types.InstanceAttributeNameGroupSet:
		out.Groups = m.Now.SecurityGroups
	case ec2types.InstanceAttributeNameDisableApiTermination:
		out.DisableApiTermination = &ec2types.AttributeBooleanValue{Value: aws.Bool(false)}
	default:
		return nil, refuse("InvalidParameterValue",
			"The model does not know attribute '%s'; it knows userData, instanceType, groupSet and disableApiTermination", in.Attribute)
	}
	return out, nil
}

// describeTags lists the tags of everything that can be tagged.
func (c *call) describeTags(in *ec2.DescribeTagsInput) (*ec2.DescribeTagsOutput, error) {
	ids := slices.Concat(slices.Collect(maps.Keys(c.st.Machines)), slices.Collect(maps.Keys(c.st.Templates)),
		slices.Collect(maps.Keys(c.st.Reservations)), slices.Collect(maps.Keys(c.st.Groups)))
	for _, s := range c.st.Subnets {
		ids = append(ids, *s.Subnet.SubnetId)
	}
	for _, g := range c.st.Firewalls {
		ids = append(ids, *g.GroupId)
	}
	for _, i := range c.st.Images {
		ids = append(ids, *i.Image.ImageId)
	}
	var all []ec2types.TagDescription
	for _, id := range ids {
		tags, ok := c.tagged(id)
		if !ok {
			continue
		}
		prefix, _, _ := strings.Cut(id, "-")
		for _, t := range *tags {
			d := ec2types.TagDescription{Key: t.Key, Value: t.Value, ResourceId: &id, ResourceType: ec2types.ResourceType(kinds[prefix])}
			wanted, err := matches(in.Filters, d, tagFilters, []ec2types.Tag{t})
			if err != nil {
				return nil, err
			}
			if wanted {
				all = append(all, d)
			}
		}
	}
	out, next, err := page(all, in.MaxResults, in.NextToken, 5, 1000,
		func(d ec2types.TagDescription) string { return *d.ResourceId + "/" + *d.Key })
	return &ec2.DescribeTagsOutput{Tags: out, NextToken: next}, err
}

var tagFilters = filters[ec2types.TagDescription]{
	"key":           func(d ec2types.TagDescription) []string { return []string{*d.Key} },
	"value":         func(d ec2types.TagDescription) []string { return []string{*d.Value} },
	"resource-id":   func(d ec2types.TagDescription) []string { return []string{*d.ResourceId} },
	"resource-type": func(d ec2types.TagDescription) []string { return []string{string(d.ResourceType)} },
}

// describeFleets shows instant fleets by the machines that they made: EC2 keeps nothing else of them, and shows only those that are
// asked for by id.
func (c *call) describeFleets(in *ec2.DescribeFleetsInput) (*ec2.DescribeFleetsOutput, error) {
	out := &ec2.DescribeFleetsOutput{Fleets: []ec2types.FleetData{}}
	for _, id := range in.FleetIds {
		f := ec2types.FleetData{FleetId: &id, Type: ec2types.FleetTypeInstant, FleetState: ec2types.FleetStateCodeActive}
		for _, m := range slices.SortedFunc(maps.Values(c.st.Machines), func(a, b *machine) int { return cmp.Compare(a.id(), b.id()) }) {
			if m.Fleet == id {
				f.Instances = append(f.Instances, ec2types.DescribeFleetsInstances{
					InstanceIds: []string{m.id()}, InstanceType: m.Now.InstanceType,
					Lifecycle: ec2types.InstanceLifecycle(cmp.Or(string(m.Now.InstanceLifecycle), "on-demand")),
				})
			}
		}
		if len(f.Instances) == 0 {
			return nil, refuse("InvalidFleetId.NotFound", "The fleet '%s' does not exist", id)
		}
		out.Fleets = append(out.Fleets, f)
	}
	return out, nil
}

func (c *call) copyImage(in *ec2.CopyImageInput) (*ec2.CopyImageOutput, error) {
	return idempotent(c, in.ClientToken, in, func() (*ec2.CopyImageOutput, error) { return c.copied(in) })
}

func (c *call) copied(in *ec2.CopyImageInput) (*ec2.CopyImageOutput, error) {
	source, ok := c.image(aws.ToString(in.SourceImageId))
	if !ok {
		return nil, refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", aws.ToString(in.SourceImageId))
	}
	made := source
	made.Image.ImageId = aws.String(c.newID("ami"))
	made.Image.Name, made.Image.Description = in.Name, in.Description
	made.Image.OwnerId, made.Image.ImageOwnerAlias, made.Image.Public = &c.cfg.Account, nil, aws.Bool(false)
	made.Image.CreationDate = aws.String(c.now.UTC().Format("2006-01-02T15:04:05.000Z"))
	made.Image.DeprecationTime = nil
	made.Image.Tags = tagsFor(in.TagSpecifications, ec2types.ResourceTypeImage)
	if aws.ToBool(in.CopyImageTags) {
		made.Image.Tags = withTags(source.Image.Tags, made.Image.Tags)
	}
	c.st.Images = append(c.st.Images, made)
	return &ec2.CopyImageOutput{ImageId: made.Image.ImageId}, nil
}

func (c *call) deprecateImage(in *ec2.EnableImageDeprecationInput) (*ec2.EnableImageDeprecationOutput, error) {
	for i := range c.st.Images {
		if *c.st.Images[i].Image.ImageId != aws.ToString(in.ImageId) {
			continue
		}
		if aws.ToString(c.st.Images[i].Image.OwnerId) != c.cfg.Account {
			return nil, refuse("AuthFailure", "Not authorized for image:%s", aws.ToString(in.ImageId))
		}
		c.st.Images[i].Image.DeprecationTime = aws.String(aws.ToTime(in.DeprecateAt).UTC().Format("2006-01-02T15:04:05.000Z"))
		return &ec2.EnableImageDeprecationOutput{Return: aws.Bool(true)}, nil
	}
	return nil, refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", aws.ToString(in.ImageId))
}

func (c *call) createSecurityGroup(in *ec2.CreateSecurityGroupInput) (*ec2.CreateSecurityGroupOutput, error) {
	vpc := cmp.Or(aws.ToString(in.VpcId), *c.st.Vpcs[0].VpcId)
	if !slices.ContainsFunc(c.st.Vpcs, func(v ec2types.Vpc) bool { return *v.VpcId == vpc }) {
		return nil, refuse("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", vpc)
	}
	for _, g := range c.st.Firewalls {
		if *g.GroupName == aws.ToString(in.GroupName) && *g.VpcId == vpc {
			return nil, refuse("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", *g.GroupName, vpc)
		}
	}
	id := c.newID("sg")
	tags := tagsFor(in.TagSpecifications, ec2types.ResourceTypeSecurityGroup)
	c.st.Firewalls = append(c.st.Firewalls, ec2types.SecurityGroup{
		GroupId: &id, GroupName: in.GroupName, Description: in.Description, VpcId: &vpc, OwnerId: &c.cfg.Account, Tags: tags,
	})
	return &ec2.CreateSecurityGroupOutput{GroupId: &id, Tags: tags}, nil
}

func (c *call) modifySubnetAttribute(in *ec2.ModifySubnetAttributeInput) (*ec2.ModifySubnetAttributeOutput, error) {
	s, ok := c.subnet(aws.ToString(in.SubnetId))
	if !ok {
		return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", aws.ToString(in.SubnetId))
	}
	if in.MapPublicIpOnLaunch != nil {
		s.Subnet.MapPublicIpOnLaunch = in.MapPublicIpOnLaunch.Value
	}
	return &ec2.ModifySubnetAttributeOutput{}, nil
}
