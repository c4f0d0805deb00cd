package reason

// A Flaw says what is wrong with an object that a pod needs, or with the pod's own spec. Key of its Count names the object, Detail is the
// argument of the flaw as the constants describe it.
type Flaw uint8

const (
	NoFlaw Flaw = iota

	// Of a pod's spec, with code Invalid.
	SelectorValue // its node selector wants a value that no label can have; Detail: the label
	AffinityValue // its required node affinity does; Detail: the label
	Operator      // Key: a label; Detail: an operator that does not go with its values
	FieldTerms    // required node affinity asks for fields of nodes
	EmptyTerms    // all terms of required node affinity are empty, which match no node

	// Of a volume claim, with code VolumeInvalid; the first two also of a resource claim.
	Missing        // it does not exist
	Leaving        // it is being deleted
	Lost           // it has lost its volume
	VolumeMissing  // it names a volume that does not exist
	VolumeLeaving  // it names an object that is being deleted
	NotBound       // it is not bound yet to the volume that it names
	ClassNotNamed  // it names neither a volume nor a storage class
	ClassMissing   // Detail: a storage class that does not exist
	BoundAtOnce    // its storage class does not wait for a pod before it makes a volume, and there is no volume yet
	InUseByAnother // one pod at a time may use it; Detail: who does

	// Of a resource claim, with code DeviceInvalid.
	NotListed          // containers use it, and the pod does not list it
	NamesNothing       // the pod names neither a claim nor a template
	TemplateMissing    // Detail: a template that does not exist
	DeviceClassMissing // Detail: a device class that does not exist
	InUseElsewhere     // it is in use on a node that takes no pods; Detail: the node
	PlaceUnknown       // where it may be used is described in a way that is not understood
	OfSeveralNodes     // it could get a device that is not of one node; Detail: the device
	TooMany            // Detail: a request for more devices than there can be
	RequestUnknown     // Detail: a request of a kind that is not understood
	CountUnknown       // Detail: a request that counts devices in a way that is not understood
	SelectorUnknown    // Detail: a request with a selector that is not understood
	ConstraintUnknown  // it has a constraint of a kind that is not understood

	numFlaws
)

// flaws are the names of flaws, as they are printed in JSON.
var flaws = [numFlaws]string{
	SelectorValue: "SelectorValue", AffinityValue: "AffinityValue", Operator: "Operator", FieldTerms: "FieldTerms",
	EmptyTerms: "EmptyTerms",
	Missing:    "Missing", Leaving: "Leaving", Lost: "Lost", VolumeMissing: "VolumeMissing",
	VolumeLeaving: "VolumeLeaving", NotBound: "NotBound",
	ClassNotNamed: "ClassNotNamed", ClassMissing: "ClassMissing", BoundAtOnce: "BoundAtOnce", InUseByAnother: "InUseByAnother",
	NotListed: "NotListed", NamesNothing: "NamesNothing", TemplateMissing: "TemplateMissing",
	DeviceClassMissing: "DeviceClassMissing", InUseElsewhere: "InUseElsewhere",
	PlaceUnknown: "PlaceUnknown", OfSeveralNodes: "OfSeveralNodes", TooMany: "TooMany",
	RequestUnknown: "RequestUnknown", CountUnknown: "CountUnknown",
	SelectorUnknown: "SelectorUnknown", ConstraintUnknown: "ConstraintUnknown",
}

// Name returns the flaw's short stable name, as printed in JSON; "" beyond the last one.
func (f Flaw) Name() string {
	if f >= numFlaws {
		return ""
	}
	return flaws[f]
}

// MarshalText writes the flaw's name.
func (f Flaw) MarshalText() ([]byte, error) { return []byte(f.Name()), nil }
