package solve

// Numbers that name things are types of their own where two of them stand side by side. Shapes, variants, topology keys, groups and
// domains are plain numbers: they are places in slices of the thing that stands before them.
type (
	// A ClassID is a place in Problem.Classes.
	ClassID int
	// A TemplateID is a place in Problem.Templates.
	TemplateID int
	// A BinID is a node: those of Problem.Nodes come first, then those that a placement opens, in the order in which it opens them.
	BinID int
)

// Domains that are no domain.
const (
	noDomain   = -1 // the bin never has the label
	openDomain = -2 // the new node could still get several
)

const (
	noTemplate    = TemplateID(-1)
	noReservation = -1
)
