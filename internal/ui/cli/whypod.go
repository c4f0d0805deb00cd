package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/why"
	"karpenter.sh/karpenter/internal/history/journal"
)

// The states of a pod, as JSON names them.
const (
	podRuns   = "runs"   // it is bound to a node
	podGated  = "gated"  // its scheduling gates keep it from every scheduler
	podEnded  = "ended"  // it has run to its end, or is being deleted
	podPlaced = "placed" // it waits, and the plan has a place for it
	podWaits  = "waits"  // it waits, and the plan has no place for it
)

// A podAnswer is the answer of "why pod". Its JSON is documented and is stable.
type podAnswer struct {
	Kind      string       `json:"kind"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	State     string       `json:"state"`
	Node      string       `json:"node,omitempty"` // where it runs
	Place     *placeAnswer `json:"place,omitempty"`
	Reasons   []ruleAnswer `json:"reasons"` // about the pod itself
	Existing  []ruleAnswer `json:"existing"`
	Pools     []poolAnswer `json:"pools"`
	Cures     []cureAnswer `json:"cures"`
	Complete  bool         `json:"complete"`

	History []journal.Record `json:"history,omitempty"`
}

type ruleAnswer struct {
	Code     string `json:"code"`
	Key      string `json:"key,omitempty"`
	RuledOut int    `json:"ruledOut"` // types, or existing nodes
	Text     string `json:"text"`
}

type poolAnswer struct {
	Pool  string       `json:"pool"`
	Types int          `json:"types"` // that its class offers
	Rules []ruleAnswer `json:"rules"` // the first to deal with comes first
}

type cureAnswer struct {
	Changes     []changeAnswer `json:"changes"`
	Commands    []string       `json:"commands,omitempty"` // that make them
	Place       placeAnswer    `json:"place"`
	MorePerHour float64        `json:"morePerHour"`
	Gains       int            `json:"gains"`
	Loses       int            `json:"loses"`
}

type changeAnswer struct {
	Kind  string `json:"kind"`
	Pool  string `json:"pool,omitempty"`
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
	Was   string `json:"was,omitempty"`
	Text  string `json:"text"`
}

type placeAnswer struct {
	Node         string  `json:"node,omitempty"`
	Pool         string  `json:"pool,omitempty"`
	Type         string  `json:"type,omitempty"`
	Zone         string  `json:"zone,omitempty"`
	CapacityType string  `json:"capacityType,omitempty"`
	PricePerHour float64 `json:"pricePerHour"`
	Pods         int     `json:"pods,omitempty"`
}

// whyPod answers "karpenter why pod". It plans, and if the pod has no place, it searches for changes that give it
// one.
func whyPod(ctx context.Context, env Env, w whyFlags) (int, error) {
	w.lone = true
	o, input, err := w.world(ctx, &env)
	if err != nil {
		return exitBadInput, err
	}
	pod := input.Snap.Pod(cluster.PodKey{Namespace: w.namespace, Name: w.name})
	if pod == nil {
		return exitBadInput, noPod(input.Snap, w.namespace, w.name)
	}
	input.Ended = func() bool { return ctx.Err() != nil }
	a := newPodAnswer(pod)
	a.State = stateOf(input.Snap, pod)
	if a.State == podWaits {
		fmt.Fprintf(env.Err, "planning %s over %s, and with what could be changed …\n",
			sentence.Count(len(input.Pods), "pod"), sentence.Count(len(input.Pools), "pool"))
		q := why.Question{In: input, Pod: pod, New: newPlanner}
		if o != nil {
			if q.Idle, err = w.mended(env, o); err != nil {
				return exitBadInput, err
			}
		}
		found := why.Ask(q)
		a.read(input, found, w.idle)
		if o != nil && w.kubeconfig != "" {
			if err := w.remedies(ctx, env, o, a, found); err != nil {
				return exitBadInput, err
			}
		}
	}
	if o != nil && a.State == podGated {
		w.gates(o, a)
	}
	a.History = w.decided(ctx, env, journal.Object{Kind: "Pod", Namespace: w.namespace, Name: w.name})
	if err := a.write(env.Out, w.output); err != nil {
		return exitBadInput, err
	}
	if a.State == podWaits {
		return exitUnschedulable, nil
	}
	return exitFine, nil
}

// world reads what the answer is based on, and takes sold-out offerings out of env.Catalog. The objects are nil for a
// snapshot.
func (w *whyFlags) world(ctx context.Context, env *Env) (*objects, engine.Question, error) {
	if w.snapshot != "" {
		in, err := w.question(ctx, *env)
		return nil, in, err
	}
	o, err := w.read(ctx, *env)
	if err != nil {
		return nil, engine.Question{}, err
	}
	w.readSoldOut(ctx, env)
	in, err := w.input(*env, o)
	return o, in, err
}

// stateOf returns the state of a pod before any planning.
func stateOf(snap *cluster.Snapshot, p *cluster.Pod) string {
	switch {
	case p.NodeName != "":
		return podRuns
	case p.Terminal() || !p.Deleted.IsZero():
		return podEnded
	case !snap.IsProvisionable(p):
		return podGated
	}
	return podWaits
}

// newPodAnswer returns an answer with empty lists, which JSON writes as [] and not as null.
func newPodAnswer(p *cluster.Pod) *podAnswer {
	return &podAnswer{Kind: "pod", Namespace: p.Namespace, Name: p.Name, Node: p.NodeName, Complete: true,
		Reasons: []ruleAnswer{}, Existing: []ruleAnswer{}, Pools: []poolAnswer{}, Cures: []cureAnswer{}}
}

// read copies the answer of the engine: the place of the pod, or what rules out each pool and the changes that help.
// Pools that are idle because of their class get a rule of their own.
func (a *podAnswer) read(in engine.Question, found why.Answer, idle map[string]idlePool) {
	a.Complete = found.Complete
	if found.Place != nil {
		a.State, a.Place = podPlaced, newPlaceAnswer(found.Place)
		return
	}
	index := map[string]int{}
	for _, p := range in.Pools {
		index[p.Pool.Name] = len(a.Pools)
		a.Pools = append(a.Pools, poolAnswer{Pool: p.Pool.Name, Types: len(p.Catalog.Types), Rules: []ruleAnswer{}})
	}
	for _, name := range sortedKeys(idle) {
		a.Pools = append(a.Pools, poolAnswer{Pool: name, Rules: []ruleAnswer{{Code: classNotReady, Text: idle[name].text}}})
	}
	for _, c := range why.InOrder(found.Refused.Reasons) {
		alone := c
		alone.Pool, alone.Candidates = "", 0
		rule := ruleAnswer{Code: c.Code.Name(), Key: c.Key, RuledOut: c.Candidates, Text: sentence.Explanation([]reason.Count{alone})}
		switch at, ofPool := index[c.Pool]; {
		case ofPool:
			a.Pools[at].Rules = append(a.Pools[at].Rules, rule)
		case c.Candidates > 0:
			a.Existing = append(a.Existing, rule)
		default:
			a.Reasons = append(a.Reasons, rule)
		}
	}
	for _, c := range found.Cures {
		cure := cureAnswer{Place: *newPlaceAnswer(&c.Place), MorePerHour: c.More.Dollars(), Gains: c.Gains, Loses: c.Loses}
		for _, x := range c.Changes {
			cure.Changes = append(cure.Changes, changeAnswer{Kind: string(x.Kind), Pool: x.Pool, Key: x.Key,
				Value: x.Value, Was: x.Was, Text: changeText(x, idle)})
		}
		a.Cures = append(a.Cures, cure)
	}
}

func newPlaceAnswer(p *why.Place) *placeAnswer {
	return &placeAnswer{Node: p.Node, Pool: p.Pool, Type: p.Type, Zone: p.Zone, CapacityType: p.CapacityType,
		PricePerHour: p.Price.Dollars(), Pods: p.Pods}
}

// classNotReady is the code of pools whose node class is missing or cannot be used.
const classNotReady = "NodeClassNotReady"

// changeText returns the sentence that says what to change.
func changeText(c why.Change, idle map[string]idlePool) string {
	switch c.Kind {
	case why.MendClass:
		if other := idle[c.Pool].class; other != nil {
			return fmt.Sprintf("let NodePool %q use EC2NodeClass %q", c.Pool, other.Name)
		}
		return fmt.Sprintf("mend the EC2NodeClass of NodePool %q: %s", c.Pool, idle[c.Pool].text)
	case why.RaiseLimit:
		if c.Value == "" {
			return fmt.Sprintf("drop limits.%s of NodePool %q, which is %s", c.Key, c.Pool, c.Was)
		}
		return fmt.Sprintf("raise limits.%s of NodePool %q from %s to %s", c.Key, c.Pool, c.Was, c.Value)
	case why.LowerMinValues:
		return fmt.Sprintf("lower minValues of %s in NodePool %q from %s to %s", c.Key, c.Pool, c.Was, c.Value)
	case why.AllowValue:
		if c.Value == "" {
			return fmt.Sprintf("drop the requirement on %s from NodePool %q", c.Key, c.Pool)
		}
		return fmt.Sprintf("allow %s %q in the requirements of NodePool %q", c.Key, c.Value, c.Pool)
	case why.Tolerate:
		return fmt.Sprintf("let the pod tolerate the taint %s", c.Key)
	case why.DropSelector:
		return fmt.Sprintf("drop %s: %s from the pod's nodeSelector", c.Key, c.Was)
	case why.DropNodeAffinity:
		return fmt.Sprintf("drop %s from the pod's required node affinity", c.Key)
	case why.DropSpread:
		return fmt.Sprintf("drop the pod's topology spread over %s, or make it ScheduleAnyway", c.Key)
	case why.DropAntiAffinity:
		return fmt.Sprintf("drop the pod's required anti-affinity over %s, or make it preferred", c.Key)
	case why.DropAffinity:
		return fmt.Sprintf("drop the pod's required affinity over %s, or make it preferred", c.Key)
	case why.FreePort:
		return fmt.Sprintf("do without the pod's host port %s", c.Key)
	case why.LowerRequest:
		return fmt.Sprintf("let the pod ask for %s of %s at most, instead of %s", plainQuantity(c.Value), c.Key, plainQuantity(c.Was))
	case why.FreeVolume:
		return fmt.Sprintf("move the volume of claim %s to where the pod may run", c.Key)
	}
	return string(c.Kind)
}

// plainQuantity writes a quantity of 1000m or more without the suffix: 379.687, not 379687m.
func plainQuantity(quantity string) string {
	milli, thousandths := strings.CutSuffix(quantity, "m")
	n, err := strconv.ParseInt(milli, 10, 64)
	if !thousandths || err != nil || n < 1000 {
		return quantity
	}
	return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
}

// signed writes a difference in dollars with its sign first.
func signed(dollars float64) string {
	text := fmt.Sprintf("%+.4f", dollars)
	return text[:1] + "$" + text[1:]
}

// write prints the answer as json or text.
func (a *podAnswer) write(w io.Writer, format string) error {
	if format == "json" {
		return writeJSON(w, a)
	}
	name := a.Namespace + "/" + a.Name
	switch a.State {
	case podRuns:
		fmt.Fprintf(w, "pod %s runs on node %s\n", name, a.Node)
	case podEnded:
		fmt.Fprintf(w, "pod %s has ended, or is being deleted: it needs no node\n", name)
	case podGated:
		fmt.Fprintf(w, "pod %s waits for something else than a node: it has scheduling gates, or kube-scheduler has "+
			"not looked at it yet\n", name)
		for _, c := range a.Cures {
			fmt.Fprintf(w, "%s\n", c.Changes[0].Text)
			writeCommands(w, "  ", c.Commands)
		}
	case podPlaced:
		fmt.Fprintf(w, "pod %s has a place: %s\n", name, a.Place)
	default:
		if err := a.table(w); err != nil {
			return err
		}
	}
	return writeDecided(w, a.History)
}

// String returns the place as part of a sentence.
func (p *placeAnswer) String() string {
	if p.Node != "" {
		return "node " + p.Node + ", which is there or on its way"
	}
	text := fmt.Sprintf("a new %s (%s, %s) of NodePool %q at $%.4f an hour", p.Type, p.CapacityType, p.Zone, p.Pool, p.PricePerHour)
	if p.Pods > 1 {
		text += fmt.Sprintf(", shared by %d pods", p.Pods)
	}
	return text
}

// table prints why a pod waits: what is wrong with it, what ruled out nodes and types, and what would help.
func (a *podAnswer) table(w io.Writer) error {
	fmt.Fprintf(w, "pod %s/%s waits\n", a.Namespace, a.Name)
	for _, r := range a.Reasons {
		fmt.Fprintf(w, "  %s\n", r.Text)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(a.Existing)+len(a.Pools) > 0 {
		fmt.Fprintln(t, "\nWHERE\tRULED OUT\tBY")
	}
	for i, r := range a.Existing {
		fmt.Fprintf(t, "%s\t%d\t%s\n", onFirst(i, "existing nodes"), r.RuledOut, r.Text)
	}
	for _, p := range a.Pools {
		name := "pool " + p.Pool
		if p.Types > 0 {
			name += ", " + sentence.Count(p.Types, "type")
		}
		for i, r := range p.Rules {
			fmt.Fprintf(t, "%s\t%s\t%s\n", onFirst(i, name), ruledOutText(r.RuledOut), r.Text)
		}
		if len(p.Rules) == 0 {
			fmt.Fprintf(t, "%s\t\t%s\n", name, "not asked")
		}
		if rest := p.rest(); rest > 0 {
			fmt.Fprintf(t, "\t%d\tnot what the pool asks for, or not sold now\n", rest)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return a.writeCures(w)
}

// rest returns how many types no rule rules out: the pool's own requirements leave them out, or they are not sold. It
// is 0 if a rule speaks of all types or if there are no rules.
func (p *poolAnswer) rest() int {
	rest := p.Types
	for _, r := range p.Rules {
		if r.RuledOut == 0 {
			return 0
		}
		rest -= r.RuledOut
	}
	if len(p.Rules) == 0 {
		return 0
	}
	return rest
}

// onFirst returns the name of a group of lines for its first line, "" for line i > 0.
func onFirst(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

// ruledOutText returns how many candidates a rule ruled out, as text; 0 means all of them.
func ruledOutText(n int) string {
	if n == 0 {
		return "all"
	}
	return fmt.Sprint(n)
}

// writeCures prints the changes that would give the pod a place, with their commands.
func (a *podAnswer) writeCures(w io.Writer) error {
	switch {
	case len(a.Cures) == 0 && a.Complete:
		fmt.Fprintln(w, "\nNo change of a pool or of the pod, nor three of them together, gives it a place.")
	case len(a.Cures) == 0:
		fmt.Fprintln(w, "\nNothing that was tried gives it a place; not everything could be tried.")
	case len(a.Cures[0].Changes) > 1:
		fmt.Fprintln(w, "\nNo single change gives it a place. Together these do:")
	default:
		fmt.Fprintln(w, "\nEach of these alone gives it a place:")
	}
	for i, c := range a.Cures {
		var texts []string
		for _, x := range c.Changes {
			texts = append(texts, x.Text)
		}
		fmt.Fprintf(w, "%3d. %s\n     → %s; the bill changes by %s an hour", i+1, strings.Join(texts, "\n     and "),
			&c.Place, signed(c.MorePerHour))
		if c.Gains > 1 {
			fmt.Fprintf(w, ", %d waiting pods get a place", c.Gains)
		}
		if c.Loses > 0 {
			fmt.Fprintf(w, ", %d other(s) lose theirs", c.Loses)
		}
		fmt.Fprintln(w)
		writeCommands(w, "     ", c.Commands)
	}
	if !a.Complete && len(a.Cures) > 0 {
		fmt.Fprintln(w, "Not everything could be tried; there may be more.")
	}
	return nil
}
