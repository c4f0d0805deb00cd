package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/history/costs"
)

const costHelp = `usage: karpenter cost [--by namespace|workload|nodepool|node|capacity-type|hour|day|label=KEY] [--window 7d] [--from T]
                      [--to T] [--spread] [-o table|json|focus] [--account ID] [-n NAMESPACE] [--ledger NAME] [--kubeconfig FILE | -f FILE]

Says who costs what. The controller notes it hour by hour where settings.ledger is true, in ConfigMaps that this command reads. The
rows add up to what the machines of Karpenter cost, to the billionth of a dollar. Prices are those of the catalogue, spot by its price
of the hour. What CommitmentDiscounts cover is paid at their rates, and what of them is unused is a row of its own.

Exit code: 0 there are costs to show, 1 there are none in the window, 2 the input is wrong or the ledger cannot be read.

`

// costWays are the values of --by, beside label=KEY.
var costWays = []string{"namespace", "workload", "nodepool", "node", "capacity-type", "hour", "day"}

// costFlags are the flags of "karpenter cost".
type costFlags struct {
	by, output, account            string
	namespace, ledger, kube, files string
	label                          string // KEY of --by label=KEY, a label of pods
	window                         time.Duration
	from, to                       int64 // 0 where not given
	spread                         bool
}

// parseCost reads the flags of cost, and refuses values that do not go together.
func parseCost(env Env, args []string) (costFlags, error) {
	f := costFlags{}
	fs := flag.NewFlagSet("cost", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, costHelp); fs.PrintDefaults() }
	window, from, to := "", "", ""
	fs.StringVar(&f.by, "by", "namespace", strings.Join(costWays, ", ")+", or label=KEY for a label of settings.ledgerLabels")
	fs.StringVar(&window, "window", "7d", "how far back, such as 7d or 12h, in whole hours")
	fs.StringVar(&from, "from", "", "begin of the time, such as 2026-11-01 or 2026-11-01T09:00 in UTC, instead of --window")
	fs.StringVar(&to, "to", "", "its end, in the same form; what was noted last, if empty")
	fs.BoolVar(&f.spread, "spread", false, "put what is idle, of the system and of DaemonSets on the workloads of the same machine")
	fs.StringVar(&f.output, "o", "table", "table, json or focus (CSV in the columns of FOCUS 1.2)")
	fs.StringVar(&f.account, "account", "", "the BillingAccountId for -o focus")
	fs.StringVar(&f.namespace, "n", "", "namespace of the controller; where its lease is, if empty")
	fs.StringVar(&f.namespace, "namespace", "", "the same as -n")
	fs.StringVar(&f.ledger, "ledger", "karpenter-ledger", "name of the ConfigMaps, without their number")
	fs.StringVar(&f.kube, "kubeconfig", "", "cluster of the controller; that of $KUBECONFIG or ~/.kube/config if empty")
	fs.StringVar(&f.files, "f", "", "file with the ConfigMaps, as kubectl get configmaps -o yaml writes them, instead of a cluster")
	words, err := parseMixed(fs, args)
	if err != nil {
		return f, err
	}
	way, key, labelled := strings.Cut(f.by, "=")
	f.label = key
	switch {
	case len(words) > 0:
		return f, fmt.Errorf("%s: the command takes flags only", words[0])
	case labelled && (way != "label" || key == ""), !labelled && !slices.Contains(costWays, f.by):
		return f, fmt.Errorf("--by %s: use %s or label=KEY", f.by, strings.Join(costWays, ", "))
	case !slices.Contains([]string{"table", "json", "focus"}, f.output):
		return f, fmt.Errorf("-o %s: use table, json or focus", f.output)
	case f.output == "focus" && f.account == "":
		return f, errors.New("-o focus: give --account, the id of the account that is billed; FOCUS allows no row without one")
	}
	f.window, err = parseDays(window)
	var errFrom, errTo error
	f.from, errFrom = parseHour("from", from)
	f.to, errTo = parseHour("to", to)
	if f.from > 0 && f.to > 0 && f.from >= f.to {
		errTo = fmt.Errorf("--to %s is not after --from %s", to, from)
	}
	return f, cmp.Or(err, errFrom, errTo)
}

