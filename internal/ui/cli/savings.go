package cli

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

const savingsHelp = `usage: karpenter savings [--kubeconfig FILE] [-f FILE_OR_DIR_OR_-…] [--commitments FILE] [--reach auto|always|never]
                         [-o table|json|html]
       karpenter savings --snapshot FILE [--commitments FILE] [--reach auto|always|never] [-o table|json|html]

Bills the nodes of a cluster as they are, proves the least that its pods could cost on the machines that the NodePools allow, and
splits the difference by cause. It lists objects and changes nothing; Karpenter need not be installed. Nodes may be
Karpenter's, of EKS Auto Mode, of node groups, or made by hand. Where there is no NodePool one is assumed that buys the types of
categories c, m and r from generation 3 on. The least is no promise: what the controller would reach, within budgets and thresholds,
is simulated and printed beside it.

Exit code: 0 the report is complete, 1 more than one node in twenty has no known price or some pod fits no pool, 2 the input is wrong.

`

// runSavings runs "karpenter savings": it reads the fleet, finds the least that it could cost, simulates what the
// controller would reach, and prints the report.
func runSavings(ctx context.Context, env Env, args []string) (int, error) {
	p, commitments, reach := planFlags{propose: true, quiet: true}, "", ""
	fs := flag.NewFlagSet("savings", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, savingsHelp); fs.PrintDefaults() }
	p.worldFlags(fs)
	fs.StringVar(&p.output, "o", "table", "table, json or html")
	fs.StringVar(&commitments, "commitments", "", "file with Reserved Instances and Savings Plans, as CommitmentDiscounts; by default "+
		"those among the objects, or in the snapshot")
	fs.StringVar(&reach, "reach", "auto", fmt.Sprintf("simulate what the controller would reach in %d hours: always, never, or auto for "+
		"up to %d nodes", int(reachTime.Hours()), reachNodes))
	words, err := parseMixed(fs, args)
	p.files = append(p.files, words...)
	if err == nil && !slices.Contains([]string{"auto", "always", "never"}, reach) {
		err = fmt.Errorf("--reach %s: use auto, always or never", reach)
	}
	if err == nil && !slices.Contains([]string{"table", "json", "html"}, p.output) {
		err = fmt.Errorf("-o %s: use table, json or html", p.output)
	}
	if err = cmp.Or(err, p.checkWorld()); err != nil {
		return exitBadInput, err
	}
	world, q, err := p.fleet(ctx, env)
	if err != nil {
		return exitBadInput, err
	}
	region := p.market.Region
	q.Ended = func() bool { return ctx.Err() != nil }
	r := &savingsReport{region: region, prices: p.source.Region}
	if !p.foreign() {
		r.prices = region
	}
	objects := p.commitments
	if commitments != "" {
		if objects, err = readCommitments(commitments); err != nil {
			return exitBadInput, err
		}
	}
	active, err := activeCommitments(objects, savings.Market(q.Pools, region), q.Now)
	if err != nil {
		return exitBadInput, err
	}
	if commitments == "" && q.Commitments != nil { // of a snapshot
		active = q.Commitments.Commitments
	}
	r.Report = savings.Of(q, p.planner(), region, active)
	if nodes := len(r.Nodes); reach == "always" || reach == "auto" && nodes > 0 && nodes <= reachNodes {
		if err := r.reach(ctx, env, world, &q); err != nil {
			return exitBadInput, err
		}
	}
	if err := ctx.Err(); err != nil {
		return exitBadInput, err
	}
	if err := r.write(env.Out, p.output); err != nil {
		return exitBadInput, err
	}
	if len(r.NoPool) > 0 || 20*len(r.NotPriced) > q.Snap.NodeCount() {
		return exitUnschedulable, nil
	}
	return exitFine, nil
}

const proposedText = "no NodePool: assumed one that buys on-demand and spot machines of categories c, m and r from generation 3 on; " +
	"give your own with -f"

// proposedPool returns the pool that is assumed where there is none.
func proposedPool() *v1.NodePool {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "proposed"}}
	spec := &pool.Spec.Template.Spec
	spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
		{Key: awsv1.LabelInstanceCategory, Operator: corev1.NodeSelectorOpIn, Values: []string{"c", "m", "r"}},
		{Key: awsv1.LabelInstanceGeneration, Operator: corev1.NodeSelectorOpGt, Values: []string{"2"}},
		{Key: v1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{v1.CapacityTypeOnDemand, v1.CapacityTypeSpot}},
	}
	return pool
}

