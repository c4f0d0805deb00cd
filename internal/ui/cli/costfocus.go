package cli

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// A focusRow is one charge: what a machine cost one account in one hour at its own price or by a commitment, what of a commitment was
// unused in the hour, or the fee for both.
type focusRow struct {
	bill       *ledger.Bill
	slice      *ledger.Slice
	account    *ledger.Account
	cost, list cloud.NanoUSD // of the account
	part       float64       // likewise, of the slice
}

// Kinds of rows without a machine.
const unused, purchase = ledger.Unused, ledger.Kind("purchase")

func (r *focusRow) commitment() *tariff.Commitment { return r.slice.Commitment }

// machine reports whether the row is about a machine. Others are about a commitment.
func (r *focusRow) machine() bool { return r.account.Kind != unused && r.account.Kind != purchase }

// pick returns one of the texts: of a machine, or of a commitment.
func (r *focusRow) pick(machine, commitment string) string {
	if r.machine() {
		return machine
	}
	return commitment
}

// committed returns a text that is null without a commitment.
func (r *focusRow) committed(text string) string {
	if r.commitment() == nil {
		return ""
	}
	return text
}

// category, kind and unit are what FOCUS calls a commitment.
func (r *focusRow) category() (category, kind, unit string) {
	switch c := r.commitment(); {
	case c == nil:
		return "", "", ""
	case c.Kind == tariff.ReservedInstance && c.Flexible():
		return "Usage", "ReservedInstance", "Normalized Hours"
	case c.Kind == tariff.ReservedInstance:
		return "Usage", "ReservedInstance", "Hours"
	case c.Kind == tariff.EC2InstanceSavingsPlan:
		return "Spend", "EC2InstanceSavingsPlan", "USD"
	}
	return "Spend", "ComputeSavingsPlan", "USD"
}

// quantity is how many hours of the machine the row stands for, or how much of the commitment.
func (r *focusRow) quantity() float64 {
	if r.machine() {
		return r.slice.Seconds / 3600 * r.part
	}
	return r.slice.Quantity
}

// listCost is the on-demand price. A commitment has no other price than its own.
func (r *focusRow) listCost() string {
	if r.machine() {
		return string(exact(r.list))
	}
	return string(exact(r.cost))
}

// unitPrice is listCost by quantity.
func (r *focusRow) unitPrice() string {
	price := r.slice.List.Dollars() * 3600 / max(r.slice.Seconds, 1e-9)
	if !r.machine() {
		price = r.slice.Paid.Dollars() / max(r.slice.Quantity, 1e-9)
	}
	return decimals(price)
}

func decimals(f float64) string { return strconv.FormatFloat(f, 'f', 12, 64) }

// pricing is the PricingCategory.
func (r *focusRow) pricing() string {
	switch {
	case r.account.Kind == purchase:
		return "Standard"
	case r.commitment() != nil:
		return "Committed"
	case r.bill.Machine.CapacityType == v1.CapacityTypeSpot:
		return "Dynamic"
	}
	return "Standard"
}

// provider is the name of the cloud, as far as the machine's ID tells. Commitments are AWS's.
func (r *focusRow) provider() string {
	name, _, _ := strings.Cut(r.bill.Machine.ProviderID, ":")
	if name == "aws" || name == "" {
		return "AWS"
	}
	return name
}

func (r *focusRow) service() string {
	if name := r.provider(); name != "AWS" {
		return name
	}
	return "Amazon EC2"
}

// tags are the labels of the pods, as JSON.
func (r *focusRow) tags() string {
	if r.account.Labels == "" {
		return ""
	}
	found := map[string]string{}
	for pair := range strings.SplitSeq(r.account.Labels, ",") {
		key, value, _ := strings.Cut(pair, "=")
		found[key] = value
	}
	text, _ := json.Marshal(found) // of strings: it cannot fail
	return string(text)
}

// status is the CommitmentDiscountStatus, null for a purchase.
func (r *focusRow) status() string {
	return map[ledger.Kind]string{unused: "Unused", purchase: ""}[r.account.Kind] + r.pick(r.committed("Used"), "")
}

const focusTime = "2006-01-02T15:04:05Z"