// parseHour reads a time that is a full hour, in seconds since 1970; 0 if the text is empty. name is the flag, for
// the error.
func parseHour(name, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", toMinute, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil && t.Unix()%3600 == 0 {
			return t.Unix(), nil
		}
	}
	return 0, fmt.Errorf("--%s %s: give a day or an hour of UTC, such as 2026-11-01 or 2026-11-01T09:00", name, text)
}

// parseDays reads a duration of whole hours, such as 12h, or of days, such as 7d; at most 366 days.
func parseDays(text string) (time.Duration, error) {
	days, isDays := strings.CutSuffix(text, "d")
	d, err := time.ParseDuration(text)
	if n, wrong := strconv.Atoi(days); isDays && wrong == nil {
		d, err = time.Duration(n)*24*time.Hour, nil
	}
	if err != nil || d < time.Hour || d%time.Hour != 0 || d > 366*24*time.Hour {
		return 0, fmt.Errorf("--window %s: give whole hours or days, such as 12h or 7d", text)
	}
	return d, nil
}

// configMaps reads the ConfigMaps of the ledger, from a file or from the cluster. Without -n it takes the namespace
// of the lease by which the controller elects its leader.
func (f *costFlags) configMaps(ctx context.Context, env Env) ([]corev1.ConfigMap, error) {
	if f.files != "" {
		text, name, err := readFile(env.In, f.files)
		if err != nil {
			return nil, err
		}
		var list corev1.ConfigMapList
		if err := yaml.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return list.Items, nil
	}
	c, err := env.cluster(f.kube)
	if err != nil {
		return nil, err
	}
	if f.namespace == "" {
		var leases coordinationv1.LeaseList
		if err := c.List(ctx, &leases, client.MatchingFields{"metadata.name": lease}); err != nil {
			return nil, fmt.Errorf("look for the namespace of the controller: %w; give -n NAMESPACE", err)
		}
		if len(leases.Items) == 0 {
			return nil, fmt.Errorf("there is no lease %s in the cluster; give -n NAMESPACE", lease)
		}
		f.namespace = leases.Items[0].Namespace
	}
	out := make([]corev1.ConfigMap, costs.Slots)
	for n := range out {
		at := client.ObjectKey{Namespace: f.namespace, Name: costs.Name(f.ledger, n)}
		if err := c.Get(ctx, at, &out[n]); err != nil {
			return nil, fmt.Errorf("read the ledger: %w; the controller keeps one where settings.ledger is true", err)
		}
	}
	return out, nil
}

// runCost runs "karpenter cost": it reads the ledger, adds up the window and prints it in the form that -o names.
func runCost(ctx context.Context, env Env, args []string) (int, error) {
	f, err := parseCost(env, args)
	if err != nil {
		return exitBadInput, err
	}
	maps, err := f.configMaps(ctx, env)
	if err != nil {
		return exitBadInput, err
	}
	books, until, torn := costs.Books(maps)
	for _, err := range torn {
		fmt.Fprintf(env.Err, "hours are missing: %v\n", err)
	}
	r := newCostReport(&f, books, until)
	if len(books) == 0 {
		fmt.Fprintln(env.Err, "the ledger is empty: the controller writes it every five minutes")
		return exitNothing, nil
	}
	r.addUp()
	err = map[string]func(io.Writer) error{"table": r.table, "json": r.json, "focus": r.focus}[f.output](env.Out)
	switch {
	case err != nil:
		return exitBadInput, err
	case r.bills == 0:
		fmt.Fprintln(env.Err, "no machine of Karpenter ran in this time")
		return exitNothing, nil
	}
	return exitFine, nil
}

