package bought

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans/types"
	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	end   = start.AddDate(1, 0, 0)
)

// reserved is an active Reserved Instance of Linux machines that a case edits.
func reserved(id string, edit func(*ec2types.ReservedInstances)) ec2types.ReservedInstances {
	r := ec2types.ReservedInstances{ReservedInstancesId: &id, InstanceType: "m5.xlarge", InstanceCount: aws.Int32(3), InstanceTenancy: "default",
		ProductDescription: "Linux/UNIX", Scope: ec2types.ScopeRegional, State: "active", Start: &start, End: &end, CurrencyCode: "USD",
		Duration: aws.Int64(31536000), FixedPrice: aws.Float32(0), UsagePrice: aws.Float32(0),
		RecurringCharges: []ec2types.RecurringCharge{{Amount: aws.Float64(0.121), Frequency: "Hourly"}}}
	if edit != nil {
		edit(&r)
	}
	return r
}

// plan is an active Savings Plan that charges 0.07 for m5.large and 0.12 for c5.xlarge.
func plan(id string, edit func(*awsmodel.SavingsPlan)) awsmodel.SavingsPlan {
	p := awsmodel.SavingsPlan{SavingsPlan: types.SavingsPlan{SavingsPlanId: &id, State: "active", SavingsPlanType: "Compute", Currency: "USD", Commitment: aws.String("12.50000000"),
		Start: aws.String("2026-01-01T00:00:00.000Z"), End: aws.String("2027-01-01T00:00:00.000Z")},
		Rates: []types.SavingsPlanRate{rate("m5.large", "0.0700000000", nil), rate("c5.xlarge", "0.12", nil)}}
	if edit != nil {
		edit(&p)
	}
	return p
}

// rate is what a plan charges for Linux machines of us-east-1.
func rate(name, price string, edit func(*types.SavingsPlanRate)) types.SavingsPlanRate {
	r := types.SavingsPlanRate{Rate: &price, Currency: "USD", Unit: "Hrs", ProductType: "EC2", UsageType: aws.String("BoxUsage:" + name)}
	family, _, _ := strings.Cut(name, ".")
	for _, is := range [][2]string{{"region", "us-east-1"}, {"instanceType", name}, {"instanceFamily", family}, {"productDescription", "Linux/UNIX"}, {"tenancy", "shared"}} {
		r.Properties = append(r.Properties, types.SavingsPlanRateProperty{Name: types.SavingsPlanRatePropertyKey(is[0]), Value: &is[1]})
	}
	if edit != nil {
		edit(&r)
	}
	return r
}

