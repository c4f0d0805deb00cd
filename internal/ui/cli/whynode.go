package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/history/journal"
)

// A nodeAnswer is the answer of "karpenter why node" and "karpenter why nodeclaim". Its JSON is documented and stable.
type nodeAnswer struct {
	Kind         string  `json:"kind"`
	Node         string  `json:"node"`
	NodeClaim    string  `json:"nodeClaim,omitempty"`
	NodePool     string  `json:"nodePool,omitempty"`
	Type         string  `json:"type,omitempty"`
	Zone         string  `json:"zone,omitempty"`
	CapacityType string  `json:"capacityType,omitempty"`
	PricePerHour float64 `json:"pricePerHour"` // 0 where it is not known
	Pods         int     `json:"pods"`         // on it, those of DaemonSets too
	OpenedAhead  string  `json:"openedAhead,omitempty"`
	LastGood     string  `json:"lastGood,omitempty"`
	Spot         string  `json:"spot,omitempty"` // its price, and how often such machines are taken back
	// CoveredBy are the commitments that cover it, and RentPerHour is what the bill falls by when it goes.
	CoveredBy   []coverAnswer `json:"coveredBy,omitempty"`
	RentPerHour *float64      `json:"rentPerHour,omitempty"`

	Stays   bool             `json:"stays"`
	Holds   []holdAnswer     `json:"holds"`
	Step    *stepAnswer      `json:"step,omitempty"` // that removes the node; nil if it stays or other nodes go first
	History []journal.Record `json:"history,omitempty"`
}

// A coverAnswer is the part of a node that a commitment covers, from 0 to 1.
type coverAnswer struct {
	ID   string  `json:"id"`
	Part float64 `json:"part"`
}

// A holdAnswer is one reason why a node stays, and what would happen to the node without it.
type holdAnswer struct {
	Code    string         `json:"code"`
	Text    string         `json:"text"`
	Until   *time.Time     `json:"until,omitempty"` // when it ends by itself
	Without *withoutAnswer `json:"without,omitempty"`
	// Commands are what the user can run to remove this reason.
	Commands []string `json:"commands,omitempty"`
}

// A withoutAnswer is what would happen to the node if one reason were removed. Without Step and Still, other nodes go first.
type withoutAnswer struct {
	Text  string      `json:"text"`            // what is taken away
	Step  *stepAnswer `json:"step,omitempty"`  // in which the node goes then
	Still []string    `json:"still,omitempty"` // codes that keep it still
}

// A stepAnswer is a step that removes the node, with the new places of all pods that move in it.
type stepAnswer struct {
	Text         string       `json:"text"`
	Reason       string       `json:"reason"`
	SavesPerHour float64      `json:"savesPerHour"`
	Moves        []moveAnswer `json:"moves"`
}

type moveAnswer struct {
	Pod string `json:"pod"`
	To  string `json:"to"`
}

// whyNode prints why a node, or the node of a claim, stays. The exit code is exitUnschedulable if it stays, and exitFine if nothing keeps
// it.
func whyNode(ctx context.Context, env Env, w whyFlags) (int, error) {
	return w.aboutNodes(ctx, env, func(o *objects, world *disrupt.World) (int, error) {
		row := world.Snap.Node(w.name)
		if strings.HasPrefix(strings.ToLower(w.kind), "nodeclaim") {
			row = world.Snap.ClaimNode(w.name)
		}
		if row == nil {
			return exitBadInput, noNode(world.Snap, w.kind, w.name)
		}
		fmt.Fprintln(env.Err, "looking for what keeps the node, and for what would become of it without …")
		a := newNodeAnswer(world, row)
		a.judge(&w, env, o, world, row)
		a.History = w.decided(ctx, env, journal.Object{Kind: "Node", Name: row.Name})
		if err := a.write(env.Out, w.output); err != nil {
			return exitBadInput, err
		}
		if a.Stays {
			return exitUnschedulable, nil
		}
		return exitFine, nil
	})
}

// aboutNodes reads the cluster from files or the API server, makes the world that the disruption planner sees, and calls answer with both.
// A snapshot file does not have the objects that this needs.
func (w *whyFlags) aboutNodes(ctx context.Context, env Env, answer func(*objects, *disrupt.World) (int, error)) (int, error) {
	if w.snapshot != "" {
		return exitBadInput, fmt.Errorf("a snapshot does not hold what keeps nodes; ask with -f or --kubeconfig")
	}
	w.static = true
	o, err := w.read(ctx, env)
	if err != nil {
		return exitBadInput, err
	}
	input, err := w.input(env, o)
	if err != nil {
		return exitBadInput, err
	}
	world := disruptionWorld(input, w.books)
	if w.kubeconfig != "" && len(o.apps.pdbs) > 0 {
		c, err := env.cluster(w.kubeconfig)
		if err != nil {
			return exitBadInput, err
		}
		readSurge(ctx, c, world)
	}
	return answer(o, world)
}

