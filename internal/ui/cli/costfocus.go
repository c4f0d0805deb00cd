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

// A focusRow is one charge. Either a machine costs an account something in an hour, at its own price or by a
// commitment; or a part of a commitment is unused in an hour; or it is the fee of the commitment for an hour.
type focusRow struct {
	bill       *ledger.Bill
	slice      *ledger.Slice
	account    *ledger.Account
	cost, list cloud.NanoUSD // the account's share of what was paid, and of the on-demand price
	part       float64       // the account's part of the slice, from 0 to 1
}

// purchase is the kind of rows about the fee of a commitment.
const purchase ledger.Kind = "purchase"

const focusTime = "2006-01-02T15:04:05Z"

// cells returns the value of each column, those of FOCUS 1.2 and custom ones (x_…). "" is null. Every row has the
// same columns.
func (r *focusRow) cells(account string) map[string]string {
	m, start, kind := r.bill.Machine, time.Unix(r.bill.Hour, 0).UTC(), string(r.account.Kind)
	month := time.Date(start.Year(), start.Month(), 1, 0, 0, 0, 0, time.UTC)
	cost, list := string(exactDollars(r.cost)), string(exactDollars(r.list))
	hours, price := decimals(r.slice.Seconds/3600*r.part), decimals(r.slice.List.Dollars()*3600/max(r.slice.Seconds, 1e-9))
	provider, _, _ := strings.Cut(m.ProviderID, ":")
	service := provider
	if provider == "aws" || provider == "" { // commitments are AWS's
		provider, service = "AWS", "Amazon EC2"
	}
	out := map[string]string{
		"AvailabilityZone": m.Zone, "BilledCost": cost, "BillingAccountId": account, "BillingAccountName": "", "BillingAccountType": "",
		"BillingCurrency": "USD", "BillingPeriodEnd": month.AddDate(0, 1, 0).Format(focusTime),
		"BillingPeriodStart":    month.Format(focusTime),
		"CapacityReservationId": "", "CapacityReservationStatus": "", "ChargeCategory": "Usage", "ChargeClass": "",
		"ChargeDescription": m.Type + " " + m.CapacityType + ", " + kind, "ChargeFrequency": "Usage-Based",
		"ChargePeriodEnd": start.Add(time.Hour).Format(focusTime), "ChargePeriodStart": start.Format(focusTime),
		"CommitmentDiscountCategory": "", "CommitmentDiscountId": "", "CommitmentDiscountName": "", "CommitmentDiscountQuantity": "",
		"CommitmentDiscountStatus": "", "CommitmentDiscountType": "", "CommitmentDiscountUnit": "", "ConsumedQuantity": hours,
		"ConsumedUnit": "Hours", "ContractedCost": list, "ContractedUnitPrice": price, "EffectiveCost": cost, "InvoiceId": "",
		"InvoiceIssuerName": provider, "ListCost": list, "ListUnitPrice": price, "PricingCategory": "Standard", "PricingCurrency": "USD",
		"PricingQuantity": hours, "PricingUnit": "Hours", "ProviderName": provider, "PublisherName": provider, "RegionId": m.Region,
		"RegionName": m.Region, "ResourceId": m.ProviderID, "ResourceName": m.Node, "ResourceType": "Instance",
		"ServiceCategory": "Compute",
		"ServiceName":     service, "ServiceSubcategory": "Virtual Machines", "SkuId": m.Type, "SkuMeter": "Instance usage",
		"SkuPriceDetails": "",
		"SkuPriceId":      m.Type + "/" + m.CapacityType, "SubAccountId": "", "SubAccountName": "", "SubAccountType": "", "Tags": r.tags(),
		"x_Estimated": strconv.FormatBool(r.bill.Estimated > 0), "x_Kind": kind, "x_Namespace": r.account.Namespace, "x_NodePool": m.Pool,
		"x_Workload": r.account.Workload,
	}
	if m.CapacityType == v1.CapacityTypeSpot {
		out["PricingCategory"] = "Dynamic"
	}
	if r.slice.Commitment != nil {
		r.committed(out)
	}
	return out
}

// committed changes the cells of a row with a commitment: of what it covers, of what is unused, or of its fee.
func (r *focusRow) committed(out map[string]string) {
	c, cost := r.slice.Commitment, string(exactDollars(r.cost))
	category, kind, unit := categoryOf(c)
	maps.Copy(out, map[string]string{"BilledCost": string(exactDollars(0)), // the row of the fee has the cost
		"PricingCategory": "Committed", "CommitmentDiscountCategory": category, "CommitmentDiscountId": c.ID,
		"CommitmentDiscountType": kind,
		"CommitmentDiscountUnit": unit, "CommitmentDiscountStatus": "Used",
		"CommitmentDiscountQuantity": decimals(r.slice.Quantity * r.part)})
	if r.account.Kind != ledger.Unused && r.account.Kind != purchase {
		return
	}
	price := decimals(r.slice.Paid.Dollars() / max(r.slice.Quantity, 1e-9))
	maps.Copy(out, map[string]string{"CommitmentDiscountStatus": "Unused", "ConsumedQuantity": "", "ConsumedUnit": "", "ListCost": cost,
		"ContractedCost": cost, "ListUnitPrice": price, "ContractedUnitPrice": price, "PricingQuantity": decimals(r.slice.Quantity),
		"PricingUnit": unit, "AvailabilityZone": c.Zone, "RegionId": c.Region, "RegionName": c.Region, "ResourceId": c.ID,
		"ResourceType": "Commitment", "SkuId": kind, "SkuMeter": kind, "SkuPriceId": kind, "x_Workload": "",
		"ChargeDescription": kind + " " + c.ID + ", " + string(r.account.Kind)})
	if r.account.Kind == purchase {
		maps.Copy(out, map[string]string{"BilledCost": cost, "EffectiveCost": string(exactDollars(0)), "ChargeCategory": "Purchase",
			"ChargeFrequency": "Recurring", "PricingCategory": "Standard", "CommitmentDiscountStatus": ""})
	}
}

// categoryOf returns how FOCUS names the category and type of a commitment, and the unit of its quantity.
func categoryOf(c *tariff.Commitment) (category, kind, unit string) {
	switch {
	case c.Flexible():
		return "Usage", "ReservedInstance", "Normalized Hours"
	case c.Kind == tariff.ReservedInstance:
		return "Usage", "ReservedInstance", "Hours"
	case c.Kind == tariff.EC2InstanceSavingsPlan:
		return "Spend", "EC2InstanceSavingsPlan", "USD"
	}
	return "Spend", "ComputeSavingsPlan", "USD"
}

func decimals(f float64) string { return strconv.FormatFloat(f, 'f', 12, 64) }

// tags returns the labels of the account's pods as a JSON object, "" if there are none.
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

// focus prints a CSV in the columns of FOCUS: a row for each machine, hour, account and commitment that costs
// anything, then the fees of commitments by hour.
func (r *costReport) focus(w io.Writer) error {
	out := csv.NewWriter(w)
	var columns, cells []string
	var failed error
	write := func(row *focusRow) {
		values := row.cells(r.account)
		if columns == nil {
			columns = slices.SortedFunc(maps.Keys(values), func(a, b string) int { return strings.Compare(columnOrder(a), columnOrder(b)) })
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
	r.eachBill(func(bill *ledger.Bill) {
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

// columnOrder returns the text by which columns are sorted: "~" sorts custom columns after those of FOCUS.
func columnOrder(column string) string {
	if strings.HasPrefix(column, "x_") {
		return "~" + column
	}
	return column
}
