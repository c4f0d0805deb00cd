package v1alpha1

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// maxAmount bounds the amounts of commitments: a bill of an hour stays far below what 64 bits hold.
var maxAmount = big.NewRat(1e6, 1)

// Amount reads a decimal number from 0 to maxAmount.
func Amount(text string) (*big.Rat, error) {
	if strings.Trim(text, "+-.0123456789") != "" || len(text) > 30 {
		return nil, fmt.Errorf("%q: write a decimal number such as 12.50", text)
	}
	r, ok := new(big.Rat).SetString(text)
	switch {
	case !ok:
		return nil, fmt.Errorf("%q: write a decimal number such as 12.50", text)
	case r.Sign() < 0 || r.Cmp(maxAmount) > 0:
		return nil, fmt.Errorf("%q: use a number from 0 to %s", text, maxAmount.RatString())
	}
	return r, nil
}

// Fraction reads 27% or 0.27.
func Fraction(text string) (*big.Rat, error) {
	number, percent := strings.CutSuffix(text, "%")
	r, err := Amount(number)
	if err != nil {
		return nil, err
	}
	if percent {
		r.Quo(r, big.NewRat(100, 1))
	}
	if r.Cmp(big.NewRat(1, 1)) > 0 {
		return nil, fmt.Errorf("%q: use a part of the whole, such as 27%% or 0.27", text)
	}
	return r, nil
}

// CommitmentID returns the cloud's id, or the name of the object.
func (d *CommitmentDiscount) CommitmentID() string { return cmp.Or(d.Spec.ID, d.Name) }

// ImportedAt returns when the cloud last named an imported commitment in whole, and whether it is an imported one. A time that cannot be
// read is long ago.
func (d *CommitmentDiscount) ImportedAt() (at time.Time, imported bool) {
	text, imported := d.Annotations[v1.ImportedAtAnnotationKey]
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, imported
	}
	return at, imported
}

// Validate checks what the schema checks, for objects in files, and the amounts. A category may be missing in a file.
func (d *CommitmentDiscount) Validate() error {
	s := &d.Spec
	reserved := s.Type == ReservedInstance
	types := []CommitmentType{ComputeSavingsPlan, EC2InstanceSavingsPlan, ReservedInstance}
	switch {
	case !slices.Contains(types, s.Type):
		return fmt.Errorf("spec.type %q: use one of %s, %s, %s", s.Type, types[0], types[1], types[2])
	case s.Category != "" && (s.Category == CommitmentUsage) != reserved:
		return fmt.Errorf("spec.category %s: write %s for a ReservedInstance and %s for Savings Plans", s.Category, CommitmentUsage,
			CommitmentSpend)
	case d.CommitmentID() == "":
		return errors.New("give spec.id or metadata.name")
	case reserved && s.Scope.InstanceType == "":
		return errors.New("a ReservedInstance needs spec.scope.instanceType")
	case s.Type == EC2InstanceSavingsPlan && s.Scope.Family == "":
		return errors.New("an EC2InstanceSavingsPlan needs spec.scope.family")
	case s.Type != ComputeSavingsPlan && s.Scope.Region == "":
		return errors.New("spec.scope.region is missing; only a ComputeSavingsPlan has none")
	}
	quantity, err := Amount(s.Quantity)
	switch {
	case err != nil:
		return fmt.Errorf("spec.quantity: %w", err)
	case reserved && !quantity.IsInt():
		return fmt.Errorf("spec.quantity: %q: write a whole number of machines", s.Quantity)
	}
	if _, err := Fraction(cmp.Or(s.Share, "1")); err != nil {
		return fmt.Errorf("spec.share: %w", err)
	}
	if _, err := Amount(cmp.Or(s.HourlyCost, "0")); err != nil {
		return fmt.Errorf("spec.hourlyCost: %w", err)
	}
	for i := range s.Rates {
		if err := s.Rates[i].validate(); err != nil {
			return fmt.Errorf("spec.rates[%d]%w", i, err)
		}
	}
	return nil
}

func (r *CommitmentRate) validate() error {
	if (r.InstanceType == "") == (r.Family == "") || (r.Price == "") == (r.Discount == "") {
		return errors.New(": give instanceType or family, and price or discount")
	}
	if _, err := Amount(cmp.Or(r.Price, "0")); err != nil {
		return fmt.Errorf(".price: %w", err)
	}
	if _, err := Fraction(cmp.Or(r.Discount, "0")); err != nil {
		return fmt.Errorf(".discount: %w", err)
	}
	return nil
}
