package command

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/local/plane"
)

// A spotMarket tells the spot prices of some types only: AWS quotes hundreds, and the user is waiting.
type spotMarket struct {
	*ec2.Client
	types []ec2types.InstanceType
}

func (m spotMarket) DescribeSpotPriceHistory(ctx context.Context, in *ec2.DescribeSpotPriceHistoryInput,
	opts ...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	in.InstanceTypes = m.types
	return m.Client.DescribeSpotPriceHistory(ctx, in, opts...)
}

// market is where the cluster's AWS sells.
func market(p plane.Plane) *ec2.Client {
	return ec2.New(ec2.Options{
		Region: plane.Region, BaseEndpoint: aws.String(p.AWSEndpoint()),
		Credentials: credentials.NewStaticCredentialsProvider(plane.PeopleKey, "local", ""),
	})
}

// prices returns what each node costs an hour, by name: on demand what ships with Karpenter, for spot what AWS asks at this
// moment, which is what the controller sees. A node whose price is not known is left out, and what is reserved is paid for anyway.
// Even with an error, the prices that are known are returned.
func prices(ctx context.Context, market *ec2.Client, nodes []corev1.Node) (map[string]cloud.NanoUSD, error) {
	var types []ec2types.InstanceType
	for _, n := range nodes {
		if n.Labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeSpot {
			types = append(types, ec2types.InstanceType(n.Labels[corev1.LabelInstanceTypeStable]))
		}
	}
	// The price list service of the local cluster has the prices that ship with Karpenter and no others.
	const isolated = true
	book := price.NewBook(plane.Region, isolated, spotMarket{market, types}, nil)
	var err error
	if len(types) > 0 {
		err = book.Refresh(ctx)
	}
	found := map[string]cloud.NanoUSD{}
	for _, n := range nodes {
		name := n.Labels[corev1.LabelInstanceTypeStable]
		var dollars cloud.NanoUSD
		known := false
		switch n.Labels[v1.CapacityTypeLabelKey] {
		case v1.CapacityTypeSpot:
			dollars, known = book.List().Spot(price.Pool{Type: name, Zone: n.Labels[corev1.LabelTopologyZone]})
			known = known && err == nil // without quotes a list answers with the on-demand price
		case v1.CapacityTypeOnDemand:
			dollars, known = book.List().OnDemand(name)
		}
		if known {
			found[n.Name] = dollars
		}
	}
	return found, err
}
