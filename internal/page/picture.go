package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/halt"
	"karpenter.sh/karpenter/internal/fleet"
	"karpenter.sh/karpenter/internal/journal"
	"karpenter.sh/karpenter/internal/sentence"
	"karpenter.sh/karpenter/internal/verdict"
)

// Input is what a picture is made of.
type Input struct {
	Snap    *cluster.Snapshot
	Pools   map[string]engine.Pool // what they know of prices
	Rows    []fleet.Row
	Verdict verdict.View
	Records []journal.Record // the newest, the oldest of them first
	Plan    *journal.Record  // of the last plan that opened nodes, nil if there is none
	Costs   []Cost
	Leading bool
	Now     time.Time
}

// A Picture is what the page shows. Its JSON is between the page and its own script.
type Picture struct {
	Head      Head       `json:"head"`
	Nodes     []Node     `json:"nodes"`
	Waiting   []Waiting  `json:"waiting"`
	Promised  []Promised `json:"promised"`
	Steps     []Step     `json:"steps"`
	Held      []Held     `json:"held"`
	Decisions []Decision `json:"decisions"`
	Costs     []Cost     `json:"costs"`
}

// A Head is what stands above.
type Head struct {
	Notice  string  `json:"notice,omitempty"` // why less is shown than there could be
	Leading bool    `json:"leading"`
	Nodes   int     `json:"nodes"`
	Others  int     `json:"others"` // nodes that are not ours
	Pods    int     `json:"pods"`
	Waiting int     `json:"waiting"`
	PerHour float64 `json:"perHour"`
	Unknown int     `json:"unknown"` // nodes whose price is not known
	CPU     Share   `json:"cpu"`
	Memory  Share   `json:"memory"`
	// Movable is what everything that may move costs, and Target what the cheapest fleet found for it would; 0 before the first search.
	Movable  float64 `json:"movable"`
	Target   float64 `json:"target"`
	HeldBack float64 `json:"heldBack"` // savings that budgets hold back now, in dollars an hour
	Plan     *Plan   `json:"plan,omitempty"`
	Pools    []Pool  `json:"pools"`
}

// A Plan is the last one that opened nodes.
type Plan struct {
	At    time.Time `json:"at"`
	Price float64   `json:"price"`
	Cost  float64   `json:"cost"`
	Bound float64   `json:"bound"` // 0 where none was computed
}

// A Pool is a NodePool.
type Pool struct {
	Name    string  `json:"name"`
	Nodes   int     `json:"nodes"`
	PerHour float64 `json:"perHour"`
	Paused  string  `json:"paused,omitempty"`
}

// A Share is used and all of something: CPUs, or GiB.
type Share [2]float64

