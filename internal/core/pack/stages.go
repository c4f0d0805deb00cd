package pack

// A stage is a step of Solve that can be left out (Options.without). Only tests leave stages out, to measure what each one is good for:
// BenchmarkStages has a row for each stage. A stage without which no workload gets more expensive or slower should be removed, because
// otherwise heuristics pile up.
//
// Look at single workloads, not only at sums. Over all workloads moreGuides takes a twentieth of the work for nothing, but fleets of twenty
// classes on demand are 0.09 % cheaper with it, and those of zonespread 0.3 %. Without foresight, zonespread on demand takes two thirds
// more work and costs up to 0.3 % more, because column generation that does not finish takes the work that the search would have used.
type stage uint16

const (
	fluidLP          stage = 1 << iota // prices by the fluid LP; without it, by the volume LP
	dividing                           // the fluid LP divides its buckets (run.sharpen)
	bothPricings                       // greedy runs try all pricings, not only the last one
	enumerating                        // a few items are packed in all ways (enumerate.go)
	moreGuides                         // greedy runs try all guides, not only the first three
	sampling                           // greedy runs are repeated with other samples (run.resample)
	columnGeneration                   // the configuration LP
	quickColumns                       // its columns come from greedy fillings while these find any
	foresight                          // column generation stops early if the budget will not be enough (master.cannotFinish)
	rounding                           // whole nodes of the configuration LP are bought (run.round)
	repairing                          // a few nodes at a time are emptied and packed again (search.go)
	wholeNodes                         // branch and price on small parts
	sharing                            // equal parts are solved once
	stages                             // the first bit that is no stage
)

// does reports whether stage s takes part, which is so unless a test leaves it out.
func (b *budget) does(s stage) bool { return b.without&s == 0 }