// A savingsReport is a report with the region, the region of the prices, and what the controller would reach.
type savingsReport struct {
	*savings.Report
	region, prices string
	reached        *reached // nil where it was not simulated
}

// causeTexts are the causes as people read them.
var causeTexts = map[savings.Cause]string{
	savings.Fee: "Auto Mode fee, about", savings.Empty: "empty nodes", savings.Fragmentation: "fragmentation",
	savings.MachineTypes: "machine types", savings.Purchase: "spot and architecture", savings.DoNotDisrupt: "do-not-disrupt",
	savings.PDB: "PDB allows none", savings.Preferences: "preferences",
	savings.Caution: "caution: spot lists, node size", savings.Open: "proof leaves open",
}

// managerTexts are the managers as people read them; the name of the pool or group follows.
var managerTexts = map[savings.Manager]string{
	savings.AutoMode: "Auto Mode", savings.Karpenter: "NodePool", savings.NodeGroup: "node group", savings.ByHand: "by hand",
}

// ownerText names who manages machines, such as "NodePool default".
func ownerText(o *savings.Owner) string {
	return strings.TrimRight(managerTexts[o.Manager]+" "+o.Name, " ")
}

// A table has a title row, and numbers in its columns from the second on.
type table struct {
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// hoursAMonth is how many hours AWS counts in a month.
const hoursAMonth = 730

// money returns the cost of so many hours at a price per hour.
func money(p cloud.NanoUSD, hours float64) string { return fmt.Sprintf("%.2f", p.Dollars()*hours) }

// tables returns the tables of the report: owners, the bill, commitments if there are any, and the causes of the gap.
func (r *savingsReport) tables() []table {
	var owners, gap table
	owners.add("TODAY BY OWNER", "NODES", "$/H", "$/MONTH", "OF WHICH FEE, ABOUT")
	for i := range r.Owners {
		o := &r.Owners[i]
		owners.add(ownerText(o), fmt.Sprint(o.Nodes), money(o.PerHour, 1), money(o.PerHour, hoursAMonth), money(o.Fee, 1))
	}
	if len(r.NotPriced) > 0 {
		owners.add("no known price", fmt.Sprint(len(r.NotPriced)), "–", "–", nameOrSummary(r.NotPriced))
	}
	gap.add("WHY TODAY IS NOT THE LEAST", "$/H", "$/DAY", "BY")
	for _, p := range r.Gap {
		gap.add(causeTexts[p.Cause], money(p.PerHour, 1), money(p.PerHour, 24), strings.Join(p.By[:min(10, len(p.By))], ", "))
	}
	gap.add("sum: today − least", money(r.Today-r.Least, 1), money(r.Today-r.Least, 24), "")
	var bill table
	bill.add("BILL", "$/H", "$/MONTH")
	bill.add("today", money(r.Today, 1), money(r.Today, hoursAMonth))
	if r.reached != nil {
		bill.add(fmt.Sprintf("reached in %d h", int(reachTime.Hours())), money(r.reached.PerHour, 1), money(r.reached.PerHour, hoursAMonth))
	}
	bill.add("proven least", money(r.Least, 1), money(r.Least, hoursAMonth))
	out := []table{owners, bill}
	if len(r.Commitments) > 0 {
		var used table
		used.add("COMMITMENT", "$/H", "USED TODAY")
		for i := range r.Commitments {
			used.add(r.Commitments[i].ID, money(r.Commitments[i].Fee(), 1), fmt.Sprintf("%.1f%%", 100*r.Used[i]))
		}
		out = append(out, used)
	}
	return append(out, gap)
}

// remarks returns sentences on what the figures are based on and what they leave out.
func (r *savingsReport) remarks() []string {
	out := []string{fmt.Sprintf("region %s, prices of %s, %s that move; no object was changed", r.region, r.prices,
		sentence.Count(r.Pods, "pod"))}
	if len(r.NoPool) > 0 {
		out = append(out, "no NodePool takes these pods; their nodes stay in every figure: "+nameOrSummary(r.NoPool))
	}
	return append(out, "The least is proven for the machines that the NodePools allow. It is no promise.", r.reached.remark(len(r.Nodes)))
}

// write prints the report as json, html or tables.
func (r *savingsReport) write(w io.Writer, format string) error {
	switch format {
	case "json":
		return writeJSON(w, r.document())
	case "html":
		return r.html(w)
	}
	for _, t := range r.tables() {
		out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range t.rows {
			fmt.Fprintln(out, strings.TrimRight(strings.Join(row, "\t"), "\t"))
		}
		if err := out.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w, strings.Join(r.remarks(), "\n"))
	return err
}

// savingsDocument is the JSON. It is stable: fields are added, none changes its meaning.
type savingsDocument struct {
	Region      string           `json:"region"`
	Today       savingsToday     `json:"today"`
	Reached     *savingsReached  `json:"reached,omitempty"`
	Least       savingsMoney     `json:"least"`
	Gap         []savingsPart    `json:"gap"`
	Commitments []savingsPlanUse `json:"commitments"`
	Unknown     []string         `json:"unknown"`
	NoPool      []string         `json:"noPool"`
	Assumptions []string         `json:"assumptions"`
}

type savingsMoney struct {
	PerHour float64 `json:"perHour"`
}

// savingsReached is what the controller would make of today's fleet.
type savingsReached struct {
	PerHour   float64 `json:"perHour"`
	Hours     int     `json:"hours"`
	Evictions int     `json:"evictions"`
	Launched  int     `json:"launched"`
	Unplaced  int     `json:"unplaced"`
}

type savingsToday struct {
	PerHour float64        `json:"perHour"`
	ByOwner []savingsOwner `json:"byOwner"`
}

type savingsOwner struct {
	Owner   string  `json:"owner"`
	Nodes   int     `json:"nodes"`
	PerHour float64 `json:"perHour"`
	Fee     float64 `json:"feePerHour"`
}

type savingsPart struct {
	Cause   savings.Cause `json:"cause"`
	PerHour float64       `json:"perHour"`
	By      []string      `json:"by"`
}

type savingsPlanUse struct {
	ID      string  `json:"id"`
	PerHour float64 `json:"perHour"`
	Used    float64 `json:"used"`
}

// document returns the report as its JSON.
func (r *savingsReport) document() savingsDocument {
	d := savingsDocument{Region: r.region, Today: savingsToday{PerHour: r.Today.Dollars(), ByOwner: []savingsOwner{}},
		Least: savingsMoney{r.Least.Dollars()}, Commitments: []savingsPlanUse{}, Unknown: append([]string{}, r.NotPriced...),
		NoPool: append([]string{}, r.NoPool...), Assumptions: r.remarks()}
	if x := r.reached; x != nil {
		d.Reached = &savingsReached{x.PerHour.Dollars(), int(reachTime.Hours()), x.Evictions, x.Launched, x.Unplaced}
	}
	for i := range r.Owners {
		o := &r.Owners[i]
		d.Today.ByOwner = append(d.Today.ByOwner, savingsOwner{ownerText(o), o.Nodes, o.PerHour.Dollars(), o.Fee.Dollars()})
	}
	for _, p := range r.Gap {
		d.Gap = append(d.Gap, savingsPart{p.Cause, p.PerHour.Dollars(), append([]string{}, p.By...)})
	}
	for i := range r.Commitments {
		d.Commitments = append(d.Commitments, savingsPlanUse{r.Commitments[i].ID, r.Commitments[i].Fee().Dollars(), r.Used[i]})
	}
	return d
}

// savingsHead begins a page that fetches nothing and has no script.
const savingsHead = `<!doctype html><html lang="en"><meta charset="utf-8"><title>karpenter savings</title><style>
:root{color-scheme:light dark}body{font:16px system-ui;max-width:60em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;width:100%;margin:1.5em 0}td,th{padding:.3em .8em;text-align:left;border-bottom:1px solid #8886}
td:nth-child(2),td:nth-child(3),th:nth-child(2),th:nth-child(3){text-align:right;font-variant-numeric:tabular-nums}
</style><h1>Why this cluster is not as cheap as it could be</h1>
`

// html writes the same tables as one static page.
func (r *savingsReport) html(w io.Writer) error {
	var b strings.Builder
	b.WriteString(savingsHead)
	for _, t := range r.tables() {
		b.WriteString("<table>\n")
		for i, row := range t.rows {
			cell := "td"
			if i == 0 {
				cell = "th"
			}
			b.WriteString("<tr>")
			for _, text := range row {
				fmt.Fprintf(&b, "<%s>%s</%[1]s>", cell, html.EscapeString(text))
			}
			b.WriteString("</tr>\n")
		}
		b.WriteString("</table>\n")
	}
	for _, text := range r.remarks() {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(text))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
