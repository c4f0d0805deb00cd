// Package problem holds the problem that the planner solves, and its result, as numbers: nodes, templates of new
// nodes, classes of equal pods, and the bins that a plan opens. Package compile makes problems; solve, repack and
// engine read them. The package has types, ids and accessors but no algorithm. Its types are tested where they are
// made and used.
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
	Resources    int      // columns of every vector
	Names        []string // of the columns, for explanations
	Nodes        []Node
	Pools        []Pool
	Quotas       []Quota
	Templates    []Template // heaviest first, then by name
	Tiers        int        // templates of equal weight form a tier, counted from the heaviest
	Classes      []Class
	Queue        []int32 // the class of each pod that groups are about, in the order in which kube-scheduler takes them
	Labels       Labels
	Keys         []Key // topology keys other than the host name
	Groups       []spread.Group
	Ports        *ports.Table
	Drivers      int             // CSI drivers whose attachments are counted
	Devices      *devices.Effort // of looking for devices; nil where no class asks for any
	Reservations []int           // machines left, by reservation
	Settings     Settings
}

// Settings are the tunables of a run: of the placement, and of its improvement.
type Settings struct {
	MinBestEffort bool  // lower minValues that a new node cannot meet
	Large         int64 // vCPU above which a node is large, whatever its pool holds; 0: none is
	GainPermille  int64 // large nodes must make the bill lower by more than this
	Terms         Terms
	Meter         *work.Meter // counts the work and may cut it; nil for one of its own
	Least, Most   work.Units  // of the search for a cheaper fleet; see pack.Options
	FirstFit      bool        // no improvement
	Unproven      bool        // no bound where finding the fleet does not prove one
	Memory        Memory      // of an earlier Result
	// Commitments are what machines that are bought on demand may use, and Fixed the machines that stay and may use it. nil: none.
	Commitments *tariff.Book
	Fixed       []tariff.Line
}

// Terms say what a new node is reckoned to cost.
type Terms struct {
	Band shape.Band
	// Node is what a node costs by itself, whatever machine it is: the agents on it, its address, an operator's attention. It is in every
	// decision and in no price that is printed.
	Node int64
	// Interruption is what it costs when a machine is taken back, where its pool says nothing else. It is in every decision as the part of
	// it that is expected in an hour, and in no price that is printed.
	Interruption int64
}

// nodeShare is the part of its price that a node costs by itself at most.
const nodeShare = 20

// Own is what a node costs by itself, and With adds it to the cost of its machine.
func (t *Terms) Own(floor int64) int64 { return min(t.Node, floor/nodeShare) }

func (t *Terms) With(cost, floor int64) int64 { return cost + t.Own(floor) }

// A Memory is what one result leaves for the next problem, which may be nearly the same: what did not change stays where it was. The
// zero value knows nothing.
type Memory struct {
	Fleet *pack.Memory `json:"fleet,omitempty"`
	Bound *pack.Memory `json:"bound,omitempty"`
	Known pack.Answers `json:"known,omitempty"`
}

// A Node is an existing node, or one on its way.
type Node struct {
	Name    string
	Room    quantity.Vec // allocatable less what runs there and what daemons will take; may be negative
	Closed  bool
	Ports   []int
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
	Of    []bits.Set // by template: the shapes whose nodes may fall under it; nil: none. The pools of these templates are Limited
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
	// that neither type nor offer decides. Segments are the ranges of bits of which one must stay.
	Mask      bits.Set
	Segments  []Segment
	ShapeMask []bits.Set     // per shape: the choices that it has; nil where the pool does not allow the shape
	Room      []quantity.Vec // per shape: allocatable less daemons
	Daemons   []DaemonGroup
	DaemonOf  []int32 // per shape: index into Daemons
	Min       []shape.MinValues
	Counted   []quantity.Vec // per shape: what limits count; nil: what the machine has. It differs where a quota limits dollars
	Prices    *Prices        // of its shapes while no choice is narrowed; nil where reservations decide, whose number changes
	Soft      bool           // has a PreferNoSchedule taint
	Drivers   [][]int32
	Devices   []*devices.State // per shape; nil where no class asks for any
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
	Counted  []Arrival // by group
	Decide   []int     // topology keys that say which of them start
}

// An Arrival is how many of the daemons that start on a new node a group counts.
type Arrival struct {
	Group, Count int
	Where        []int // requirements of which the choices for the node have to meet one; nil where the daemons start whatever is chosen
}

// Labels are the answers of the requirement algebra.
type Labels struct {
	OnNode     []bits.Set // [requirements] nodes
	OnTemplate [][]Match  // [requirements][template]
	TolNode    []bits.Set // [tolerations] nodes
	TolTmpl    []bits.Set // [tolerations] templates
	Lacks      []Lack     // [tolerations] what the two above leave out for another reason than taints
}

// A Lack is the nodes and templates that tolerations alone would admit a pod to, but whose kubelet does not declare the features that the
// pod needs.
type Lack struct {
	Features   string // names, for people
	Node, Tmpl bits.Set
}

// A Match is what requirements leave of a template.
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
	Choice []bits.Set // of ByChoice: by domain the bits of the mask that remain, nil where that is impossible; nil otherwise
	None   bits.Set   // of ByChoice: the bits that remain for a node without the label; nil where each has one
	Asked  bits.Set   // of ByChoice: domains of nodes whose pods ask for them
}

// A KeyKind is what decides about a label of a new node.
type KeyKind uint8

const (
	Never    KeyKind = iota // it does not have the label
	Fixed                   // all nodes of the template are in one domain
	ByShape                 // the machine decides
	ByChoice                // the offer that is bought decides, or what is chosen for the node
)

// A Class is pods that are the same question.
type Class struct {
	Name     string
	Count    int
	Priority int32
	Order    int  // ties: earlier first
	First    bool // it has the first right to something that others want too
	Need     quantity.Vec
	TooMuch  string // a resource that no node has; "" for nearly all
	Variants []Variant
	Groups   []int // groups whose selector matches it
	Ports    []int
	Conflict bits.Set // ports that exclude it
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
	Level     int
	Reqs      int // requirements, with preferences and volumes
	Tol       int // tolerations
	Owns      []int
	Uncounted bool // groups on which no pod insists do not count the pods, so that these need no domain
}

// A Result is a plan in numbers.
type Result struct {
	Bins    []Bin // new nodes
	Placed  []Put // pods on existing nodes: Bin is the node's index
	Left    []int // per class: pods that were not placed
	Why     []reason.Explanation
	Price   int64
	Floor   int64
	Cost    int64 // what decisions reckon with; see Terms and shape.Launch
	Volume  int64 // lower bounds on Cost; 0 when not computed
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

// Narrowed says how the choices of a new node were narrowed for the sake of pods that are elsewhere.
type Narrowed struct {
	To   []int    // requirements that it meets
	From []Domain // where it must not be
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
	Domain     []int32 // by topology key; −1 none, −2 open
	Launch     shape.Launch
	Narrowed   Narrowed
	Discounted bool  // its choices were narrowed to what a commitment covers
	Held       int   // reservation, −1 for none
	Relaxed    []int // per MinValues of the template: the number that is met, where it was lowered; nil otherwise
	Drivers    []int // of the devices that its pods get, whichever of the shapes it is; nil for nearly all
	SameAs     int   // an earlier bin with the same Shapes, Mask, Used and Launch, −1 for none
}

// A Proof shows that no plan can be cheaper than a bound.
// It is empty where no bound was proven.
type Proof struct {
	Problem     *pack.Problem
	Certificate pack.Certificate
}
