// Package problem holds the problem that the planner solves, and its result, as numbers: nodes, templates of new
// nodes, classes of equal pods, and the bins that a plan opens. Package compile makes problems; solve, repack and
// engine read them. The package has types, ids and accessors but no algorithm. Its types are tested where they are
// made and used.
//
//	class      pods that a plan need not tell apart (problem.go: Class); a variant is one way to read them
//	template   a pool's next node: the shapes and choices that it may still get
//	shape      an instance type of a catalogue
//	offer      a zone and capacity type in which a catalogue sells shapes
//	choice     an offer, or a value of a label that is chosen for each node: a bit of a mask
//	segment    the bits of which a node needs one: all offers, or all values of one label
//	key        a topology key; a domain is one of its values
//	bin        a node: an existing or a new one
//	put        some pods of a class on a bin
//
// Read Problem, Template, Class and Result first; ../README.md has a picture of masks and domains. Money is nano-dollars an hour.
package problem

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/core/work"
)

// A Problem is everything that a placement depends on, as numbers. Only its meter changes.
type Problem struct {
	Resources    int      // number of columns of every vector
	Names        []string // of the columns: resources
	Nodes        []Node
	Pools        []Pool
	Quotas       []Quota
	Templates    []Template // heaviest first, then by name
	Tiers        int        // number of tiers: templates of equal weight form one, and 0 is the heaviest
	Classes      []Class
	Queue        []int32 // the class of each pod that owns a group or is counted by one, in the order in which kube-scheduler takes them
	Labels       Labels
	Keys         []Key // topology keys other than the host name
	Groups       []spread.Group
	Ports        *ports.Table
	Drivers      int             // number of CSI drivers for which attachments are counted
	Devices      *devices.Effort // what searches for devices have cost; nil if no class asks for any
	Reservations []int           // machines left, by reservation
	Settings     Settings
}

// Settings are the tunables of a run: of the placement, and of its improvement.
type Settings struct {
	MinBestEffort bool  // lower minValues that a new node cannot meet
	Large         int64 // vCPU above which a node is large in any pool; 0: none is. In small pools less is large
	GainPermille  int64 // large nodes must make the bill lower by more than this
	Terms         Terms
	Meter         *work.Meter // counts the work and may cut it; nil for one of its own
	Least, Most   work.Units  // of the search for a cheaper fleet; see pack.Options
	FirstFit      bool        // do not look for a cheaper fleet
	Unproven      bool        // do not work to prove a bound
	Memory        Memory      // of an earlier Result
	// Commitments are the reserved instances and savings plans that on-demand machines may use, and Fixed the machines that stay and may
	// use them. nil: none.
	Commitments *tariff.Book
	Fixed       []tariff.Line
}

// Terms say what a new node is reckoned to cost.
type Terms struct {
	Band shape.Band
	// Node is what any node costs beside its machine: the agents on it, its address, an operator's attention. Decisions count it; prices
	// that users see do not contain it.
	Node int64
	// Interruption is what it costs when a spot machine is taken back, unless its pool sets another amount. Decisions count the part that
	// is expected in an hour; prices that users see do not contain it.
	Interruption int64
}

// A node costs by itself at most one nodeShare-th of the price of its machine.
const nodeShare = 20

// Own returns what a node costs beside its machine. floor is the lowest price that the machine may have.
func (t *Terms) Own(floor int64) int64 { return min(t.Node, floor/nodeShare) }

// With adds that to the cost of the machine.
func (t *Terms) With(cost, floor int64) int64 { return cost + t.Own(floor) }

// A Memory is what one result leaves for the next problem. If that is nearly the same, the parts that did not change keep their answer. The
// zero value is empty.
type Memory struct {
	Fleet *pack.Memory `json:"fleet,omitempty"`
	Bound *pack.Memory `json:"bound,omitempty"`
	Known pack.Answers `json:"known,omitempty"`
}

// A Node is an existing node, or one on its way.
type Node struct {
	Name    string
	Room    quantity.Vec // allocatable less what runs there and what daemons will take; may be negative
	Closed  bool         // takes no further pods
	Ports   []int        // host ports that are taken
	Volumes []volumes.Use
	Mounted []int            // shared volumes that are attached, sorted
	Devices []*devices.State // what it may turn out to have, nearly always one; nil if not asked for
}