// disruptionWorld returns the world as the planner of the controller sees it, as far as it can be read from the cluster. Steps that were
// begun are known from records on claims, and steps that need approval from DisruptionPlans. What only the controller's memory has is
// missing: steps that wait for confirmation, failed steps and earlier searches.
func disruptionWorld(in engine.Question, books *commitment.Books) *disrupt.World {
	w := &disrupt.World{
		Snap: in.Snap, Pools: map[string]engine.Pool{}, Busy: map[types.UID]bool{}, Promised: map[string]int{}, Now: in.Now,
		Settings: disrupt.DefaultSettings(), Engine: engine.New(awsv1.Labels()), Terms: in.Settings,
		Rollouts:    rollout.Allowances(in.Snap, in.Now),
		Commitments: books,
	}
	for _, p := range in.Pools {
		w.Pools[p.Pool.Name] = p
	}
	approval.Hold(w, nil)
	for _, r := range steprecord.UnderWay(in.Snap) {
		for _, m := range r.Candidates {
			w.Busy[m.UID] = true
		}
	}
	return w
}

// newNodeAnswer returns the description of a node; judge adds what keeps it.
func newNodeAnswer(w *disrupt.World, row *cluster.Node) *nodeAnswer {
	labels := row.Labels()
	a := &nodeAnswer{Kind: "node", Node: row.Name, NodePool: row.Pool(), Type: labels[corev1.LabelInstanceTypeStable],
		Zone:         labels[corev1.LabelTopologyZone],
		CapacityType: labels[v1.CapacityTypeLabelKey], PricePerHour: priceOf(w, row).Dollars(), Pods: len(row.Pods), Holds: []holdAnswer{}}
	if row.Claim != nil {
		a.NodeClaim, a.OpenedAhead = row.Claim.Name, row.Claim.Annotations[v1.OpenedAheadAnnotationKey]
		a.LastGood = sentence.StartedWith(row.Claim)
	}
	if p, ok := w.Pools[row.Pool()]; ok {
		a.Spot = spotSentence(&p, labels, w.Terms.InterruptionCost)
	}
	a.cover(w.Commitments)
	return a
}

// spotSentence returns what a spot machine with these labels costs and how often such machines are taken back; "" if that is not known.
// usual is the cost of an interruption for pools that set none.
func spotSentence(p *engine.Pool, labels map[string]string, usual cloud.NanoUSD) string {
	o := p.Catalog.Offering(labels)
	if o == nil || o.Hazard == 0 {
		return ""
	}
	return sentence.Spot(labels[corev1.LabelInstanceTypeStable], o, p.InterruptionCost(usual))
}

// cover sets which commitments (paid capacity) cover the node, and by how much the bill falls when it goes. It sets neither if none covers
// the node.
func (a *nodeAnswer) cover(books *commitment.Books) {
	if books == nil || books.All == nil {
		return
	}
	for _, c := range books.All.Covers(a.Node) {
		a.CoveredBy = append(a.CoveredBy, coverAnswer(c))
	}
	if len(a.CoveredBy) > 0 {
		rent := books.All.Rent(a.Node).Dollars()
		a.RentPerHour = &rent
	}
}

// priceOf returns what a machine costs now, 0 if that is not known.
func priceOf(w *disrupt.World, row *cluster.Node) cloud.NanoUSD {
	price, _ := w.Pools[row.Pool()].Catalog.Price(row.Labels())
	return price
}

