// Package network finds the subnets and security groups that a node class selects, and keeps count of free addresses.
package network

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/ttl"
)

// api is the part of EC2 that finding networks needs.
type api interface {
	DescribeSubnets(context.Context, *ec2.DescribeSubnetsInput, ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error)
	DescribeSecurityGroups(context.Context, *ec2.DescribeSecurityGroupsInput,
		...func(*ec2.Options)) (*ec2.DescribeSecurityGroupsOutput, error)
}

// full reports subnets that were found to have no free addresses.
type full interface{ SubnetOut(id string) bool }

// A Finder finds networks. It may be used concurrently.
type Finder struct {
	api     api
	full    full
	subnets *ttl.Map[classKey, []ec2types.Subnet]
	groups  *ttl.Map[classKey, []ec2types.SecurityGroup]
	ipv6    func() bool

	mu   sync.Mutex
	free map[string]addresses // by subnet
}

// An addresses is what is known of a subnet's free addresses.
type addresses struct {
	available int // when EC2 was asked
	reserved  int // taken by launches since
	outpost   bool
	asked     time.Time
}

// Refresh says after how long EC2 is asked again.
type Refresh struct{ Subnets, Groups time.Duration }

// NewFinder returns a Finder. ipv6 reports whether machines need IPv6 addresses.
func NewFinder(api api, full full, refresh Refresh, ipv6 func() bool) *Finder {
	return &Finder{
		api: api, full: full, free: map[string]addresses{}, ipv6: ipv6,
		subnets: ttl.New[classKey, []ec2types.Subnet](refresh.Subnets),
		groups:  ttl.New[classKey, []ec2types.SecurityGroup](refresh.Groups),
	}
}

// Subnets are the subnets that a class selects.
type Subnets struct {
	Usable []awsv1.Subnet // those with most free addresses first
	Unfit  []string       // ids of those without a range of IPv6 addresses, where machines need some
}

// Subnets returns the subnets that a class selects, by free addresses. It asks EC2 if the last answer for this generation
// of the class is too old.
func (f *Finder) Subnets(ctx context.Context, nc *awsv1.EC2NodeClass) (Subnets, error) {
	key := keyOf(nc)
	found, ok := f.subnets.Get(key)
	if !ok {
		var err error
		if found, err = f.askSubnets(ctx, SubnetQueries(nc.Spec.SubnetSelectorTerms)); err != nil {
			return Subnets{}, fmt.Errorf("describe subnets: %w", err)
		}
		slices.SortFunc(found, func(a, b ec2types.Subnet) int { // before others read it
			return cmp.Or(cmp.Compare(aws.ToInt32(b.AvailableIpAddressCount), aws.ToInt32(a.AvailableIpAddressCount)),
				strings.Compare(aws.ToString(a.SubnetId), aws.ToString(b.SubnetId)))
		})
		f.subnets.Sweep()
		f.subnets.Put(key, found)
		f.count(found)
	}
	var out Subnets
	six := f.ipv6()
	for _, s := range found {
		if six && !hasIPv6(s) {
			out.Unfit = append(out.Unfit, aws.ToString(s.SubnetId))
			continue
		}
		out.Usable = append(out.Usable, awsv1.Subnet{ID: aws.ToString(s.SubnetId),
			Zone: aws.ToString(s.AvailabilityZone), ZoneID: aws.ToString(s.AvailabilityZoneId)})
	}
	slices.Sort(out.Unfit)
	return out, nil
}

// hasIPv6 reports whether a subnet has a range of IPv6 addresses.
func hasIPv6(s ec2types.Subnet) bool {
	return slices.ContainsFunc(s.Ipv6CidrBlockAssociationSet, func(a ec2types.SubnetIpv6CidrBlockAssociation) bool {
		return a.Ipv6CidrBlockState != nil && a.Ipv6CidrBlockState.State == ec2types.SubnetCidrBlockStateCodeAssociated
	})
}

// SecurityGroups returns the groups that a class selects, by id.
func (f *Finder) SecurityGroups(ctx context.Context, nc *awsv1.EC2NodeClass) ([]awsv1.SecurityGroup, error) {
	key := keyOf(nc)
	found, ok := f.groups.Get(key)
	if !ok {
		var err error
		if found, err = f.askGroups(ctx, GroupQueries(nc.Spec.SecurityGroupSelectorTerms)); err != nil {
			return nil, fmt.Errorf("describe security groups: %w", err)
		}
		f.groups.Sweep()
		f.groups.Put(key, found)
	}
	out := make([]awsv1.SecurityGroup, len(found))
	for i, g := range found {
		out[i] = awsv1.SecurityGroup{ID: aws.ToString(g.GroupId), Name: aws.ToString(g.GroupName)}
	}
	slices.SortFunc(out, func(a, b awsv1.SecurityGroup) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// A classKey identifies a version of a node class.
type classKey struct {
	uid        types.UID
	name       string
	generation int64
}

func keyOf(nc *awsv1.EC2NodeClass) classKey { return classKey{nc.UID, nc.Name, nc.Generation} }

// SubnetQueries returns the calls' filters for selector terms: the ids together, each other term alone.
func SubnetQueries(terms []awsv1.SubnetSelectorTerm) [][]ec2types.Filter {
	var ids []string
	var out [][]ec2types.Filter
	for _, t := range terms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case len(t.Tags) > 0:
			out = append(out, ec2api.TagFilters(t.Tags))
		}
	}
	if len(ids) > 0 {
		out = append([][]ec2types.Filter{{ec2api.Filter("subnet-id", ids...)}}, out...)
	}
	return out
}

