package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/history/costs"
)

// ledgerHour is the hour from 1970 that begins on 2026-03-31 at 22:00 UTC.
const ledgerHour = 493_054

// keptLedger writes a ledger of two books to a file: two machines, of which one is spot, from 22:00 to 00:30. The first book still has the
// beginning of the hour with which the second one begins.
func keptLedger(t *testing.T) string {
	machines := []ledger.Machine{{},
		{ProviderID: "aws:///us-east-1a/i-1", Node: "n1", Pool: "default", Type: "m7i.large", Zone: "us-east-1a", Region: "us-east-1", CapacityType: "on-demand"},
		{ProviderID: "aws:///us-east-1b/i-2", Node: "n2", Pool: "batch", Type: "c7i.large", Zone: "us-east-1b", Region: "us-east-1", CapacityType: "spot"}}
	accounts := []ledger.Account{
		{Kind: ledger.Requested, Namespace: "shop", Workload: "Deployment shop/web", Labels: "team=shop,tier=front"},
		{Kind: ledger.Requested, Namespace: "ml", Workload: "Job ml/train"},
		{Kind: ledger.DaemonSet, Namespace: "kube-system", Workload: "DaemonSet kube-system/agent"},
		{Kind: ledger.System}, {Kind: ledger.Ready}, {Kind: "list"}, {Kind: "seconds"}, {Kind: "missed", Workload: "pdb shop/cart"},
		{Kind: ledger.Starting}, {Kind: "estimated"}, {Kind: ledger.Gap}, {Kind: "paid"}}
	whole := func(machine, account, from, hours, amount int64) []int64 {
		return []int64{machine, account, 1, from, hours, amount * 3600}
	}
	part := func(machine, account, from, amount int64) []int64 {
		return []int64{machine, account, 1, from, 1, amount}
	}
	first := slices.Concat(
		part(0, 7, -2, 36_000_000_000),
		whole(1, 0, -2, 2, 50_000_001), whole(0, 2, -2, 2, 10_000_000), whole(0, 3, -2, 2, 5_000_000), whole(0, 4, -2, 2, 35_799_999),
		whole(0, 11, -2, 2, 100_800_000), whole(0, 5, -2, 2, 100_800_000), []int64{0, 6, 1, -2, 2, 3600},
		part(1, 1, -2, 100_000_000_001), part(0, 8, -2, 8_000_000_002), part(0, 11, -2, 108_000_000_003), part(0, 5, -2, 321_300_000_000), part(0, 6, -2, 3600), part(0, 9, -2, 60),
		part(0, 10, -1, 30_000_000), part(0, 11, -1, 1_000_000), part(0, 5, -1, 3_000_000), part(0, 6, -1, 30),
		part(0, 1, 0, 7777)) // counted by the second book
	second := slices.Concat(
		part(1, 0, 0, 90_000_000_000), part(0, 4, 0, 91_440_000_000), part(0, 11, 0, 181_440_000_000), part(0, 5, 0, 181_440_000_000), part(0, 6, 0, 1800))
	base := int32(ledgerHour + 2)
	list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	for i, f := range []*ledger.File{
		{Version: 1, Until: int64(base)*3600 + 60, First: base - 2, Since: base, Machines: machines, Accounts: accounts, Cells: first},
		{Version: 1, Until: int64(base)*3600 + 1800, First: base, Since: base, Machines: machines, Accounts: accounts, Cells: second}} {
		packed, err := costs.Pack(f)
		if err != nil {
			t.Fatal(err)
		}
		list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: costs.Name("l", i+1)},
			Data: map[string]string{"sequence": strconv.Itoa(i + 1)}, BinaryData: map[string][]byte{"ledger.json.gz": packed}})
	}
	list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: costs.Name("l", 3)}})
	text, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ledger.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func costOf(t *testing.T, args ...string) string {
	t.Helper()
	var out, failed bytes.Buffer
	if code := Run(t.Context(), Env{Out: &out, Err: &failed}, append([]string{"cost"}, args...)); code != exitFine {
		t.Fatalf("karpenter cost %q: exit code %d: %s", args, code, &failed)
	}
	return out.String()
}

