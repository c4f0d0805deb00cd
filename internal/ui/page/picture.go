package page

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/view"
	"karpenter.sh/karpenter/internal/history/journal"
)

// An input is what a picture is made of.
type input struct {
	Snap    *cluster.Snapshot
	Pools   map[string]engine.Pool // for the prices in their catalogues
	Rows    []view.Row
	Verdict board.View
	Records []journal.Record // the newest, the oldest of them first
	Plan    *journal.Record  // of the last plan that opened nodes, nil if there is none
	Costs   []moment
	Leading bool
	Now     time.Time
	// Commitments says how much of them is used, "" where there are none.
	Commitments string
}

// A picture is what the page shows. Its JSON is read only by the page's own script.
type picture struct {
	Head      heading        `json:"head"`
	Nodes     []shownNode    `json:"nodes"`
	Waiting   []shownWaiting `json:"waiting"`
	Promised  []promised     `json:"promised"`
	Steps     []step         `json:"steps"`
	Held      []shownHeld    `json:"held"`
	Decisions []decision     `json:"decisions"`
	Costs     []moment       `json:"costs"`
}

// A heading is the top of the page.
type heading struct {
	Notice  string     `json:"notice,omitempty"` // why less is shown than there could be
	Leading bool       `json:"leading"`
	Nodes   int        `json:"nodes"`
	Others  int        `json:"others"` // nodes that Karpenter did not launch
	Pods    int        `json:"pods"`
	Waiting int        `json:"waiting"`
	PerHour float64    `json:"perHour"`
	Unknown int        `json:"unknown"` // nodes whose price is not known
	CPU     shownShare `json:"cpu"`
	Memory  shownShare `json:"memory"`
	// Movable is what everything that may move costs, and Target what the cheapest fleet found for it would; 0 before the first search.
	Movable float64 `json:"movable"`
	Target  float64 `json:"target"`
	// Savings is what the fleet could cost at least; nil before the first proof.
	Savings *shownSavings `json:"savings,omitempty"`
	// Commitments says how much of them is used, what the rest costs and why.
	Commitments string      `json:"commitments,omitempty"`
	HeldBack    float64     `json:"heldBack"` // savings that budgets hold back now, in dollars an hour
	Plan        *shownPlan  `json:"plan,omitempty"`
	Pools       []shownPool `json:"pools"`
	Failed      []failure   `json:"failed,omitempty"` // launches of the last hour that the cloud refused, the newest reason first
	Feeds       []feed      `json:"feeds,omitempty"`  // kinds of objects that the API server no longer reports
}

// A failure is a reason for which the cloud gave no machine in the last hour.
type failure struct {
	Reason string    `json:"reason"`
	Count  int       `json:"count"`
	At     time.Time `json:"at"`   // of the newest
	Text   string    `json:"text"` // of the newest
}

// A feed is a kind of objects whose watch failed.
type feed struct {
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// A shownPlan is the last plan that opened nodes.
type shownPlan struct {
	At    time.Time `json:"at"`
	Price float64   `json:"price"`
	Cost  float64   `json:"cost"`
	Bound float64   `json:"bound"` // 0 where none was computed
}

// A shownPool is a NodePool.
type shownPool struct {
	Name    string  `json:"name"`
	Nodes   int     `json:"nodes"`
	PerHour float64 `json:"perHour"`
	Paused  string  `json:"paused,omitempty"`
	// NotReady says why no node is launched for it, "" where nodes can be.
	NotReady string `json:"notReady,omitempty"`
}

// A shownShare is used and all of something: CPUs, or GiB.
type shownShare [2]float64

// A shownNode is a Karpenter machine. Nodes compare with ==.
type shownNode struct {
	Name         string     `json:"name"`
	Claim        string     `json:"claim"`
	Pool         string     `json:"pool"`
	Type         string     `json:"type"`
	Zone         string     `json:"zone"`
	CapacityType string     `json:"capacityType"`
	Arch         string     `json:"arch,omitempty"`
	Created      int64      `json:"created"` // in seconds since 1970
	PerHour      float64    `json:"perHour"`
	CPU          shownShare `json:"cpu"`
	Memory       shownShare `json:"memory"`
	Pods         int        `json:"pods"`
	Marks        string     `json:"marks,omitempty"` // with commas between them, the weightiest first
	Held         string     `json:"held,omitempty"`  // why it stays, in one phrase
	By           string     `json:"by,omitempty"`    // the workload that keeps it
}

// shownWaiting are pods of one owner that wait for one reason.
type shownWaiting struct {
	Owner string    `json:"owner"`
	Pods  []string  `json:"pods"` // the first few
	Count int       `json:"count"`
	Since time.Time `json:"since"` // the oldest was created
	Why   string    `json:"why"`
}

// promised are pods of one owner that wait for one node.
type promised struct {
	Owner string    `json:"owner"`
	Pods  []string  `json:"pods"`
	Count int       `json:"count"`
	Node  string    `json:"node"`
	Boots bool      `json:"boots"`
	Since time.Time `json:"since"`
}

// A step is a change of the fleet that was decided.
type step struct {
	ID       string    `json:"id"`
	Stage    string    `json:"stage"`
	Reason   string    `json:"reason"`
	Text     string    `json:"text"`
	Nodes    []string  `json:"nodes"`
	SavesDay float64   `json:"savesDay"`
	Pods     int       `json:"pods"`
	Until    time.Time `json:"until"`
}

// shownHeld is what one owner, pool or person holds back.
type shownHeld struct {
	By    string   `json:"by"`
	Why   string   `json:"why"` // of the first node
	Nodes []string `json:"nodes"`
	Count int      `json:"count"`
	// PerDay is what the nodes cost in a day, or what would be saved where Saves says so.
	PerDay float64 `json:"perDay"`
	Saves  bool    `json:"saves"`
}

// A decision is a record of the journal.
type decision struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Act     string    `json:"act"`
	Reason  string    `json:"reason,omitempty"`
	About   string    `json:"about"`
	Text    string    `json:"text,omitempty"`
	PerHour string    `json:"perHour"` // what it costs, or saves with a minus
}

