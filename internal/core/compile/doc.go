// Package compile turns objects into numbers. Compile reads a snapshot of the cluster, the node pools with their instance types, and the
// waiting pods. It returns the problem (package problem) that package solve works on.
//
// # Inputs and outputs
//
// An Input names everything that the problem depends on. A Memory caches what was derived from single rows, pod classes, pools and
// catalogues, by their pointers, so that a second question about nearly the same cluster is cheap. A Compiled problem has the numbers, the
// objects behind them (package engine writes the plan from these), and the pods that no plan can place, with reasons.
//
// # Terms
//
//	bin          a node of the problem: a node of the cluster, or a NodeClaim whose node has not joined yet        nodes.go
//	template     the next node of a pool: the machines and label values that it may still get                      template.go
//	cohort       waiting pods with the same pod class, labels and priority                                         build.go
//	class        cohorts that differ only in labels that no group selects by                                       ladder.go
//	variant      one reading of a class: a required term, a volume location, and the preferences that still count  ladder.go
//	group        a topology constraint with its counts: pods by domain of one topology key                         groups.go
//	world        what a snapshot means before any question: free room, running pods, their anti-affinity           world.go
//	expected pod a pod that has a seat (a promise of room from an earlier plan) and is no part of this question    expected.go
//
// # Stages
//
// The stages run in the order of builder.build. The stages called read collect objects; the stages called make write numbers.
//
//	readPods     sorts pods by age, joins them to cohorts, refuses pods with a broken spec or volume claim      build.go, volumes.go
//	readPools    makes the template of each pool, in the order of weight                                        template.go
//	readNodes    takes the world of the snapshot; nodes that are treated as gone stay bins, but are closed      world.go
//	readDevices  resolves resource claims                                                                       devices.go
//	readGroups   limits the work for pod terms, then gives each distinct constraint one group                   admit.go, constraints.go
//	readKeys     numbers the domains of every topology key that a group uses                                    constraints.go
//	makeClasses  joins cohorts to classes and writes their variants                                             ladder.go, union.go
//	makeNodes    writes free room, ports and volumes of the bins, less what expected pods will use              bins.go, volumes.go
//	makeTemplates, makeDevices   write what new nodes offer                                                     bins.go, devices.go
//	makeGroups   counts running and expected pods by domain; pods of this question are not counted              counts.go
//	makeLabels   answers which bins and templates meet each set of requirements and of tolerations              bins.go
//	makePools    writes what the limits of each pool leave                                                      bins.go
//
// # Invariants
//
//   - The same Input and History give the same problem: every loop over a map is sorted, or its order does not matter.
//   - A stage reads only what earlier stages wrote. makeLabels comes after every stage that adds requirements.
//   - Initialized nodes are the first bins. A node in Input.Gone keeps its bin, so that bin numbers do not depend on the question.
//   - Rows, pod classes and catalogues do not change. What is cached for them is valid as long as the resource columns are.
//   - Each pod of the question is in exactly one place: a class of the result, or Refused. The exception is a postponed pod that has a
//     place from an earlier plan: it keeps that place and is in neither.
//
// # Why it ends
//
// Each stage is a fixed number of loops over finite lists. Compile repeats the stages only if pods or limits named a resource that has no
// column yet, and each repetition adds at least one column; their number is bounded by the resources that machines have. Hostile specs are
// bounded by the constants in class.go. Work for selectors is bounded by admit.go: namespaces take turns until the budget is used up, and
// the remaining pods are refused with the code Postponed and come first in the next plan.
package compile