// told writes what was read, one commitment a line.
func told(all []v1alpha1.CommitmentDiscountSpec) string {
	var lines []string
	for _, s := range all {
		text := fmt.Sprintf("%s %s %s %s", s.ID, s.Category, s.Type, s.Quantity)
		for _, is := range []string{s.Scope.Region, s.Scope.Zone, s.Scope.Family, s.Scope.InstanceType, s.HourlyCost} {
			if is != "" {
				text += " " + is
			}
		}
		for _, r := range s.Rates {
			text += " " + r.InstanceType + "=" + r.Price
		}
		if !s.Start.Time.Equal(start) || !s.End.Time.Equal(end) {
			text += fmt.Sprintf(" from %v to %v", s.Start, s.End)
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// inAccount reads an account of the model of AWS.
func inAccount(t *testing.T, set func(*awsmodel.Account), read func(t *testing.T, cloud *awsmodel.Cloud, a Account)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cloud, err := awsmodel.New(awsmodel.Config{Cluster: awsmodel.Cluster{Name: "demo"}, Types: []string{"m5.large"}})
		if err != nil {
			t.Fatal(err)
		}
		cloud.SetAccount(set)
		cfg := cloud.AWSConfig()
		read(t, cloud, Account{EC2: ec2.NewFromConfig(cfg), Plans: savingsplans.NewFromConfig(cfg), Region: "us-east-1", Currency: "USD"})
	})
}

func TestReservedInstances(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*ec2types.ReservedInstances)
		want string
		err  string
	}{
		"a regional one": {nil, "ri Usage ReservedInstance 3 us-east-1 m5.xlarge 0.121", ""},
		"a zonal one": {func(r *ec2types.ReservedInstances) {
			r.Scope, r.AvailabilityZone = ec2types.ScopeAvailabilityZone, aws.String("us-east-1a")
		}, "ri Usage ReservedInstance 3 us-east-1 us-east-1a m5.xlarge 0.121", ""},
		"one of a VPC": {func(r *ec2types.ReservedInstances) { r.ProductDescription = "Linux/UNIX (Amazon VPC)" },
			"ri Usage ReservedInstance 3 us-east-1 m5.xlarge 0.121", ""},
		"a part paid upfront": {func(r *ec2types.ReservedInstances) { r.FixedPrice, r.UsagePrice = aws.Float32(876), aws.Float32(0.01) },
			"ri Usage ReservedInstance 3 us-east-1 m5.xlarge 0.231", ""},
		"amounts that are no binary fractions": {func(r *ec2types.ReservedInstances) {
			r.UsagePrice, r.RecurringCharges = aws.Float32(0.1), []ec2types.RecurringCharge{{Amount: aws.Float64(0.2), Frequency: "Hourly"}}
		}, "ri Usage ReservedInstance 3 us-east-1 m5.xlarge 0.3", ""},
		"another currency":        {func(r *ec2types.ReservedInstances) { r.CurrencyCode = "XXX" }, "ri Usage ReservedInstance 3 us-east-1 m5.xlarge", ""},
		"one that is over":        {func(r *ec2types.ReservedInstances) { r.State = "retired" }, "", ""},
		"one that is not paid":    {func(r *ec2types.ReservedInstances) { r.State = "payment-pending" }, "", ""},
		"Windows":                 {func(r *ec2types.ReservedInstances) { r.ProductDescription = "Windows" }, "", ""},
		"Red Hat":                 {func(r *ec2types.ReservedInstances) { r.ProductDescription = "Red Hat Enterprise Linux" }, "", ""},
		"dedicated machines":      {func(r *ec2types.ReservedInstances) { r.InstanceTenancy = "dedicated" }, "", ""},
		"no zone":                 {func(r *ec2types.ReservedInstances) { r.Scope = ec2types.ScopeAvailabilityZone }, "", "reserved instance ri: its zone is missing"},
		"a scope of tomorrow":     {func(r *ec2types.ReservedInstances) { r.Scope = "Galaxy" }, "", `"Galaxy" is not known`},
		"no end":                  {func(r *ec2types.ReservedInstances) { r.End = nil }, "", "its end is missing"},
		"upfront without a term":  {func(r *ec2types.ReservedInstances) { r.FixedPrice, r.Duration = aws.Float32(1), nil }, "", "its duration is missing"},
		"a charge that is yearly": {func(r *ec2types.ReservedInstances) { r.RecurringCharges[0].Frequency = "Yearly" }, "", `a charge comes "Yearly"`},
	} {
		t.Run(name, func(t *testing.T) {
			inAccount(t, func(a *awsmodel.Account) {
				a.Reserved = []ec2types.ReservedInstances{reserved("ri", tc.edit)}
			}, func(t *testing.T, _ *awsmodel.Cloud, a Account) {
				wantTold(t, a, tc.want, tc.err)
			})
		})
	}
}

