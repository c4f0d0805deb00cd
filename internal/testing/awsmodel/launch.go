package awsmodel

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// Capacity types, as pools name them.
const (
	spot     = "spot"
	onDemand = "on-demand"
	reserved = "reserved"
)

// A spec is one way to launch one machine, fully resolved: a template with an override laid over it.
type spec struct {
	data         *ec2types.RequestLaunchTemplateData
	image        image
	facts        *awsdata.InstanceType
	subnet       *subnet
	profile      *profile // nil if none
	groups       []ec2types.GroupIdentifier
	pool         pool
	reservation  *ec2types.CapacityReservation // nil if none is used
	placement    *ec2types.PlacementGroup
	tags         []ec2types.TagSpecification // of the request
	template     *template
	version      int
	fleet, token string
	context      string // of the fleet
}

// An override is what a fleet or a call lays over a template.
type override struct {
	instanceType, subnetID, zone, imageID string
	capacityType                          string
}

// resolve checks everything about a launch that EC2 checks before it looks for capacity.
func (c *call) resolve(d *ec2types.RequestLaunchTemplateData, o override) (*spec, error) {
	s := &spec{data: d}
	if err := c.resolveImage(s, d, o); err != nil {
		return nil, err
	}
	if err := c.resolveType(s, d, o); err != nil {
		return nil, err
	}
	if err := c.resolveNetwork(s, d, o); err != nil {
		return nil, err
	}
	s.pool = pool{o.capacityType, s.facts.Name, *s.subnet.Subnet.AvailabilityZone}
	for _, check := range []func(*spec, *ec2types.RequestLaunchTemplateData) error{
		c.checkOffered, c.resolveProfile, c.checkNICs, c.checkVolumes, c.checkOptions, c.resolvePlacement, c.resolveReservation,
	} {
		if err := check(s, d); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (c *call) resolveImage(s *spec, d *ec2types.RequestLaunchTemplateData, o override) error {
	id := aws.ToString(d.ImageId)
	if o.imageID != "" {
		id = o.imageID
	}
	if id == "" {
		return refuse("MissingParameter", "The request must contain the parameter ImageId")
	}
	if !strings.HasPrefix(id, "ami-") {
		return refuse("InvalidAMIID.Malformed", "Invalid id: %q (expecting \"ami-...\")", id)
	}
	img, ok := c.world.image(id)
	if !ok {
		return refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
	}
	s.image = img
	return checkUserData(aws.ToString(d.UserData))
}

func (c *call) resolveType(s *spec, d *ec2types.RequestLaunchTemplateData, o override) error {
	name := string(d.InstanceType)
	if o.instanceType != "" {
		name = o.instanceType
	}
	f, ok := c.world.data.facts[name]
	if !ok {
		return refuse("InvalidParameterValue", "Invalid value '%s' for InstanceType.", name)
	}
	s.facts = f
	if arch := string(s.image.Image.Architecture); !slices.Contains(f.Processor.Architectures, arch) {
		return refuse("InvalidParameterValue", "The architecture '%s' of the specified instance type does not match "+
			"the architecture '%s' of the specified AMI.",
			strings.Join(f.Processor.Architectures, ","), arch)
	}
	return nil
}

func (c *call) resolveNetwork(s *spec, d *ec2types.RequestLaunchTemplateData, o override) error {
	id := o.subnetID
	groups := d.SecurityGroupIds
	for _, n := range d.NetworkInterfaces {
		if id == "" {
			id = aws.ToString(n.SubnetId)
		}
		if len(d.SecurityGroupIds) > 0 {
			return refuse("InvalidParameterCombination",
				"Network interfaces and an instance-level security groups may not be specified on the same request")
		}
		for _, g := range n.Groups {
			if !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
	}
	if id == "" {
		return refuse("MissingInput", "No subnets found for the default VPC. Please specify a subnet.")
	}
	n, ok := c.world.subnet(id)
	if !ok {
		return refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
	}
	if o.zone != "" && o.zone != *n.Subnet.AvailabilityZone {
		return refuse("InvalidParameterValue", "The subnet %s is not in availability zone %s", id, o.zone)
	}
	s.subnet = n
	for _, id := range groups {
		i := slices.IndexFunc(c.world.st.Firewalls, func(g ec2types.SecurityGroup) bool { return *g.GroupId == id })
		if i < 0 {
			return refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
		if *c.world.st.Firewalls[i].VpcId != *n.Subnet.VpcId {
			return refuse("InvalidParameter", "Security group %s and subnet %s belong to different networks.", id, *n.Subnet.SubnetId)
		}
		s.groups = append(s.groups, ec2types.GroupIdentifier{GroupId: c.world.st.Firewalls[i].GroupId,
			GroupName: c.world.st.Firewalls[i].GroupName})
	}
	return nil
}

func (c *call) checkOffered(s *spec, _ *ec2types.RequestLaunchTemplateData) error {
	if !c.world.data.offered[s.pool.zone][s.facts.Name] {
		return refuse("Unsupported", "Your requested instance type (%s) is not supported in your requested "+
			"Availability Zone (%s). Please retry by choosing %s.",
			s.facts.Name, s.pool.zone, strings.Join(c.zonesWith(s.facts.Name), ", "))
	}
	usage := s.pool.capacityType
	if usage == reserved {
		usage = onDemand
	}
	if usage == spot && s.subnet.Subnet.OutpostArn != nil {
		return refuse("Unsupported", "Spot Instances are not supported on Outpost %s.", *s.subnet.Subnet.OutpostArn)
	}
	if usage == spot && slices.Contains(c.world.data.local, s.pool.zone) {
		return refuse("Unsupported", "Spot Instances are not supported in your requested Availability Zone (%s).", s.pool.zone)
	}
	if !slices.Contains(s.facts.UsageClasses, usage) {
		return refuse("Unsupported", "The instance type %s does not support %s.", s.facts.Name, usage)
	}
	return nil
}

func (c *call) zonesWith(instanceType string) []string {
	var out []string
	for _, z := range c.world.data.zones {
		if c.world.data.offered[z][instanceType] {
			out = append(out, z)
		}
	}
	return out
}

func (c *call) resolveProfile(s *spec, d *ec2types.RequestLaunchTemplateData) error {
	if d.IamInstanceProfile == nil {
		return nil
	}
	name, field := aws.ToString(d.IamInstanceProfile.Name), "name"
	if name == "" {
		arn := aws.ToString(d.IamInstanceProfile.Arn)
		name, field = arn[strings.LastIndex(arn, "/")+1:], "arn"
	}
	p, ok := c.world.st.Profiles[name]
	if !ok || !c.world.sees(profiles, p.Hidden, c.now) {
		return refuse("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.%s is invalid. Invalid IAM "+
			"Instance Profile %s", name, field, field)
	}
	if p.Role == "" {
		return refuse("InvalidParameterValue", "IAM Instance Profile %q has no associated IAM Roles", name)
	}
	s.profile = p
	return nil
}

func (c *call) checkNICs(s *spec, d *ec2types.RequestLaunchTemplateData) error {
	if err := checkInterfaces(d.NetworkInterfaces); err != nil {
		return err
	}
	efa := 0
	perCard := map[int]int{}
	for _, n := range d.NetworkInterfaces {
		six := aws.ToInt32(n.Ipv6AddressCount) > 0
		switch {
		case (six || aws.ToInt32(n.Ipv6PrefixCount) > 0) && len(s.subnet.Subnet.Ipv6CidrBlockAssociationSet) == 0:
			return refuse("InvalidParameterValue", "No IPv6 CIDR block is associated with the subnet '%s'", *s.subnet.Subnet.SubnetId)
		case aws.ToBool(n.PrimaryIpv6) && !six:
			return refuse("InvalidParameterCombination", "A primary IPv6 address needs an IPv6 address.")
		}
		card := int(aws.ToInt32(n.NetworkCardIndex))
		i := slices.IndexFunc(s.facts.Network.Cards, func(k awsdata.Card) bool { return k.Index == card })
		if i < 0 {
			return refuse("InvalidParameterValue", "Network card index %d is not valid for instance type %s", card, s.facts.Name)
		}
		perCard[card]++
		if perCard[card] > s.facts.Network.Cards[i].MaxInterfaces {
			return refuse("AttachmentLimitExceeded", "Interface count exceeds the limit for network card %d of %s", card, s.facts.Name)
		}
		if kind := aws.ToString(n.InterfaceType); kind == "efa" || kind == "efa-only" {
			efa++
		}
	}
	if efa > s.facts.Network.EFA.Max {
		return refuse("InvalidParameterCombination",
			"EFA interfaces are not supported on %s in this number (%d, at most %d)", s.facts.Name, efa, s.facts.Network.EFA.Max)
	}
	return nil
}

func (c *call) checkVolumes(s *spec, d *ec2types.RequestLaunchTemplateData) error {
	for _, m := range d.BlockDeviceMappings {
		if m.Ebs == nil {
			continue
		}
		for _, own := range s.image.Image.BlockDeviceMappings {
			if aws.ToString(own.DeviceName) == aws.ToString(m.DeviceName) && m.Ebs.VolumeSize != nil &&
				*m.Ebs.VolumeSize < *own.Ebs.VolumeSize {
				return refuse("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot '%s', expect size >= %dGB",
					*m.Ebs.VolumeSize, *own.Ebs.SnapshotId, *own.Ebs.VolumeSize)
			}
		}
		if err := checkVolume(m.Ebs); err != nil {
			return err
		}
	}
	return nil
}

func checkVolume(e *ec2types.LaunchTemplateEbsBlockDeviceRequest) error {
	kind := e.VolumeType
	if kind == "" {
		kind = ec2types.VolumeTypeGp2
	}
	limits := map[ec2types.VolumeType][2]int32{
		ec2types.VolumeTypeGp2: {1, 16384}, ec2types.VolumeTypeGp3: {1, 65536}, ec2types.VolumeTypeIo1: {4, 16384},
		ec2types.VolumeTypeIo2: {4, 65536},
		ec2types.VolumeTypeSt1: {125, 16384}, ec2types.VolumeTypeSc1: {125, 16384}, ec2types.VolumeTypeStandard: {1, 1024},
	}
	l, ok := limits[kind]
	if !ok {
		return refuse("InvalidParameterValue", "Unknown volume type '%s'", kind)
	}
	if size := e.VolumeSize; size != nil && (*size < l[0] || *size > l[1]) {
		return refuse("InvalidParameterValue", "Volume of %dGiB is outside the limits of %s, %d to %d", *size, kind, l[0], l[1])
	}
	provisioned := kind == ec2types.VolumeTypeIo1 || kind == ec2types.VolumeTypeIo2
	switch {
	case provisioned && e.Iops == nil:
		return refuse("MissingParameter", "The parameter iops must be specified for %s volumes.", kind)
	case e.Iops != nil && !provisioned && kind != ec2types.VolumeTypeGp3:
		return refuse("InvalidParameterCombination", "The parameter iops is not supported for %s volumes.", kind)
	case e.Throughput != nil && kind != ec2types.VolumeTypeGp3:
		return refuse("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", kind)
	case e.Iops != nil && kind == ec2types.VolumeTypeGp3 && (*e.Iops < 3000 || *e.Iops > 80000):
		return refuse("InvalidParameterValue", "Volume iops of %d is outside the limits of gp3, 3000 to 80000", *e.Iops)
	case e.Throughput != nil && (*e.Throughput < 125 || *e.Throughput > 2000):
		return refuse("InvalidParameterValue", "Throughput value %d is not between 125 and 2000", *e.Throughput)
	}
	return nil
}

func (c *call) checkOptions(s *spec, d *ec2types.RequestLaunchTemplateData) error {
	if o := d.CpuOptions; o != nil && o.NestedVirtualization == ec2types.NestedVirtualizationSpecificationEnabled &&
		!slices.Contains(s.facts.Processor.Features, "nested-virtualization") {
		return refuse("Unsupported", "The instance type %s does not support nested virtualization.", s.facts.Name)
	}
	if e := d.EnclaveOptions; e != nil && aws.ToBool(e.Enabled) && s.facts.NitroEnclaves != "supported" {
		return refuse("Unsupported", "The instance type %s does not support Nitro Enclaves.", s.facts.Name)
	}
	if err := checkHops(d.MetadataOptions); err != nil {
		return err
	}
	if d.MetadataOptions != nil && d.MetadataOptions.InstanceMetadataTags == ec2types.LaunchTemplateInstanceMetadataTagsStateEnabled {
		for _, t := range withTags(templateTags(d, ec2types.ResourceTypeInstance), tagsFor(s.tags, ec2types.ResourceTypeInstance)) {
			if strings.Contains(*t.Key, "/") {
				return refuse("InvalidParameterValue",
					"'%s' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{1,255}) when "+
						"instance metadata tags are enabled", *t.Key)
			}
		}
	}
	return nil
}

// make launches what s says. Capacity has been found; only the subnet may still be full.
func (c *call) make(s *spec) (*machine, error) {
	id := c.world.newID("i")
	m := &machine{Pool: s.pool, Hidden: c.now.Add(c.world.lag(id))}
	if s.template != nil {
		m.Template = *s.template.Template.LaunchTemplateName
	}
	m.Fleet, m.Context = s.fleet, s.context
	raw, err := base64.StdEncoding.DecodeString(aws.ToString(s.data.UserData))
	if err != nil {
		return nil, refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	m.UserData = string(raw)
	m.Now = c.instance(s, id)
	if err := c.attach(m, s); err != nil {
		return nil, err
	}
	c.mount(m, s)
	if s.reservation != nil {
		s.reservation.AvailableInstanceCount = aws.Int32(*s.reservation.AvailableInstanceCount - 1)
		m.Now.CapacityReservationId = s.reservation.CapacityReservationId
	}
	c.world.st.Machines[id] = m
	c.world.start(m, c.now)
	return m, nil
}

func (c *call) instance(s *spec, id string) ec2types.Instance {
	d := s.data
	tags := withTags(templateTags(d, ec2types.ResourceTypeInstance), tagsFor(s.tags, ec2types.ResourceTypeInstance))
	if s.template != nil {
		tags = withTags(tags, tagList("aws:ec2launchtemplate:id", *s.template.Template.LaunchTemplateId,
			"aws:ec2launchtemplate:version", fmt.Sprint(s.version)))
	}
	if s.fleet != "" {
		tags = withTags(tags, tagList("aws:ec2:fleet-id", s.fleet))
	}
	i := ec2types.Instance{
		InstanceId: &id, ImageId: s.image.Image.ImageId, State: stateOf(ec2types.InstanceStateNamePending),
		InstanceType: ec2types.InstanceType(s.facts.Name),
		LaunchTime:   aws.Time(c.now), Architecture: s.image.Image.Architecture,
		Hypervisor: ec2types.HypervisorTypeXen /* EC2 says so for Nitro too */, VirtualizationType: ec2types.VirtualizationTypeHvm,
		RootDeviceName: s.image.Image.RootDeviceName, RootDeviceType: s.image.Image.RootDeviceType,
		SubnetId: s.subnet.Subnet.SubnetId, VpcId: s.subnet.Subnet.VpcId,
		SecurityGroups: s.groups, Tags: tags, AmiLaunchIndex: aws.Int32(0), EnaSupport: aws.Bool(true),
		EbsOptimized: d.EbsOptimized, KeyName: d.KeyName,
		Placement: &ec2types.Placement{
			AvailabilityZone:   s.subnet.Subnet.AvailabilityZone,
			AvailabilityZoneId: s.subnet.Subnet.AvailabilityZoneId, Tenancy: ec2types.TenancyDefault, GroupName: aws.String(""),
		},
		Monitoring:      &ec2types.Monitoring{State: ec2types.MonitoringStateDisabled},
		ClientToken:     &s.token,
		PlatformDetails: s.image.Image.PlatformDetails, UsageOperation: s.image.Image.UsageOperation, Platform: s.image.Image.Platform,
		CpuOptions: &ec2types.CpuOptions{CoreCount: aws.Int32(int32(max(1, s.facts.VCPU.Default/2))),
			ThreadsPerCore: aws.Int32(2)},
		EnclaveOptions: &ec2types.EnclaveOptions{Enabled: aws.Bool(d.EnclaveOptions != nil &&
			aws.ToBool(d.EnclaveOptions.Enabled))},
		StateTransitionReason: aws.String(""), SourceDestCheck: aws.Bool(true), PublicDnsName: aws.String(""),
	}
	if c.world.data.arm(s.facts.Name) {
		i.CpuOptions = &ec2types.CpuOptions{CoreCount: aws.Int32(int32(s.facts.VCPU.Default)), ThreadsPerCore: aws.Int32(1)}
	}
	if d.CpuOptions != nil {
		i.CpuOptions.NestedVirtualization = d.CpuOptions.NestedVirtualization
	}
	if d.Monitoring != nil && aws.ToBool(d.Monitoring.Enabled) {
		i.Monitoring.State = ec2types.MonitoringStateEnabled
	}
	if s.pool.capacityType == spot {
		i.InstanceLifecycle = ec2types.InstanceLifecycleTypeSpot
		i.SpotInstanceRequestId = aws.String(c.world.newID("sir"))
	}
	if s.reservation != nil {
		i.InstanceLifecycle = ec2types.InstanceLifecycleType(marketOf(s.reservation))
	}
	if s.profile != nil {
		i.IamInstanceProfile = &ec2types.IamInstanceProfile{Arn: s.profile.Profile.Arn, Id: s.profile.Profile.InstanceProfileId}
	}
	c.placeInstance(&i, s)
	return i
}

func (c *call) placeInstance(i *ec2types.Instance, s *spec) {
	d := s.data
	if p := d.Placement; p != nil {
		if p.Tenancy != "" {
			i.Placement.Tenancy = p.Tenancy
		}
		if s.placement != nil {
			i.Placement.GroupId, i.Placement.GroupName = s.placement.GroupId, s.placement.GroupName
			i.Placement.PartitionNumber = partitionFor(c, s)
		}
	}
	if m := d.MetadataOptions; m != nil {
		i.MetadataOptions = &ec2types.InstanceMetadataOptionsResponse{
			State: ec2types.InstanceMetadataOptionsStateApplied, HttpTokens: ec2types.HttpTokensState(m.HttpTokens),
			HttpPutResponseHopLimit: m.HttpPutResponseHopLimit,
			HttpEndpoint:            ec2types.InstanceMetadataEndpointState(m.HttpEndpoint),
			HttpProtocolIpv6:        ec2types.InstanceMetadataProtocolState(m.HttpProtocolIpv6),
			InstanceMetadataTags:    ec2types.InstanceMetadataTagsState(m.InstanceMetadataTags),
		}
	}
	i.CapacityReservationSpecification = &ec2types.CapacityReservationSpecificationResponse{
		CapacityReservationPreference: ec2types.CapacityReservationPreferenceOpen}
	if r := d.CapacityReservationSpecification; r != nil {
		i.CapacityReservationSpecification.CapacityReservationPreference = r.CapacityReservationPreference
		if t := r.CapacityReservationTarget; t != nil {
			i.CapacityReservationSpecification.CapacityReservationTarget =
				&ec2types.CapacityReservationTargetResponse{CapacityReservationId: t.CapacityReservationId}
		}
	}
}

const prefixAddresses = 16 // an IPv4 prefix is a /28

// interfaces are those that the template asks for, else one.
func (s *spec) interfaces() []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	if len(s.data.NetworkInterfaces) == 0 {
		return []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: aws.Int32(0)}}
	}
	return s.data.NetworkInterfaces
}

// addresses is how many addresses one machine takes from its subnet.
func (s *spec) addresses() int {
	n := 0
	for _, i := range s.interfaces() {
		n += addressesOf(i)
	}
	return n
}

func fullSubnet(s *spec) *fault {
	return refuse("InsufficientFreeAddressesInSubnet",
		"There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", *s.subnet.Subnet.SubnetId)
}

// attach gives a machine its interfaces and their addresses.
func (c *call) attach(m *machine, s *spec) error {
	addresses, ok := s.subnet.take(s.addresses(), m.id())
	if !ok {
		return fullSubnet(s)
	}
	tags := templateTags(s.data, ec2types.ResourceTypeNetworkInterface)
	tags = withTags(tags, tagsFor(s.tags, ec2types.ResourceTypeNetworkInterface))
	for i, n := range s.interfaces() {
		nic := c.nic(m, s, n, i)
		if aws.ToString(n.InterfaceType) != "efa-only" {
			ip := addresses[0].String()
			addresses = addresses[addressesOf(n):]
			dns := c.world.privateDNS(ip)
			nic.PrivateIpAddress, nic.PrivateDnsName = &ip, &dns
			nic.PrivateIpAddresses = []ec2types.InstancePrivateIpAddress{{Primary: aws.Bool(true),
				PrivateIpAddress: &ip, PrivateDnsName: &dns}}
			if i == 0 {
				m.Now.PrivateIpAddress, m.Now.PrivateDnsName = &ip, &dns
			}
			if aws.ToBool(n.AssociatePublicIpAddress) {
				public := fmt.Sprintf("54.%d.%d.%d", 1+hash(ip)%254, hash(ip+"b")%256, 1+hash(ip+"c")%254)
				m.Now.PublicIpAddress = &public
				m.Now.PublicDnsName = aws.String("ec2-" + strings.ReplaceAll(public, ".", "-") + ".compute-1.amazonaws.com")
				nic.Association = &ec2types.InstanceNetworkInterfaceAssociation{PublicIp: &public, PublicDnsName: m.Now.PublicDnsName}
			}
		}
		m.Now.NetworkInterfaces = append(m.Now.NetworkInterfaces, nic)
	}
	if m.Now.PrivateIpAddress == nil {
		return refuse("InvalidParameterCombination", "The primary network interface must have an IP address.")
	}
	m.NICTags = tags
	return nil
}

func addressesOf(n ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest) int {
	if aws.ToString(n.InterfaceType) == "efa-only" {
		return 0
	}
	return 1 + prefixAddresses*int(aws.ToInt32(n.Ipv4PrefixCount))
}

func (c *call) nic(m *machine, s *spec, n ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest,
	i int) ec2types.InstanceNetworkInterface {
	kind := aws.ToString(n.InterfaceType)
	if kind == "" {
		kind = "interface"
	}
	nic := ec2types.InstanceNetworkInterface{
		NetworkInterfaceId: aws.String(c.world.newID("eni")), InterfaceType: &kind, SubnetId: s.subnet.Subnet.SubnetId,
		VpcId:   s.subnet.Subnet.VpcId,
		OwnerId: &c.world.cfg.Account, Status: ec2types.NetworkInterfaceStatusInUse,
		Description: aws.String(aws.ToString(n.Description)), SourceDestCheck: aws.Bool(true),
		MacAddress: aws.String(mac(m.id(), i)),
		Attachment: &ec2types.InstanceNetworkInterfaceAttachment{
			AttachmentId: aws.String(c.world.newID("eni-attach")), AttachTime: aws.Time(c.now),
			DeleteOnTermination: aws.Bool(true), DeviceIndex: n.DeviceIndex,
			NetworkCardIndex: aws.Int32(aws.ToInt32(n.NetworkCardIndex)), Status: ec2types.AttachmentStatusAttached,
		},
		Groups: s.groups,
	}
	if block := s.subnet.Subnet.Ipv6CidrBlockAssociationSet; len(block) > 0 {
		within := strings.TrimSuffix(*block[0].Ipv6CidrBlock, "/64")
		h := hash(fmt.Sprint(m.id(), i))
		for k := range aws.ToInt32(n.Ipv6AddressCount) {
			address := fmt.Sprintf("%s%x:%x", within, h&0xffff, k+1)
			nic.Ipv6Addresses = append(nic.Ipv6Addresses, ec2types.InstanceIpv6Address{Ipv6Address: &address,
				IsPrimaryIpv6: aws.Bool(k == 0 && aws.ToBool(n.PrimaryIpv6))})
			if i == 0 && k == 0 {
				m.Now.Ipv6Address = &address
			}
		}
		for k := range aws.ToInt32(n.Ipv6PrefixCount) {
			nic.Ipv6Prefixes = append(nic.Ipv6Prefixes,
				ec2types.InstanceIpv6Prefix{Ipv6Prefix: aws.String(fmt.Sprintf("%s%x:%x:0/80", within, h&0xffff, k+1))})
		}
	}
	for p := range aws.ToInt32(n.Ipv4PrefixCount) {
		nic.Ipv4Prefixes = append(nic.Ipv4Prefixes,
			ec2types.InstanceIpv4Prefix{Ipv4Prefix: aws.String(fmt.Sprintf("10.128.%d.%d/28", hash(m.id())%256, 16*(p%16)))})
	}
	return nic
}

func mac(id string, i int) string {
	h := hash(fmt.Sprint(id, i))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", h>>32&0xff, h>>24&0xff, h>>16&0xff, h>>8&0xff, h&0xff)
}

func (w *world) privateDNS(ip string) string {
	domain := w.cfg.Region + ".compute.internal"
	if w.cfg.Region == "us-east-1" {
		domain = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(ip, ".", "-") + "." + domain
}

// mount gives a machine its volumes: the image's own, changed and added to by the template.
func (c *call) mount(m *machine, s *spec) {
	tags := withTags(templateTags(s.data, ec2types.ResourceTypeVolume), tagsFor(s.tags, ec2types.ResourceTypeVolume))
	for _, own := range s.image.Image.BlockDeviceMappings {
		if !slices.ContainsFunc(s.data.BlockDeviceMappings, func(b ec2types.LaunchTemplateBlockDeviceMappingRequest) bool {
			return aws.ToString(b.DeviceName) == aws.ToString(own.DeviceName)
		}) {
			c.addVolume(m, *own.DeviceName, *own.Ebs.VolumeSize, own.Ebs.VolumeType, false, tags)
		}
	}
	for _, b := range s.data.BlockDeviceMappings {
		if b.Ebs == nil {
			continue
		}
		size := aws.ToInt32(b.Ebs.VolumeSize)
		for _, own := range s.image.Image.BlockDeviceMappings {
			if size == 0 && aws.ToString(own.DeviceName) == aws.ToString(b.DeviceName) {
				size = *own.Ebs.VolumeSize
			}
		}
		c.addVolume(m, aws.ToString(b.DeviceName), size, b.Ebs.VolumeType, aws.ToBool(b.Ebs.Encrypted), tags)
	}
	data := podDevice(s.image)
	for _, v := range m.Volumes {
		if *v.Attachments[0].Device == data {
			m.RootGiB = int64(*v.Size)
		}
	}
}

// podDevice is the device that holds pods' files: Bottlerocket keeps its system apart from them.
func podDevice(i image) string {
	if i.Family == "Bottlerocket" {
		return "/dev/xvdb"
	}
	return aws.ToString(i.Image.RootDeviceName)
}

func (c *call) addVolume(m *machine, device string, gib int32, kind ec2types.VolumeType, encrypted bool, tags []ec2types.Tag) {
	id := c.world.newID("vol")
	if kind == "" {
		kind = ec2types.VolumeTypeGp2
	}
	m.Volumes = append(m.Volumes, ec2types.Volume{
		VolumeId: &id, Size: &gib, VolumeType: kind, State: ec2types.VolumeStateInUse, Encrypted: &encrypted, CreateTime: aws.Time(c.now),
		AvailabilityZone: m.Now.Placement.AvailabilityZone, Tags: tags,
		Attachments: []ec2types.VolumeAttachment{{
			VolumeId: &id, InstanceId: m.Now.InstanceId, Device: &device,
			State: ec2types.VolumeAttachmentStateAttached, AttachTime: aws.Time(c.now), DeleteOnTermination: aws.Bool(true),
		}},
	})
	m.Now.BlockDeviceMappings = append(m.Now.BlockDeviceMappings,
		ec2types.InstanceBlockDeviceMapping{DeviceName: &device, Ebs: &ec2types.EbsInstanceBlockDevice{
			VolumeId: &id, Status: ec2types.AttachmentStatusAttached, AttachTime: aws.Time(c.now), DeleteOnTermination: aws.Bool(true),
		}})
}

// runInstances is modelled for what its dry run checks and for people who want a machine by hand.
func (c *call) runInstances(in *ec2.RunInstancesInput) (*ec2.RunInstancesOutput, error) {
	return idempotent(c, in.ClientToken, in, func() (*ec2.RunInstancesOutput, error) { return c.run(in) })
}

func (c *call) run(in *ec2.RunInstancesInput) (*ec2.RunInstancesOutput, error) {
	s, err := c.runSpec(in)
	if err != nil {
		return nil, err
	}
	least, most := int(aws.ToInt32(in.MinCount)), int(aws.ToInt32(in.MaxCount))
	if least < 1 || most < least {
		return nil, refuse("InvalidParameterValue", "MinCount (%d) and MaxCount (%d) are not valid", least, most)
	}
	n := room(c, s)
	if n < least {
		return nil, insufficient(s)
	}
	if dryRun(in) {
		return nil, dryRunSucceeded()
	}
	if n = c.cloud.admitMachines("ec2:RunInstances", min(n, most), c.now); n < least {
		return nil, throttled("ec2")
	}
	if s.subnet.free() < n*s.addresses() {
		return nil, fullSubnet(s)
	}
	out := &ec2.RunInstancesOutput{ReservationId: aws.String(c.world.newID("r")), OwnerId: &c.world.cfg.Account,
		Groups: []ec2types.GroupIdentifier{}}
	for range n {
		m, err := c.make(s)
		if err != nil {
			return nil, err
		}
		out.Instances = append(out.Instances, m.Now)
	}
	return out, nil
}
