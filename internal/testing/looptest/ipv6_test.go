package looptest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestIPv6 brings pods up in a cluster of IPv6: machines have a primary address and prefixes, subnets without a range are left alone, and the
// class says so.
func TestIPv6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 9, Types: []string{"m5.large"}, Cluster: awsmodel.Cluster{ServiceCIDR: "fd00:ec2::/108"}})
		old := w.aws.AddSubnet("us-east-1a", "10.0.128.0/18", map[string]string{v1.Group + "/discovery": "demo"}) // with more free addresses than others
		memapi.Edit(w.API, "", "default", func(nc *awsv1.EC2NodeClass) { nc.Spec.IPPrefixCount = sdk.Int32(1) })
		defer w.start()()
		w.deploy(4, "1", "1Gi")
		w.eventually("all pods run", 5*time.Minute, w.allRun(4))
		out, err := ec2.NewFromConfig(w.aws.AWSConfig()).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Reservations {
			i := r.Instances[0]
			nic := i.NetworkInterfaces[0]
			if sdk.ToString(i.Ipv6Address) == "" || len(nic.Ipv6Addresses) != 1 || !sdk.ToBool(nic.Ipv6Addresses[0].IsPrimaryIpv6) || len(nic.Ipv6Prefixes) != 1 || len(nic.Ipv4Prefixes) != 0 {
				t.Errorf("machine %s has interface %+v", *i.InstanceId, nic)
			}
		}
		nc := sim.Get[*awsv1.EC2NodeClass](t, w.World, "default")
		if c := condition.Get(nc, awsv1.ConditionTypeSubnetsReady); !strings.HasSuffix(c.Message, "(associate a range, or select others): "+old) {
			t.Errorf("SubnetsReady says %q", c.Message)
		}
	})
}
