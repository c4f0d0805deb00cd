package inventory

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// TestEveryTypeReadsTheSameOverTheWire compares what the SDK reads of EC2's answer with the data that the answer was made of.
func TestEveryTypeReadsTheSameOverTheWire(t *testing.T) {
	c, err := awsmodel.New(awsmodel.Config{Cluster: awsmodel.Cluster{Name: "demo", Endpoint: "https://x", CA: "Q0E=", Version: "1.36", ServiceCIDR: "10.0.0.0/16"}})
	if err != nil {
		t.Fatal(err)
	}
	v := New(ec2.NewFromConfig(c.AWSConfig()))
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if changed, err := v.Refresh(t.Context()); err != nil || !changed {
		t.Fatalf("Refresh = %v, %v", changed, err)
	}
	goods := v.Goods()
	want := map[string]*awsdata.InstanceType{}
	for _, it := range awsdata.Types() {
		if hardware.Usable(it) {
			want[it.Name] = it
		}
	}
	for _, got := range goods.Types {
		expected, ok := want[got.Name]
		if !ok {
			continue // sold elsewhere, or not one that Kubernetes runs on
		}
		delete(want, got.Name)
		if d := cmp.Diff(expected, got); d != "" {
			t.Errorf("%s differs (-data +read):\n%s", got.Name, d)
		}
	}
	for name := range want {
		if len(goods.Offered[name]) > 0 {
			t.Errorf("%s is offered and not described", name)
		}
	}
	if len(goods.Zones) != 6 || !goods.Offered["m5.large"]["us-east-1a"] {
		t.Errorf("zones = %v", goods.Zones)
	}
	if changed, err := v.Refresh(t.Context()); err != nil || changed || v.Goods() != goods {
		t.Errorf("an equal answer counts as a change: %v, %v", changed, err)
	}
	if err := c.SetFaults(func(f *awsmodel.Faults) {
		f.Fail = map[string]awsmodel.Failure{"ec2:DescribeInstanceTypeOfferings": {Code: "UnauthorizedOperation", Message: "no", Status: 403}}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Refresh(t.Context()); err == nil || v.Goods() != goods {
		t.Errorf("a failure does not keep what was known: %v", err)
	}
}
