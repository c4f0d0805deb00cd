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

// Calls that mostly people make.

// rebootInstances answers as EC2 does, which says nothing: a machine that boots anew stays the machine that it is.
func rebootInstances(c *call, in *ec2.RebootInstancesInput) (*ec2.RebootInstancesOutput, error) {
	some, err := some(c, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	for _, m := range some {
		if m.state() != ec2types.InstanceStateNameRunning {
			return nil, refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be rebooted.", m.id())
		}
	}
	for _, m := range some {
		c.world.reboot(m, c.now)
	}
	return &ec2.RebootInstancesOutput{}, nil
}

func describeInstanceAttribute(c *call, in *ec2.DescribeInstanceAttributeInput) (*ec2.DescribeInstanceAttributeOutput, error) {
	some, err := some(c, []string{aws.ToString(in.InstanceId)})
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
func describeTags(c *call, in *ec2.DescribeTagsInput) (*ec2.DescribeTagsOutput, error) {
	ids := slices.Concat(slices.Collect(maps.Keys(c.world.st.Machines)), slices.Collect(maps.Keys(c.world.st.Templates)),
		slices.Collect(maps.Keys(c.world.st.Reservations)), slices.Collect(maps.Keys(c.world.st.Groups)))
	for _, s := range c.world.st.Subnets {
		ids = append(ids, *s.Subnet.SubnetId)
	}
	for _, g := range c.world.st.Firewalls {
		ids = append(ids, *g.GroupId)
	}
	for _, i := range c.world.st.Images {
		ids = append(ids, *i.Image.ImageId)
	}
	var all []ec2types.TagDescription
	for _, id := range ids {
		tags, ok := tagged(c, id)
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
func describeFleets(c *call, in *ec2.DescribeFleetsInput) (*ec2.DescribeFleetsOutput, error) {
	out := &ec2.DescribeFleetsOutput{Fleets: []ec2types.FleetData{}}
	for _, id := range in.FleetIds {
		f := ec2types.FleetData{FleetId: &id, Type: ec2types.FleetTypeInstant, FleetState: ec2types.FleetStateCodeActive}
		for _, m := range slices.SortedFunc(maps.Values(c.world.st.Machines),
			func(a, b *machine) int { return cmp.Compare(a.id(), b.id()) }) {
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

func copyImage(c *call, in *ec2.CopyImageInput) (*ec2.CopyImageOutput, error) {
	return idempotent(c, in.ClientToken, in, func() (*ec2.CopyImageOutput, error) { return copied(c, in) })
}

func copied(c *call, in *ec2.CopyImageInput) (*ec2.CopyImageOutput, error) {
	source, ok := c.world.image(aws.ToString(in.SourceImageId))
	if !ok {
		return nil, refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", aws.ToString(in.SourceImageId))
	}
	made := source
	made.Image.ImageId = aws.String(c.world.newID("ami"))
	made.Image.Name, made.Image.Description = in.Name, in.Description
	made.Image.OwnerId, made.Image.ImageOwnerAlias, made.Image.Public = &c.world.cfg.Account, nil, aws.Bool(false)
	made.Image.CreationDate = aws.String(c.now.UTC().Format("2006-01-02T15:04:05.000Z"))
	made.Image.DeprecationTime = nil
	made.Image.Tags = tagsFor(in.TagSpecifications, ec2types.ResourceTypeImage)
	if aws.ToBool(in.CopyImageTags) {
		made.Image.Tags = withTags(source.Image.Tags, made.Image.Tags)
	}
	c.world.st.Images = append(c.world.st.Images, made)
	return &ec2.CopyImageOutput{ImageId: made.Image.ImageId}, nil
}

func deprecateImage(c *call, in *ec2.EnableImageDeprecationInput) (*ec2.EnableImageDeprecationOutput, error) {
	for i := range c.world.st.Images {
		if *c.world.st.Images[i].Image.ImageId != aws.ToString(in.ImageId) {
			continue
		}
		if aws.ToString(c.world.st.Images[i].Image.OwnerId) != c.world.cfg.Account {
			return nil, refuse("AuthFailure", "Not authorized for image:%s", aws.ToString(in.ImageId))
		}
		c.world.st.Images[i].Image.DeprecationTime = aws.String(aws.ToTime(in.DeprecateAt).UTC().Format("2006-01-02T15:04:05.000Z"))
		return &ec2.EnableImageDeprecationOutput{Return: aws.Bool(true)}, nil
	}
	return nil, refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", aws.ToString(in.ImageId))
}

func createSecurityGroup(c *call, in *ec2.CreateSecurityGroupInput) (*ec2.CreateSecurityGroupOutput, error) {
	vpc := cmp.Or(aws.ToString(in.VpcId), *c.world.st.Vpcs[0].VpcId)
	if !slices.ContainsFunc(c.world.st.Vpcs, func(v ec2types.Vpc) bool { return *v.VpcId == vpc }) {
		return nil, refuse("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", vpc)
	}
	for _, g := range c.world.st.Firewalls {
		if *g.GroupName == aws.ToString(in.GroupName) && *g.VpcId == vpc {
			return nil, refuse("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", *g.GroupName, vpc)
		}
	}
	id := c.world.newID("sg")
	tags := tagsFor(in.TagSpecifications, ec2types.ResourceTypeSecurityGroup)
	c.world.st.Firewalls = append(c.world.st.Firewalls, ec2types.SecurityGroup{
		GroupId: &id, GroupName: in.GroupName, Description: in.Description, VpcId: &vpc, OwnerId: &c.world.cfg.Account, Tags: tags,
	})
	return &ec2.CreateSecurityGroupOutput{GroupId: &id, Tags: tags}, nil
}

func modifySubnetAttribute(c *call, in *ec2.ModifySubnetAttributeInput) (*ec2.ModifySubnetAttributeOutput, error) {
	s, ok := c.world.subnet(aws.ToString(in.SubnetId))
	if !ok {
		return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", aws.ToString(in.SubnetId))
	}
	if in.MapPublicIpOnLaunch != nil {
		s.Subnet.MapPublicIpOnLaunch = in.MapPublicIpOnLaunch.Value
	}
	return &ec2.ModifySubnetAttributeOutput{}, nil
}
