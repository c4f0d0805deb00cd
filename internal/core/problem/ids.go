package problem

// Classes, templates and bins have id types of their own, because functions often take several of them. Shapes, variants, topology keys,
// groups and domains are plain ints: indexes into a slice of the object that they belong to.
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

// NoReservation is Bin.Held of a node that holds no machine of a reservation.
const NoReservation = -1