// judge finds the reasons why the node stays. For each of them that the user could remove, it makes a copy of the objects without it and
// asks the planner again: does the node go then, or what else keeps it? If the node does not stay, judge finds the step that removes it.
func (a *nodeAnswer) judge(w *whyFlags, env Env, o *objects, world *disrupt.World, row *cluster.Node) {
	holds := disrupt.WhyStays(world, disrupt.Memory{}, row.Name)
	a.Stays = len(holds) > 0
	if !a.Stays {
		a.Step = stepOf(world, row)
		return
	}
	for _, r := range holds {
		h := holdAnswer{Code: string(r.Code), Text: sentence.Refusal(r)}
		if !r.Until.IsZero() {
			h.Until = &r.Until
		}
		edit := o.without(r, row)
		if edit.changed != nil {
			h.Without = &withoutAnswer{Text: edit.text}
			quiet := env
			quiet.Err = io.Discard // warnings about pools were printed for the first input already
			if in, err := w.input(quiet, edit.changed); err == nil {
				then := disruptionWorld(in, w.books)
				then.Now = world.Now
				for _, still := range disrupt.WhyStays(then, disrupt.Memory{}, row.Name) {
					h.Without.Still = append(h.Without.Still, string(still.Code))
				}
				if len(h.Without.Still) == 0 {
					h.Without.Step = stepOf(then, row)
				}
			}
		}
		if edit.note != "" {
			h.Text += "; " + edit.note
		}
		if w.kubeconfig != "" {
			h.Commands = edit.commands
		}
		a.Holds = append(a.Holds, h)
	}
}

// stepOf asks the planner for its steps now and returns the one in which the node goes, nil if only other nodes go.
func stepOf(w *disrupt.World, row *cluster.Node) *stepAnswer {
	proposal, _ := disrupt.Propose(w, disrupt.Memory{})
	for _, s := range proposal.Steps {
		if !slices.ContainsFunc(s.Remove, func(c *disrupt.Candidate) bool { return c.Name() == row.Name }) {
			continue
		}
		out := &stepAnswer{Text: sentence.Step(s), Reason: string(s.Reason), SavesPerHour: s.Saves().Dollars(), Moves: []moveAnswer{}}
		for _, p := range s.Place {
			out.Moves = append(out.Moves, moveAnswer{podName(p.Pod), "node " + p.Node})
		}
		for i := range s.Open {
			for _, p := range s.Open[i].Pods {
				out.Moves = append(out.Moves, moveAnswer{podName(p), "a new " + s.Open[i].Type})
			}
		}
		slices.SortFunc(out.Moves, func(a, b moveAnswer) int { return cmp.Compare(a.Pod, b.Pod) })
		return out
	}
	return nil
}

// write prints the answer as text, or as JSON if format is "json".
func (a *nodeAnswer) write(w io.Writer, format string) error {
	if format == "json" {
		return writeJSON(w, a)
	}
	fmt.Fprintf(w, "node %s: %s in %s (%s), NodePool %s, %s, %s\n", a.Node, dash(a.Type), dash(a.Zone),
		dash(a.CapacityType), dash(a.NodePool), sentence.Count(a.Pods, "pod"), perMonth(a.PricePerHour))
	for _, c := range a.CoveredBy {
		fmt.Fprintf(w, "Covered by %s: %.0f%%.\n", c.ID, 100*c.Part)
	}
	if a.RentPerHour != nil {
		fmt.Fprintf(w, "Without it the bill falls by $%.4f an hour.\n", *a.RentPerHour)
	}
	if a.OpenedAhead != "" {
		fmt.Fprintf(w, "It was %s.\n", a.OpenedAhead)
	}
	if a.LastGood != "" {
		fmt.Fprintf(w, "It %s.\n", a.LastGood)
	}
	if a.Spot != "" {
		fmt.Fprintf(w, "It is %s.\n", a.Spot)
	}
	switch {
	case a.Stays:
		fmt.Fprintln(w, "\nIt stays, because")
	case a.Step != nil:
		fmt.Fprintln(w, "\nIt goes:")
		a.Step.write(w, "  ")
	default:
		fmt.Fprintln(w, "\nNothing keeps it; other nodes go before it.")
	}
	for _, h := range a.Holds {
		h.write(w)
	}
	return writeDecided(w, a.History)
}

func (h *holdAnswer) write(w io.Writer) {
	fmt.Fprintf(w, "  %s (%s)", h.Text, h.Code)
	if h.Until != nil { // most sentences say it themselves
		if stamp := h.Until.UTC().Format(time.RFC3339); !strings.Contains(h.Text, stamp) {
			fmt.Fprintf(w, ", until %s", stamp)
		}
	}
	fmt.Fprintln(w)
	switch {
	case h.Without == nil:
	case h.Without.Step != nil:
		fmt.Fprintf(w, "    without %s it would go:\n", h.Without.Text)
		h.Without.Step.write(w, "      ")
	case len(h.Without.Still) > 0:
		fmt.Fprintf(w, "    without %s it would still stay: %s\n", h.Without.Text, strings.Join(h.Without.Still, ", "))
	default:
		fmt.Fprintf(w, "    without %s nothing would keep it; other nodes go before it\n", h.Without.Text)
	}
	writeCommands(w, "    ", h.Commands)
}

