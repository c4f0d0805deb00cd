// Package savings explains why a fleet is not the cheapest that its NodePools can buy. It bills today's fleet, lifts
// one restriction after another, plans the same pods anew under the restrictions that are left, and bills each of these fleets.
// Of (savings.go) is the whole procedure; machine.go reads the fleet.
//
// Each Part of the gap is the difference of two successive bills, so all parts are at least zero and add up to Today − Least,
// to the nano-dollar. Another order of the restrictions gives other parts and the same sum. Least is proven by the engine: no
// fleet that the pools can buy for these pods costs less, beside the nodes that stay in every plan. With
// commitments, Least assumes that they cover as much as any order of application can.
//
// Nodes without a known price (Fargate, hybrid nodes, types outside the catalogue) stay as they are, with their pods, and are
// in no sum. So do the nodes of pods that no pool can take; they are in every sum.
package savings

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/core/work"
)

// A Cause is a restriction that makes a fleet dearer than it has to be.
type Cause string

// The causes, in the order in which they are lifted.
const (
	Fee           Cause = "fee"           // Auto Mode's, above the price of the machine
	Empty         Cause = "empty"         // nodes without pods that would move
	Fragmentation Cause = "fragmentation" // the same types, packed anew
	MachineTypes  Cause = "machineTypes"  // other types of the same architectures, bought the same way
	Purchase      Cause = "purchase"      // spot, on demand or another architecture, where the pools allow it
	DoNotDisrupt  Cause = "doNotDisrupt"  // pods or nodes with the annotation
	PDB           Cause = "pdb"           // PodDisruptionBudgets that allow no eviction
	Preferences   Cause = "preferences"   // preferred affinity and spread
	Caution       Cause = "caution"       // spot lists with several types, and no node that is too large for its pods
	Open          Cause = "open"          // between the best plan and the proof
)

// A Part is what one cause costs in an hour.
type Part struct {
	Cause   Cause
	PerHour cloud.NanoUSD
	By      []string        // the objects that hold nodes, the dearest first; for Empty the nodes themselves
	Held    []cloud.NanoUSD // the price of the nodes that each of By holds; nil if By names nodes
}

// An Owner is the nodes that one manager runs.
type Owner struct {
	Manager Manager
	Name    string // of the pool or group
	Nodes   int
	PerHour cloud.NanoUSD // without commitments, with the fee
	Fee     cloud.NanoUSD
}

// A Report is the gap between what a fleet costs and what it could cost. All money is per hour.
type Report struct {
	Owners      []Owner  // by price, the dearest first
	NotPriced   []string // nodes
	NoPool      []string // pods that no pool can take
	Today       cloud.NanoUSD
	Least       cloud.NanoUSD
	Gap         []Part
	Commitments []tariff.Commitment
	Used        []float64 // of each commitment, today
	Pods        int
	Nodes       []Node
}

// A Node is what the report has found out about a node.
type Node struct {
	Name    string
	Manager Manager
	Priced  bool
	Line    tariff.Line   // an hour of it, if it is priced
	Fee     cloud.NanoUSD // of its manager, beside Line
	Held    bool          // an annotation or a PodDisruptionBudget keeps it
}

// planWork is how much work one of the plans may cost.
const planWork = work.Second / 4

// A surveyor asks the engine about one fleet.
type surveyor struct {
	question    engine.Question
	engine      *engine.Engine
	commitments []tariff.Commitment
	region      string
	fleet       []machine
}

// Whether plans respect preferences of pods: the last argument of anew.
const (
	withPreferences    = false
	withoutPreferences = true
)

