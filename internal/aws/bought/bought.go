// Package bought reads the Reserved Instances and Savings Plans of an AWS account.
//
// Only what covers Linux machines of default tenancy in the cluster's region is returned. What cannot be read in whole, such as a
// Savings Plan with a page of its rates missing, is left out and named in the error.
package bought

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// A spec describes a commitment.
type spec = v1alpha1.CommitmentDiscountSpec

const (
	// linux is how both services call Linux without a licence.
	linux = "Linux/UNIX"
	// mostRates is how many rates a CommitmentDiscount may have.
	mostRates = 2000
	// pageSize is the largest page of Savings Plans and of their rates.
	pageSize = 1000
)

// An Account is where commitments are read.
type Account struct {
	EC2 interface {
		DescribeReservedInstances(context.Context, *ec2.DescribeReservedInstancesInput,
			...func(*ec2.Options)) (*ec2.DescribeReservedInstancesOutput, error)
	}
	Plans interface {
		DescribeSavingsPlans(context.Context, *savingsplans.DescribeSavingsPlansInput,
			...func(*savingsplans.Options)) (*savingsplans.DescribeSavingsPlansOutput, error)
		DescribeSavingsPlanRates(context.Context, *savingsplans.DescribeSavingsPlanRatesInput,
			...func(*savingsplans.Options)) (*savingsplans.DescribeSavingsPlanRatesOutput, error)
	}
	Region   string
	Currency string // of the region's price list
}

// Read returns the Reserved Instances and Savings Plans. If one of the two cannot be read, the other is returned all
// the same, with the error.
func (a Account) Read(ctx context.Context) ([]spec, error) {
	reserved, err := a.reserved(ctx)
	plans, planErr := a.plans(ctx)
	return append(reserved, plans...), errors.Join(err, planErr)
}

