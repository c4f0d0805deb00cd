// Package reason holds why a pod cannot run: small typed codes with counts. Package sentence turns them into words for people. Codes of
// nodes that stay are in package disrupt.
//
// A new code is a constant here with its line in names, its words in explain/sentence/constraint.go, and its rank in
// explain/why/order.go. The function that refuses returns it: in core/compile if no plan can place the pod, or else a kind in core/solve,
// with its key in solve/explain.go. If a change by the user lifts the refusal, the change belongs in explain/why/change.go. If the pod
// is not just unplaced, judge in control/provision/turn.go needs a case. A new way in which an object can be wrong is a Flaw of an
// existing code.
package reason

// A Code says which constraint refused.
type Code uint8

const (
	None Code = iota

	// About the pod itself: nothing was tried.
	Invalid         // the pod cannot be understood; Flaw says why
	RestrictedLabel // it asks for a label that belongs to Karpenter or to single nodes
	VolumeInvalid   // Key: a volume claim that cannot be used; Flaw says why
	DeviceClaims    // it references resource claims, which are ignored
	DevicesUnread   // it references resource claims, and what there is of devices can no longer be read
	// a resource claim that it needs is missing, cannot be understood, or is not planned for; Key: the claim, Flaw says why
	DeviceInvalid
	NoPools           // there is no pool that may open nodes
	AvoidsManaged     // it demands a node without pool
	NotReached        // a clock ended the plan before its turn
	Postponed         // the constraints of waiting pods together are more work than one plan may take
	UninitializedOnly // in a what-if: only a node that is not initialised yet has room

	// About the pod, from the loops that carry plans out; Detail is the whole text.
	LeftAside // the engine panics over it
	OnTrial   // machines of the pool that it would get did not become ready; one machine is tried before others are launched
	Spurned   // its scheduler does not bind it where it has a place

	// About a candidate: an existing node, or a pool's new node.
	Taint         // Key: the taint that is not tolerated
	LabelMismatch // Key: the label that does not fit
	NodeFeature   // Key: the features that the pod needs and the kubelet does not declare
	LabelUnknown  // Key: a label that nothing defines
	TooLarge      // Key: the resource of which no candidate has enough
	NoShape       // each constraint alone is met by some type, but none meets all
	NoOffering    // types fit, but none can be bought in an allowed zone and capacity type
	HostPort      // the port is taken
	VolumeLimit   // Key: the driver with the attach limit that is reached
	Devices       // Key: the request of a resource claim for which too few devices are free
	DeviceUnknown // Key: the request; Detail: the attribute that it asks about and that is known only once the device is there
	DeviceCEL     // Key: the request; Detail: what is wrong with its selectors
	DeviceHard    // Key: the request for which the search for devices was given up
	DeviceAt      // Key: the resource claim that is allocated elsewhere
	Spread        // Key: the topology key over which the skew would grow too large
	Affinity      // Key: the topology key in which no matching pod runs
	AntiAffinity  // Key: the topology key in which a conflicting pod runs
	Limit         // Key: the resource of which the pool may have no more
	Quota         // Key: the resource of which the CapacityQuota that Detail names allows no more
	MinValues     // Key: the label with too few distinct values left
	Reservation   // a reservation that could serve it is in use
	// the pool's requirements leave no instance type; Key: the requirement that no type meets, with Detail where no type meets both
	NoTypes
	Closed // the node takes no pods

	numCodes
)

// A Count is one line of an explanation.
type Count struct {
	Code       Code   `json:"code"`
	Key        string `json:"key,omitempty"`        // label key, resource, taint, driver; "" when the code has none
	Flaw       Flaw   `json:"flaw,omitempty"`       // what is wrong, of the codes that have flaws
	Detail     string `json:"detail,omitempty"`     // a second name: what the flaw is about, or what Key is joined with; "" mostly
	Pool       string `json:"pool,omitempty"`       // the pool of the new node that refused; "" for existing nodes and for the pod itself
	Candidates int    `json:"candidates,omitempty"` // existing nodes, or instance types, that this constraint removed

	// Of a Limit or a Quota: what is left of it (negative if more is used than is allowed), and what the smallest machine that would do
	// has. Both are in the unit of the resource, thousandths for CPU.
	Left  int64 `json:"left,omitempty"`
	Needs int64 `json:"needs,omitempty"`

	// The same as texts: the limit, how much of it is used, and what that machine has; "" if it is not known.
	Limit string `json:"limit,omitempty"`
	Used  string `json:"used,omitempty"`
	Least string `json:"least,omitempty"`
}

// MarshalText writes the code's name.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.Name()), nil }

// Name returns the code's short stable name, as printed in JSON.
func (c Code) Name() string {
	if c >= numCodes {
		return "Unknown"
	}
	return names[c]
}

// names are the names of codes, as they are printed in JSON. They are stable.
var names = [numCodes]string{
	None: "", Invalid: "Invalid", RestrictedLabel: "RestrictedLabel", VolumeInvalid: "VolumeInvalid",
	DeviceClaims: "DeviceClaims", DevicesUnread: "DevicesUnread", DeviceInvalid: "DeviceClaimInvalid",
	Devices: "NoDevices", DeviceUnknown: "DeviceAttributeUnknown", DeviceCEL: "DeviceSelectorInvalid",
	DeviceHard: "DeviceSearchTooHard", DeviceAt: "DeviceClaimElsewhere", NoPools: "NoPools",
	AvoidsManaged: "AvoidsManaged", NotReached: "NotReached", Postponed: "Postponed",
	UninitializedOnly: "UninitializedOnly", LeftAside: "LeftAside", OnTrial: "PoolOnTrial", Spurned: "NotBound",
	Taint: "TaintNotTolerated", LabelMismatch: "LabelMismatch", NodeFeature: "NodeFeature",
	LabelUnknown: "LabelUnknown", TooLarge: "DoesNotFit", NoShape: "NoInstanceType", NoOffering: "NoOffering",
	HostPort: "HostPortTaken", VolumeLimit: "VolumeLimit", Spread: "TopologySpread",
	Affinity: "PodAffinity", AntiAffinity: "PodAntiAffinity", Limit: "PoolLimit", Quota: "CapacityQuota", MinValues: "MinValues",
	Reservation: "ReservationBusy", NoTypes: "NoInstanceTypes", Closed: "NodeClosed",
}

// An Explanation is why a group of pods could not be placed.
type Explanation []Count
