package awsmodel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// discoveryTag is the tag by which clusters conventionally mark what their nodes may use.
const discoveryTag = v1.Group + "/discovery"

func newState() *state {
	return &state{
		Machines: map[string]*machine{}, Templates: map[string]*template{}, Profiles: map[string]*profile{},
		Roles: map[string]*iamtypes.Role{}, Queues: map[string]*queue{},
		Reservations: map[string]*ec2types.CapacityReservation{}, Groups: map[string]*ec2types.PlacementGroup{},
		Tokens: map[string]*token{}, Parameters: map[string]parameter{},
	}
}

// seed makes an account as a cluster's owner has it before Karpenter comes: a network, the cluster's firewall, the node
// role, the interruption queue, and the images that Amazon publishes.
func (w *world) seed() *state {
	st := newState()
	st.Started = w.started
	name := w.cfg.Cluster.Name
	vpc := nameID("vpc", name)
	st.Vpcs = []ec2types.Vpc{{
		VpcId: &vpc, CidrBlock: aws.String("10.0.0.0/16"), State: ec2types.VpcStateAvailable, OwnerId: &w.cfg.Account,
		IsDefault: aws.Bool(false), InstanceTenancy: ec2types.TenancyDefault, DhcpOptionsId: aws.String(nameID("dopt", name)),
		Tags: tagList("Name", name+"/VPC"),
	}}
	for i, zone := range awsdata.Zones(w.cfg.Region) {
		st.Subnets = append(st.Subnets, w.seedSubnet(vpc, zone, i))
	}
	group := nameID("sg", name)
	st.Firewalls = []ec2types.SecurityGroup{
		{
			GroupId: &group, GroupName: aws.String("eks-cluster-sg-" + name), Description: aws.String("EKS cluster " + name),
			OwnerId: &w.cfg.Account, VpcId: &vpc, SecurityGroupArn: aws.String(w.cfg.arn("ec2", "security-group/"+group)),
			IpPermissions: []ec2types.IpPermission{{IpProtocol: aws.String("-1"),
				UserIdGroupPairs: []ec2types.UserIdGroupPair{{GroupId: &group, UserId: &w.cfg.Account}}}},
			IpPermissionsEgress: []ec2types.IpPermission{{IpProtocol: aws.String("-1"),
				IpRanges: []ec2types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}}},
			Tags: tagList("Name", "eks-cluster-sg-"+name, "aws:eks:cluster-name", name, discoveryTag,
				name, "kubernetes.io/cluster/"+name, "owned"),
		},
		{
			GroupId: aws.String(nameID("sg", "default/"+name)), GroupName: aws.String("default"),
			Description: aws.String("default VPC security group"),
			OwnerId:     &w.cfg.Account, VpcId: &vpc, SecurityGroupArn: aws.String(w.cfg.arn("ec2",
				"security-group/"+nameID("sg", "default/"+name))),
		},
	}
	st.Roles[w.cfg.NodeRole] = &iamtypes.Role{
		RoleName: &w.cfg.NodeRole, RoleId: aws.String("AROA" + strings.ToUpper(fmt.Sprintf("%016x", hash(w.cfg.NodeRole)))),
		Arn: aws.String(w.cfg.arn("iam", "role/"+w.cfg.NodeRole)), Path: aws.String("/"), CreateDate: &w.started,
		AssumeRolePolicyDocument: aws.String(url.QueryEscape(ec2Trust)),
		MaxSessionDuration:       aws.Int32(3600),
	}
	st.Queues[w.cfg.Queue] = &queue{Created: w.started}
	for i, r := range releases {
		publish(w, st, r, w.started.Add(time.Duration(i-len(releases))*30*24*time.Hour))
	}
	return st
}

// ec2Trust lets machines take the node role.
const ec2Trust = `{"Version":"2012-10-17",` +
	`"Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`

// The private network of a world is 10.0.0.0/16, cut into one subnet of this size for each zone.
const subnetBits = 19

