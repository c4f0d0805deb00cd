package overlay

import (
	"fmt"
	"math/big"
	"math/bits"
	"strings"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
)

// A change of a price is price × num/den + add. It uses whole numbers, so that every processor gets the same nano-dollar.
type change struct {
	absolute bool // it sets the price: num is 0
	num, den uint64
	add      cloud.NanoUSD
}

// highest is the highest price that a change can result in: a million dollars an hour.
const highest cloud.NanoUSD = 1_000_000 * 1e9

// changeOf reads the price change of an overlay: a price, an amount with its sign, or a percentage with its sign; nil without any. A
// percentage of −100 % or less makes the price 0.
func changeOf(spec *v1alpha1.NodeOverlaySpec) (*change, error) {
	switch {
	case spec.Price != nil && spec.PriceAdjustment != nil:
		return nil, fmt.Errorf("spec.price and spec.priceAdjustment may not both be set")
	case spec.Price != nil:
		dollars, ok := decimal(*spec.Price)
		if !ok || dollars.Sign() < 0 {
			return nil, fmt.Errorf("spec.price: %q is no price such as 0.25", *spec.Price)
		}
		return &change{absolute: true, den: 1, add: nano(dollars)}, nil
	case spec.PriceAdjustment == nil:
		return nil, nil
	}
	text, relative := strings.CutSuffix(*spec.PriceAdjustment, "%")
	amount, ok := decimal(text)
	if !ok || text[0] != '+' && text[0] != '-' {
		return nil, fmt.Errorf(
			"spec.priceAdjustment: %q is neither an amount such as -0.05 nor a percentage such as +10%%, each with its sign",
			*spec.PriceAdjustment)
	}
	if !relative {
		return &change{num: 1, den: 1, add: nano(amount)}, nil
	}
	factor := amount.Quo(amount, big.NewRat(100, 1))
	factor.Add(factor, big.NewRat(1, 1))
	switch {
	case factor.Sign() <= 0:
		return &change{den: 1}, nil
	case !factor.Num().IsUint64() || !factor.Denom().IsUint64():
		return nil, fmt.Errorf("spec.priceAdjustment: %q has more digits than anybody is charged", *spec.PriceAdjustment)
	}
	return &change{num: factor.Num().Uint64(), den: factor.Denom().Uint64()}, nil
}

// decimal reads a decimal number with or without a sign. The schema of NodeOverlays admits nothing else, but the cluster may have the
// schema of another version.
func decimal(text string) (*big.Rat, bool) {
	if text == "" || len(text) > 64 || strings.Trim(text, "+-.0123456789") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// nano rounds dollars to the nearest nano-dollar, within plus and minus highest: it computes ⌊(2·10⁹·dollars + 1) / 2⌋.
func nano(dollars *big.Rat) cloud.NanoUSD {
	scaled := new(big.Rat).Mul(dollars, big.NewRat(2e9, 1))
	scaled.Add(scaled, big.NewRat(1, 1))
	half := new(big.Int).Mul(scaled.Denom(), big.NewInt(2))
	whole := new(big.Int).Div(scaled.Num(), half) // towards minus infinity
	if !whole.IsInt64() {
		return highest * cloud.NanoUSD(dollars.Sign())
	}
	return max(-highest, min(highest, cloud.NanoUSD(whole.Int64())))
}

// apply returns a price after the change: from 0 to highest.
func (c *change) apply(price cloud.NanoUSD) cloud.NanoUSD {
	return max(0, min(highest, c.scaled(price)+c.add))
}

// scaled returns price × num/den, rounded to the nearest nano-dollar and at most highest. The product may need 128 bits.
func (c *change) scaled(price cloud.NanoUSD) cloud.NanoUSD {
	over, product := bits.Mul64(uint64(price), c.num)
	sum, carry := bits.Add64(product, c.den/2, 0)
	if over += carry; over >= c.den {
		return highest
	}
	quotient, _ := bits.Div64(over, sum, c.den)
	return cloud.NanoUSD(min(quotient, uint64(highest)))
}
