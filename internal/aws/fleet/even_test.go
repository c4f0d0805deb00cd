package fleet

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/shortage"
)

// A claim that was launched when another zone had the fewest machines, and whose answer was lost, gets the machine of that call: EC2
// knows its token, and refuses it for a call that is not the same.
func TestARepeatedLaunchIsTheSameCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := map[string]string{} // by token, what was asked for
		m := &machines{fleet: func(in *ec2.CreateFleetInput) (*ec2.CreateFleetOutput, error) {
			asked, token := "", aws.ToString(in.ClientToken)
			for _, x := range in.LaunchTemplateConfigs[0].Overrides {
				asked += fmt.Sprint(aws.ToString(x.AvailabilityZone), " ", aws.ToFloat64(x.Priority), " ")
			}
			if before, known := calls[token]; known && before != asked {
				return nil, refusal(mismatch)
			}
			calls[token] = asked
			return &ec2.CreateFleetOutput{Instances: []ec2types.CreateFleetInstance{{InstanceType: "m5.large", InstanceIds: []string{"i-of-" + token}}}}, nil
		}}
		there := map[string]int{"z-a": 1}
		n := 0
		f := New(t.Context(), m, anySubnet{}, shortage.New(), Settings{Zones: func(string) map[string]int { return there }, Token: func() string { n++; return fmt.Sprint("another-", n) }})
		o := &Order{CapacityType: "on-demand", Token: "claim", Tags: map[string]string{awsv1.TagNodePool: "default"},
			Subnets:   map[string][]string{"z-a": {"subnet-a"}, "z-b": {"subnet-b"}, "z-c": {"subnet-c"}},
			Templates: []Template{{Name: "lt", Overrides: []Override{{InstanceType: "m5.large", Zone: "z-a"}, {InstanceType: "m5.large", Zone: "z-b"}, {InstanceType: "m5.large", Zone: "z-c"}}}}}
		for _, now := range []map[string]int{there, {"z-a": 1, "z-b": 1}, {"z-b": 1, "z-c": 1}} {
			there = now
			if got, err := f.Launch(t.Context(), o); err != nil || got.InstanceID != "i-of-claim" {
				t.Errorf("with %v: machine %q, %v", now, got.InstanceID, err)
			}
		}
		o.Templates[0].Overrides = o.Templates[0].Overrides[:2] // what may be had has changed since
		if got, err := f.Launch(t.Context(), o); err != nil || got.InstanceID != "i-of-another-5" {
			t.Errorf("under other conditions: machine %q, %v", got.InstanceID, err)
		}
	})
}

// Shares of calls that are under way count, and are forgotten when these end.
func TestSharesUnderWayCount(t *testing.T) {
	l := &ledger{}
	zones := []string{"a", "b", "c"}
	first, done := l.share("p", zones, nil, 2)
	second, done2 := l.share("p", zones, nil, 2)
	if got := fmt.Sprint(first, second); got != "map[a:1 b:1] map[a:1 c:1]" {
		t.Errorf("shares %s", got)
	}
	done()
	done2()
	if len(l.coming) > 0 {
		t.Errorf("%v is still expected", l.coming)
	}
}
