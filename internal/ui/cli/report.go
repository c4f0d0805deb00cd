package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A report is the answer of plan. Its JSON is documented and is stable.
type report struct {
	Claims             []claimReport    `json:"claims"`
	Existing           []existingReport `json:"existing"`
	Unschedulable      []refusedReport  `json:"unschedulable"`
	PricePerHour       float64          `json:"pricePerHour"`
	CostPerHour        float64          `json:"costPerHour"`
	LowerBoundPerHour  float64          `json:"lowerBoundPerHour"`
	VolumeBoundPerHour float64          `json:"volumeBoundPerHour"`
	Gap                float64          `json:"gap"`
	// BillPerHour is what the plan adds to the bill with commitments.
	BillPerHour *float64        `json:"billPerHour,omitempty"`
	Commitments []commitmentUse `json:"commitments,omitempty"`
	Seconds     float64         `json:"seconds"`
	PricesOf    string          `json:"pricesOf,omitempty"` // another region, whose prices stand for those of the plan's

	beside bool // there are nodes that pods could go to: the bound is about the other pods
}

type claimReport struct {
	Pool          string   `json:"pool"`
	Type          string   `json:"type"`
	Types         []string `json:"types"`
	Zone          string   `json:"zone"`
	Zones         []string `json:"zones"`
	CapacityType  string   `json:"capacityType"`
	CapacityTypes []string `json:"capacityTypes"`
	PricePerHour  float64  `json:"pricePerHour"`
	Pods          []string `json:"pods"`
	Covered       float64  `json:"covered,omitempty"` // the part that commitments cover
	Spot          string   `json:"spot,omitempty"`    // how often such machines are taken back, where interruptions cost something
}

// A commitmentUse says which part of a commitment is used before and after the plan, from 0 to 1.
type commitmentUse struct {
	ID         string  `json:"id"`
	UsedBefore float64 `json:"usedBefore"`
	UsedAfter  float64 `json:"usedAfter"`
}

type existingReport struct {
	Node string   `json:"node"`
	Pods []string `json:"pods"`
}

type refusedReport struct {
	Pod     string   `json:"pod"`
	Reasons []string `json:"reasons"`
}

// newReport turns a plan into a report. Its lists are sorted, so that equal plans give equal reports.
func newReport(plan *engine.Plan, seconds float64) *report {
	r := &report{
		Claims: []claimReport{}, Existing: []existingReport{}, Unschedulable: []refusedReport{},
		PricePerHour: plan.Price.Dollars(), CostPerHour: plan.Cost.Dollars(), LowerBoundPerHour: max(plan.VolumeBound,
			plan.ConfigBound).Dollars(),
		VolumeBoundPerHour: plan.VolumeBound.Dollars(), Gap: plan.Gap(), Seconds: seconds,
	}
	for i := range plan.Open {
		o := &plan.Open[i]
		r.Claims = append(r.Claims, claimReport{
			Pool: o.Pool, Type: o.Type, Types: o.Types, Zone: o.Zone, Zones: o.Zones, CapacityType: o.CapacityType,
			CapacityTypes: o.CapacityTypes, PricePerHour: o.Price.Dollars(), Pods: podNames(o.Pods), Covered: o.Covered,
		})
	}
	if b := plan.Bill; b != nil {
		bill := b.Adds.Dollars()
		r.BillPerHour = &bill
		for _, u := range b.Used {
			r.Commitments = append(r.Commitments, commitmentUse{u.ID, u.Before, u.After})
		}
	}
	slices.SortStableFunc(r.Claims, func(a, b claimReport) int {
		return strings.Compare(a.Pool+"\x00"+a.Type+"\x00"+strings.Join(a.Pods, ","), b.Pool+"\x00"+b.Type+"\x00"+
			strings.Join(b.Pods, ","))
	})
	nodes := map[string][]*cluster.Pod{}
	for _, p := range plan.Place {
		nodes[p.Node] = append(nodes[p.Node], p.Pod)
	}
	for _, node := range sortedKeys(nodes) {
		r.Existing = append(r.Existing, existingReport{Node: node, Pods: podNames(nodes[node])})
	}
	for _, refused := range plan.Refused {
		r.Unschedulable = append(r.Unschedulable, refusedReport{Pod: podName(refused.Pod),
			Reasons: []string{sentence.Explanation(refused.Reasons)}})
	}
	slices.SortStableFunc(r.Unschedulable, func(a, b refusedReport) int { return strings.Compare(a.Pod, b.Pod) })
	return r
}

// explainSpot adds to the spot machines of a plan how often such machines are taken back, where interruptions cost something.
func (r *report) explainSpot(in *engine.Question) {
	for i := range r.Claims {
		c := &r.Claims[i]
		at := slices.IndexFunc(in.Pools, func(p engine.Pool) bool { return p.Pool.Name == c.Pool })
		if at < 0 || in.Pools[at].InterruptionCost(in.Settings.InterruptionCost) == 0 {
			continue
		}
		c.Spot = spotSentence(&in.Pools[at], map[string]string{corev1.LabelInstanceTypeStable: c.Type, corev1.LabelTopologyZone: c.Zone,
			v1.CapacityTypeLabelKey: c.CapacityType}, in.Settings.InterruptionCost)
	}
}