func (w *world) seedSubnet(vpc, zone string, i int) *subnet {
	base := uint32(10<<24) + uint32(i)<<(32-subnetBits)
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], base)
	cidr := netip.PrefixFrom(netip.AddrFrom4(raw), subnetBits).String()
	id := nameID("subnet", w.cfg.Cluster.Name+"/"+zone)
	var six []ec2types.SubnetIpv6CidrBlockAssociation
	if w.cfg.ipv6() {
		six = []ec2types.SubnetIpv6CidrBlockAssociation{{
			AssociationId: aws.String(nameID("subnet-cidr-assoc", id)), Ipv6CidrBlock: aws.String(fmt.Sprintf("2600:1f18:0:%x::/64", i)),
			Ipv6CidrBlockState: &ec2types.SubnetCidrBlockState{State: ec2types.SubnetCidrBlockStateCodeAssociated},
		}}
	}
	return &subnet{Taken: map[uint32]string{}, Next: firstAddress, Subnet: ec2types.Subnet{
		Ipv6CidrBlockAssociationSet: six,
		SubnetId:                    &id, SubnetArn: aws.String(w.cfg.arn("ec2", "subnet/"+id)), VpcId: &vpc, CidrBlock: &cidr,
		AvailabilityZone: &zone, AvailabilityZoneId: aws.String(w.data.zoneID(zone)), OwnerId: &w.cfg.Account,
		State: ec2types.SubnetStateAvailable, DefaultForAz: aws.Bool(false), MapPublicIpOnLaunch: aws.Bool(false),
		AssignIpv6AddressOnCreation: aws.Bool(false),
		Tags: tagList("Name", w.cfg.Cluster.Name+"/private/"+zone, discoveryTag, w.cfg.Cluster.Name, "network-type", "private",
			"kubernetes.io/role/internal-elb", "1"),
	}}
}

// tagList makes tags of keys and values in turn.
func tagList(keyValues ...string) []ec2types.Tag {
	var out []ec2types.Tag
	for i := 0; i+1 < len(keyValues); i += 2 {
		out = append(out, ec2types.Tag{Key: &keyValues[i], Value: &keyValues[i+1]})
	}
	return withTags(nil, out)
}

// Of every subnet AWS keeps the first four addresses and the last.
const (
	firstAddress = 4
	keptAtEnd    = 1
)

func (s *subnet) size() uint32 {
	p := netip.MustParsePrefix(*s.Subnet.CidrBlock)
	return 1 << (32 - p.Bits())
}

func (s *subnet) free() int {
	return int(s.size()) - firstAddress - keptAtEnd - len(s.Taken)
}

// take gives n addresses to a machine, or none if there are too few. Addresses are used in turn, so that an address that was
// given back is not used again at once.
func (s *subnet) take(n int, machine string) ([]netip.Addr, bool) {
	if s.free() < n {
		return nil, false
	}
	base := netip.MustParsePrefix(*s.Subnet.CidrBlock).Addr().As4()
	start := binary.BigEndian.Uint32(base[:])
	var out []netip.Addr
	for len(out) < n {
		if s.Next >= s.size()-keptAtEnd {
			s.Next = firstAddress
		}
		if _, taken := s.Taken[s.Next]; !taken {
			s.Taken[s.Next] = machine
			var raw [4]byte
			binary.BigEndian.PutUint32(raw[:], start+s.Next)
			out = append(out, netip.AddrFrom4(raw))
		}
		s.Next++
	}
	return out, true
}

func (w *world) releaseAddresses(m *machine) {
	for _, s := range w.st.Subnets {
		for at, id := range s.Taken {
			if id == m.id() {
				delete(s.Taken, at)
			}
		}
	}
}

func (w *world) subnet(id string) (*subnet, bool) {
	for _, s := range w.st.Subnets {
		if *s.Subnet.SubnetId == id {
			return s, true
		}
	}
	return nil, false
}
