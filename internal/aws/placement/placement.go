// Package placement finds the placement group that a node class selects, and knows where a cluster group's machines are.
package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/ttl"
)

// api is the part of EC2 that placement groups need.
type api interface {
	DescribePlacementGroups(context.Context, *ec2.DescribePlacementGroupsInput,
		...func(*ec2.Options)) (*ec2.DescribePlacementGroupsOutput, error)
}

const groupLife = time.Minute

// A Finder finds placement groups. It may be used concurrently.
type Finder struct {
	api   api
	known *ttl.Map[awsv1.PlacementGroupSelector, *awsv1.PlacementGroup]
}

// NewFinder returns a Finder.
func NewFinder(api api) *Finder {
	return &Finder{api: api, known: ttl.New[awsv1.PlacementGroupSelector, *awsv1.PlacementGroup](groupLife)}
}

// Find returns the available group that is selected, nil if there is none.
func (f *Finder) Find(ctx context.Context, s *awsv1.PlacementGroupSelector) (*awsv1.PlacementGroup, error) {
	if g, ok := f.known.Get(*s); ok {
		return g.DeepCopy(), nil
	}
	out, err := f.api.DescribePlacementGroups(ctx, queryOf(s))
	if ec2api.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe placement groups: %w", err)
	}
	if len(out.PlacementGroups) == 0 {
		return nil, nil // there may be one a moment later
	}
	g := read(slices.MinFunc(out.PlacementGroups, func(a, b ec2types.PlacementGroup) int {
		return cmp.Compare(aws.ToString(a.GroupId), aws.ToString(b.GroupId))
	}))
	f.known.Sweep()
	f.known.Put(*s, g)
	return g.DeepCopy(), nil
}

// queryOf returns the call that finds a group. A name that looks like an id is still a name.
func queryOf(s *awsv1.PlacementGroupSelector) *ec2.DescribePlacementGroupsInput {
	in := &ec2.DescribePlacementGroupsInput{Filters: []ec2types.Filter{ec2api.Filter("state", "available")}}
	if s.ID != "" {
		in.GroupIds = []string{s.ID}
	} else {
		in.GroupNames = []string{s.Name}
	}
	return in
}

// read reads a group of EC2.
func read(g ec2types.PlacementGroup) *awsv1.PlacementGroup {
	out := &awsv1.PlacementGroup{ID: aws.ToString(g.GroupId), Name: aws.ToString(g.GroupName), Strategy: string(g.Strategy)}
	if out.Strategy == awsv1.PlacementStrategyPartition {
		out.PartitionCount = aws.ToInt32(g.PartitionCount)
	}
	return out
}

// Is reports whether g is the group that s selects.
func Is(s *awsv1.PlacementGroupSelector, g *awsv1.PlacementGroup) bool {
	return g != nil && (s.ID == "" || s.ID == g.ID) && (s.Name == "" || s.Name == g.Name)
}