// A Pool is where new nodes come from.
type Pool struct {
	Name  string
	Limit limits.Pool
	Asks  int64 // CPU, in thousandths, that pods on its nodes ask for
}

// A Quota limits nodes of several pools together.
type Quota struct {
	Name  string
	Limit limits.Pool
	Of    []bits.Set // by template: the shapes of nodes that may fall under it; nil: none. The pools of these templates are Limited
}

// Covers reports whether a node of a template and shape may fall under the quota.
func (q *Quota) Covers(t TemplateID, shape int) bool { return q.Of[t] != nil && q.Of[t].Has(shape) }

// A Template is what a pool's new nodes are like.
type Template struct {
	Name    string
	Pool    int
	Tier    int
	Catalog *shape.Catalog
	Shapes  bits.Set // shapes that the pool allows
	// Mask is the choices that the pool allows: a bit for each offer of the catalogue, then bits for the values of labels
	// that neither type nor offer decides. Segments are ranges of bits; a node needs one bit of each.
	Mask      bits.Set
	Segments  []Segment
	ShapeMask []bits.Set     // per shape: the choices that it has; nil where the pool does not allow the shape
	Room      []quantity.Vec // per shape: allocatable less daemons
	Daemons   []DaemonGroup
	DaemonOf  []int32 // per shape: index into Daemons
	Min       []shape.MinValues
	Counted   []quantity.Vec   // per shape: what limits count; nil: what the machine has. It differs if a quota limits dollars
	Prices    *Prices          // of its shapes under the whole Mask; nil if it has reservations, because prices change as these are used up
	Soft      bool             // has a PreferNoSchedule taint
	Drivers   [][]int32        // [driver][shape] volumes that can be attached, −1 for no limit; shorter or nil: no limit
	Devices   []*devices.State // per shape; nil if no class asks for any
}

// Prices are what the machines of a template cost under a mask of choices. They are filled in when they are first needed.
type Prices struct {
	Template TemplateID
	Mask     bits.Set
	PerShape []int64 // of a node that is filled; 0: cannot be bought
	Lists    []shape.List
	Complete bool // see shape.Market.Lists
}

// A Segment is a range of mask bits.
type Segment struct{ From, To int }

// A DaemonGroup is the daemons that run on some shapes of a template.
type DaemonGroup struct {
	Overhead quantity.Vec
	Ports    []int
	Counted  []Arrival // those that groups count, sorted by group
	Decide   []int     // topology keys that decide which of them start
}

// An Arrival is how many of the daemons that start on a new node a group counts.
type Arrival struct {
	Group, Count int
	Where        []int // requirements of which the choices for the node have to meet one; nil: the daemons start with any choice
}

// Labels are the answers about node labels and taints: which nodes and templates suit a set of requirements, or of tolerations. Variants
// and classes refer to these sets by number.
type Labels struct {
	OnNode     []bits.Set // [requirements] nodes
	OnTemplate [][]Match  // [requirements][template]
	TolNode    []bits.Set // [tolerations] nodes
	TolTmpl    []bits.Set // [tolerations] templates
	Lacks      []Lack     // [tolerations] nodes and templates that the two above leave out because features are missing
}

// A Lack is the nodes and templates that tolerate a pod, but on which the kubelet does not declare the features that the pod needs.
type Lack struct {
	Features   string // names, for people
	Node, Tmpl bits.Set
}

// A Match is what requirements leave of a template. Only Key and Code are set if not OK.
type Match struct {
	OK     bool
	Shapes bits.Set // nil: all
	Mask   bits.Set // nil: all
	Key    string   // the label that does not fit, if not OK
	Code   reason.Code
}

// A Key is a topology key.
type Key struct {
	Name   string
	Values []string
	Node   []int32 // domain of each existing node, −1 without the label
	Tmpl   []KeyOf
}

// A KeyOf says how a template's new nodes get their domain.
type KeyOf struct {
	Kind   KeyKind
	Domain int32      // of Fixed
	Shape  []int32    // of ByShape: by shape its domain, −1 if it has none; nil otherwise
	Choice []bits.Set // of ByChoice: by domain the bits of the mask that remain, nil if the domain is impossible; nil otherwise
	None   bits.Set   // of ByChoice: the bits that remain for a node without the label; nil if each node has one
	Asked  bits.Set   // of ByChoice: domains in which a node is only if a pod asks for it
}