func TestSavingsPlans(t *testing.T) {
	const whole = "sp Spend ComputeSavingsPlan 12.5"
	for name, tc := range map[string]struct {
		edit func(*awsmodel.SavingsPlan)
		want string
		err  string
	}{
		"a compute plan": {nil, whole + " c5.xlarge=0.12 m5.large=0.07", ""},
		"an instance plan": {func(p *awsmodel.SavingsPlan) {
			p.SavingsPlanType, p.Region, p.Ec2InstanceFamily = "EC2Instance", aws.String("us-east-1"), aws.String("m5")
		}, "sp Spend EC2InstanceSavingsPlan 12.5 us-east-1 m5 c5.xlarge=0.12 m5.large=0.07", ""},
		"an instance plan of another region": {func(p *awsmodel.SavingsPlan) { p.SavingsPlanType, p.Region = "EC2Instance", aws.String("us-west-2") }, "", ""},
		"a plan for something else":          {func(p *awsmodel.SavingsPlan) { p.SavingsPlanType = "SageMaker" }, "", ""},
		"a plan in another currency":         {func(p *awsmodel.SavingsPlan) { p.Currency = "EUR" }, "", ""},
		"a plan that is not paid":            {func(p *awsmodel.SavingsPlan) { p.State = "payment-failed" }, "", ""},
		"a plan that goes back":              {func(p *awsmodel.SavingsPlan) { p.State = "pending-return" }, "", ""},
		"a plan that is queued":              {func(p *awsmodel.SavingsPlan) { p.State = "queued" }, whole, ""},
		"rates that are not for our machines": {func(p *awsmodel.SavingsPlan) {
			is := func(key int, value string) func(*types.SavingsPlanRate) {
				return func(r *types.SavingsPlanRate) { r.Properties[key].Value = &value }
			}
			use := func(name string) func(*types.SavingsPlanRate) {
				return func(r *types.SavingsPlanRate) { r.UsageType = aws.String(name + ":m5.xlarge") }
			}
			p.Rates = append(p.Rates, rate("m5.xlarge", ".1", is(0, "us-west-2")), rate("m5.xlarge", ".1", is(3, "Windows")), rate("m5.xlarge", ".1", is(4, "dedicated")),
				rate("m5.xlarge", ".1", use("UnusedBox")), rate("m5.xlarge", ".1", use("USE1-HostBoxUsage")), rate("m5.xlarge", ".1", use("DedicatedUsage")),
				rate("m5.xlarge", ".1", func(r *types.SavingsPlanRate) { r.Unit = "Request" }), rate("m5.xlarge", ".1", func(r *types.SavingsPlanRate) { r.ProductType = "Fargate" }))
		}, whole + " c5.xlarge=0.12 m5.large=0.07", ""},
		"two rates of one type": {func(p *awsmodel.SavingsPlan) {
			other := func(r *types.SavingsPlanRate) { r.UsageType = aws.String("USE1-BoxUsage:m5.large") }
			p.Rates = append(p.Rates, rate("m5.large", "0.08", other))
		}, whole + " c5.xlarge=0.12 m5.large=0.08", ""},
		"a rate that is no number": {func(p *awsmodel.SavingsPlan) { p.Rates[0].Rate = aws.String("cheap") }, "", "savings plan sp: the rate of m5.large"},
		"no commitment":            {func(p *awsmodel.SavingsPlan) { p.Commitment = nil }, "", "savings plan sp: commitment"},
		"no end":                   {func(p *awsmodel.SavingsPlan) { p.End = nil }, "", "its start or end"},
	} {
		t.Run(name, func(t *testing.T) {
			inAccount(t, func(a *awsmodel.Account) { a.Plans = []awsmodel.SavingsPlan{plan("sp", tc.edit)} },
				func(t *testing.T, _ *awsmodel.Cloud, a Account) { wantTold(t, a, tc.want, tc.err) })
		})
	}
}

func wantTold(t *testing.T, a Account, want, err string) {
	t.Helper()
	all, got := a.Read(t.Context())
	if diff := cmp.Diff(want, told(all)); diff != "" {
		t.Error(diff)
	}
	if (got == nil) != (err == "") || got != nil && !strings.Contains(got.Error(), err) {
		t.Errorf("error %v, want %q", got, err)
	}
	for i := range all {
		if invalid := (&v1alpha1.CommitmentDiscount{Spec: all[i]}).Validate(); invalid != nil {
			t.Error(invalid)
		}
	}
}

// second fails on the second page of rates, and of plans where it is told to.
type second struct {
	*savingsplans.Client
	plans bool
}

var errPage = errors.New("the page is torn")

