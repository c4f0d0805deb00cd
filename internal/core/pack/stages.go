package pack

// A stage may be left out of an answer. Only tests leave stages out, to see what each is good for: BenchmarkStages has a row for
// every one, and what no row gets dearer or slower without has no place here.
//
// Heuristics pile up: each was good for something when it was written, and it is risky to take one out. A table of what each is good for
// now is the only thing that keeps the pile small.
//
// Sums hide what a stage is for where few workloads need it. More guides, in the sum over all, are a twentieth of
// the work for nothing; but fleets of twenty classes on demand are cheaper by 0.09 % because of them, and those of
// zonespread by 0.3 %. Without foresight zonespread takes two thirds more work, on demand, and is up to 0.3 %
// dearer, because column generation that does not come to its end takes the work that the search would have used.
type stage uint16

const (
	fluidLP          stage = 1 << iota // prices by what fits where; without it, by volume
	dividing                           // buckets of the fluid LP are divided at the borders between kinds of machine
	bothPricings                       // greedy runs go by the prices of both, not by the finer ones only
	enumerating                        // a few items are packed in all ways
	moreGuides                         // greedy runs prefer in more than three ways
	sampling                           // and are repeated with other samples
	columnGeneration                   // the configuration LP
	quickColumns                       // its columns are found by filling nodes greedily while that finds any
	foresight                          // it is left where the budget will not do for it
	rounding                           // whole nodes of it are bought
	repairing                          // a few nodes at a time are taken apart and packed again
	wholeNodes                         // small parts are proven in whole nodes
	sharing                            // equal parts are solved once
	stages
)

// does reports whether a stage is not left out.
func (b *budget) does(s stage) bool { return b.without&s == 0 }