// Limits of what is listed. Everything beyond is counted.
const (
	mostGroups    = 300
	mostNamed     = 5
	mostDecisions = 300
)

// draw returns the picture of an input. Long lists are cut after the heading has counted all of them.
func draw(in input) picture {
	p := picture{Costs: in.Costs, Decisions: decisions(in.Records), Steps: steps(in)}
	kept := view.Weightiest(in.Verdict.Kept)
	p.Nodes = make([]shownNode, 0, len(in.Rows))
	for _, r := range in.Rows {
		p.Nodes = append(p.Nodes, newShownNode(in, r, kept[r.Machine.Claim]))
	}
	p.Waiting, p.Promised = waiting(in)
	p.Held = held(in)
	p.Head = newHeading(in, p.Nodes)
	for i := range p.Waiting {
		p.Head.Waiting += p.Waiting[i].Count
	}
	for i := range p.Promised {
		p.Head.Waiting += p.Promised[i].Count
	}
	p.Waiting, p.Promised, p.Held = p.Waiting[:min(mostGroups, len(p.Waiting))],
		p.Promised[:min(mostGroups, len(p.Promised))], p.Held[:min(mostGroups, len(p.Held))]
	return p
}

const gib = 1 << 30

// share returns a share in another unit, rounded.
func share(s view.Share, unit float64) shownShare {
	return shownShare{round(s.Used / unit), round(s.All / unit)}
}

// round rounds to four digits after the point. Sums of requests have more digits than people read.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// newShownNode returns a node as the page shows it, with its marks and what keeps it (kept, nil for nothing).
func newShownNode(in input, r view.Row, kept *disrupt.Refusal) shownNode {
	m := r.Machine
	n := shownNode{
		Name: m.Name, Claim: m.Claim, Pool: m.Pool, Type: m.Type, Zone: m.Zone, CapacityType: m.CapacityType, PerHour: m.Price.Dollars(),
		CPU: share(m.CPU, 1), Memory: share(m.Memory, gib), Pods: m.Pods,
		Arch: r.Labels()[corev1.LabelArchStable], Created: r.Claim.CreationTimestamp.Unix(),
	}
	var marks []string
	for _, mark := range view.Marks(in.Snap, r.Node, in.Now) {
		marks = append(marks, string(mark))
	}
	if kept != nil {
		n.Held = sentence.Refusal(*kept)
		if view.Holds(kept) {
			marks = append(marks, "held back")
			n.By = view.Keeper(in.Snap, kept)
		}
	}
	n.Marks = strings.Join(marks, ", ")
	return n
}

// waiting groups the pods that wait: those without a place by owner and reason, those with a seat by owner and node.
func waiting(in input) ([]shownWaiting, []promised) {
	type reason struct{ owner, why string }
	type place struct{ owner, target string }
	groups, places := map[reason]*shownWaiting{}, map[place]*promised{}
	for _, p := range in.Snap.Provisionable() {
		by := view.Owner(p)
		if plan, planned := in.Snap.Planned(p.PodKey); planned {
			k := place{by, plan.Target}
			g := places[k]
			if g == nil {
				g = promise(in.Snap, by, plan)
				places[k] = g
			}
			g.Pods, g.Count = appendName(g.Pods, p), g.Count+1
			continue
		}
		k := reason{by, refusalText(in, p)}
		g := groups[k]
		if g == nil {
			g = &shownWaiting{Owner: by, Why: k.why, Since: p.Created}
			groups[k] = g
		}
		if p.Created.Before(g.Since) {
			g.Since = p.Created
		}
		g.Pods, g.Count = appendName(g.Pods, p), g.Count+1
	}
	wait := sorted(groups, func(a, b *shownWaiting) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Why, b.Why))
	})
	return wait, sorted(places, func(a, b *promised) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Owner, b.Owner)) })
}

// promise returns an empty group for pods of one owner that wait for the node of a seat.
func promise(snap *cluster.Snapshot, by string, plan cluster.Seat) *promised {
	g := &promised{Owner: by, Node: plan.Target, Since: plan.At}
	if n := snap.Target(plan.Target); n != nil {
		g.Node, g.Boots = n.Name, !n.Initialized()
	}
	return g
}

