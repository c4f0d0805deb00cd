package network

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

// net is an EC2 with the same subnets and groups for every question, in pages of one.
type net struct {
	subnets []ec2types.Subnet
	groups  []ec2types.SecurityGroup
	asked   []string
	full    map[string]bool
}

var minutely = Refresh{Subnets: time.Minute, Groups: time.Minute}

func (n *net) SubnetOut(id string) bool { return n.full[id] }

func (n *net) DescribeSubnets(_ context.Context, in *ec2.DescribeSubnetsInput, _ ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error) {
	n.asked = append(n.asked, text(in.Filters))
	out := &ec2.DescribeSubnetsOutput{}
	i := strings.Count(aws.ToString(in.NextToken), "x")
	if i < len(n.subnets) {
		out.Subnets = n.subnets[i : i+1]
	}
	if i+1 < len(n.subnets) {
		out.NextToken = aws.String(strings.Repeat("x", i+1))
	}
	return out, nil
}

func (n *net) DescribeSecurityGroups(_ context.Context, in *ec2.DescribeSecurityGroupsInput, _ ...func(*ec2.Options)) (*ec2.DescribeSecurityGroupsOutput, error) {
	n.asked = append(n.asked, text(in.Filters))
	return &ec2.DescribeSecurityGroupsOutput{SecurityGroups: n.groups}, nil
}

func text(filters []ec2types.Filter) string {
	var out []string
	for _, f := range filters {
		out = append(out, aws.ToString(f.Name)+"="+strings.Join(f.Values, ","))
	}
	return strings.Join(out, ";")
}

func subnet(id, zone string, free int32) ec2types.Subnet {
	return ec2types.Subnet{SubnetId: aws.String(id), AvailabilityZone: aws.String(zone), AvailabilityZoneId: aws.String("id-" + zone), AvailableIpAddressCount: aws.Int32(free)}
}

func four() bool { return false }

// Machines that need IPv6 addresses find none in a subnet without such a range.
func TestSubnetsWithoutIPv6(t *testing.T) {
	six := func(s ec2types.Subnet, state ec2types.SubnetCidrBlockStateCode) ec2types.Subnet {
		s.Ipv6CidrBlockAssociationSet = []ec2types.SubnetIpv6CidrBlockAssociation{{Ipv6CidrBlockState: &ec2types.SubnetCidrBlockState{State: state}}}
		return s
	}
	n := &net{subnets: []ec2types.Subnet{subnet("s-1", "a", 10), six(subnet("s-2", "a", 30), "associated"), six(subnet("s-3", "b", 20), "disassociated")}}
	nc := &awsv1.EC2NodeClass{}
	nc.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"a": "1"}}}
	for needed, want := range map[bool]int{false: 0, true: 2} {
		got, err := NewFinder(n, n, minutely, func() bool { return needed }).Subnets(t.Context(), nc)
		if err != nil || len(got.Unfit) != want || len(got.Usable) != 3-want || needed && !slices.Equal(got.Unfit, []string{"s-1", "s-3"}) {
			t.Errorf("IPv6 is needed: %v: %+v, %v", needed, got, err)
		}
	}
}

// In a zone with subnets of both kinds machines go to the region: Outposts have few types, and no spot machines.
func TestSubnetsOnAnOutpostAreTheLastChoice(t *testing.T) {
	outpost := func(s ec2types.Subnet) ec2types.Subnet {
		s.OutpostArn = aws.String("arn:aws:outposts:us-east-1:1:outpost/op-1")
		return s
	}
	n := &net{subnets: []ec2types.Subnet{outpost(subnet("s-1", "a", 300)), subnet("s-2", "a", 10), outpost(subnet("s-3", "b", 20)), outpost(subnet("s-4", "b", 30))}}
	f := NewFinder(n, n, minutely, four)
	nc := &awsv1.EC2NodeClass{}
	nc.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"a": "1"}}}
	found, err := f.Subnets(t.Context(), nc)
	if err != nil || len(found.Usable) != 4 {
		t.Fatalf("%d subnets, %v; want all, for machines that are there do not drift", len(found.Usable), err)
	}
	picked, _ := f.Pick(map[string][]string{"a": {"s-1", "s-2"}, "b": {"s-3", "s-4"}}, map[string]int{}, 1)
	if d := cmp.Diff(map[string]string{"a": "s-2", "b": "s-4"}, picked); d != "" {
		t.Errorf("picked differ (-want +got):\n%s", d)
	}
}

