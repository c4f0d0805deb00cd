package awsmodel

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// runSpec resolves a RunInstances call: its parameters laid over those of its template, if it names one.
func (c *call) runSpec(in *ec2.RunInstancesInput) (*spec, error) {
	d := &ec2types.RequestLaunchTemplateData{}
	var t *template
	version := 0
	if ref := in.LaunchTemplate; ref != nil {
		var err error
		if t, err = findTemplate(c, ref.LaunchTemplateId, ref.LaunchTemplateName); err != nil {
			return nil, err
		}
		if version, err = t.version(aws.ToString(ref.Version)); err != nil {
			return nil, err
		}
		d = copyOf(*t.Versions[version-1].Data)
	}
	if err := lay(d, in); err != nil {
		return nil, err
	}
	o := override{subnetID: aws.ToString(in.SubnetId), capacityType: onDemand}
	if m := d.InstanceMarketOptions; m != nil && m.MarketType == ec2types.MarketTypeSpot {
		o.capacityType = spot
	}
	if p := in.Placement; p != nil {
		o.zone = aws.ToString(p.AvailabilityZone)
	}
	s, err := c.resolve(d, o)
	if err != nil {
		return nil, err
	}
	if err := checkTagSpecs(in.TagSpecifications, machineTags...); err != nil {
		return nil, err
	}
	s.tags, s.template, s.version, s.token = in.TagSpecifications, t, version, aws.ToString(in.ClientToken)
	return s, nil
}

// machineTags are the kinds of resources that a call which launches machines can tag.
var machineTags = []ec2types.ResourceType{ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume,
	ec2types.ResourceTypeNetworkInterface, ec2types.ResourceTypeSpotInstancesRequest}

func checkTagSpecs(specs []ec2types.TagSpecification, kinds ...ec2types.ResourceType) error {
	for _, s := range specs {
		if !slices.Contains(kinds, s.ResourceType) {
			return refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", s.ResourceType)
		}
		if err := checkTags(s.Tags); err != nil {
			return err
		}
	}
	return nil
}

// launchMembers are the members of RunInstances that a template has too, under the same names.
var launchMembers = []string{
	"ImageId", "InstanceType", "UserData", "IamInstanceProfile", "Monitoring", "BlockDeviceMappings",
	"MetadataOptions", "SecurityGroupIds",
	"NetworkInterfaces", "CpuOptions", "Placement", "EnclaveOptions", "CapacityReservationSpecification",
	"InstanceMarketOptions", "EbsOptimized", "KeyName",
}

// lay puts the members that the call sets over those of the template. The shapes differ in type but not in member names,
// so JSON carries one into the other.
func lay(d *ec2types.RequestLaunchTemplateData, in *ec2.RunInstancesInput) error {
	from, to := reflect.ValueOf(in).Elem(), reflect.ValueOf(d).Elem()
	for _, name := range launchMembers {
		if from.FieldByName(name).IsZero() {
			continue
		}
		raw, err := json.Marshal(from.FieldByName(name).Interface())
		if err != nil {
			return err
		}
		target := to.FieldByName(name)
		target.SetZero()
		if err := json.Unmarshal(raw, target.Addr().Interface()); err != nil {
			return refuse("UnsupportedOperation", "The model does not act on %s of this form: %v", name, err)
		}
	}
	return nil
}
