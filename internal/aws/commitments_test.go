package aws

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans/types"

	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// Under its policies the provider reads what the account has bought when it is asked to, and at no other time.
func TestCommitmentsAreReadOnDemand(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		end := time.Now().AddDate(1, 0, 0)
		w.cloud.SetAccount(func(a *awsmodel.Account) {
			a.Reserved = []ec2types.ReservedInstances{{ReservedInstancesId: aws.String("r"), State: "active", InstanceType: "m5.large", InstanceCount: aws.Int32(2),
				InstanceTenancy: "default", ProductDescription: "Linux/UNIX", Scope: ec2types.ScopeRegional, Start: &end, End: &end, CurrencyCode: "USD"}}
			a.Plans = []awsmodel.SavingsPlan{{SavingsPlan: types.SavingsPlan{SavingsPlanId: aws.String("s"), State: "active", SavingsPlanType: "Compute", Currency: "USD",
				Commitment: aws.String("1.5"), Start: aws.String("2000-01-01T00:00:00Z"), End: aws.String("2030-01-01T00:00:00Z")}}}
		})
		time.Sleep(13 * time.Hour)
		asked := func() (n int) {
			for operation, calls := range w.cloud.Calls() {
				if strings.HasPrefix(operation, "savingsplans:") || operation == "ec2:DescribeReservedInstances" {
					n += calls
				}
			}
			return n
		}
		if n := asked(); n != 0 {
			t.Errorf("%d calls without being asked", n)
		}
		got, err := w.provider.Commitments(t.Context())
		check(t, err)
		if len(got) != 2 || got[0].Quantity != "2" || got[0].Scope.Region != "us-east-1" || got[1].Quantity != "1.5" || asked() != 3 {
			t.Errorf("%d calls: %+v", asked(), got)
		}
	})
}