// A Node is a machine of ours. Nodes compare with ==.
type Node struct {
	Name         string  `json:"name"`
	Claim        string  `json:"claim"`
	Pool         string  `json:"pool"`
	Type         string  `json:"type"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	PerHour      float64 `json:"perHour"`
	CPU          Share   `json:"cpu"`
	Memory       Share   `json:"memory"`
	Pods         int     `json:"pods"`
	Marks        string  `json:"marks,omitempty"` // with commas between them, the weightiest first
	Held         string  `json:"held,omitempty"`  // why it stays, in one phrase
	By           string  `json:"by,omitempty"`    // the workload that keeps it
}

// Waiting are pods of one owner that wait for one reason.
type Waiting struct {
	Owner string    `json:"owner"`
	Pods  []string  `json:"pods"` // the first few
	Count int       `json:"count"`
	Since time.Time `json:"since"` // the oldest was created
	Why   string    `json:"why"`
}

// Promised are pods of one owner that wait for one node.
type Promised struct {
	Owner string    `json:"owner"`
	Pods  []string  `json:"pods"`
	Count int       `json:"count"`
	Node  string    `json:"node"`
	Boots bool      `json:"boots"`
	Since time.Time `json:"since"`
}

// A Step is a change of the fleet that was decided.
type Step struct {
	ID       string    `json:"id"`
	Stage    string    `json:"stage"`
	Reason   string    `json:"reason"`
	Text     string    `json:"text"`
	Nodes    []string  `json:"nodes"`
	SavesDay float64   `json:"savesDay"`
	Pods     int       `json:"pods"`
	Until    time.Time `json:"until"`
}

// Held is what one owner, pool or person holds back.
type Held struct {
	By    string   `json:"by"`
	Why   string   `json:"why"` // of the first node
	Nodes []string `json:"nodes"`
	Count int      `json:"count"`
	// PerDay is what the nodes cost in a day, or what would be saved where Saves says so.
	PerDay float64 `json:"perDay"`
	Saves  bool    `json:"saves"`
}

// A Decision is a record of the journal.
type Decision struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Act     string    `json:"act"`
	Reason  string    `json:"reason,omitempty"`
	About   string    `json:"about"`
	Text    string    `json:"text,omitempty"`
	PerHour string    `json:"perHour"` // what it costs, or saves with a minus
}

// A Cost is what the fleet cost at a moment, and what the last plan until then came to.
type Cost struct {
	At      time.Time `json:"at"`
	PerHour float64   `json:"perHour"`
	Target  float64   `json:"target"` // what would be left if everything that may move moved; 0 where nobody knows
	Bound   float64   `json:"bound"`  // of the last plan
	Plan    float64   `json:"plan"`
}

// Limits of what is listed. Everything beyond is counted.
const (
	mostGroups    = 300
	mostNamed     = 5
	mostDecisions = 300
)

// draw makes the picture.
func draw(in Input) Picture {
	p := Picture{Costs: in.Costs, Decisions: decisions(in.Records), Steps: steps(in)}
	kept := weightiest(in.Verdict.Kept)
	p.Nodes = make([]Node, 0, len(in.Rows))
	for _, r := range in.Rows {
		p.Nodes = append(p.Nodes, node(in, r, kept[r.Machine.Claim]))
	}
	p.Waiting, p.Promised = waiting(in)
	p.Held = held(in, kept)
	p.Head = head(in, p.Nodes)
	for i := range p.Waiting {
		p.Head.Waiting += p.Waiting[i].Count
	}
	for i := range p.Promised {
		p.Head.Waiting += p.Promised[i].Count
	}
	p.Waiting, p.Promised, p.Held = p.Waiting[:min(mostGroups, len(p.Waiting))], p.Promised[:min(mostGroups, len(p.Promised))], p.Held[:min(mostGroups, len(p.Held))]
	return p
}

const gib = 1 << 30

func share(s fleet.Share, unit float64) Share {
	return Share{round(s.Used / unit), round(s.All / unit)}
}

// round leaves what people read: sums of requests have digits that nobody asked for.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

func node(in Input, r fleet.Row, kept *disrupt.Refusal) Node {
	m := r.Machine
	n := Node{
		Name: m.Name, Claim: m.Claim, Pool: m.Pool, Type: m.Type, Zone: m.Zone, CapacityType: m.CapacityType, PerHour: m.Price.Dollars(),
		CPU: share(m.CPU, 1), Memory: share(m.Memory, gib), Pods: m.Pods,
	}
	var marks []string
	for _, mark := range fleet.Marks(in.Snap, r.Node, in.Now) {
		marks = append(marks, string(mark))
	}
	if kept != nil {
		n.Held = sentence.Refusal(*kept)
		if holds(kept) {
			marks = append(marks, "held back")
			n.By = keeper(in.Snap, kept)
		}
	}
	n.Marks = strings.Join(marks, ", ")
	return n
}

// holds tells whether a refusal is somebody's doing, and not a stage of life or a matter of prices.
func holds(r *disrupt.Refusal) bool {
	switch r.Code {
	case disrupt.NodeProtected, disrupt.ClaimProtected, disrupt.NoPool, disrupt.PodProtected, disrupt.PodBudget, disrupt.NoPlace, disrupt.BudgetUnread, disrupt.NoLabel,
		disrupt.DoNotConsolidate, disrupt.NotOffered, disrupt.Paused:
		return true
	}
	return false
}

// weightiest returns, by claim, what keeps it: somebody's doing before everything else.
func weightiest(kept []disrupt.Refusal) map[string]*disrupt.Refusal {
	out := make(map[string]*disrupt.Refusal, len(kept))
	for i := range kept {
		r := &kept[i]
		if had := out[r.Claim]; had == nil || holds(r) && !holds(had) {
			out[r.Claim] = r
		}
	}
	return out
}

// keeper names who would have to do something: the owner of the pod that keeps the node, or what the refusal names.
func keeper(snap *cluster.Snapshot, r *disrupt.Refusal) string {
	key := r.Pod
	if key == nil && len(r.Stuck) > 0 {
		key = &r.Stuck[0].Pod
	}
	if key != nil {
		if p := snap.Pod(*key); p != nil {
			return owner(p)
		}
		return "Pod " + key.Namespace + "/" + key.Name
	}
	switch r.Code {
	case disrupt.NodeProtected, disrupt.ClaimProtected, disrupt.DoNotConsolidate:
		return "annotation " + r.Name
	case disrupt.Paused:
		return "a pause"
	case disrupt.NoPool, disrupt.BudgetUnread:
		return "NodePool " + r.Name
	}
	if len(r.Limits) > 0 {
		return "limits of NodePool " + r.Limits[0]
	}
	return "the node"
}

// owner names the workload of a pod. The ReplicaSet of a Deployment is named after it and the hash of its template.
func owner(p *cluster.Pod) string {
	if p.Owner == nil {
		return "Pod " + p.Namespace + "/" + p.Name
	}
	if p.Labels != nil && p.Owner.Kind == "ReplicaSet" {
		hash := p.Labels.Map[appsv1.DefaultDeploymentUniqueLabelKey]
		if name, cut := strings.CutSuffix(p.Owner.Name, "-"+hash); cut && hash != "" {
			return "Deployment " + p.Namespace + "/" + name
		}
	}
	return p.Owner.Kind + " " + p.Namespace + "/" + p.Owner.Name
}

// waiting sorts the pods that wait by whether they have a place.
func waiting(in Input) ([]Waiting, []Promised) {
	type reason struct{ owner, why string }
	type place struct{ owner, target string }
	groups, places := map[reason]*Waiting{}, map[place]*Promised{}
	for _, p := range in.Snap.Provisionable() {
		by := owner(p)
		if plan, planned := in.Snap.Planned(p.PodKey); planned {
			k := place{by, plan.Target}
			g := places[k]
			if g == nil {
				g = promise(in.Snap, by, plan)
				places[k] = g
			}
			g.Pods, g.Count = name(g.Pods, p), g.Count+1
			continue
		}
		k := reason{by, why(in, p)}
		g := groups[k]
		if g == nil {
			g = &Waiting{Owner: by, Why: k.why, Since: p.Created}
			groups[k] = g
		}
		if p.Created.Before(g.Since) {
			g.Since = p.Created
		}
		g.Pods, g.Count = name(g.Pods, p), g.Count+1
	}
	wait := sorted(groups, func(a, b *Waiting) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Why, b.Why))
	})
	return wait, sorted(places, func(a, b *Promised) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Owner, b.Owner)) })
}

func promise(snap *cluster.Snapshot, by string, plan cluster.Seat) *Promised {
	g := &Promised{Owner: by, Node: plan.Target, Since: plan.At}
	if n := snap.Target(plan.Target); n != nil {
		g.Node, g.Boots = n.Name, !n.Initialized()
	}
	return g
}

func sorted[K comparable, V any](groups map[K]*V, by func(a, b *V) int) []V {
	out := make([]V, 0, len(groups))
	for _, g := range slices.SortedFunc(maps.Values(groups), by) {
		out = append(out, *g)
	}
	return out
}

// name adds a pod to the first few.
func name(pods []string, p *cluster.Pod) []string {
	if len(pods) >= mostNamed {
		return pods
	}
	return append(pods, p.Namespace+"/"+p.Name)
}

// why says why a pod has no place, as its events do.
func why(in Input, p *cluster.Pod) string {
	switch text := in.Verdict.Refused[p.UID]; {
	case text != "":
		return text
	case !in.Leading:
		return "the replica that leads knows why"
	case len(in.Pools) == 0:
		return "there is no NodePool that could get nodes"
	}
	return "no plan has been made for it yet"
}

// steps lists what was decided: what waits or is under way, then what waits for somebody's yes.
func steps(in Input) []Step {
	out := []Step{}
	for _, s := range in.Verdict.Steps {
		step := Step{ID: s.ID, Stage: string(s.Stage), Reason: string(s.Reason), Text: s.Text, Nodes: []string{}, SavesDay: round(24 * s.Saves.Dollars()), Pods: s.Pods, Until: s.Until}
		for _, claim := range s.Claims {
			step.Nodes = append(step.Nodes, nodeOf(in.Snap, claim))
		}
		out = append(out, step)
	}
	for plan := range in.Snap.DisruptionPlans() {
		if plan.Open() {
			out = append(out, asked(plan))
		}
	}
	return out
}

func asked(plan *v1alpha1.DisruptionPlan) Step {
	s := plan.Status.Step
	step := Step{ID: plan.Name, Stage: "waits for approval: karpenter approve " + plan.Name, Reason: string(s.Reason), Nodes: []string{}, SavesDay: round(24 * dollars(s.Saves)), Pods: s.Pods, Until: plan.Status.ExpiresAt.Time}
	if plan.Approved() {
		step.Stage = "is approved and about to be looked at again"
	}
	for _, n := range s.Remove {
		step.Nodes = append(step.Nodes, n.Node)
	}
	step.Text = sentence.Asked(s)
	return step
}

// dollars reads an amount of a DisruptionPlan, 0 where somebody has written something else.
func dollars(text string) float64 {
	var x float64
	if _, err := fmt.Sscanf(text, "%g", &x); err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

func nodeOf(snap *cluster.Snapshot, claim string) string {
	if n := snap.ClaimNode(claim); n != nil {
		return n.Name
	}
	return claim
}

// held says who holds back what. What keeps many nodes is one line.
func held(in Input, kept map[string]*disrupt.Refusal) []Held {
	type cause struct {
		by   string
		code disrupt.Code
	}
	groups := map[cause]*Held{}
	for _, row := range in.Rows {
		r := kept[row.Machine.Claim]
		if r == nil || !holds(r) {
			continue
		}
		k := cause{keeper(in.Snap, r), r.Code}
		g := groups[k]
		if g == nil {
			g = &Held{By: k.by, Why: sentence.Refusal(*r)}
			groups[k] = g
		}
		if g.Count++; g.Count <= mostNamed {
			g.Nodes = append(g.Nodes, row.Machine.Name)
		}
		g.PerDay += 24 * row.Machine.Price.Dollars()
	}
	heaviest := func(a, b *Held) int {
		return cmp.Or(cmp.Compare(b.PerDay, a.PerDay), cmp.Compare(a.By, b.By), cmp.Compare(a.Why, b.Why))
	}
	out := append(sorted(groups, heaviest), budgets(in)...)
	for i := range out {
		out[i].PerDay = round(out[i].PerDay)
	}
	slices.SortStableFunc(out, func(a, b Held) int { return heaviest(&a, &b) })
	return out
}

// budgets says which budgets allow no more.
func budgets(in Input) []Held {
	var out []Held
	for pool, reasons := range in.Verdict.Budgets {
		var names []string
		for _, r := range reasons {
			names = append(names, string(r))
		}
		slices.Sort(names)
		out = append(out, Held{
			By: "budgets of NodePool " + pool, Why: "they allow no more now for " + strings.Join(names, ", "), Nodes: []string{},
			PerDay: 24 * in.Verdict.HeldBack[pool].Dollars(), Saves: true,
		})
	}
	return out
}

func decisions(records []journal.Record) []Decision {
	out := make([]Decision, 0, len(records))
	for i := range records {
		r := &records[i]
		out = append(out, Decision{Seq: r.Seq, At: r.At, Act: string(r.Act), Reason: r.Reason, About: r.Subject(), Text: r.Text, PerHour: r.Money()})
	}
	return out
}

// head adds up.
func head(in Input, nodes []Node) Head {
	h := Head{
		Leading: in.Leading, Nodes: len(nodes), Others: in.Snap.NodeCount() - len(nodes), Pods: in.Snap.PodCount(),
		Movable: in.Verdict.Before.Dollars(), Target: in.Verdict.Target.Dollars(), Plan: plan(in.Plan),
	}
	switch {
	case !in.Snap.Synced():
		h.Notice = "The cluster has not been read to its end yet: what is shown is not all there is."
	case !in.Leading:
		h.Notice = "This replica does not lead: it shows the cluster as it sees it, and knows nothing of what the one that leads decides."
	case !in.Snap.Fed():
		h.Notice = "A part of the cluster is no longer heard of: what is shown may be old, and nothing is disrupted voluntarily."
	}
	pools := map[string]*Pool{}
	for p := range in.Snap.Pools() {
		pools[p.Name] = pool(in, p)
	}
	for i := range nodes {
		n := &nodes[i]
		h.PerHour += n.PerHour
		if n.PerHour == 0 {
			h.Unknown++
		}
		for j := range 2 {
			h.CPU[j] += n.CPU[j]
			h.Memory[j] += n.Memory[j]
		}
		p := pools[n.Pool]
		if p == nil {
			p = &Pool{Name: n.Pool}
			pools[n.Pool] = p
		}
		p.Nodes++
		p.PerHour += n.PerHour
	}
	for _, saved := range in.Verdict.HeldBack {
		h.HeldBack += saved.Dollars()
	}
	for j := range 2 {
		h.CPU[j], h.Memory[j] = round(h.CPU[j]), round(h.Memory[j])
	}
	h.PerHour, h.HeldBack = round(h.PerHour), round(h.HeldBack)
	h.Pools = sorted(pools, func(a, b *Pool) int { return cmp.Compare(a.Name, b.Name) })
	for i := range h.Pools {
		h.Pools[i].PerHour = round(h.Pools[i].PerHour)
	}
	return h
}

func pool(in Input, p *v1.NodePool) *Pool {
	out := &Pool{Name: p.Name}
	if h, halted := halt.Of(in.Snap, p.Name, in.Now); halted {
		out.Paused = sentence.Halt(h)
	}
	return out
}

func plan(r *journal.Record) *Plan {
	if r == nil {
		return nil
	}
	return &Plan{At: r.At, Price: r.PricePerHour, Cost: r.CostPerHour, Bound: r.BoundPerHour}
}