// Of makes the report of the fleet in a question. The commitments are active and are those of the region. It lifts one restriction after
// the other; a bill that comes out higher than the one before counts as equal, so that no part is negative.
func Of(q engine.Question, e *engine.Engine, region string, commitments []tariff.Commitment) *Report {
	s := &surveyor{question: q, engine: e, commitments: commitments, region: region}
	s.survey()
	r := &Report{Commitments: commitments}
	s.addOwners(r)
	last := r.Today
	lift := func(cause Cause, bill cloud.NanoUSD, by []string) {
		bill = min(bill, last)
		r.Gap = append(r.Gap, Part{Cause: cause, PerHour: last - bill, By: by})
		last = bill
	}
	s.withoutFees()
	lift(Fee, s.bill(s.fleet, nil), nil)
	full := func(m *machine) bool { return len(m.pods) > 0 }
	lift(Empty, s.bill(s.kept(full), nil), s.names(func(m *machine) bool { return !full(m) && m.priced }))
	lift(Fragmentation, s.anew((*machine).held, s.sameTypes(), withPreferences), nil)
	lift(MachineTypes, s.anew((*machine).held, s.samePurchase(), withPreferences), nil)
	lift(Purchase, s.anew((*machine).held, q.Pools, withPreferences), nil)
	liftHeld := func(cause Cause, bill cloud.NanoUSD, of func(*machine) string) {
		by, prices := s.holders(of)
		lift(cause, bill, by)
		r.Gap[len(r.Gap)-1].Held = prices
	}
	liftHeld(DoNotDisrupt, s.anew(func(m *machine) bool { return m.budget != "" }, q.Pools, withPreferences),
		func(m *machine) string { return m.protected })
	liftHeld(PDB, s.anew(none, q.Pools, withPreferences), func(m *machine) string { return m.budget })
	lift(Preferences, s.anew(none, q.Pools, withoutPreferences), nil)
	best, bound, refused := s.least()
	lift(Caution, best, nil)
	r.Least = min(last, bound)
	lift(Open, r.Least, nil)
	for p := range refused {
		r.NoPool = append(r.NoPool, p.Namespace+"/"+p.Name)
	}
	slices.Sort(r.NoPool)
	return r
}

// none holds no machine.
func none(*machine) bool { return false }

// addOwners adds to the report what the fleet costs today: its nodes, the owners, the bill and how much of each commitment is used.
func (s *surveyor) addOwners(r *Report) {
	type key struct {
		manager Manager
		name    string
	}
	byName := map[key]*Owner{}
	for i := range s.fleet {
		m := &s.fleet[i]
		r.Nodes = append(r.Nodes, Node{Name: m.node.Name, Manager: m.manager, Priced: m.priced, Line: m.line, Fee: m.fee, Held: m.held()})
		if !m.priced {
			r.NotPriced = append(r.NotPriced, m.node.Name)
			continue
		}
		r.Pods += len(m.pods)
		o := byName[key{m.manager, m.name}]
		if o == nil {
			o = &Owner{Manager: m.manager, Name: m.name}
			byName[key{m.manager, m.name}] = o
		}
		o.Nodes++
		o.Fee += m.fee
		o.PerHour += m.line.PerHour + m.fee
	}
	for _, o := range byName {
		r.Owners = append(r.Owners, *o)
	}
	slices.SortFunc(r.Owners, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(b.PerHour, a.PerHour), cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Name, b.Name))
	})
	r.Today = s.bill(s.fleet, nil)
	r.Used = tariff.Of(lines(s.fleet), s.commitments).Used
}

func (s *surveyor) withoutFees() {
	for i := range s.fleet {
		s.fleet[i].fee = 0
	}
}

// lines returns the lines of the machines that are priced.
func lines(fleet []machine) []tariff.Line {
	var out []tariff.Line
	for i := range fleet {
		if fleet[i].priced {
			out = append(out, fleet[i].line)
		}
	}
	return out
}

// bill returns what priced machines and openings cost together in an hour, with commitments and fees.
func (s *surveyor) bill(fleet []machine, openings []engine.Opening) cloud.NanoUSD {
	all, fees := lines(fleet), cloud.NanoUSD(0)
	for i := range fleet {
		fees += fleet[i].fee
	}
	for i := range openings {
		o := &openings[i]
		all = append(all, s.line("", o.Type, o.Zone, o.CapacityType, o.Price))
	}
	return tariff.Of(all, s.commitments).Total + fees
}

// kept returns the machines for which keep is true, and all that are not priced.
func (s *surveyor) kept(keep func(*machine) bool) []machine {
	var out []machine
	for i := range s.fleet {
		if m := &s.fleet[i]; !m.priced || keep(m) {
			out = append(out, *m)
		}
	}
	return out
}