// costKinds are the kinds of costs with their column in the table, which several kinds may share, and their field in the JSON.
var costKinds = []struct {
	kind         ledger.Kind
	title, field string
}{
	{ledger.Requested, "REQUESTED", "requested"}, {ledger.DaemonSet, "DAEMONSETS", "daemonSets"}, {ledger.System, "SYSTEM", "system"},
	{ledger.Starting, "IDLE", "idleStarting"}, {ledger.Ready, "IDLE", "idleReady"}, {ledger.Draining, "IDLE", "idleDraining"},
	{ledger.Buffer, "IDLE", "idleBuffer"}, {ledger.Gap, "GAP", "gap"}, {ledger.Unused, "UNUSED", "unused"},
}

// A costRow is what one key costs, by kind.
type costRow struct {
	key   string
	kinds map[ledger.Kind]cloud.NanoUSD
	total cloud.NanoUSD
}

// A costReport holds the costs of a window, from since to until (seconds since 1970).
type costReport struct {
	*costFlags
	books        []*ledger.Book
	since, until int64
	rows         map[string]*costRow      // by key
	sum          costRow                  // of all rows
	list         cloud.NanoUSD            // what all machines would have cost on demand
	bought       cloud.NanoUSD            // what commitments save: list less what was paid
	committed    bool                     // whether there are any commitments
	seconds      int64                    // that machines ran, in sum
	estimated    int64                    // of these, the seconds during which no controller looked
	missed       map[string]cloud.NanoUSD // what could have been saved, by cause and who holds the nodes, such as "pdb shop/cart"
	bills        int                      // how many the window has
}

// newCostReport returns an empty report for the window that the flags ask for, as far as the ledger covers it. until
// is where the books end. Without --from, the window begins at a full hour.
func newCostReport(f *costFlags, books []*ledger.Book, until int64) *costReport {
	if f.to > 0 {
		until = min(until, f.to)
	}
	since := cmp.Or(f.from, (until-int64(f.window/time.Second))/3600*3600) // rounded down to a full hour
	if len(books) > 0 {
		since = max(since, books[0].First())
	}
	return &costReport{costFlags: f, books: books, since: since, until: until, rows: map[string]*costRow{},
		sum: costRow{key: "(all)", kinds: map[ledger.Kind]cloud.NanoUSD{}}, missed: map[string]cloud.NanoUSD{}}
}

// eachBill calls yield for each bill of the window, with idle costs spread where --spread asks for it. Two books
// share the hour in which the second one begins. The second has all of that hour, so the first one counts only up to
// it.
func (r *costReport) eachBill(yield func(*ledger.Bill)) {
	for i, b := range r.books {
		b.Bills(r.since, r.endOf(i), func(bill *ledger.Bill) {
			r.bills++
			if r.spread {
				bill.Spread()
			}
			yield(bill)
		})
	}
}

// endOf returns where book i ends for this report, in seconds since 1970: at the end of the window rounded up to a
// full hour, or where the next book begins.
func (r *costReport) endOf(i int) int64 {
	end := (r.until + 3599) / 3600 * 3600
	if i+1 < len(r.books) {
		end = min(end, r.books[i+1].First())
	}
	return end
}

// addUp adds up the bills of the window by row, and what could have been saved by cause.
func (r *costReport) addUp() {
	r.eachBill(func(bill *ledger.Bill) {
		r.list, r.seconds, r.estimated = r.list+bill.List, r.seconds+bill.Seconds, r.estimated+bill.Estimated
		for _, s := range bill.Slices {
			if s.Commitment != nil {
				r.bought, r.committed = r.bought+s.List-s.Paid, true
			}
		}
		for _, p := range bill.Parts {
			key := r.rowKey(bill, p.Account)
			row := r.rows[key]
			if row == nil {
				row = &costRow{key: key, kinds: map[ledger.Kind]cloud.NanoUSD{}}
				r.rows[key] = row
			}
			for _, row := range []*costRow{row, &r.sum} {
				row.kinds[p.Account.Kind] += p.Cost
				row.total += p.Cost
			}
		}
	})
	for i, b := range r.books {
		for _, l := range b.Losses(r.since, r.endOf(i)) {
			r.missed[l.Cause] += l.Cost
		}
	}
}

