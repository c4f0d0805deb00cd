package overlay

import (
	"fmt"
	"math/big"
	"strings"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
)

// A change is what becomes of a price. It reckons with fractions, so that every processor comes to the same nano-dollar.
type change struct {
	absolute bool
	by       *big.Rat // nano-dollars; a factor if relative
	relative bool
}

// highest is the price above which nothing is dearer: a million dollars an hour.
const highest cloud.NanoUSD = 1_000_000 * 1e9

var nano = big.NewRat(1e9, 1)

// changeOf reads what an overlay says of prices, nil if it says nothing.
func changeOf(spec *v1alpha1.NodeOverlaySpec) (*change, error) {
	switch {
	case spec.Price != nil && spec.PriceAdjustment != nil:
		return nil, fmt.Errorf("spec.price and spec.priceAdjustment may not both be set")
	case spec.Price != nil:
		dollars, ok := decimal(*spec.Price)
		if !ok || dollars.Sign() < 0 {
			return nil, fmt.Errorf("spec.price: %q is no price such as 0.25", *spec.Price)
		}
		return &change{absolute: true, by: dollars.Mul(dollars, nano)}, nil
	case spec.PriceAdjustment == nil:
		return nil, nil
	}
	text, relative := strings.CutSuffix(*spec.PriceAdjustment, "%")
	amount, ok := decimal(text)
	if !ok || text[0] != '+' && text[0] != '-' {
		return nil, fmt.Errorf("spec.priceAdjustment: %q is neither an amount such as -0.05 nor a percentage such as +10%%, each with its sign", *spec.PriceAdjustment)
	}
	if relative {
		amount.Quo(amount, big.NewRat(100, 1))
		return &change{relative: true, by: amount.Add(amount, big.NewRat(1, 1))}, nil
	}
	return &change{by: amount.Mul(amount, nano)}, nil
}

// decimal reads digits with a sign, a point or neither. The schema lets nothing else pass, but it may be that of another version.
func decimal(text string) (*big.Rat, bool) {
	if text == "" || len(text) > 64 || strings.Trim(text, "+-.0123456789") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// of returns a price as it is after the change: never below zero.
func (c *change) of(price cloud.NanoUSD) cloud.NanoUSD {
	after := new(big.Rat).Set(c.by)
	switch old := big.NewRat(int64(price), 1); {
	case c.relative:
		after.Mul(after, old)
	case !c.absolute:
		after.Add(after, old)
	}
	if after.Sign() <= 0 {
		return 0
	}
	after.Add(after, big.NewRat(1, 2)) // rounds to the nearest
	whole := new(big.Int).Quo(after.Num(), after.Denom())
	if !whole.IsInt64() || whole.Int64() > int64(highest) {
		return highest
	}
	return cloud.NanoUSD(whole.Int64())
}