// cells returns the columns of FOCUS 1.2 with their values, then custom ones. "" is null.
func (r *focusRow) cells(account string) map[string]string {
	m, start := r.bill.Machine, time.Unix(r.bill.Hour, 0).UTC()
	month := time.Date(start.Year(), start.Month(), 1, 0, 0, 0, 0, time.UTC)
	c := r.commitment()
	if c == nil {
		c = &tariff.Commitment{}
	}
	category, kind, unit := r.category()
	out := map[string]string{"BillingAccountName": "", "BillingAccountType": "", "CapacityReservationId": "",
		"CapacityReservationStatus": "", "ChargeClass": "", "CommitmentDiscountName": "", "InvoiceId": "", "SkuPriceDetails": "",
		"SubAccountId": "", "SubAccountName": "",
		"SubAccountType": "", "BillingCurrency": "USD", "PricingCurrency": "USD", "ServiceCategory": "Compute",
		"ServiceSubcategory": "Virtual Machines", "BillingAccountId": account}
	maps.Copy(out, map[string]string{
		"AvailabilityZone": r.pick(m.Zone, c.Zone), "RegionId": r.pick(m.Region, c.Region), "RegionName": r.pick(m.Region, c.Region),
		"BilledCost": string(exact(r.cost)), "EffectiveCost": string(exact(r.cost)), "ListCost": r.listCost(),
		"ContractedCost": r.listCost(),
		"ListUnitPrice":  r.unitPrice(), "ContractedUnitPrice": r.unitPrice(),
		"BillingPeriodStart": month.Format(focusTime), "BillingPeriodEnd": month.AddDate(0, 1, 0).Format(focusTime),
		"ChargePeriodStart": start.Format(focusTime), "ChargePeriodEnd": start.Add(time.Hour).Format(focusTime),
		"ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based",
		"ChargeDescription":          r.pick(m.Type+" "+m.CapacityType, kind+" "+c.ID) + ", " + string(r.account.Kind),
		"CommitmentDiscountCategory": category, "CommitmentDiscountId": c.ID,
		"CommitmentDiscountType":     kind,
		"CommitmentDiscountUnit":     unit,
		"CommitmentDiscountQuantity": r.committed(decimals(r.slice.Quantity * r.part)),
		"CommitmentDiscountStatus":   r.status(),
		"ConsumedQuantity":           r.pick(decimals(r.quantity()), ""), "ConsumedUnit": r.pick("Hours", ""),
		"PricingQuantity": decimals(r.quantity()), "PricingUnit": r.pick("Hours", unit), "PricingCategory": r.pricing(),
		"InvoiceIssuerName": r.provider(), "ProviderName": r.provider(), "PublisherName": r.provider(),
		"ServiceName": r.service(),
		"ResourceId":  r.pick(m.ProviderID, c.ID), "ResourceName": m.Node, "ResourceType": r.pick("Instance", "Commitment"),
		"SkuId": r.pick(m.Type, kind), "SkuMeter": r.pick("Instance usage", kind),
		"SkuPriceId": r.pick(m.Type+"/"+m.CapacityType, kind),
		"Tags":       r.tags(), "x_Estimated": strconv.FormatBool(r.bill.Estimated > 0), "x_Kind": string(r.account.Kind),
		"x_Namespace": r.account.Namespace, "x_NodePool": m.Pool, "x_Workload": r.pick(r.account.Workload, "")})
	switch {
	case r.account.Kind == purchase:
		out["ChargeCategory"], out["ChargeFrequency"], out["EffectiveCost"] = "Purchase", "Recurring", string(exact(0))
	case r.commitment() != nil: // the purchase has it
		out["BilledCost"] = string(exact(0))
	}
	return out
}

// focus writes a row for each machine, hour, account and commitment that costs anything, then what commitments cost in each hour.
func (r *costReport) focus(w io.Writer) error {
	out := csv.NewWriter(w)
	var columns, cells []string
	var failed error
	write := func(row *focusRow) {
		values := row.cells(r.account)
		if columns == nil {
			columns = slices.SortedFunc(maps.Keys(values), func(a, b string) int { return strings.Compare(custom(a), custom(b)) })
			failed = out.Write(columns)
		}
		cells = cells[:0]
		for _, name := range columns {
			cells = append(cells, values[name])
		}
		if err := out.Write(cells); err != nil {
			failed = err
		}
	}
	type fee struct {
		hour int64
		id   string
	}
	fees := map[fee]*focusRow{}
	r.each(func(bill *ledger.Bill) {
		for i := range bill.Slices {
			s := &bill.Slices[i]
			if s.Commitment != nil {
				row := fees[fee{bill.Hour, s.Commitment.ID}]
				if row == nil {
					row = &focusRow{bill: &ledger.Bill{Hour: bill.Hour, Machine: &ledger.Machine{}}, part: 1,
						slice: &ledger.Slice{Commitment: s.Commitment}, account: &ledger.Account{Kind: purchase}}
					fees[fee{bill.Hour, s.Commitment.ID}] = row
				}
				row.cost += s.Paid
				row.slice.Paid += s.Paid
				row.slice.Quantity += s.Quantity
			}
			costs, lists := ledger.Split(s.Paid, bill.Parts), ledger.Split(s.List, bill.Parts)
			for j, cost := range costs {
				if cost == 0 && lists[j] == 0 {
					continue
				}
				part := float64(lists[j]) / float64(max(s.List, 1))
				if s.List == 0 {
					part = float64(cost) / float64(s.Paid)
				}
				write(&focusRow{bill, s, bill.Parts[j].Account, cost, lists[j], part})
			}
		}
	})
	order := func(a, b fee) int { return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.id, b.id)) }
	for _, key := range slices.SortedFunc(maps.Keys(fees), order) {
		if fees[key].cost > 0 {
			write(fees[key])
		}
	}
	out.Flush()
	if failed == nil {
		failed = out.Error()
	}
	return failed
}

// custom puts custom columns behind those of FOCUS.
func custom(column string) string {
	if strings.HasPrefix(column, "x_") {
		return "~" + column
	}
	return column
}