func (s *stepAnswer) write(w io.Writer, indent string) {
	fmt.Fprintf(w, "%s%s; %s, %s\n", indent, s.Text, strings.ToLower(s.Reason), sentence.Saves(s.SavesPerHour))
	for _, m := range s.Moves {
		fmt.Fprintf(w, "%s  %s → %s\n", indent, m.Pod, m.To)
	}
}

// perMonth returns an hourly price as text, with the price of a month of 730 hours.
func perMonth(perHour float64) string {
	if perHour == 0 {
		return "its price is not known"
	}
	const hours = 730
	return fmt.Sprintf("$%.4f an hour, $%.0f a month", perHour, perHour*hours)
}

// A whyPoolAnswer is the answer of "karpenter why nodepool".
type whyPoolAnswer struct {
	Kind         string           `json:"kind"`
	Name         string           `json:"name"`
	Nodes        int              `json:"nodes"`
	PricePerHour float64          `json:"pricePerHour"`
	Going        []string         `json:"going"` // nodes that nothing keeps
	Holds        []poolHoldAnswer `json:"holds"`
	NotAsked     int              `json:"notAsked"` // nodes that were left out, since there are so many
	History      []journal.Record `json:"history,omitempty"`
}

// A poolHoldAnswer is one code and all nodes of the pool that stay for it.
type poolHoldAnswer struct {
	Code         string   `json:"code"`
	Text         string   `json:"text"` // of the first node
	Nodes        []string `json:"nodes"`
	PricePerHour float64  `json:"pricePerHour"` // of these nodes
}

// mostAsked is for how many nodes of a pool whyPool finds out what keeps them. It is limited because each node needs a search.
const mostAsked = 100

// whyPool prints what keeps the nodes of a pool, grouped by code; the codes that keep the most expensive nodes come first.
func whyPool(ctx context.Context, env Env, w whyFlags) (int, error) {
	return w.aboutNodes(ctx, env, func(_ *objects, world *disrupt.World) (int, error) {
		if cluster.Pools.Get(world.Snap, w.name) == nil {
			return exitBadInput, noPool(world.Snap, w.name)
		}
		a := &whyPoolAnswer{Kind: "nodepool", Name: w.name, Going: []string{}, Holds: []poolHoldAnswer{}}
		at := map[disrupt.Code]int{}
		for row := range world.Snap.Nodes() {
			if row.Pool() != w.name {
				continue
			}
			a.Nodes++
			price := priceOf(world, row).Dollars()
			a.PricePerHour += price
			if a.Nodes > mostAsked {
				a.NotAsked++
				continue
			}
			holds := disrupt.WhyStays(world, disrupt.Memory{}, row.Name)
			if len(holds) == 0 {
				a.Going = append(a.Going, row.Name)
			}
			for _, r := range holds {
				i, known := at[r.Code]
				if !known {
					i = len(a.Holds)
					at[r.Code] = i
					a.Holds = append(a.Holds, poolHoldAnswer{Code: string(r.Code), Text: sentence.Refusal(r)})
				}
				a.Holds[i].Nodes = append(a.Holds[i].Nodes, row.Name)
				a.Holds[i].PricePerHour += price
			}
		}
		slices.SortStableFunc(a.Holds, func(x, y poolHoldAnswer) int { return cmp.Compare(y.PricePerHour, x.PricePerHour) })
		a.History = w.decided(ctx, env, journal.Object{Kind: "NodePool", Name: w.name})
		return exitFine, a.write(env.Out, w.output)
	})
}

// write prints the answer as text, or as JSON if format is "json".
func (a *whyPoolAnswer) write(w io.Writer, format string) error {
	if format == "json" {
		return writeJSON(w, a)
	}
	fmt.Fprintf(w, "NodePool %s: %s, %s\n", a.Name, sentence.Count(a.Nodes, "node"), perMonth(a.PricePerHour))
	if len(a.Going) > 0 {
		fmt.Fprintf(w, "\nNothing keeps %s\n", strings.Join(a.Going, ", "))
	}
	if len(a.Holds) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "\nKEEPS\tNODES\t$/H\tSUCH AS")
		for _, h := range a.Holds {
			fmt.Fprintf(t, "%s\t%d\t%.4f\t%s: %s\n", h.Code, len(h.Nodes), h.PricePerHour, h.Nodes[0], h.Text)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if a.NotAsked > 0 {
		fmt.Fprintf(w, "not looked at: %s more\n", sentence.Count(a.NotAsked, "node"))
	}
	return writeDecided(w, a.History)
}
