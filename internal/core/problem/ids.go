package problem

// Ids of things that often stand side by side have types of their own. Shapes, variants, topology keys, groups and domains are plain ints:
// indexes into a slice of the object that is named before them.
type (
	// A ClassID is an index into Problem.Classes.
	ClassID int
	// A TemplateID is an index into Problem.Templates.
	TemplateID int
	// A BinID is a node. Indexes of Problem.Nodes come first, then the nodes that a placement opens, in the order of opening.
	BinID int
)

// Values of a domain that name no domain.
const (
	NoDomain   = -1 // the node never has the label
	OpenDomain = -2 // the new node could still be in several domains
)

// NoReservation is the reservation of a node that holds none.
const NoReservation = -1
