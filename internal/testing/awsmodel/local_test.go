package awsmodel

import (
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

// What EC2 refuses in local zones and on Outposts, the model refuses.
func TestPlacesThatSellLess(t *testing.T) {
	const local = "us-east-1-bos-1a"
	for name, tc := range map[string]struct {
		kind    ec2types.DefaultTargetCapacityType
		pool    string
		outpost bool
		want    string
	}{
		"on demand in a local zone":     {odTarget, "m5.large/" + local, false, "m5.large/" + local + " x1"},
		"spot in a local zone":          {spotTarget, "m5.large/" + local, false, "m5.large/" + local + " Unsupported"},
		"other types in a local zone":   {odTarget, "c6i.large/" + local, false, "c6i.large/" + local + " Unsupported"},
		"what an Outpost has":           {odTarget, "m5.large/us-east-1a", true, "m5.large/us-east-1a x1"},
		"spot on an Outpost":            {spotTarget, "m5.large/us-east-1a", true, "m5.large/us-east-1a Unsupported"},
		"what an Outpost does not have": {odTarget, "c5.large/us-east-1a", true, "c5.large/us-east-1a InsufficientInstanceCapacity"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{LocalZones: []string{local}}, func(t *testing.T, w *harness) {
				w.AddSubnet(local, "10.0.200.0/24", nil)
				outpost := w.AddOutpost("us-east-1a", "10.0.201.0/24", []string{"m5.large"}, nil)
				in := w.fleetOf(t, w.prepare(t, al2023), tc.kind, 1, tc.pool)
				if tc.outpost {
					in.LaunchTemplateConfigs[0].Overrides[0].SubnetId = &outpost
				}
				out, err := w.ec2.CreateFleet(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				if got := outcome(out); len(got) != 1 || got[0] != tc.want {
					t.Errorf("outcome %v, want %s: %+v", got, tc.want, out.Errors)
				}
			})
		})
	}
}

// A local zone is described as such, quotes no spot prices, and costs more in the price list, under its group.
func TestALocalZoneIsDescribed(t *testing.T) {
	const local = "us-east-1-bos-1a"
	inWorld(t, Config{LocalZones: []string{local}, Types: []string{"m5.large", "m6g.large"}}, func(t *testing.T, w *harness) {
		out, err := w.ec2.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{ZoneNames: []string{local}})
		if err != nil || len(out.AvailabilityZones) != 1 {
			t.Fatalf("%d zones, %v", len(out.AvailabilityZones), err)
		}
		z := out.AvailabilityZones[0]
		got := []string{*z.ZoneId, *z.ZoneType, *z.GroupName, string(z.OptInStatus)}
		if d := cmp.Diff([]string{"use1-bos1-az1", "local-zone", "us-east-1-bos-1", "opted-in"}, got); d != "" {
			t.Errorf("the zone differs (-want +got):\n%s", d)
		}
		spots, err := w.ec2.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{AvailabilityZone: aws.String(local)})
		if err != nil || len(spots.SpotPriceHistory) > 0 {
			t.Errorf("spot prices %v, %v; want none", spots.SpotPriceHistory, err)
		}
		prices := map[string][]string{}
		for _, p := range w.world.data.products() {
			if p.Attributes["tenancy"] == "Shared" {
				where := p.fields["regioncode"]
				prices[where] = append(prices[where], p.Attributes["instanceType"]+" "+strconv.FormatFloat(p.price, 'f', 4, 64))
			}
		}
		if d := cmp.Diff(map[string][]string{"us-east-1": {"m5.large 0.0960", "m6g.large 0.0770"}, "us-east-1-bos-1": {"m5.large 0.1152"}}, prices); d != "" {
			t.Errorf("prices differ (-want +got):\n%s", d)
		}
	})
}