func TestCost(t *testing.T) {
	path := keptLedger(t)
	for name, args := range map[string][]string{
		"namespace": nil, "workload": {"--by", "workload"}, "node": {"--by", "node"}, "nodepool": {"--by", "nodepool", "--window", "1h"},
		"hour": {"--by", "hour"}, "day": {"--by", "day"}, "label": {"--by", "label=team"}, "capacity": {"--by", "capacity-type"}, "spread": {"--spread"}, "times": {"--from", "2026-03-31T22:00", "--to", "2026-03-31 23:00"}, "json": {"-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			got := costOf(t, append(args, "-f", path)...)
			golden := filepath.Join("testdata", "cost", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Whatever rows are, they add up to what was paid, to the nano-dollar.
func TestRowsOfCostAddUp(t *testing.T) {
	path := keptLedger(t)
	paid := ""
	for _, by := range []string{"namespace", "workload", "nodepool", "node", "capacity-type", "hour", "day", "label=team", "label=nothing"} {
		for _, more := range [][]string{{}, {"--spread"}} {
			var d costDocument
			decoder := json.NewDecoder(strings.NewReader(costOf(t, append(more, "-f", path, "-o", "json", "--by", by)...)))
			decoder.UseNumber()
			if err := decoder.Decode(&d); err != nil {
				t.Fatal(err)
			}
			sum := new(big.Rat)
			for _, row := range d.Rows {
				kinds := new(big.Rat)
				for _, k := range costKinds {
					kinds.Add(kinds, rational(t, string(row[k.field].(json.Number))))
				}
				if kinds.Cmp(rational(t, string(row["total"].(json.Number)))) != 0 {
					t.Errorf("--by %s %s: kinds of %s add up to %s", by, more, row["key"], kinds.FloatString(9))
				}
				sum.Add(sum, kinds)
			}
			if got := sum.FloatString(9); got != string(d.Paid) || paid != "" && got != paid {
				t.Errorf("--by %s %s: rows add up to %s, paid %s", by, more, got, d.Paid)
			}
			paid = string(d.Paid)
		}
	}
}

func rational(t *testing.T, text string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%q is no number", text)
	}
	return r
}

// The export has the columns of FOCUS 1.2, nulls only where its specification allows them, unit prices that fit, and the same sum.
func TestFOCUS(t *testing.T) {
	columns, rows := checkFOCUS(t, keptLedger(t))
	at := func(row int, name string) string { return rows[row][slices.Index(columns, name)] }
	last := len(rows) - 1
	got := []string{at(0, "ChargePeriodStart"), at(0, "ChargePeriodEnd"), at(0, "BillingPeriodStart"), at(0, "BillingPeriodEnd"), at(0, "ServiceName"),
		at(last, "x_Kind"), at(last, "Tags")}
	want := []string{"2026-03-31T22:00:00Z", "2026-03-31T23:00:00Z", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", "Amazon EC2",
		"requested", `{"team":"shop","tier":"front"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// alwaysNull are columns for which there is nothing to say.
var alwaysNull = []string{"BillingAccountName", "BillingAccountType", "CapacityReservationId", "CapacityReservationStatus", "ChargeClass",
	"CommitmentDiscountName", "InvoiceId", "SkuPriceDetails", "SubAccountId", "SubAccountName", "SubAccountType"}

// mayBeNull reports whether FOCUS lets a column be null in a row: of a machine, of what is unused of a commitment, or of its purchase.
func mayBeNull(column string, at func(string) string) (may, must bool) {
	ofCommitment := strings.HasPrefix(column, "CommitmentDiscount")
	machine := at("ResourceType") == "Instance"
	switch {
	case slices.Contains(alwaysNull, column), ofCommitment && at("CommitmentDiscountId") == "":
		return true, true
	case column == "CommitmentDiscountStatus": // null in purchases
		return at("ChargeCategory") == "Purchase", at("ChargeCategory") == "Purchase"
	case column == "ConsumedQuantity" || column == "ConsumedUnit" || column == "ResourceName": // null where nothing is consumed
		return !machine, !machine
	case slices.Contains([]string{"Tags", "x_Namespace", "x_Workload", "x_NodePool"}, column):
		return true, !machine
	case column == "AvailabilityZone" || strings.HasPrefix(column, "Region"):
		return !machine, false
	}
	return false, false
}

// checkFOCUS holds the rules of the export of a ledger, and returns its columns and rows.
func checkFOCUS(t *testing.T, path string) (columns []string, rows [][]string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(costOf(t, "-f", path, "-o", "focus", "--account", "123456789012"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	columns, rows = rows[0], rows[1:]
	custom := slices.IndexFunc(columns, func(c string) bool { return strings.HasPrefix(c, "x_") })
	if !slices.IsSorted(columns[:custom]) || !slices.IsSorted(columns[custom:]) {
		t.Errorf("columns %q are not in order", columns)
	}
	effective, billed, hours := new(big.Rat), new(big.Rat), 0.0
	for _, row := range rows {
		at := func(name string) string { return row[slices.Index(columns, name)] }
		for i, value := range row {
			if may, must := mayBeNull(columns[i], at); value == "" && !may || value != "" && must {
				t.Errorf("%s is %q in %q", columns[i], value, row)
			}
		}
		number := func(name string) float64 { f, _ := rational(t, at(name)).Float64(); return f }
		for _, cost := range []string{"List", "Contracted"} {
			if off := number(cost+"UnitPrice")*number("PricingQuantity") - number(cost+"Cost"); off > 3e-9 || off < -3e-9 {
				t.Errorf("%sCost is off by %v in %q", cost, off, row)
			}
		}
		of := at("ChargeCategory") + " " + at("PricingCategory") + " " + at("CommitmentDiscountStatus")
		switch of {
		case "Usage Standard ", "Usage Dynamic ":
			if at("EffectiveCost") != at("BilledCost") {
				t.Errorf("row %q", row)
			}
		case "Usage Committed Used", "Usage Committed Unused":
			if number("BilledCost") != 0 {
				t.Errorf("row %q", row)
			}
		case "Purchase Standard ":
			if number("EffectiveCost") != 0 || at("ChargeFrequency") != "Recurring" {
				t.Errorf("row %q", row)
			}
		default:
			t.Errorf("row of %q: %q", of, row)
		}
		if at("ConsumedQuantity") != "" {
			hours += number("ConsumedQuantity")
		}
		effective.Add(effective, rational(t, at("EffectiveCost")))
		billed.Add(billed, rational(t, at("BilledCost")))
	}
	var d costDocument
	if err := json.Unmarshal([]byte(costOf(t, "-f", path, "-o", "json")), &d); err != nil {
		t.Fatal(err)
	}
	if e, b := effective.FloatString(9), billed.FloatString(9); e != string(d.Paid) || b != string(d.Paid) {
		t.Errorf("rows add up to %s, purchases and what is not covered to %s, want %s", e, b, d.Paid)
	}
	if want := float64(d.MachineSeconds) / 3600; hours < want-1e-6 || hours > want+1e-6 {
		t.Errorf("%v hours, want %v", hours, want)
	}
	return columns, rows
}

// The examples of commitments that FOCUS publishes, with AWS's normalization of sizes: what one hour costs, what is used and what not.
func TestFOCUSExamplesOfCommitments(t *testing.T) {
	const hour = ledgerHour
	plan := func(rate float64) tariff.Commitment {
		return tariff.Commitment{ID: "d", Kind: tariff.ComputeSavingsPlan, PerHour: 1e9, Rates: map[string]cloud.NanoUSD{"m5.large": cloud.FromDollars(rate)}}
	}
	reserved := tariff.Commitment{ID: "d", Kind: tariff.ReservedInstance, Region: "r", Type: "m5.xlarge", OS: tariff.Linux, Machines: 1, PerHour: 2e9}
	zonal := reserved
	zonal.Type, zonal.Zone, zonal.PerHour = "m5.large", "z", 1e9
	for name, tc := range map[string]struct {
		commitment tariff.Commitment
		machines   int64 // m5.large at $2 an hour
		want       []string
	}{
		"spend, all used": {plan(1), 1, []string{"Usage Committed 0 1 1 2 Used 1 USD", "Purchase Standard 1 0  1  1 USD"}},
		"spend, three quarters used": {plan(.75), 1, []string{"Usage Committed 0 0.75 1 2 Used 0.75 USD", "Usage Committed 0 0.25  0.25 Unused 0.25 USD",
			"Purchase Standard 1 0  1  1 USD"}},
		"spend, nothing used": {plan(1), 0, []string{"Usage Committed 0 1  1 Unused 1 USD", "Purchase Standard 1 0  1  1 USD"}},
		"spend, two machines of which one is covered": {plan(1), 2, []string{"Usage Standard 1 1 0.5 1   ", "Usage Committed 0 0.5 0.5 1 Used 0.5 USD",
			"Usage Standard 1 1 0.5 1   ", "Usage Committed 0 0.5 0.5 1 Used 0.5 USD", "Purchase Standard 1 0  1  1 USD"}},
		"usage, all used by one machine": {zonal, 1, []string{"Usage Committed 0 1 1 2 Used 1 Hours", "Purchase Standard 1 0  1  1 Hours"}},
		"usage, nothing used":            {zonal, 0, []string{"Usage Committed 0 1  1 Unused 1 Hours", "Purchase Standard 1 0  1  1 Hours"}},
		"usage, all used by two smaller machines": {reserved, 2, []string{"Usage Committed 0 1 1 2 Used 4 Normalized Hours",
			"Usage Committed 0 1 1 2 Used 4 Normalized Hours", "Purchase Standard 2 0  2  8 Normalized Hours"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &ledger.File{Version: 1, Until: (hour + 1) * 3600, First: hour, Since: hour + 1, Machines: []ledger.Machine{{}},
				Accounts: []ledger.Account{{Kind: "paid"}, {Kind: "list"}, {Kind: "seconds"}, {Kind: ledger.Requested, Namespace: "n", Workload: "w"}},
				Terms:    []ledger.Terms{{From: hour * 3600, Commitments: []tariff.Commitment{tc.commitment}}}}
			for i := range tc.machines {
				f.Machines = append(f.Machines, ledger.Machine{ProviderID: fmt.Sprint("aws:///z/i-", i), Node: fmt.Sprint("n", i), Pool: "p",
					Type: "m5.large", Zone: "z", Region: "r", CapacityType: "on-demand"})
				for account, amount := range []int64{2e9 * 3600, 2e9 * 3600, 3600, 1} {
					grows := int64(0)
					if account == 0 {
						grows = 1
					}
					f.Cells = append(f.Cells, grows, int64(account), 1, -1, 1, amount)
				}
			}
			columns, rows := checkFOCUS(t, keptFile(t, f))
			var got []string
			for _, row := range rows {
				var cells []string
				for _, name := range []string{"ChargeCategory", "PricingCategory", "BilledCost", "EffectiveCost", "ConsumedQuantity", "ListCost",
					"CommitmentDiscountStatus", "CommitmentDiscountQuantity", "CommitmentDiscountUnit"} {
					cell := row[slices.Index(columns, name)]
					if strings.Contains(cell, ".") {
						cell = strings.TrimRight(strings.TrimRight(cell, "0"), ".")
					}
					cells = append(cells, cell)
				}
				got = append(got, strings.Join(cells, " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// keptFile writes a ledger of one book to a file.
func keptFile(t *testing.T, f *ledger.File) string {
	t.Helper()
	packed, err := costs.Pack(f)
	if err != nil {
		t.Fatal(err)
	}
	list := corev1.ConfigMapList{Items: []corev1.ConfigMap{{Data: map[string]string{"sequence": "1"}, BinaryData: map[string][]byte{"ledger.json.gz": packed}}}}
	text, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ledger.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrongInputOfCost(t *testing.T) {
	path := keptLedger(t)
	torn := filepath.Join(t.TempDir(), "torn.yaml")
	if err := os.WriteFile(torn, []byte("items:\n- metadata: {name: l-1}\n  data: {sequence: \"1\"}\n  binaryData: {ledger.json.gz: AAAA}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, []byte("items: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, tc := range map[string]struct {
		code int
		args []string
	}{
		"--by owner: use namespace":             {exitBadInput, []string{"--by", "owner"}},
		"--by label=: use namespace":            {exitBadInput, []string{"--by", "label="}},
		"-o yaml: use table, json or focus":     {exitBadInput, []string{"-o", "yaml"}},
		"-o focus: give --account":              {exitBadInput, []string{"-o", "focus"}},
		"--window 90m: give whole hours":        {exitBadInput, []string{"--window", "90m"}},
		"--window d: give whole hours":          {exitBadInput, []string{"--window", "d"}},
		"--from 9: give a day or an hour":       {exitBadInput, []string{"--from", "9"}},
		"--to 2026-04-01T00:30: give a day or":  {exitBadInput, []string{"--to", "2026-04-01T00:30"}},
		"is not after --from 2026-04-01":        {exitBadInput, []string{"--from", "2026-04-01", "--to", "2026-03-31T23:00"}},
		"no machine of Karpenter ran":           {exitNothing, []string{"--from", "2027-01-01"}},
		"default: the command takes flags only": {exitBadInput, []string{"default"}},
		"hours are missing: ConfigMap /l-1: ":   {exitNothing, []string{"-f", torn}},
		"the ledger is empty: the controller":   {exitNothing, []string{"-f", empty}},
		"no-such-file":                          {exitBadInput, []string{"-f", "no-such-file"}},
	} {
		t.Run(want, func(t *testing.T) {
			var out, failed bytes.Buffer
			args := append([]string{"cost"}, tc.args...)
			if !slices.Contains(args, "-f") {
				args = append(args, "-f", path)
			}
			if code := Run(t.Context(), Env{Out: &out, Err: &failed}, args); code != tc.code || !strings.Contains(failed.String(), want) {
				t.Errorf("exit code %d: %s", code, failed.String())
			}
		})
	}
}
