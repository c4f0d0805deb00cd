package rollout

import (
	"math"
	"time"

	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
)

// A State says why no more drifted nodes of a pool may be replaced now.
type State string

// The states. Free is none of them.
const (
	Free       State = ""
	Unread     State = "Unread"     // the policy cannot be read
	Starting   State = "Starting"   // the drift has not been noted in the status of the policy yet
	Tripped    State = "Tripped"    // a gate tripped
	Closed     State = "Closed"     // no window is open
	Unanswered State = "Unanswered" // a gate does not answer
	Rolling    State = "Rolling"    // the machines of the present step are there or on their way, and not all of them are ready
	Baking     State = "Baking"     // they are being watched
)

// An Allowance is how many drifted nodes of a pool a policy lets go now.
type Allowance struct {
	Policy string
	More   int       // how many more drifted nodes may begin to go
	State  State     // why none may, while More is zero
	Until  time.Time // when that ends by itself at the earliest, zero if that is not known
	Detail string    // the evidence of a gate that tripped, or what cannot be read
	// Still says that disruption may open a machine of the pool only to replace a drifted node of it. Any other new machine would count as
	// one more machine of the rollout.
	Still bool
}

// Allowances returns the allowance of each pool with a policy, by pool; nil if there are no policies.
func Allowances(snap *cluster.Snapshot, now time.Time) map[string]Allowance {
	_, of := Read(snap)
	if of == nil {
		return nil
	}
	since := map[string]time.Time{}
	for pool, p := range of {
		since[pool], _ = Began(p.Entry(pool))
	}
	fleets := Fleets(snap, since)
	out := make(map[string]Allowance, len(of))
	for pool, p := range of {
		out[pool] = p.allow(p.Entry(pool), fleets[pool], Revision(snap, cluster.Pools.Get(snap, pool)), now)
	}
	return out
}

// allow returns the allowance of a pool. e is the pool's entry in the status of the policy, nil if it has none.
func (p *Policy) allow(e *v1alpha1.RolloutPool, f *Fleet, revision string, now time.Time) Allowance {
	a := Allowance{Policy: p.Object.Name}
	held := func(s State, until time.Time, detail string) Allowance {
		a.State, a.Until, a.Detail = s, until, detail
		return a
	}
	if err := p.Unread(); err != nil {
		return held(Unread, time.Time{}, err.Error())
	}
	steps := len(p.Object.Spec.Steps)
	known := e != nil && e.Revision == revision
	a.Still = !known && f.Drifted > 0 || known && (e.Tripped != nil || e.Since != nil && int(e.Step) < steps)
	open, next, _ := p.window(now)
	switch {
	case known && e.Tripped != nil:
		return held(Tripped, time.Time{}, e.Evidence)
	case !known || e.Since == nil && f.Drifted > 0 || f.Stale > 0:
		return held(Starting, time.Time{}, "")
	case !open:
		return held(Closed, next, "")
	case e.Since == nil:
		a.More = math.MaxInt32
		return a
	}
	if c := condition.Get(p.Object, v1alpha1.ConditionTypeGatesAnswered); c != nil && c.Status != "True" {
		return held(Unanswered, time.Time{}, c.Message)
	}
	if int(e.Step) >= steps {
		a.More = math.MaxInt32
		return a
	}
	if a.More = p.target(int(e.Step), f.Nodes) - len(f.Fresh); a.More > 0 {
		return a
	}
	a.More = 0
	if e.BakingSince == nil {
		return held(Rolling, time.Time{}, "")
	}
	return held(Baking, e.BakingSince.Add(p.bake(int(e.Step))), "")
}