// reserved returns the active Reserved Instances for Linux with default tenancy, and an error for those that cannot
// be understood.
func (a Account) reserved(ctx context.Context) ([]spec, error) {
	out, err := a.EC2.DescribeReservedInstances(ctx, &ec2.DescribeReservedInstancesInput{
		Filters: []ec2types.Filter{{Name: aws.String("state"), Values: []string{string(ec2types.ReservedInstanceStateActive)}}}})
	if err != nil {
		return nil, fmt.Errorf("read Reserved Instances: %w", err)
	}
	var all []spec
	var errs []error
	for i := range out.ReservedInstances {
		r := &out.ReservedInstances[i]
		// "Linux/UNIX (Amazon VPC)" is the same.
		if r.State != ec2types.ReservedInstanceStateActive || r.InstanceTenancy != ec2types.TenancyDefault ||
			strings.TrimSuffix(string(r.ProductDescription), " (Amazon VPC)") != linux {
			continue
		}
		s, err := a.ofReserved(r)
		if err != nil {
			errs = append(errs, fmt.Errorf("reserved instance %s: %w", aws.ToString(r.ReservedInstancesId), err))
			continue
		}
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// ofReserved returns a Reserved Instance as a commitment. Without a cost if its currency is not that of the region's
// price list.
func (a Account) ofReserved(r *ec2types.ReservedInstances) (spec, error) {
	s := spec{Category: v1alpha1.CommitmentUsage, Type: v1alpha1.ReservedInstance, ID: aws.ToString(r.ReservedInstancesId),
		Scope:    v1alpha1.CommitmentScope{Region: a.Region, InstanceType: string(r.InstanceType)},
		Quantity: strconv.Itoa(int(aws.ToInt32(r.InstanceCount)))}
	switch r.Scope {
	case ec2types.ScopeRegional:
	case ec2types.ScopeAvailabilityZone:
		if s.Scope.Zone = aws.ToString(r.AvailabilityZone); s.Scope.Zone == "" {
			return s, errors.New("its zone is missing")
		}
	default:
		return s, fmt.Errorf("scope %q is not known", r.Scope)
	}
	if r.End == nil {
		return s, errors.New("its end is missing")
	}
	s.End = seconds(*r.End)
	if r.Start != nil {
		s.Start = seconds(*r.Start)
	}
	cost, err := hourlyCost(r)
	if err == nil && string(r.CurrencyCode) == a.Currency {
		s.HourlyCost = decimal(cost)
	}
	return s, err
}

// hourlyCost returns what one machine costs an hour, with what was paid upfront spread over the term.
func hourlyCost(r *ec2types.ReservedInstances) (*big.Rat, error) {
	upfront, err := dollars(float64(aws.ToFloat32(r.FixedPrice)), 32)
	if err != nil {
		return nil, err
	}
	cost, err := dollars(float64(aws.ToFloat32(r.UsagePrice)), 32)
	if err != nil {
		return nil, err
	}
	if upfront.Sign() > 0 {
		if aws.ToInt64(r.Duration) <= 0 {
			return nil, errors.New("its duration is missing")
		}
		cost.Add(cost, upfront.Mul(upfront, big.NewRat(3600, *r.Duration)))
	}
	for _, c := range r.RecurringCharges {
		charge, err := dollars(aws.ToFloat64(c.Amount), 64)
		switch {
		case err != nil:
			return nil, err
		case c.Frequency != ec2types.RecurringChargeFrequencyHourly:
			return nil, fmt.Errorf("a charge comes %q, not %s", c.Frequency, ec2types.RecurringChargeFrequencyHourly)
		}
		cost.Add(cost, charge)
	}
	return cost, nil
}

// dollars returns the shortest decimal number that the SDK reads as f, which is what AWS sent.
func dollars(f float64, bits int) (*big.Rat, error) {
	return v1alpha1.Amount(strconv.FormatFloat(f, 'f', -1, bits))
}

// plans returns the active and queued Savings Plans that machines of the cluster may use, and an error for those that
// cannot be understood.
func (a Account) plans(ctx context.Context) ([]spec, error) {
	var all []spec
	var errs []error
	in := &savingsplans.DescribeSavingsPlansInput{MaxResults: aws.Int32(pageSize),
		States: []types.SavingsPlanState{types.SavingsPlanStateActive, types.SavingsPlanStateQueued}}
	for more := true; more; more = aws.ToString(in.NextToken) != "" {
		page, err := a.Plans.DescribeSavingsPlans(ctx, in)
		if err != nil {
			return all, errors.Join(append(errs, fmt.Errorf("read Savings Plans: %w", err))...)
		}
		for i := range page.SavingsPlans {
			p := &page.SavingsPlans[i]
			s, mine := a.ofPlan(p)
			if !mine {
				continue
			}
			if err := a.complete(ctx, p, &s); err != nil {
				errs = append(errs, fmt.Errorf("savings plan %s: %w", s.ID, err))
				continue
			}
			all = append(all, s)
		}
		in.NextToken = page.NextToken
	}
	return all, errors.Join(errs...)
}

// ofPlan returns a plan without its amounts. mine is false if no machine of the cluster may use it.
func (a Account) ofPlan(p *types.SavingsPlan) (s spec, mine bool) {
	s = spec{Category: v1alpha1.CommitmentSpend, ID: aws.ToString(p.SavingsPlanId)}
	if string(p.Currency) != a.Currency || p.State != types.SavingsPlanStateActive && p.State != types.SavingsPlanStateQueued {
		return s, false
	}
	switch p.SavingsPlanType {
	case types.SavingsPlanTypeCompute:
		s.Type = v1alpha1.ComputeSavingsPlan
		return s, true
	case types.SavingsPlanTypeEc2Instance:
		s.Type = v1alpha1.EC2InstanceSavingsPlan
		s.Scope = v1alpha1.CommitmentScope{Region: a.Region, Family: aws.ToString(p.Ec2InstanceFamily)}
		return s, aws.ToString(p.Region) == a.Region
	}
	return s, false
}

// complete adds amounts, times, and the rates of a plan that is active.
func (a Account) complete(ctx context.Context, p *types.SavingsPlan, s *spec) error {
	commitment, err := v1alpha1.Amount(aws.ToString(p.Commitment))
	if err != nil {
		return fmt.Errorf("commitment: %w", err)
	}
	s.Quantity = decimal(commitment)
	for _, at := range []struct {
		text *string
		to   **metav1.Time
	}{{p.Start, &s.Start}, {p.End, &s.End}} {
		t, err := time.Parse(time.RFC3339, aws.ToString(at.text))
		if err != nil {
			return fmt.Errorf("its start or end: %w", err)
		}
		*at.to = seconds(t)
	}
	if p.State == types.SavingsPlanStateActive {
		s.Rates, err = a.rates(ctx, s.ID)
	}
	return err
}

// rates returns what a plan charges for Linux machines of the region. Of two rates of a type the higher one counts.
func (a Account) rates(ctx context.Context, plan string) ([]v1alpha1.CommitmentRate, error) {
	only := func(name types.SavingsPlanRateFilterName, value string) types.SavingsPlanRateFilter {
		return types.SavingsPlanRateFilter{Name: name, Values: []string{value}}
	}
	in := &savingsplans.DescribeSavingsPlanRatesInput{SavingsPlanId: &plan, MaxResults: aws.Int32(pageSize),
		Filters: []types.SavingsPlanRateFilter{only(types.SavingsPlanRateFilterNameRegion, a.Region),
			only(types.SavingsPlanRateFilterNameProductType, string(types.SavingsPlanProductTypeEc2)),
			only(types.SavingsPlanRateFilterNameTenancy, "shared"), only(types.SavingsPlanRateFilterNameProductDescription, linux)}}
	found := map[string]*big.Rat{}
	for more := true; more; more = aws.ToString(in.NextToken) != "" {
		page, err := a.Plans.DescribeSavingsPlanRates(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("read its rates: %w", err)
		}
		for i := range page.SearchResults {
			r := &page.SearchResults[i]
			name := a.typeOf(r)
			if name == "" {
				continue
			}
			rate, err := v1alpha1.Amount(aws.ToString(r.Rate))
			if err != nil {
				return nil, fmt.Errorf("the rate of %s: %w", name, err)
			}
			if old := found[name]; old == nil || old.Cmp(rate) < 0 {
				found[name] = rate
			}
		}
		in.NextToken = page.NextToken
	}
	if len(found) > mostRates {
		return nil, fmt.Errorf("it has %d rates, more than the %d that count", len(found), mostRates)
	}
	out := make([]v1alpha1.CommitmentRate, 0, len(found))
	for name, rate := range found {
		out = append(out, v1alpha1.CommitmentRate{InstanceType: name, Price: decimal(rate)})
	}
	slices.SortFunc(out, func(x, y v1alpha1.CommitmentRate) int { return strings.Compare(x.InstanceType, y.InstanceType) })
	return out, nil
}

// typeOf returns the instance type of a rate, "" if the rate is not for hours of ordinary Linux machines: for
// reserved capacity, hosts or other platforms.
func (a Account) typeOf(r *types.SavingsPlanRate) string {
	is := map[types.SavingsPlanRatePropertyKey]string{}
	for _, p := range r.Properties {
		is[p.Name] = aws.ToString(p.Value)
	}
	use, _, _ := strings.Cut(aws.ToString(r.UsageType), ":")
	if r.Unit != types.SavingsPlanRateUnitHours || string(r.Currency) != a.Currency || r.ProductType != types.SavingsPlanProductTypeEc2 ||
		use != "BoxUsage" && !strings.HasSuffix(use, "-BoxUsage") ||
		is["region"] != a.Region || is["tenancy"] != "shared" || is["productDescription"] != linux {
		return ""
	}
	return is["instanceType"]
}

// decimal writes an amount with at most ten digits after the point.
func decimal(r *big.Rat) string {
	text := r.FloatString(10)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// seconds returns a time as the API server keeps it.
func seconds(t time.Time) *metav1.Time { return new(metav1.NewTime(t.UTC().Truncate(time.Second))) }