// sorted returns the values of a map in the order of by.
func sorted[K comparable, V any](groups map[K]*V, by func(a, b *V) int) []V {
	out := make([]V, 0, len(groups))
	for _, g := range slices.SortedFunc(maps.Values(groups), by) {
		out = append(out, *g)
	}
	return out
}

// appendName adds the name of a pod to a list, up to mostNamed names.
func appendName(pods []string, p *cluster.Pod) []string {
	if len(pods) >= mostNamed {
		return pods
	}
	return append(pods, p.Namespace+"/"+p.Name)
}

// refusalText returns why a pod has no place, in the words of its events.
func refusalText(in input, p *cluster.Pod) string {
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

// steps lists the steps that were decided: first those that wait or are carried out, then those that wait for
// approval.
func steps(in input) []step {
	out := []step{}
	for _, s := range view.Steps(in.Snap, in.Verdict.Steps) {
		s.Nodes, s.SavesDay = append([]string{}, s.Nodes...), round(s.SavesDay)
		out = append(out, step(s))
	}
	return out
}

// held lists what owners, pools and people hold back.
func held(in input) []shownHeld {
	out := []shownHeld{}
	for _, h := range view.HeldBack(in.Snap, in.Rows, in.Verdict.Disruption) {
		h.Nodes, h.PerDay = append([]string{}, h.Nodes...), round(h.PerDay)
		out = append(out, shownHeld(h))
	}
	return out
}

// decisions returns records of the journal as the page shows them.
func decisions(records []journal.Record) []decision {
	out := make([]decision, 0, len(records))
	for i := range records {
		r := &records[i]
		out = append(out, decision{Seq: r.Seq, At: r.At, Act: string(r.Act), Reason: r.Reason, About: r.Subject(),
			Text: r.Text, PerHour: r.Money()})
	}
	return out
}

// newHeading adds up the nodes for the heading, in all and by pool. A notice says why less is shown than there could
// be.
func newHeading(in input, nodes []shownNode) heading {
	h := heading{
		Leading: in.Leading, Nodes: len(nodes), Others: in.Snap.NodeCount() - len(nodes), Pods: in.Snap.PodCount(),
		Commitments: in.Commitments,
		Movable:     in.Verdict.Before.Dollars(), Target: in.Verdict.Target.Dollars(), Plan: newShownPlan(in.Plan),
		Failed: failures(in.Records, in.Now), Savings: newShownSavings(in.Verdict.Savings, in.Now),
	}
	for f := range in.Snap.FailedFeeds() {
		h.Feeds = append(h.Feeds, feed{f.Kind, f.Since, f.Why})
	}
	switch {
	case !in.Snap.Synced():
		h.Notice = "The cluster has not been read to its end yet: what is shown is not all there is."
	case !in.Leading:
		h.Notice = "This replica does not lead: it shows the cluster as it sees it, and knows nothing of what the one that leads decides."
	case !in.Snap.Fed():
		h.Notice = "A part of the cluster is no longer heard of: what is shown may be old, and nothing is disrupted voluntarily."
	}
	pools := map[string]*shownPool{}
	for p := range cluster.Pools.All(in.Snap) {
		pools[p.Name] = newShownPool(in, p)
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
			p = &shownPool{Name: n.Pool}
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
	h.Pools = sorted(pools, func(a, b *shownPool) int { return cmp.Compare(a.Name, b.Name) })
	for i := range h.Pools {
		h.Pools[i].PerHour = round(h.Pools[i].PerHour)
	}
	return h
}

// newShownPool returns a NodePool without its nodes: whether it is paused or not ready.
func newShownPool(in input, p *v1.NodePool) *shownPool {
	out := &shownPool{Name: p.Name}
	if h, halted := paused.Of(in.Snap, p.Name, in.Now); halted {
		out.Paused = sentence.Halt(h)
	}
	if c := condition.Get(p, condition.Ready); c != nil && c.Status != metav1.ConditionTrue {
		out.NotReady = cmp.Or(c.Message, c.Reason, "it is not ready")
	}
	return out
}

// newShownPlan returns a plan as the page shows it; nil for nil.
func newShownPlan(r *journal.Record) *shownPlan {
	if r == nil {
		return nil
	}
	return &shownPlan{At: r.At, Price: r.PricePerHour, Cost: r.CostPerHour, Bound: r.BoundPerHour}
}

// failures groups the launches that the cloud refused within the last hour by their reason, the newest reason first.
func failures(records []journal.Record, now time.Time) []failure {
	var out []failure
	for _, r := range slices.Backward(records) {
		if r.Act != journal.FellBack || now.Sub(r.At) > hour {
			continue
		}
		i := slices.IndexFunc(out, func(f failure) bool { return f.Reason == r.Reason })
		if i < 0 {
			i, out = len(out), append(out, failure{Reason: r.Reason, At: r.At, Text: r.Text})
		}
		out[i].Count++
	}
	return out
}