func (s second) DescribeSavingsPlans(ctx context.Context, in *savingsplans.DescribeSavingsPlansInput, o ...func(*savingsplans.Options)) (*savingsplans.DescribeSavingsPlansOutput, error) {
	if s.plans && in.NextToken != nil {
		return nil, errPage
	}
	return s.Client.DescribeSavingsPlans(ctx, in, o...)
}

func (s second) DescribeSavingsPlanRates(ctx context.Context, in *savingsplans.DescribeSavingsPlanRatesInput, o ...func(*savingsplans.Options)) (*savingsplans.DescribeSavingsPlanRatesOutput, error) {
	if !s.plans && in.NextToken != nil {
		return nil, errPage
	}
	return s.Client.DescribeSavingsPlanRates(ctx, in, o...)
}

// Lists are read to their last page. What lacks a page is left out, and the rest is not.
func TestPages(t *testing.T) {
	many := func(n int) func(*awsmodel.SavingsPlan) {
		return func(p *awsmodel.SavingsPlan) {
			p.Rates = nil
			for i := range n {
				p.Rates = append(p.Rates, rate(fmt.Sprintf("m5.t%04d", i), "0.1", nil))
			}
		}
	}
	inAccount(t, func(a *awsmodel.Account) {
		a.Reserved = []ec2types.ReservedInstances{reserved("ri", nil)}
		a.Plans = []awsmodel.SavingsPlan{plan("few", nil), plan("many", many(1500)), plan("most", many(2001))}
	}, func(t *testing.T, cloud *awsmodel.Cloud, a Account) {
		all, err := a.Read(t.Context())
		if len(all) != 3 || len(all[2].Rates) != 1500 || err == nil || !strings.Contains(err.Error(), "savings plan most: it has 2001 rates") {
			t.Errorf("%d commitments: %v", len(all), err)
		}
		cloud.SetAccount(func(x *awsmodel.Account) { x.Plans = x.Plans[:2] })
		whole := a.Plans.(*savingsplans.Client)
		a.Plans = second{whole, false}
		if all, err = a.Read(t.Context()); len(all) != 2 || all[1].ID != "few" || !errors.Is(err, errPage) {
			t.Errorf("%d commitments without the second page of rates: %v", len(all), err)
		}
		cloud.SetAccount(func(x *awsmodel.Account) {
			x.Plans = nil
			for i := range 1001 {
				x.Plans = append(x.Plans, plan(fmt.Sprintf("p%04d", i), nil))
			}
		})
		a.Plans = whole
		if all, err = a.Read(t.Context()); len(all) != 1002 || err != nil {
			t.Errorf("%d commitments of two pages: %v", len(all), err)
		}
		a.Plans = second{whole, true}
		if all, err = a.Read(t.Context()); len(all) != 1001 || !errors.Is(err, errPage) {
			t.Errorf("%d commitments without the second page of plans: %v", len(all), err)
		}
	})
}

// A service that does not answer hides nothing of the other.
func TestOneServiceFails(t *testing.T) {
	for operation, want := range map[string]string{"savingsplans:DescribeSavingsPlans": "ri", "ec2:DescribeReservedInstances": "sp", "savingsplans:DescribeSavingsPlanRates": "ri"} {
		t.Run(operation, func(t *testing.T) {
			inAccount(t, func(a *awsmodel.Account) {
				a.Reserved, a.Plans = []ec2types.ReservedInstances{reserved("ri", nil)}, []awsmodel.SavingsPlan{plan("sp", nil)}
			}, func(t *testing.T, cloud *awsmodel.Cloud, a Account) {
				if err := cloud.SetFaults(func(f *awsmodel.Faults) {
					f.Fail = map[string]awsmodel.Failure{operation: {Code: "AccessDeniedException", Message: "no", Status: 400}}
				}); err != nil {
					t.Fatal(err)
				}
				all, err := a.Read(t.Context())
				if len(all) != 1 || all[0].ID != want || err == nil {
					t.Errorf("%v, %v", told(all), err)
				}
			})
		})
	}
}