// names returns the names of the machines for which which is true.
func (s *surveyor) names(which func(*machine) bool) []string {
	var out []string
	for i := range s.fleet {
		if which(&s.fleet[i]) {
			out = append(out, s.fleet[i].node.Name)
		}
	}
	return out
}

// held reports whether an annotation or a budget keeps the machine where it is.
func (m *machine) held() bool { return m.protected != "" || m.budget != "" }

// holders returns the objects that hold machines, as of returns them, and the price of the machines that each holds. The dearest come
// first.
func (s *surveyor) holders(of func(*machine) string) (names []string, prices []cloud.NanoUSD) {
	held := map[string]cloud.NanoUSD{}
	for i := range s.fleet {
		if m := &s.fleet[i]; m.priced && of(m) != "" {
			held[of(m)] += m.line.PerHour
		}
	}
	names = slices.SortedFunc(maps.Keys(held), func(a, b string) int { return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(a, b)) })
	for _, name := range names {
		prices = append(prices, held[name])
	}
	return names, prices
}

// anew returns the bill of the fleet if all machines but those that stay are replaced by what a new plan opens. Nodes with pods that no
// pool takes stay, too. With commitments it also tries a plan that counts on them, and returns the lower bill.
func (s *surveyor) anew(stays func(*machine) bool, pools []engine.Pool, ignorePreferences bool) cloud.NanoUSD {
	settings := s.question.Settings
	settings.NodePrice, settings.Search, settings.Unproven = -1, planWork, true
	settings.IgnorePreferences = settings.IgnorePreferences || ignorePreferences
	kept, plan, _ := s.plan(stays, pools, settings, nil)
	bill := s.bill(kept, plan.Open)
	if len(s.commitments) > 0 {
		kept, plan, _ = s.plan(stays, pools, settings, s.book())
		bill = min(bill, s.bill(kept, plan.Open))
	}
	return bill
}

// book returns the commitments in the form that plans need, with the on-demand machines that may use them.
func (s *surveyor) book() *tariff.Book {
	b := &tariff.Book{Commitments: s.commitments, Region: s.region, Machines: map[string]tariff.Line{}}
	for _, l := range lines(s.fleet) {
		if !l.Spot {
			b.Machines[l.Key] = l
		}
	}
	return b
}

// least returns the bill of the cheapest plan that was found without any restriction, a proven lower bound on the bill of all such plans,
// and the pods that no pool takes. The bound assumes that commitments cover as much as possible.
func (s *surveyor) least() (best, bound cloud.NanoUSD, refused refusals) {
	settings := s.question.Settings
	settings.NodePrice, settings.Search, settings.IgnorePreferences = -1, planWork, true
	settings.Size.Large, settings.Band = -1, shape.Band{Types: shape.DefaultBand.Types, Spot: 1, Fewest: 1}
	kept, plan, refused := s.plan(none, s.question.Pools, settings, nil)
	best = s.bill(kept, plan.Open)
	list := max(plan.VolumeBound, plan.ConfigBound)
	market := lines(kept)
	for _, l := range market {
		list += l.PerHour
	}
	fees := cloud.NanoUSD(0)
	for i := range s.commitments {
		fees += s.commitments[i].Fee()
	}
	market = append(market, Market(s.question.Pools, s.region)...)
	return best, fees + max(0, list-tariff.Reach(market, s.commitments)), refused
}

// refusals are pods that a plan has no place for.
type refusals map[cluster.PodKey]bool

// plan asks the engine for new machines for the pods of all machines that do not stay. If the plan refuses pods, their machines stay as
// well, and it asks again; each round keeps at least one machine more, so this ends. It returns the machines that stay, the plan, and the
// refused pods.
func (s *surveyor) plan(stays func(*machine) bool, pools []engine.Pool, settings engine.Settings,
	book *tariff.Book) ([]machine, *engine.Plan, refusals) {
	refused := refusals{}
	for {
		stay := func(m *machine) bool {
			return stays(m) || slices.ContainsFunc(m.pods, func(p *cluster.Pod) bool { return refused[p.PodKey] })
		}
		q := s.question
		q.Pools, q.Settings, q.Pods, q.Gone, q.Closed = pools, settings, nil, map[string]bool{}, map[string]bool{}
		q.Commitments = book
		for i := range s.fleet {
			switch m := &s.fleet[i]; {
			case !m.priced:
				q.Closed[m.node.Name] = true
			case !stay(m):
				q.Gone[m.node.Name] = true
				q.Pods = append(q.Pods, m.pods...)
			}
		}
		answer := s.engine.Plan(q)
		if len(answer.Refused) == 0 || len(q.Pods) == 0 {
			return s.kept(stay), answer, refused
		}
		for _, r := range answer.Refused {
			refused[r.Pod.PodKey] = true
		}
	}
}

