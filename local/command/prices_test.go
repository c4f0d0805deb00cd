package command

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/local/plane"
)

func node(name, instanceType, zone, capacity string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelInstanceTypeStable: instanceType, corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: capacity,
	}}}
}

func TestPricesAreThoseOfThisMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model, err := awsmodel.New(awsmodel.Config{Region: plane.Region, Cluster: awsmodel.Cluster{Name: plane.ClusterName}})
		if err != nil {
			t.Fatal(err)
		}
		market := ec2.NewFromConfig(model.AWSConfig())
		nodes := []corev1.Node{
			node("spot", "m5.large", "us-east-1a", v1.CapacityTypeSpot),
			node("demand", "m5.large", "us-east-1a", v1.CapacityTypeOnDemand),
			node("reserved", "m5.large", "us-east-1a", v1.CapacityTypeReserved),
			node("alien", "", "", ""),
		}
		check := func(when string) (spot cloud.NanoUSD) {
			t.Helper()
			got, err := prices(t.Context(), market, nodes)
			if err != nil {
				t.Fatal(err)
			}
			asked, _ := model.SpotPrice("m5.large", "us-east-1a")
			want := map[string]cloud.NanoUSD{"spot": cloud.FromDollars(asked), "demand": cloud.FromDollars(0.096)}
			if !maps.Equal(got, want) {
				t.Errorf("%s: prices = %v, want %v", when, got, want)
			}
			return got["spot"]
		}
		before := check("at first")
		time.Sleep(30 * time.Hour)
		if after := check("a day later"); after == before {
			t.Error("the spot price did not move in a day: nothing was shown")
		}

		if err := model.SetFaults(func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"ec2:DescribeSpotPriceHistory": {Code: "UnauthorizedOperation", Status: 403}}
		}); err != nil {
			t.Fatal(err)
		}
		got, err := prices(t.Context(), market, nodes)
		if want := map[string]cloud.NanoUSD{"demand": cloud.FromDollars(0.096)}; err == nil || !maps.Equal(got, want) {
			t.Errorf("AWS says no: prices = %v, %v; want %v and an error", got, err, want)
		}
	})
}
