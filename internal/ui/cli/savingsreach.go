package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/history/replay"
)

const (
	reachTime  = 24 * time.Hour // how long the controller's loops have to change the fleet
	drainPace  = time.Minute    // between two nodes of other managers that are drained
	reachNodes = 1000           // the largest fleet that is simulated without being asked for: it takes a minute
)

// reachPace returns how long there is between two searches for a cheaper fleet. The controller searches more often; a search of a large
// fleet takes seconds.
func reachPace(nodes int) time.Duration {
	return min(max(time.Duration(nodes)*2*time.Second, time.Minute), 30*time.Minute)
}

// A reached fleet is what the controller's loops make of today's fleet in reachTime.
type reached struct {
	PerHour   cloud.NanoUSD
	Evictions int
	Launched  int
	Unplaced  int
}

// reach simulates the controller's loops on the fleet of the report, while no pod comes or goes. Karpenter's nodes stay until a step
// replaces them. Other nodes take no pods from the beginning and are drained one after the other, but for those that an annotation or a
// PodDisruptionBudget holds, and those of pods that no pool takes: they stay and are paid. Objects are changed.
func (r *savingsReport) reach(ctx context.Context, env Env, o *objects, q *engine.Question) error {
	settings := q.Settings
	settings.Search = enoughSearch
	begin := q.Now.Truncate(time.Second)
	there := takeThere(o, &recording.Recording{Begin: begin})
	v := variantOf(baseVariant, o, q.Pools, settings)
	stay := r.placeNodes(&v, there)
	var lives []recording.Life
	pace := min(drainPace, reachTime/4/time.Duration(max(len(stay.drained), 1))).Truncate(time.Second)
	for _, l := range there.always {
		switch turn, drains := stay.drained[l.On]; {
		case stay.kept[l.On]:
			continue
		case drains:
			l.On, l.From = "", begin.Add(time.Duration(turn)*pace)
		}
		lives = append(lives, l)
	}
	out, bill := reached{}, stay.lines
	if len(lives) > 0 {
		rec, err := recording.Of(baseVariant, lives, begin.Add(reachTime))
		if err != nil {
			return err
		}
		bar := newProgress(env.Err, 1)
		defer bar.clear()
		set := replay.Settings{Boot: defaultBoot, Stop: defaultStop, BatchIdle: batchIdle, BatchMax: batchMax,
			Pace: reachPace(len(there.nodes)), Samples: 1}
		result, err := replay.Run(ctx, rec, v, set, func(part float64) { bar.tell(0, part) })
		if err != nil {
			return err
		}
		out = reached{Evictions: result.Evictions, Launched: result.Launched, Unplaced: result.Unplaced}
		for _, m := range result.Fleet {
			bill = append(bill, tariff.Line{Region: r.region, Zone: m.Zone, Type: m.Type, OS: tariff.Linux,
				Spot: m.CapacityType != v1.CapacityTypeOnDemand, Seconds: int64(time.Hour / time.Second), PerHour: m.Price})
		}
	}
	out.PerHour = tariff.Of(bill, r.Commitments).Total + stay.fees
	r.reached = &out
	return nil
}

// fleet returns the objects of a cluster, and the question about it.
func (p *planFlags) fleet(ctx context.Context, env Env) (o *objects, q engine.Question, err error) {
	if p.snapshot == "" {
		if o, err = p.read(ctx, env); err == nil {
			q, err = p.input(env, o)
		}
		return o, q, err
	}
	w, err := readWorld(p.snapshot)
	if err != nil {
		return nil, q, err
	}
	p.memory = w.Memory
	return snapshotObjects(w), questionOf(w), nil
}

// others are the nodes about which the simulated loops do not decide.
type others struct {
	drained map[string]int  // nodes that are drained, with their turns
	kept    map[string]bool // nodes that stay with their pods
	lines   []tariff.Line   // of kept nodes that have a price
	fees    cloud.NanoUSD   // of these
}

// placeNodes puts Karpenter's nodes into the variant, and decides about the others.
func (r *savingsReport) placeNodes(v *replay.Variant, there thereAlready) others {
	claims := claimsByNode(there.claims)
	out := others{drained: map[string]int{}, kept: map[string]bool{}}
	homeless := map[string]bool{}
	for _, l := range there.always {
		if slices.Contains(r.NoPool, l.Pod.Namespace+"/"+l.Pod.Name) {
			homeless[l.On] = true
		}
	}
	reported := map[string]*savings.Node{}
	for i := range r.Nodes {
		reported[r.Nodes[i].Name] = &r.Nodes[i]
	}
	for _, n := range there.nodes {
		x := reported[n.Name]
		switch {
		case x == nil:
		case x.Manager == savings.Karpenter && x.Priced && v.AddNode(n, claims(n)) == nil:
		case x.Priced && !x.Held && !homeless[n.Name]:
			out.drained[n.Name] = len(out.drained)
		default:
			out.kept[n.Name] = true
			if x.Priced {
				out.lines, out.fees = append(out.lines, x.Line), out.fees+x.Fee
			}
		}
	}
	return out
}

// remark says what was simulated, or why nothing was.
func (r *reached) remark(nodes int) string {
	if r == nil {
		return fmt.Sprintf("What the controller would reach is not simulated for %d nodes; --reach always does it.", nodes)
	}
	text := fmt.Sprintf("Reached: the controller's loops were simulated for %d hours in which no pod comes or goes, within budgets and "+
		"PodDisruptionBudgets: %s, %s. Nodes of other managers took no pods and were drained one a minute, but for those that are held.",
		int(reachTime.Hours()), sentence.Count(r.Evictions, "eviction"), sentence.Count(r.Launched, "new machine"))
	if r.Unplaced > 0 {
		text += fmt.Sprintf(" %s had no place at the end.", sentence.Count(r.Unplaced, "pod"))
	}
	return text
}
