package cli

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/ledger"
)

// A focusRow is one charge: what a machine cost one account in one hour, or what of it was idle.
type focusRow struct {
	account    string // that is billed
	bill       *ledger.Bill
	part       *ledger.Part
	list       cloud.NanoUSD // of the part
	hours      float64       // likewise
	start, end time.Time
}

// A focusColumn is a column of FOCUS 1.2. A value of "" is null.
type focusColumn struct {
	name string
	of   func(*focusRow) string
}

func always(text string) func(*focusRow) string { return func(*focusRow) string { return text } }

func null(*focusRow) string { return "" }

const focusTime = "2006-01-02T15:04:05Z"

// focusColumns are the columns of FOCUS 1.2 in the order of its specification, then custom ones. Commitments are not applied: their
// columns are null in every row.
var focusColumns = []focusColumn{
	{"AvailabilityZone", func(r *focusRow) string { return r.bill.Machine.Zone }},
	{"BilledCost", func(r *focusRow) string { return string(exact(r.part.Cost)) }},
	{"BillingAccountId", func(r *focusRow) string { return r.account }},
	{"BillingAccountName", null},
	{"BillingAccountType", null},
	{"BillingCurrency", always("USD")},
	{"BillingPeriodEnd", func(r *focusRow) string { return month(r.start).AddDate(0, 1, 0).Format(focusTime) }},
	{"BillingPeriodStart", func(r *focusRow) string { return month(r.start).Format(focusTime) }},
	{"CapacityReservationId", null},
	{"CapacityReservationStatus", null},
	{"ChargeCategory", always("Usage")},
	{"ChargeClass", null},
	{"ChargeDescription", func(r *focusRow) string {
		return r.bill.Machine.Type + " " + r.bill.Machine.CapacityType + ", " + string(r.part.Account.Kind)
	}},
	{"ChargeFrequency", always("Usage-Based")},
	{"ChargePeriodEnd", func(r *focusRow) string { return r.end.Format(focusTime) }},
	{"ChargePeriodStart", func(r *focusRow) string { return r.start.Format(focusTime) }},
	{"CommitmentDiscountCategory", null},
	{"CommitmentDiscountId", null},
	{"CommitmentDiscountName", null},
	{"CommitmentDiscountQuantity", null},
	{"CommitmentDiscountStatus", null},
	{"CommitmentDiscountType", null},
	{"CommitmentDiscountUnit", null},
	{"ConsumedQuantity", quantity},
	{"ConsumedUnit", always("Hours")},
	{"ContractedCost", func(r *focusRow) string { return string(exact(r.list)) }},
	{"ContractedUnitPrice", unitPrice},
	{"EffectiveCost", func(r *focusRow) string { return string(exact(r.part.Cost)) }},
	{"InvoiceId", null},
	{"InvoiceIssuerName", provider},
	{"ListCost", func(r *focusRow) string { return string(exact(r.list)) }},
	{"ListUnitPrice", unitPrice},
	{"PricingCategory", func(r *focusRow) string {
		if r.bill.Machine.CapacityType == v1.CapacityTypeSpot {
			return "Dynamic"
		}
		return "Standard"
	}},
	{"PricingCurrency", always("USD")},
	{"PricingQuantity", quantity},
	{"PricingUnit", always("Hours")},
	{"ProviderName", provider},
	{"PublisherName", provider},
	{"RegionId", func(r *focusRow) string { return r.bill.Machine.Region }},
	{"RegionName", func(r *focusRow) string { return r.bill.Machine.Region }},
	{"ResourceId", func(r *focusRow) string { return r.bill.Machine.ProviderID }},
	{"ResourceName", func(r *focusRow) string { return r.bill.Machine.Node }},
	{"ResourceType", always("Instance")},
	{"ServiceCategory", always("Compute")},
	{"ServiceName", func(r *focusRow) string {
		if provider(r) == "AWS" {
			return "Amazon EC2"
		}
		return provider(r)
	}},
	{"ServiceSubcategory", always("Virtual Machines")},
	{"SkuId", func(r *focusRow) string { return r.bill.Machine.Type }},
	{"SkuMeter", always("Instance usage")},
	{"SkuPriceDetails", null},
	{"SkuPriceId", func(r *focusRow) string { return r.bill.Machine.Type + "/" + r.bill.Machine.CapacityType }},
	{"SubAccountId", null},
	{"SubAccountName", null},
	{"SubAccountType", null},
	{"Tags", tags},
	{"x_Estimated", func(r *focusRow) string { return strconv.FormatBool(r.bill.Estimated > 0) }},
	{"x_Kind", func(r *focusRow) string { return string(r.part.Account.Kind) }},
	{"x_Namespace", func(r *focusRow) string { return r.part.Account.Namespace }},
	{"x_NodePool", func(r *focusRow) string { return r.bill.Machine.Pool }},
	{"x_Workload", func(r *focusRow) string { return r.part.Account.Workload }},
}

func month(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC) }

// quantity is how many hours of the machine the part stands for.
func quantity(r *focusRow) string { return strconv.FormatFloat(r.hours, 'f', 12, 64) }

// unitPrice is what the machine costs in an hour on demand.
func unitPrice(r *focusRow) string {
	return strconv.FormatFloat(r.bill.List.Dollars()*3600/float64(r.bill.Seconds), 'f', 12, 64)
}

// provider is the name of the cloud, as far as the machine's ID tells.
func provider(r *focusRow) string {
	name, _, _ := strings.Cut(r.bill.Machine.ProviderID, ":")
	if name == "aws" {
		return "AWS"
	}
	return name
}

// tags are the labels of the pods, as JSON.
func tags(r *focusRow) string {
	if r.part.Account.Labels == "" {
		return ""
	}
	found := map[string]string{}
	for pair := range strings.SplitSeq(r.part.Account.Labels, ",") {
		key, value, _ := strings.Cut(pair, "=")
		found[key] = value
	}
	text, _ := json.Marshal(found) // of strings: it cannot fail
	return string(text)
}

// focus writes a row for each machine, hour and account that costs anything.
func (r *costReport) focus(w io.Writer) error {
	out := csv.NewWriter(w)
	var cells []string
	for _, c := range focusColumns {
		cells = append(cells, c.name)
	}
	if err := out.Write(cells); err != nil {
		return err
	}
	var failed error
	r.each(func(bill *ledger.Bill) {
		if bill.Seconds == 0 {
			return
		}
		start := time.Unix(bill.Hour, 0).UTC()
		for i, list := range ledger.Split(bill.List, bill.Parts) {
			part := &bill.Parts[i]
			if part.Cost == 0 {
				continue
			}
			row := &focusRow{r.account, bill, part, list, float64(bill.Seconds) / 3600 * float64(list) / float64(max(bill.List, 1)), start,
				start.Add(time.Hour)}
			cells = slices.Grow(cells[:0], len(focusColumns))
			for _, c := range focusColumns {
				cells = append(cells, c.of(row))
			}
			if err := out.Write(cells); err != nil {
				failed = err
			}
		}
	})
	out.Flush()
	if failed == nil {
		failed = out.Error()
	}
	return failed
}