// rowKey returns the key of the row that an account of a bill belongs to, as --by asks. Keys in brackets are no
// namespaces or workloads.
func (r *costReport) rowKey(bill *ledger.Bill, a *ledger.Account) string {
	m := bill.Machine
	switch {
	case r.by == "hour":
		return time.Unix(bill.Hour, 0).UTC().Format(toMinute)
	case r.by == "day":
		return time.Unix(bill.Hour, 0).UTC().Format(time.DateOnly)
	case a.Kind == ledger.Unused:
		return "(unused " + a.Workload + ")"
	case r.by == "nodepool":
		return m.Pool
	case r.by == "node":
		return m.Node
	case r.by == "capacity-type":
		return m.CapacityType
	case a.Kind.Idle():
		return "(idle)"
	case a.Kind != ledger.Requested && a.Kind != ledger.DaemonSet:
		return "(" + string(a.Kind) + ")"
	case r.by == "namespace":
		return a.Namespace
	case r.by == "workload":
		return a.Workload
	}
	return cmp.Or(ledger.Label(a.Labels, r.label), "(without)")
}

// sorted returns the rows, the dearest first; hours and days by time. Rows with a key in brackets come last.
func (r *costReport) sorted() []*costRow {
	return slices.SortedFunc(maps.Values(r.rows), func(a, b *costRow) int {
		switch x, y := strings.HasPrefix(a.key, "("), strings.HasPrefix(b.key, "("); {
		case x && !y:
			return 1
		case y && !x:
			return -1
		}
		if r.by == "hour" || r.by == "day" {
			return cmp.Compare(a.key, b.key)
		}
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.key, b.key))
	})
}

// dollars writes an amount for the table, a dash for 0. Amounts have six digits if the whole bill is below one cent,
// four if it is below ten dollars, else two.
func (r *costReport) dollars(m cloud.NanoUSD) string {
	digits := 2
	switch {
	case m == 0:
		return "–"
	case r.sum.total < 1e7:
		digits = 6
	case r.sum.total < 1e10:
		digits = 4
	}
	return fmt.Sprintf("%.*f", digits, m.Dollars())
}

// toMinute is the layout of times in the table.
const toMinute = "2006-01-02 15:04"

// table prints the rows with a column for each group of costs that occurs, and below them lines about idle room, what
// was saved and what was missed.
func (r *costReport) table(w io.Writer) error {
	fmt.Fprintf(w, "%s to %s UTC, %.1f machine-hours, of which %.1f estimated; dollars\n\n", time.Unix(r.since, 0).UTC().Format(toMinute),
		time.Unix(r.until, 0).UTC().Format(toMinute), float64(r.seconds)/3600, float64(r.estimated)/3600)
	title, _, _ := strings.Cut(strings.ToUpper(r.by), "=")
	if title == "LABEL" {
		title = r.label
	}
	var titles []string // of columns with any costs
	for _, k := range costKinds {
		if r.sum.kinds[k.kind] != 0 && !slices.Contains(titles, k.title) {
			titles = append(titles, k.title)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tTOTAL\tPART\t   %s\n", strings.Join(titles, "\t"), title)
	for _, row := range append(r.sorted(), &r.sum) {
		for _, title := range titles {
			sum := cloud.NanoUSD(0)
			for _, k := range costKinds {
				if k.title == title {
					sum += row.kinds[k.kind]
				}
			}
			fmt.Fprint(t, r.dollars(sum), "\t")
		}
		fmt.Fprintf(t, "%s\t%.1f%%\t   %s\n", r.dollars(row.total), 100*float64(row.total)/float64(max(1, r.sum.total)), row.key)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	of := r.sum.kinds
	fmt.Fprintf(w, "\nidle    starting %s · ready %s · draining %s · kept by CapacityBuffers %s\n", r.dollars(of[ledger.Starting]),
		r.dollars(of[ledger.Ready]), r.dollars(of[ledger.Draining]), r.dollars(of[ledger.Buffer]))
	fmt.Fprintf(w, "saved   %s by spot and reserved capacity", r.dollars(r.list-r.sum.total-r.bought))
	if r.committed {
		fmt.Fprintf(w, " · %s by commitments, less what is unused", r.dollars(r.bought))
	}
	fmt.Fprintf(w, "; all on demand: %s\n", r.dollars(r.list))
	if len(r.missed) > 0 {
		fmt.Fprintf(w, "missed  %s\n", r.missedText())
	}
	return nil
}

// mostCauses is how many causes of what was missed the table names.
const mostCauses = 8

// causes returns the keys of missed, the dearest first.
func (r *costReport) causes() []string {
	return slices.SortedFunc(maps.Keys(r.missed), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.missed[b], r.missed[a]), cmp.Compare(a, b))
	})
}

