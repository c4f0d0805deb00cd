package tariff

import (
	"cmp"
	"math/big"
	"time"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
)

// kinds are the types of CommitmentDiscounts.
var kinds = map[v1alpha1.CommitmentType]Kind{v1alpha1.ReservedInstance: ReservedInstance,
	v1alpha1.EC2InstanceSavingsPlan: EC2InstanceSavingsPlan, v1alpha1.ComputeSavingsPlan: ComputeSavingsPlan}

// Active reports whether a commitment is active in the clock hour of a time.
func Active(d *v1alpha1.CommitmentDiscount, now time.Time) bool {
	hour := now.Truncate(time.Hour)
	s := &d.Spec
	return (s.Start == nil || !s.Start.After(hour)) && (s.End == nil || hour.Before(s.End.Time))
}

// FromObject returns the part of a commitment that is shared with this cluster; a missing share means all of it. The market has the
// instance types with their on-demand prices: a rate that is a discount is taken off these.
func FromObject(d *v1alpha1.CommitmentDiscount, market []Line) (Commitment, error) {
	if err := d.Validate(); err != nil {
		return Commitment{}, err
	}
	s, scope := &d.Spec, &d.Spec.Scope
	out := Commitment{ID: d.CommitmentID(), Kind: kinds[s.Type], Region: scope.Region, Zone: scope.Zone, Type: scope.InstanceType,
		Family: scope.Family, OS: cmp.Or(scope.OperatingSystem, Linux), Dedicated: scope.Tenancy == "dedicated"}
	quantity, _ := v1alpha1.Amount(s.Quantity)
	share, _ := v1alpha1.Fraction(cmp.Or(s.Share, "1"))
	quantity.Mul(quantity, share)
	if out.Kind == ReservedInstance {
		out.Machines = new(big.Int).Quo(quantity.Num(), quantity.Denom()).Int64()
		cost, _ := v1alpha1.Amount(cmp.Or(s.HourlyCost, "0"))
		out.PerHour = nano(cost)
		return out, nil
	}
	out.PerHour, out.Rates = nano(quantity), ratesOf(s.Rates, market)
	return out, nil
}

// ratesOf returns the rates by instance type. A rate for the type counts before a rate for its family.
func ratesOf(rates []v1alpha1.CommitmentRate, market []Line) map[string]cloud.NanoUSD {
	byName := map[string]*v1alpha1.CommitmentRate{}
	for i := range rates {
		byName[cmp.Or(rates[i].InstanceType, rates[i].Family)] = &rates[i]
	}
	out := map[string]cloud.NanoUSD{}
	for i := range market {
		l := &market[i]
		r := cmp.Or(byName[l.Type], byName[family(l.Type)])
		if r == nil {
			continue
		}
		price, _ := v1alpha1.Amount(cmp.Or(r.Price, "0"))
		if r.Discount != "" {
			discount, _ := v1alpha1.Fraction(r.Discount)
			list := big.NewRat(int64(l.PerHour), 1e9)
			price.Sub(list, discount.Mul(list, discount))
		}
		out[l.Type] = nano(price)
	}
	return out
}

// nano returns dollars as nano-dollars, rounded down.
func nano(dollars *big.Rat) cloud.NanoUSD {
	return cloud.NanoUSD(floor(new(big.Rat).Mul(dollars, big.NewRat(1e9, 1))))
}