// A KeyKind is what decides about a label of a new node.
type KeyKind uint8

const (
	Never    KeyKind = iota // it does not have the label
	Fixed                   // all nodes of the template are in one domain
	ByShape                 // the machine decides
	ByChoice                // the offer that is bought decides, or what is chosen for the node
)

// A Class is pods that a plan need not tell apart.
type Class struct {
	Name     string // of one of the pods
	Count    int
	Priority int32
	Order    int  // ties: earlier first
	First    bool // one of its pods has the first right to a volume claim that only one pod at a time may use
	Need     quantity.Vec
	TooMuch  string // a resource that no node has; "" for nearly all
	Variants []Variant
	Groups   []int // groups with a selector that matches it
	Ports    []int
	Conflict bits.Set // ports that it cannot be beside
	Terms    []int    // requirements without preferences and volumes, of which one must be met
	Tol      int      // tolerations, with every PreferNoSchedule taint tolerated
	Volumes  []volumes.Volume
	Devices  []*devices.Claim
	Sticky   []Sticky // where earlier plans put some of its pods
}

// A Sticky is a wish: so many pods were planned onto that node.
type Sticky struct {
	Node  BinID
	Count int
}

// A Variant is one way to read a pod: a required term, a level of preferences, a volume alternative. Earlier ones are
// stricter.
type Variant struct {
	Level     int   // how many preferences were given up
	Reqs      int   // requirements, with preferences and volumes: index in Labels.OnNode and OnTemplate
	Tol       int   // tolerations: index in Labels.TolNode and TolTmpl
	Owns      []int // groups that the pods own
	Uncounted bool  // groups that are only preferences do not count the pods, so that these need no domain
}

// A Result is a plan in numbers.
type Result struct {
	Bins    []Bin                // new nodes
	Placed  []Put                // pods on existing nodes: Bin is the node's index
	Left    []int                // per class: pods that were not placed
	Why     []reason.Explanation // per class with pods in Left
	Price   int64                // of all new nodes, as launches are expected to pay
	Floor   int64                // the same if each launch gets its cheapest offer
	Cost    int64                // what decisions compare; see Terms and shape.Launch
	Volume  int64                // lower bounds on Cost, found in two ways; 0 if not computed
	Config  int64
	Floors  bool // the bounds rest on the lowest price of each shape: those from lists of types were above Cost
	Partial bool // the meter cut it before every class was reached
	Proof   Proof
	Memory  Memory // for the next problem
}

// A Put is some pods of a class on a bin, as a variant.
type Put struct {
	Class   ClassID
	Variant int
	Bin     BinID
	Count   int
}

// Narrowed says how the choices of a new node were narrowed for pods on other nodes: so that their spreads count it, or do not learn of a
// new domain through it.
type Narrowed struct {
	To   []int    // requirements that it must meet
	From []Domain // domains in which it must not be
}

// A Domain is a value of a topology key.
type Domain struct{ Key, Value int }

// A Bin is a new node.
type Bin struct {
	Template   TemplateID
	Target     int
	Mask       bits.Set // choices that are left
	Shapes     bits.Set // every shape that can hold the pods
	Used       quantity.Vec
	Overhead   quantity.Vec // the least that daemons take on any listed shape
	Puts       []Put
	Domain     []int32 // by topology key; may be NoDomain or OpenDomain
	Launch     shape.Launch
	Narrowed   Narrowed
	Discounted bool  // its choices were narrowed to what a commitment covers
	Held       int   // the reservation of which it holds a machine, or NoReservation
	Relaxed    []int // per MinValues of the template: the number that is met; nil if none was lowered
	Drivers    []int // drivers of devices that its pods get on each of the shapes; nil for nearly all
	SameAs     int   // an earlier bin with the same Shapes, Mask, Used and Launch, −1 for none
}

// A Proof shows that no plan can be cheaper than a bound.
// It is empty where no bound was proven.
type Proof struct {
	Problem     *pack.Problem
	Certificate pack.Certificate
}