// missedText returns the line about what could have been saved: the sum, the dearest causes, and all others as one
// amount.
func (r *costReport) missedText() string {
	var parts []string
	all, rest := cloud.NanoUSD(0), cloud.NanoUSD(0)
	for i, cause := range r.causes() {
		all += r.missed[cause]
		if i < mostCauses {
			name, holder, _ := strings.Cut(cause, " ")
			parts = append(parts, strings.TrimSpace(causeTexts[savings.Cause(name)]+" "+holder)+" "+r.dollars(r.missed[cause]))
		} else {
			rest += r.missed[cause]
		}
	}
	if rest > 0 {
		parts = append(parts, "others "+r.dollars(rest))
	}
	return r.dollars(all) + ", of which " + strings.Join(parts, " · ")
}

// exactDollars writes dollars with nine digits, so that no nano-dollar is lost.
func exactDollars(m cloud.NanoUSD) json.Number {
	sign := ""
	if m < 0 {
		sign, m = "-", -m
	}
	return json.Number(fmt.Sprintf("%s%d.%09d", sign, m/1e9, m%1e9))
}

// costDocument is the JSON of the report. It is stable: fields are added, none changes its meaning. Money is dollars,
// exactly.
type costDocument struct {
	From     time.Time        `json:"from"`
	Until    time.Time        `json:"until"`
	By       string           `json:"by"`
	Rows     []map[string]any `json:"rows"` // key, total, and the fields of costKinds
	Paid     json.Number      `json:"paid"`
	OnDemand json.Number      `json:"onDemand"`
	Saved    json.Number      `json:"saved"`
	// SavedByCommitments is a part of Saved, below 0 where they cost more than they covered.
	SavedByCommitments json.Number  `json:"savedByCommitments"`
	Missed             []costMissed `json:"missed"`
	MachineSeconds     int64        `json:"machineSeconds"`
	EstimatedSeconds   int64        `json:"estimatedSeconds"`
}

type costMissed struct {
	Cause string      `json:"cause"`
	Cost  json.Number `json:"cost"`
}

// json prints the report as JSON.
func (r *costReport) json(w io.Writer) error {
	d := costDocument{From: time.Unix(r.since, 0).UTC(), Until: time.Unix(r.until, 0).UTC(), By: r.by, Rows: []map[string]any{},
		Paid: exactDollars(r.sum.total), OnDemand: exactDollars(r.list), Saved: exactDollars(r.list - r.sum.total),
		SavedByCommitments: exactDollars(r.bought), Missed: []costMissed{}, MachineSeconds: r.seconds, EstimatedSeconds: r.estimated}
	for _, row := range r.sorted() {
		fields := map[string]any{"key": row.key, "total": exactDollars(row.total)}
		for _, k := range costKinds {
			fields[k.field] = exactDollars(row.kinds[k.kind])
		}
		d.Rows = append(d.Rows, fields)
	}
	for _, cause := range r.causes() {
		d.Missed = append(d.Missed, costMissed{cause, exactDollars(r.missed[cause])})
	}
	return writeJSON(w, d)
}