// GroupQueries returns the calls' filters for selector terms: the ids together, the names together, each other term
// alone.
func GroupQueries(terms []awsv1.SecurityGroupSelectorTerm) [][]ec2types.Filter {
	var ids, names []string
	var out [][]ec2types.Filter
	for _, t := range terms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.Name != "":
			names = append(names, t.Name)
		case len(t.Tags) > 0:
			out = append(out, ec2api.TagFilters(t.Tags))
		}
	}
	if len(names) > 0 {
		out = append([][]ec2types.Filter{{ec2api.Filter("group-name", names...)}}, out...)
	}
	if len(ids) > 0 {
		out = append([][]ec2types.Filter{{ec2api.Filter("group-id", ids...)}}, out...)
	}
	return out
}

// askSubnets returns the subnets that any of the queries finds, each once.
func (f *Finder) askSubnets(ctx context.Context, queries [][]ec2types.Filter) ([]ec2types.Subnet, error) {
	var out []ec2types.Subnet
	seen := map[string]bool{}
	for _, q := range queries {
		pages := ec2.NewDescribeSubnetsPaginator(f.api, &ec2.DescribeSubnetsInput{Filters: q, MaxResults: aws.Int32(500)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, s := range page.Subnets {
				if id := aws.ToString(s.SubnetId); !seen[id] {
					seen[id] = true
					out = append(out, s)
				}
			}
		}
	}
	return out, nil
}

// askGroups returns the security groups that any of the queries finds, each once.
func (f *Finder) askGroups(ctx context.Context, queries [][]ec2types.Filter) ([]ec2types.SecurityGroup, error) {
	var out []ec2types.SecurityGroup
	seen := map[string]bool{}
	for _, q := range queries {
		pages := ec2.NewDescribeSecurityGroupsPaginator(f.api, &ec2.DescribeSecurityGroupsInput{Filters: q, MaxResults: aws.Int32(500)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, g := range page.SecurityGroups {
				if id := aws.ToString(g.GroupId); !seen[id] {
					seen[id] = true
					out = append(out, g)
				}
			}
		}
	}
	return out, nil
}

// count notes how many addresses EC2 reports as free. Addresses of machines that were launched before are no longer
// in that number, so what was reserved for them is dropped.
func (f *Finder) count(found []ec2types.Subnet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, s := range found {
		f.free[aws.ToString(s.SubnetId)] = addresses{available: int(aws.ToInt32(s.AvailableIpAddressCount)),
			asked: now, outpost: aws.ToString(s.OutpostArn) != ""}
	}
}

// Pick returns for each zone the subnet with the most free addresses; one on an Outpost only if there is no other. It
// reserves the zone's pods n times in each, until done is called with the number of machines that each subnet really
// got.
func (f *Finder) Pick(byZone map[string][]string, pods map[string]int, n int) (map[string]string, func(used map[string]int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	picked := make(map[string]string, len(byZone))
	asked := make(map[string]time.Time, len(byZone))
	for zone, ids := range byZone {
		best, room := "", 0
		for _, id := range ids {
			a := f.free[id]
			left := a.available - a.reserved
			if a.outpost {
				left -= 1 << 20 // few types, no spot machines: what was planned for the zone is rarely there
			}
			if f.full.SubnetOut(id) {
				left = -1 << 30
			}
			if best == "" || left > room || left == room && id < best {
				best, room = id, left
			}
		}
		if best == "" {
			continue
		}
		picked[zone] = best
		asked[best] = f.free[best].asked
		f.reserve(best, pods[zone]*n)
	}
	return picked, func(used map[string]int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for zone, id := range picked {
			// A refresh in between knows better than our guess.
			if f.free[id].asked.Equal(asked[id]) {
				f.reserve(id, -pods[zone]*(n-used[id]))
			}
		}
	}
}

// reserve adds n to the addresses of a subnet that launches have reserved.
func (f *Finder) reserve(id string, n int) {
	a := f.free[id]
	a.reserved = max(0, a.reserved+n)
	f.free[id] = a
}