func TestQueries(t *testing.T) {
	all := func(queries [][]ec2types.Filter) []string {
		var out []string
		for _, q := range queries {
			out = append(out, text(q))
		}
		return out
	}
	subnets := all(SubnetQueries([]awsv1.SubnetSelectorTerm{{Tags: map[string]string{"b": "*", "a": "1"}}, {ID: "subnet-1"}, {ID: "subnet-2", Tags: map[string]string{"ignored": "x"}}, {Tags: map[string]string{"c": "x"}}}))
	if d := cmp.Diff([]string{"subnet-id=subnet-1,subnet-2", "tag:a=1;tag-key=b", "tag:c=x"}, subnets); d != "" {
		t.Errorf("subnet queries differ (-want +got):\n%s", d)
	}
	groups := all(GroupQueries([]awsv1.SecurityGroupSelectorTerm{{Name: "n1"}, {Tags: map[string]string{"a": "1"}}, {ID: "sg-1", Name: "ignored"}, {Name: "n2", Tags: map[string]string{"ignored": "x"}}}))
	if d := cmp.Diff([]string{"group-id=sg-1", "group-name=n1,n2", "tag:a=1"}, groups); d != "" {
		t.Errorf("group queries differ (-want +got):\n%s", d)
	}
}

func TestSubnetsAreListedByRoomAndRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &net{subnets: []ec2types.Subnet{subnet("s-1", "a", 10), subnet("s-2", "a", 30), subnet("s-3", "b", 20)}}
		f := NewFinder(n, n, minutely, four)
		nc := &awsv1.EC2NodeClass{}
		nc.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: "s-1"}, {Tags: map[string]string{"a": "1"}}}
		for range 2 {
			got, err := f.Subnets(t.Context(), nc)
			want := []awsv1.Subnet{{ID: "s-2", Zone: "a", ZoneID: "id-a"}, {ID: "s-3", Zone: "b", ZoneID: "id-b"}, {ID: "s-1", Zone: "a", ZoneID: "id-a"}}
			if d := cmp.Diff(Subnets{Usable: want}, got); d != "" || err != nil {
				t.Errorf("subnets differ (-want +got), %v:\n%s", err, d)
			}
		}
		if len(n.asked) != 6 { // two queries of three pages
			t.Errorf("EC2 was asked %d times, want once for each page", len(n.asked))
		}
		time.Sleep(time.Minute)
		f.Subnets(t.Context(), nc)
		if len(n.asked) != 12 {
			t.Error("after the refresh interval EC2 is not asked again")
		}
	})
}

func TestPick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &net{subnets: []ec2types.Subnet{subnet("s-1", "a", 100), subnet("s-2", "a", 90), subnet("s-3", "b", 20)}, full: map[string]bool{}}
		f := NewFinder(n, n, minutely, four)
		nc := &awsv1.EC2NodeClass{}
		nc.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: "s"}}
		if _, err := f.Subnets(t.Context(), nc); err != nil {
			t.Fatal(err)
		}
		zones, pods := map[string][]string{"a": {"s-1", "s-2"}, "b": {"s-3"}, "c": nil}, map[string]int{"a": 10, "b": 10}
		pick := func() (string, func(map[string]int)) {
			got, done := f.Pick(zones, pods, 2)
			if got["b"] != "s-3" || len(got) != 2 {
				t.Fatalf("picked %v", got)
			}
			return got["a"], done
		}
		first, done := pick()
		second, undo := pick()
		if first != "s-1" || second != "s-2" {
			t.Errorf("picked %s, then %s; want the one with most room left each time", first, second)
		}
		done(map[string]int{"s-1": 2}) // both machines came up in s-1
		undo(nil)                      // nothing came of the second
		if third, _ := pick(); third != "s-2" {
			t.Errorf("with 80 and 90 addresses left, %s was picked", third)
		}
		n.full["s-2"] = true
		if got, _ := pick(); got != "s-1" {
			t.Errorf("picked %s although it is full", got)
		}
		delete(n.full, "s-2")
		_, late := pick()
		time.Sleep(time.Minute)
		if _, err := f.Subnets(t.Context(), nc); err != nil {
			t.Fatal(err)
		}
		late(nil) // EC2 was asked since: what was reserved for is forgotten already
		if got, _ := pick(); got != "s-1" {
			t.Errorf("after a refresh %s was picked, want the one with most room", got)
		}
	})
}

func TestSecurityGroups(t *testing.T) {
	n := &net{groups: []ec2types.SecurityGroup{{GroupId: aws.String("sg-2"), GroupName: aws.String("b")}, {GroupId: aws.String("sg-1"), GroupName: aws.String("a")}}}
	nc := &awsv1.EC2NodeClass{}
	nc.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Name: "a"}, {ID: "sg-2"}}
	f := NewFinder(n, n, minutely, four)
	for range 2 {
		got, err := f.SecurityGroups(t.Context(), nc)
		if want := []awsv1.SecurityGroup{{ID: "sg-1", Name: "a"}, {ID: "sg-2", Name: "b"}}; !slices.Equal(got, want) || err != nil {
			t.Errorf("groups = %v, %v; want %v", got, err, want)
		}
	}
	if len(n.asked) != 2 {
		t.Errorf("EC2 was asked %d times, want once for each query", len(n.asked))
	}
}
