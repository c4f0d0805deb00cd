package awsmodel

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	plantypes "github.com/aws/aws-sdk-go-v2/service/savingsplans/types"

	"karpenter.sh/karpenter/internal/testing/awsmodel/wire"
)

// A SavingsPlan is a plan that the account has bought, with its rates.
type SavingsPlan struct {
	plantypes.SavingsPlan
	Rates []plantypes.SavingsPlanRate
}

// mostPlans is how many Savings Plans, or rates, fit a page.
const mostPlans = 1000

// describeReservedInstances has no pages.
func describeReservedInstances(c *call, in *ec2.DescribeReservedInstancesInput) (*ec2.DescribeReservedInstancesOutput, error) {
	out := &ec2.DescribeReservedInstancesOutput{ReservedInstances: []ec2types.ReservedInstances{}}
	for _, r := range c.world.account.Reserved {
		ok, err := matches(in.Filters, r, filters[ec2types.ReservedInstances]{
			"state": func(r ec2types.ReservedInstances) []string { return []string{string(r.State)} },
		}, r.Tags)
		if err != nil {
			return nil, err
		}
		if ok && known(in.ReservedInstancesIds, r.ReservedInstancesId) {
			out.ReservedInstances = append(out.ReservedInstances, r)
		}
	}
	return out, nil
}

func describeSavingsPlans(c *call, in *savingsplans.DescribeSavingsPlansInput) (*savingsplans.DescribeSavingsPlansOutput, error) {
	var all []plantypes.SavingsPlan
	for i := range c.world.account.Plans {
		p := c.world.account.Plans[i].SavingsPlan
		if (len(in.States) == 0 || slices.Contains(in.States, p.State)) && known(in.SavingsPlanIds, p.SavingsPlanId) {
			all = append(all, p)
		}
	}
	all, next, err := page(all, in.MaxResults, in.NextToken, 1, mostPlans, func(p plantypes.SavingsPlan) string {
		return *p.SavingsPlanId
	})
	return &savingsplans.DescribeSavingsPlansOutput{SavingsPlans: all, NextToken: next}, err
}

func describeSavingsPlanRates(c *call, in *savingsplans.DescribeSavingsPlanRatesInput) (
	*savingsplans.DescribeSavingsPlanRatesOutput, error,
) {
	id := aws.ToString(in.SavingsPlanId)
	at := slices.IndexFunc(c.world.account.Plans, func(p SavingsPlan) bool { return aws.ToString(p.SavingsPlanId) == id })
	if at < 0 {
		return nil, refuseWith(http.StatusNotFound, "ResourceNotFoundException", "Savings Plan %s does not exist", id)
	}
	var all []plantypes.SavingsPlanRate
	for _, r := range c.world.account.Plans[at].Rates {
		is := map[string]string{"productType": string(r.ProductType), "serviceCode": string(r.ServiceCode),
			"usageType": aws.ToString(r.UsageType), "operation": aws.ToString(r.Operation)}
		for _, p := range r.Properties {
			is[string(p.Name)] = aws.ToString(p.Value)
		}
		differs := func(f plantypes.SavingsPlanRateFilter) bool { return !slices.Contains(f.Values, is[string(f.Name)]) }
		if !slices.ContainsFunc(in.Filters, differs) {
			all = append(all, r)
		}
	}
	all, next, err := page(all, in.MaxResults, in.NextToken, 1, mostPlans, func(r plantypes.SavingsPlanRate) string {
		return *r.UsageType
	})
	return &savingsplans.DescribeSavingsPlanRatesOutput{SavingsPlanId: in.SavingsPlanId, SearchResults: all, NextToken: next}, err
}

// decodePlans reads a request of Savings Plans, whose operation is its path.
func decodePlans(r *http.Request, body []byte) (string, any, error) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	o, ok := operations["savingsplans:"+name]
	if !ok || r.Method != http.MethodPost {
		return "", nil, refuseWith(http.StatusNotFound, "UnknownOperationException", "the model of Savings Plans cannot %s %s",
			r.Method, r.URL.Path)
	}
	in := reflect.New(o.input).Interface()
	return name, in, wire.REST.DecodeJSON(body, in)
}
