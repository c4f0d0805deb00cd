package placement

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

// groups is an EC2 with some groups, all available; an id or name that it does not know is an error.
type groups struct {
	list  []ec2types.PlacementGroup
	err   error
	calls int
}

func (g *groups) DescribePlacementGroups(_ context.Context, in *ec2.DescribePlacementGroupsInput, _ ...func(*ec2.Options)) (*ec2.DescribePlacementGroupsOutput, error) {
	g.calls++
	if g.err != nil {
		return nil, g.err
	}
	out := &ec2.DescribePlacementGroupsOutput{}
	for _, one := range g.list {
		if slices.Contains(in.GroupIds, *one.GroupId) || slices.Contains(in.GroupNames, *one.GroupName) {
			out.PlacementGroups = append(out.PlacementGroups, one)
		}
	}
	return out, nil
}

func group(id, name, strategy string) ec2types.PlacementGroup {
	return ec2types.PlacementGroup{GroupId: &id, GroupName: &name, Strategy: ec2types.PlacementStrategy(strategy), PartitionCount: aws.Int32(3)}
}

func TestFind(t *testing.T) {
	ec2 := &groups{list: []ec2types.PlacementGroup{
		group("pg-2", "twice", "spread"), group("pg-1", "twice", "cluster"), group("pg-3", "parts", "partition"), group("pg-4", "pg-3", "spread"),
	}}
	for name, tc := range map[string]struct {
		by    awsv1.PlacementGroupSelector
		err   error
		want  *awsv1.PlacementGroup
		fails bool
	}{
		"by id, with its partitions":         {by: awsv1.PlacementGroupSelector{ID: "pg-3"}, want: &awsv1.PlacementGroup{ID: "pg-3", Name: "parts", Strategy: "partition", PartitionCount: 3}},
		"by a name that looks like an id":    {by: awsv1.PlacementGroupSelector{Name: "pg-3"}, want: &awsv1.PlacementGroup{ID: "pg-4", Name: "pg-3", Strategy: "spread"}},
		"always the same of several":         {by: awsv1.PlacementGroupSelector{Name: "twice"}, want: &awsv1.PlacementGroup{ID: "pg-1", Name: "twice", Strategy: "cluster"}},
		"none that is available":             {by: awsv1.PlacementGroupSelector{Name: "none"}},
		"one that EC2 does not know":         {by: awsv1.PlacementGroupSelector{Name: "none"}, err: &smithy.GenericAPIError{Code: "InvalidPlacementGroup.Unknown"}},
		"while the right to look is lacking": {by: awsv1.PlacementGroupSelector{ID: "pg-3"}, err: &smithy.GenericAPIError{Code: "UnauthorizedOperation"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			ec2.err = tc.err
			got, err := NewFinder(ec2).Find(t.Context(), &tc.by)
			if (err != nil) != tc.fails {
				t.Error(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("the group differs (-want +got):\n%s", d)
			}
		})
	}
}

func TestWhatWasFoundIsRememberedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ec2 := &groups{}
		f, by := NewFinder(ec2), &awsv1.PlacementGroupSelector{Name: "late"}
		find := func() *awsv1.PlacementGroup {
			g, err := f.Find(t.Context(), by)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		if find() != nil {
			t.Error("a group was found that there is not")
		}
		ec2.list = []ec2types.PlacementGroup{group("pg-1", "late", "spread")}
		if g := find(); g == nil {
			t.Error("a group that was made a moment ago is not found")
		} else {
			g.ID = "changed"
		}
		ec2.list = nil
		if g := find(); g == nil || g.ID != "pg-1" || ec2.calls != 2 {
			t.Errorf("got %+v after %d calls; want what was found, without a call", g, ec2.calls)
		}
		time.Sleep(time.Minute)
		if find() != nil {
			t.Error("a group that is gone is still found after a minute")
		}
	})
}

func TestQueryAsksForAvailableGroups(t *testing.T) {
	q := queryOf(&awsv1.PlacementGroupSelector{ID: "pg-1"})
	if len(q.Filters) != 1 || *q.Filters[0].Name != "state" || !slices.Equal(q.Filters[0].Values, []string{"available"}) || len(q.GroupNames) > 0 {
		t.Errorf("query %+v", q)
	}
}

func TestIs(t *testing.T) {
	g := &awsv1.PlacementGroup{ID: "pg-1", Name: "mine"}
	for name, tc := range map[string]struct {
		by    awsv1.PlacementGroupSelector
		group *awsv1.PlacementGroup
		want  bool
	}{
		"its id":         {awsv1.PlacementGroupSelector{ID: "pg-1"}, g, true},
		"its name":       {awsv1.PlacementGroupSelector{Name: "mine"}, g, true},
		"another's id":   {awsv1.PlacementGroupSelector{ID: "pg-2"}, g, false},
		"another's name": {awsv1.PlacementGroupSelector{Name: "yours"}, g, false},
		"no group":       {awsv1.PlacementGroupSelector{Name: "mine"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Is(&tc.by, tc.group); got != tc.want {
				t.Errorf("it is the group: %v, want %v", got, tc.want)
			}
		})
	}
}
