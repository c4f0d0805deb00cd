// Package devices compiles resource claims (dynamic resource allocation) into the numbers of package rule/devices.
//
// Inputs: the ResourceSlices, ResourceClaims, templates and device classes of a snapshot; the nodes of the question by bin, the machines
// that each template may buy by shape, and the groups of equal pods that use claims. The package knows nothing else of a problem: its
// caller copies what it needs into an Input.
//
// Stages. Read sorts slices into pools, lists the devices of every bin and of every machine (inventory.go), turns requests into options
// (request.go), and compares each option with each kind of device. Devices that differ only in their names are one kind. A selector is
// evaluated once for each kind; a Memory keeps the result for later questions. Place allocates devices for pods that are bound, expected
// or have a place kept, and for DaemonSets; it returns what is left, as one list of states for each bin and one state for each shape.
//
// Invariants. A node has several inventories only while its instance type is unknown or its drivers have not published: a claim fits
// the node if it fits each of them. Where the package cannot know which devices a pod gets, the bin has no states, and no pod with a
// claim is placed there. Devices that belong to several nodes are never given away; pods that might get them are refused.
//
// Complexity: options times kinds, plus devices times counters. Claims share a budget of work (defaultClaims, mostClaim for one); a
// claim beyond it is postponed to the next plan, or refused if no selector was left to evaluate.
package devices
