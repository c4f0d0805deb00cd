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

func describeSubnets(c *call, in *ec2.DescribeSubnetsInput) (*ec2.DescribeSubnetsOutput, error) {
	for _, id := range in.SubnetIds {
		if _, ok := c.world.subnet(id); !ok {
			return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	var out []ec2types.Subnet
	for _, s := range c.world.st.Subnets {
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
	s := c.world.seedSubnet(*c.world.st.Vpcs[0].VpcId, zone, 0)
	s.Subnet.SubnetId = aws.String(c.world.newID("subnet"))
	s.Subnet.SubnetArn = aws.String(c.world.cfg.arn("ec2", "subnet/"+*s.Subnet.SubnetId))
	s.Subnet.CidrBlock, s.Subnet.Ipv6CidrBlockAssociationSet = &cidr, nil
	s.Subnet.Tags = nil
	for k, v := range tags {
		s.Subnet.Tags = withTags(s.Subnet.Tags, tagList(k, v))
	}
	c.world.st.Subnets = append(c.world.st.Subnets, s)
	c.world.changed()
	return *s.Subnet.SubnetId
}

// AddOutpost adds an Outpost with machines of the given types beside a zone, and a subnet of the given size on it, whose id it returns.
func (c *Cloud) AddOutpost(zone, cidr string, types []string, tags map[string]string) string {
	id := c.AddSubnet(zone, cidr, tags)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.world.st.Subnets {
		if *s.Subnet.SubnetId == id {
			s.Subnet.OutpostArn, s.Outpost = aws.String(c.world.cfg.arn("outposts", "outpost/"+nameID("op", id))), types
		}
	}
	c.world.changed()
	return id
}

func describeSecurityGroups(c *call, in *ec2.DescribeSecurityGroupsInput) (*ec2.DescribeSecurityGroupsOutput, error) {
	var out []ec2types.SecurityGroup
	for _, id := range in.GroupIds {
		if !slices.ContainsFunc(c.world.st.Firewalls, func(g ec2types.SecurityGroup) bool { return *g.GroupId == id }) {
			return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	for _, g := range c.world.st.Firewalls {
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
	id := c.world.newID("sg")
	g := ec2types.SecurityGroup{
		GroupId: &id, GroupName: &name, Description: &name, OwnerId: &c.world.cfg.Account, VpcId: c.world.st.Vpcs[0].VpcId,
		SecurityGroupArn: aws.String(c.world.cfg.arn("ec2", "security-group/"+id)),
	}
	for k, v := range tags {
		g.Tags = withTags(g.Tags, tagList(k, v))
	}
	c.world.st.Firewalls = append(c.world.st.Firewalls, g)
	c.world.changed()
	return id
}

func describeVpcs(c *call, in *ec2.DescribeVpcsInput) (*ec2.DescribeVpcsOutput, error) {
	out := []ec2types.Vpc{}
	for _, v := range c.world.st.Vpcs {
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

func describeAvailabilityZones(c *call, in *ec2.DescribeAvailabilityZonesInput) (*ec2.DescribeAvailabilityZonesOutput, error) {
	out := []ec2types.AvailabilityZone{}
	for _, z := range c.world.data.zones {
		state := ec2types.AvailabilityZoneStateAvailable
		if slices.Contains(c.world.faults.ZonesDown, z) {
			state = ec2types.AvailabilityZoneStateImpaired
		}
		group := c.world.data.groupOf(z)
		zone := ec2types.AvailabilityZone{
			ZoneName: &z, ZoneId: aws.String(c.world.data.zoneID(z)), RegionName: &c.world.cfg.Region, GroupName: &group,
			NetworkBorderGroup: &group, State: state, ZoneType: aws.String("availability-zone"),
			OptInStatus: ec2types.AvailabilityZoneOptInStatusOptInNotRequired, Messages: []ec2types.AvailabilityZoneMessage{},
		}
		if group != c.world.cfg.Region {
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

func describeRegions(c *call, in *ec2.DescribeRegionsInput) (*ec2.DescribeRegionsOutput, error) {
	out := []ec2types.Region{}
	for _, r := range awsdata.Regions() {
		if known(in.RegionNames, &r) {
			out = append(out, ec2types.Region{RegionName: &r, Endpoint: aws.String("ec2." + r + ".amazonaws.com"),
				OptInStatus: aws.String("opt-in-not-required")})
		}
	}
	return &ec2.DescribeRegionsOutput{Regions: out}, nil
}

func createTags(c *call, in *ec2.CreateTagsInput) (*ec2.CreateTagsOutput, error) {
	return &ec2.CreateTagsOutput{}, retag(c, in.Resources, in.Tags, func(have []ec2types.Tag) []ec2types.Tag {
		return withTags(have, in.Tags)
	})
}

func deleteTags(c *call, in *ec2.DeleteTagsInput) (*ec2.DeleteTagsOutput, error) {
	return &ec2.DeleteTagsOutput{}, retag(c, in.Resources, nil, func(have []ec2types.Tag) []ec2types.Tag {
		return slices.DeleteFunc(slices.Clone(have), func(t ec2types.Tag) bool {
			return slices.ContainsFunc(in.Tags, func(d ec2types.Tag) bool {
				return aws.ToString(d.Key) == aws.ToString(t.Key) && (d.Value == nil || aws.ToString(d.Value) == aws.ToString(t.Value))
			})
		})
	})
}

// retag changes the tags of resources: of all of them, or of none if one does not exist.
func retag(c *call, ids []string, added []ec2types.Tag, change func([]ec2types.Tag) []ec2types.Tag) error {
	if err := checkTags(added); err != nil {
		return err
	}
	for _, id := range ids {
		if _, ok := tagged(c, id); !ok {
			return missing(id)
		}
	}
	for _, id := range ids {
		if m, ok := c.world.st.Machines[id]; ok {
			c.world.edit(m, c.now, func(i *ec2types.Instance) { i.Tags = change(i.Tags) })
			continue
		}
		tags, _ := tagged(c, id)
		*tags = change(*tags)
	}
	return nil
}

// tagged returns where the tags of a resource are kept.
func tagged(c *call, id string) (*[]ec2types.Tag, bool) {
	kind, _, _ := strings.Cut(id, "-")
	switch kind {
	case "i":
		if m, ok := c.world.st.Machines[id]; ok {
			return &m.Now.Tags, true
		}
	case "lt":
		if t, ok := c.world.st.Templates[id]; ok {
			return &t.Template.Tags, true
		}
	case "subnet":
		if s, ok := c.world.subnet(id); ok {
			return &s.Subnet.Tags, true
		}
	case "cr":
		if r, ok := c.world.st.Reservations[id]; ok {
			return &r.Tags, true
		}
	case "pg":
		if g, ok := c.world.st.Groups[id]; ok {
			return &g.Tags, true
		}
	case "ami":
		for i := range c.world.st.Images {
			if *c.world.st.Images[i].Image.ImageId == id {
				return &c.world.st.Images[i].Image.Tags, true
			}
		}
	case "sg":
		for i := range c.world.st.Firewalls {
			if *c.world.st.Firewalls[i].GroupId == id {
				return &c.world.st.Firewalls[i].Tags, true
			}
		}
	case "vol":
		for _, m := range c.world.st.Machines {
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
	seen := map[string]bool{}
	for _, t := range tags {
		key := aws.ToString(t.Key)
		switch {
		case seen[key]:
			return refuse("InvalidParameterValue", "Duplicate tag key '%s' specified.", key)
		case key == "":
			return refuse("InvalidParameterValue", "Tag key can't be empty")
		case len(key) > 127:
			return refuse("InvalidParameterValue", "Tag key exceeds the maximum length of 127 characters")
		case len(aws.ToString(t.Value)) > 255:
			return refuse("InvalidParameterValue", "Tag value exceeds the maximum length of 255 characters")
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return refuse("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		}
		seen[key] = true
	}
	return nil
}