// spotTexts returns the sentences about spot machines, each once, and an empty line after the last.
func (r *report) spotTexts() (out []string) {
	for i := range r.Claims {
		if text := r.Claims[i].Spot; text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(out) > 0 {
		out = append(out, "")
	}
	return out
}

func podName(p *cluster.Pod) string { return p.Namespace + "/" + p.Name }

// podNames returns the names of pods, sorted.
func podNames(pods []*cluster.Pod) []string {
	names := make([]string, len(pods))
	for i, p := range pods {
		names[i] = podName(p)
	}
	slices.Sort(names)
	return names
}

// write prints the report as json, yaml or a table.
func (r *report) write(w io.Writer, format string) error {
	switch format {
	case "json":
		return writeJSON(w, r)
	case "yaml":
		text, err := yaml.Marshal(r)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	return r.table(w)
}

// table prints the report for people. Equal claims share a row; the sums come last.
func (r *report) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.Claims) > 0 {
		fmt.Fprintln(t, "NEW NODES\tPOOL\tTYPE\tALTERNATIVES\tCAPACITY\tZONES\t$/H EACH"+r.pricesNote()+"\tPODS")
		for _, g := range r.groups() {
			c := g.first
			fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s\t%s\t%.4f\t%s\n", g.count, c.Pool, c.Type, len(c.Types)-1,
				strings.Join(c.CapacityTypes, ","), strings.Join(c.Zones, ","), c.PricePerHour, summarise(c.Pods))
		}
		fmt.Fprintln(t)
	}
	for _, text := range r.spotTexts() {
		fmt.Fprintln(t, text)
	}
	if len(r.Existing) > 0 {
		fmt.Fprintln(t, "RUNNING NODE\tTAKES")
		for _, e := range r.Existing {
			fmt.Fprintf(t, "%s\t%s\n", e.Node, summarise(e.Pods))
		}
		fmt.Fprintln(t)
	}
	if len(r.Unschedulable) > 0 {
		fmt.Fprintln(t, "CANNOT RUN\tBECAUSE")
		for _, g := range r.refusals() {
			fmt.Fprintf(t, "%s\t%s\n", nameOrSummary(g.pods), g.reason)
		}
		fmt.Fprintln(t)
	}
	if len(r.Commitments) > 0 {
		fmt.Fprintln(t, "COMMITMENT\tUSED NOW\tWITH THE PLAN")
		for _, u := range r.Commitments {
			fmt.Fprintf(t, "%s\t%.1f%%\t%.1f%%\n", u.ID, 100*u.UsedBefore, 100*u.UsedAfter)
		}
		fmt.Fprintf(t, "\nThe plan adds $%.4f an hour to the bill.\n", *r.BillPerHour)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Claims) == 0 {
		_, err := fmt.Fprintf(w, "no new nodes; %.3f s\n", r.Seconds)
		return err
	}
	fleet := "no fleet"
	if r.beside {
		fleet = "no fleet for the pods that existing nodes do not take"
	}
	_, err := fmt.Fprintf(w, "%s, $%.4f an hour%s; $%.4f with what a node and a short spot list are reckoned to cost, "+
		"and %s comes to less than $%.4f (volume alone: $%.4f): at most %.2f%% above the optimum; %.3f s\n",
		sentence.Count(len(r.Claims), "new node"), r.PricePerHour, r.pricesNote(), r.CostPerHour, fleet, r.LowerBoundPerHour,
		r.VolumeBoundPerHour, 100*r.Gap, r.Seconds)
	return err
}

// pricesNote names the region of the prices if they are another region's, else it is "".
func (r *report) pricesNote() string {
	if r.PricesOf == "" {
		return ""
	}
	return " (prices of " + r.PricesOf + ")"
}

// A claimGroup is a number of claims that differ only in the names of their pods.
type claimGroup struct {
	first claimReport
	count int
}

// groups returns the claims in groups, in the order of each group's first claim.
func (r *report) groups() []claimGroup {
	var out []claimGroup
	index := map[string]int{}
	for _, c := range r.Claims {
		b := identity.Texts(nil, []string{c.Pool, c.Type, summarise(c.Pods)})
		b = identity.Number(identity.Texts(identity.Texts(b, c.CapacityTypes), c.Zones), int64(len(c.Types)))
		key := string(identity.Number(b, int64(math.Float64bits(c.PricePerHour))))
		if i, ok := index[key]; ok {
			out[i].count++
			continue
		}
		index[key] = len(out)
		out = append(out, claimGroup{c, 1})
	}
	return out
}

// A refusalGroup is pods that cannot run for the same reason.
type refusalGroup struct {
	reason string
	pods   []string
}

// refusals returns the unschedulable pods grouped by reason, in the order of each group's first pod.
func (r *report) refusals() []refusalGroup {
	var out []refusalGroup
	index := map[string]int{}
	for _, u := range r.Unschedulable {
		reason := strings.Join(u.Reasons, "; ")
		i, ok := index[reason]
		if !ok {
			i = len(out)
			index[reason] = i
			out = append(out, refusalGroup{reason: reason})
		}
		out[i].pods = append(out[i].pods, u.Pod)
	}
	return out
}

// nameOrSummary returns the full name of a single pod, because the user has to find it; for several pods it is
// summarise.
func nameOrSummary(pods []string) string {
	if len(pods) == 1 {
		return strings.TrimPrefix(pods[0], "default/")
	}
	return summarise(pods)
}

// summarise counts pods by what their names have in common: "web ×3, db-0".
func summarise(pods []string) string {
	counts := map[string]int{}
	var order []string
	for _, p := range pods {
		stem := strings.TrimPrefix(p, "default/")
		if i := strings.LastIndexByte(stem, '-'); i > 0 {
			stem = stem[:i]
		}
		if counts[stem] == 0 {
			order = append(order, stem)
		}
		counts[stem]++
	}
	parts := make([]string, len(order))
	for i, stem := range order {
		parts[i] = stem
		if counts[stem] > 1 {
			parts[i] = fmt.Sprintf("%s ×%d", stem, counts[stem])
		}
	}
	return strings.Join(parts, ", ")
}