// filtered returns the pools with only those offerings available that allow allows.
func (s *surveyor) filtered(allow func(it *cloud.InstanceType, o *cloud.Offering) bool) []engine.Pool {
	out := slices.Clone(s.question.Pools)
	for i := range out {
		c := &cloud.Catalog{}
		for _, it := range out[i].Catalog.Types {
			own := *it
			own.Offerings = slices.Clone(it.Offerings)
			for j := range own.Offerings {
				o := &own.Offerings[j]
				o.Available = o.Available && allow(it, o)
			}
			c.Types = append(c.Types, &own)
		}
		out[i].Catalog = c
	}
	return out
}

// sameTypes returns pools that buy only types of today, with the capacity types that each has today.
func (s *surveyor) sameTypes() []engine.Pool {
	type way struct{ name, capacity string }
	have := map[way]bool{}
	for i := range s.fleet {
		have[way{s.fleet[i].line.Type, s.fleet[i].capacity}] = true
	}
	return s.filtered(func(it *cloud.InstanceType, o *cloud.Offering) bool { return have[way{it.Name, o.CapacityType()}] })
}

// samePurchase returns pools that buy only architectures of today, with the capacity types that each has today.
func (s *surveyor) samePurchase() []engine.Pool {
	type way struct{ architecture, capacity string }
	have := map[way]bool{}
	for i := range s.fleet {
		have[way{s.fleet[i].architecture, s.fleet[i].capacity}] = true
	}
	return s.filtered(func(it *cloud.InstanceType, o *cloud.Offering) bool {
		return slices.ContainsFunc(it.Labels[corev1.LabelArchStable], func(a string) bool { return have[way{a, o.CapacityType()}] })
	})
}

// line returns an hour of one machine.
func (s *surveyor) line(name, instanceType, zone, capacity string, price cloud.NanoUSD) tariff.Line {
	return tariff.Line{Key: name, Region: s.region, Zone: zone, Type: instanceType, OS: tariff.Linux,
		Spot: capacity != v1.CapacityTypeOnDemand, Seconds: int64(time.Hour / time.Second), PerHour: price}
}

// Market returns a line for each on-demand offering of the pools.
func Market(pools []engine.Pool, region string) []tariff.Line {
	s := surveyor{region: region}
	var out []tariff.Line
	for _, p := range pools {
		for _, it := range p.Catalog.Types {
			for i := range it.Offerings {
				if o := &it.Offerings[i]; o.CapacityType() == v1.CapacityTypeOnDemand {
					out = append(out, s.line("", it.Name, o.Zone(), o.CapacityType(), o.Price))
				}
			}
		}
	}
	return out
}

// noteBlockers notes the first annotation (of the node or of a pod) and the first budget that keep the machine.
func (m *machine) noteBlockers(budgets *movable.PDBs, now time.Time) {
	if n := m.node.Node; n != nil && n.Annotations[v1.DoNotDisruptAnnotationKey] == "true" {
		m.protected = "Node/" + n.Name
	}
	for _, p := range m.pods {
		if movable.Protected(p, now).Held && m.protected == "" {
			m.protected = owner(p)
		}
		if b, _ := budgets.Blocking(p, now); b != nil && m.budget == "" {
			m.budget = b.Namespace + "/" + b.Name
		}
	}
}

// owner returns the workload of a pod as "namespace/name"; the pod itself if it has none.
func owner(p *cluster.Pod) string {
	if p.Owner == nil {
		return p.Namespace + "/" + p.Name
	}
	return p.Namespace + "/" + p.Owner.Name
}
