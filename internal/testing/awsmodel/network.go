package awsmodel

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"karpenter.sh/karpenter/internal/aws/awsdata"
)

func (c *call) describeSubnets(in *ec2.DescribeSubnetsInput) (*ec2.DescribeSubnetsOutput, error) {
	for _, id := range in.SubnetIds {
		if _, ok := c.subnet(id); !ok {
			return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	var out []ec2types.Subnet
	for _, s := range c.st.Subnets {
		n := s.Subnet
		n.AvailableIpAddressCount = aws.Int32(int32(s.free()))
		ok, err := matches(in.Filters, n, subnetFilters, n.Tags)
		if err != nil {
			return nil, err
		}
		if ok && known(in.SubnetIds, n.SubnetId) {
			out = append(out, n)
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 5, 1000, func(s ec2types.Subnet) string { return *s.SubnetId })
	return &ec2.DescribeSubnetsOutput{Subnets: out, NextToken: next}, err
}

var subnetFilters = filters[ec2types.Subnet]{
	"subnet-id":            func(s ec2types.Subnet) []string { return []string{*s.SubnetId} },
	"vpc-id":               func(s ec2types.Subnet) []string { return []string{*s.VpcId} },
	"availability-zone":    func(s ec2types.Subnet) []string { return []string{*s.AvailabilityZone} },
	"availability-zone-id": func(s ec2types.Subnet) []string { return []string{*s.AvailabilityZoneId} },
	"cidr-block":           func(s ec2types.Subnet) []string { return []string{*s.CidrBlock} },
	"state":                func(s ec2types.Subnet) []string { return []string{string(s.State)} },
	"owner-id":             func(s ec2types.Subnet) []string { return []string{*s.OwnerId} },
	"default-for-az":       func(s ec2types.Subnet) []string { return boolValue(s.DefaultForAz) },
	"available-ip-address-count": func(s ec2types.Subnet) []string {
		return []string{strconv.Itoa(int(*s.AvailableIpAddressCount))}
	},
}

// AddSubnet adds a subnet of the given size, without IPv6, to a zone and returns its id.
func (c *Cloud) AddSubnet(zone, cidr string, tags map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seedSubnet(*c.st.Vpcs[0].VpcId, zone, 0)
	s.Subnet.SubnetId = aws.String(c.newID("subnet"))
	s.Subnet.SubnetArn = aws.String(c.cfg.arn("ec2", "subnet/"+*s.Subnet.SubnetId))
	s.Subnet.CidrBlock, s.Subnet.Ipv6CidrBlockAssociationSet = &cidr, nil
	s.Subnet.Tags = nil
	for k, v := range tags {
		s.Subnet.Tags = withTags(s.Subnet.Tags, tagList(k, v))
	}
	c.st.Subnets = append(c.st.Subnets, s)
	c.changed()
	return *s.Subnet.SubnetId
}

// AddOutpost adds an Outpost with machines of the given types beside a zone, and a subnet of the given size on it, whose id it returns.
func (c *Cloud) AddOutpost(zone, cidr string, types []string, tags map[string]string) string {
	id := c.AddSubnet(zone, cidr, tags)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.st.Subnets {
		if *s.Subnet.SubnetId == id {
			s.Subnet.OutpostArn, s.Outpost = aws.String(c.cfg.arn("outposts", "outpost/"+nameID("op", id))), types
		}
	}
	c.changed()
	return id
}

func (c *call) describeSecurityGroups(in *ec2.DescribeSecurityGroupsInput) (*ec2.DescribeSecurityGroupsOutput, error) {
	var out []ec2types.SecurityGroup
	for _, id := range in.GroupIds {
		if !slices.ContainsFunc(c.st.Firewalls, func(g ec2types.SecurityGroup) bool { return *g.GroupId == id }) {
			return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	for _, g := range c.st.Firewalls {
		ok, err := matches(in.Filters, g, groupFilters, g.Tags)
		if err != nil {
			return nil, err
		}
		if ok && known(in.GroupIds, g.GroupId) && known(in.GroupNames, g.GroupName) {
			out = append(out, g)
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 5, 1000, func(g ec2types.SecurityGroup) string { return *g.GroupId })
	return &ec2.DescribeSecurityGroupsOutput{SecurityGroups: out, NextToken: next}, err
}

var groupFilters = filters[ec2types.SecurityGroup]{
	"group-id":    func(g ec2types.SecurityGroup) []string { return []string{*g.GroupId} },
	"group-name":  func(g ec2types.SecurityGroup) []string { return []string{*g.GroupName} },
	"vpc-id":      func(g ec2types.SecurityGroup) []string { return []string{*g.VpcId} },
	"owner-id":    func(g ec2types.SecurityGroup) []string { return []string{*g.OwnerId} },
	"description": func(g ec2types.SecurityGroup) []string { return []string{*g.Description} },
}

// AddSecurityGroup adds a group and returns its id.
func (c *Cloud) AddSecurityGroup(name string, tags map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.newID("sg")
	g := ec2types.SecurityGroup{
		GroupId: &id, GroupName: &name, Description: &name, OwnerId: &c.cfg.Account, VpcId: c.st.Vpcs[0].VpcId,
		SecurityGroupArn: aws.String(c.cfg.arn("ec2", "security-group/"+id)),
	}
	for k, v := range tags {
		g.Tags = withTags(g.Tags, tagList(k, v))
	}
	c.st.Firewalls = append(c.st.Firewalls, g)
	c.changed()
	return id
}

func (c *call) describeVpcs(in *ec2.DescribeVpcsInput) (*ec2.DescribeVpcsOutput, error) {
	out := []ec2types.Vpc{}
	for _, v := range c.st.Vpcs {
		ok, err := matches(in.Filters, v, vpcFilters, v.Tags)
		if err != nil {
			return nil, err
		}
		if ok && known(in.VpcIds, v.VpcId) {
			out = append(out, v)
		}
	}
	return &ec2.DescribeVpcsOutput{Vpcs: out}, nil
}

var vpcFilters = filters[ec2types.Vpc]{
	"vpc-id":     func(v ec2types.Vpc) []string { return []string{*v.VpcId} },
	"cidr":       func(v ec2types.Vpc) []string { return []string{*v.CidrBlock} },
	"is-default": func(v ec2types.Vpc) []string { return boolValue(v.IsDefault) },
}

func (c *call) describeAvailabilityZones(in *ec2.DescribeAvailabilityZonesInput) (*ec2.DescribeAvailabilityZonesOutput, error) {
	out := []ec2types.AvailabilityZone{}
	for _, z := range c.data.zones {
		state := ec2types.AvailabilityZoneStateAvailable
		if slices.Contains(c.faults.ZonesDown, z) {
			state = ec2types.AvailabilityZoneStateImpaired
		}
		group := c.data.groupOf(z)
		zone := ec2types.AvailabilityZone{
			ZoneName: &z, ZoneId: aws.String(c.data.zoneID(z)), RegionName: &c.cfg.Region, GroupName: &group,
			NetworkBorderGroup: &group, State: state, ZoneType: aws.String("availability-zone"),
			OptInStatus: ec2types.AvailabilityZoneOptInStatusOptInNotRequired, Messages: []ec2types.AvailabilityZoneMessage{},
		}
		if group != c.cfg.Region {
			zone.ZoneType, zone.OptInStatus = aws.String("local-zone"), ec2types.AvailabilityZoneOptInStatusOptedIn
		}
		ok, err := matches(in.Filters, zone, zoneFilters, nil)
		if err != nil {
			return nil, err
		}
		if ok && known(in.ZoneNames, zone.ZoneName) && known(in.ZoneIds, zone.ZoneId) {
			out = append(out, zone)
		}
	}
	return &ec2.DescribeAvailabilityZonesOutput{AvailabilityZones: out}, nil
}

var zoneFilters = filters[ec2types.AvailabilityZone]{
	"zone-name":     func(z ec2types.AvailabilityZone) []string { return []string{*z.ZoneName} },
	"zone-id":       func(z ec2types.AvailabilityZone) []string { return []string{*z.ZoneId} },
	"zone-type":     func(z ec2types.AvailabilityZone) []string { return []string{*z.ZoneType} },
	"region-name":   func(z ec2types.AvailabilityZone) []string { return []string{*z.RegionName} },
	"state":         func(z ec2types.AvailabilityZone) []string { return []string{string(z.State)} },
	"opt-in-status": func(z ec2types.AvailabilityZone) []string { return []string{string(z.OptInStatus)} },
}

func (c *call) describeRegions(in *ec2.DescribeRegionsInput) (*ec2.DescribeRegionsOutput, error) {
	out := []ec2types.Region{}
	for _, r := range awsdata.Regions() {
		if known(in.RegionNames, &r) {
			out = append(out, ec2types.Region{RegionName: &r, Endpoint: aws.String("ec2." + r + ".amazonaws.com"),
				OptInStatus: aws.String("opt-in-not-required")})
		}
	}
	return &ec2.DescribeRegionsOutput{Regions: out}, nil
}

func (c *call) createTags(in *ec2.CreateTagsInput) (*ec2.CreateTagsOutput, error) {
	return &ec2.CreateTagsOutput{}, c.retag(in.Resources, in.Tags, func(have []ec2types.Tag) []ec2types.Tag {
		return withTags(have, in.Tags)
	})
}

func (c *call) deleteTags(in *ec2.DeleteTagsInput) (*ec2.DeleteTagsOutput, error) {
	return &ec2.DeleteTagsOutput{}, c.retag(in.Resources, nil, func(have []ec2types.Tag) []ec2types.Tag {
		return slices.DeleteFunc(slices.Clone(have), func(t ec2types.Tag) bool {
			return slices.ContainsFunc(in.Tags, func(d ec2types.Tag) bool {
				return aws.ToString(d.Key) == aws.ToString(t.Key) && (d.Value == nil || aws.ToString(d.Value) == aws.ToString(t.Value))
			})
		})
	})
}

// retag changes the tags of resources: of all of them, or of none if one does not exist.
func (c *call) retag(ids []string, added []ec2types.Tag, change func([]ec2types.Tag) []ec2types.Tag) error {
	if err := checkTags(added); err != nil {
		return err
	}
	for _, id := range ids {
		if _, ok := c.tagged(id); !ok {
			return missing(id)
		}
	}
	for _, id := range ids {
		if m, ok := c.st.Machines[id]; ok {
			c.edit(m, c.now, func(i *ec2types.Instance) { i.Tags = change(i.Tags) })
			continue
		}
		tags, _ := c.tagged(id)
		*tags = change(*tags)
	}
	return nil
}

// tagged returns where the tags of a resource are kept.
func (c *call) tagged(id string) (*[]ec2types.Tag, bool) {
	kind, _, _ := strings.Cut(id, "-")
	switch kind {
	case "i":
		if m, ok := c.st.Machines[id]; ok {
			return &m.Now.Tags, true
		}
	case "lt":
		if t, ok := c.st.Templates[id]; ok {
			return &t.Template.Tags, true
		}
	case "subnet":
		if s, ok := c.subnet(id); ok {
			return &s.Subnet.Tags, true
		}
	case "cr":
		if r, ok := c.st.Reservations[id]; ok {
			return &r.Tags, true
		}
	case "pg":
		if g, ok := c.st.Groups[id]; ok {
			return &g.Tags, true
		}
	case "ami":
		for i := range c.st.Images {
			if *c.st.Images[i].Image.ImageId == id {
				return &c.st.Images[i].Image.Tags, true
			}
		}
	case "sg":
		for i := range c.st.Firewalls {
			if *c.st.Firewalls[i].GroupId == id {
				return &c.st.Firewalls[i].Tags, true
			}
		}
	case "vol":
		for _, m := range c.st.Machines {
			for i := range m.Volumes {
				if *m.Volumes[i].VolumeId == id {
					return &m.Volumes[i].Tags, true
				}
			}
		}
	}
	return nil, false
}

// missing is the error for a resource that does not exist, by the kind that its id tells.
func missing(id string) *fault {
	kind, _, _ := strings.Cut(id, "-")
	code := map[string]string{
		"i": "InvalidInstanceID.NotFound", "lt": "InvalidLaunchTemplateId.NotFound", "subnet": "InvalidSubnetID.NotFound",
		"cr": "InvalidCapacityReservationId.NotFound", "pg": "InvalidPlacementGroup.Unknown", "ami": "InvalidAMIID.NotFound",
		"sg": "InvalidGroup.NotFound", "vol": "InvalidVolume.NotFound",
	}[kind]
	if code == "" {
		return refuse("InvalidID", "The ID '%s' is not valid", id)
	}
	return refuse(code, "The ID '%s' does not exist", id)
}

const maxTags = 50

func checkTags(tags []ec2types.Tag) error {
	if len(tags) > maxTags {
		return refuse("TagLimitExceeded", "The maximum number of tags is %d", maxTags)
	}
	for _, t := range tags {
		switch key := aws.ToString(t.Key); {
		case key == "":
			return refuse("InvalidParameterValue", "Tag key can't be empty")
		case len(key) > 127:
			return refuse("InvalidParameterValue", "Tag key exceeds the maximum length of 127 characters")
		case len(aws.ToString(t.Value)) > 255:
			return refuse("InvalidParameterValue", "Tag value exceeds the maximum length of 255 characters")
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return refuse("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		}
	}
	return nil
}
