package awsmodel

import (
	"fmt"
	"path"
	"slices"
	"time"
)

// Faults are the switches of the world. The zero value is an AWS on a good day without rate limits.
type Faults struct {
	// Throttle turns on EC2's request and resource buckets (see throttle.go for the table).
	Throttle bool
	// Buckets replaces or adds buckets by operation, such as "ec2:CreateFleet", or "ec2:RunInstances/instances" for the
	// bucket of launched machines.
	Buckets map[string]Bucket `json:",omitempty"`
	// LatencyMillis delays every answer by this much, give or take half.
	LatencyMillis int
	// LagMillis is the longest time for which describe calls may still show what was before a change. While it lasts,
	// calls may see either, in any order.
	LagMillis int
	// LostAnswers is the share of calls that are carried out but whose answer never arrives.
	LostAnswers float64
	// LostAnswersOf limits LostAnswers to these operations, such as "ec2:CreateFleet"; empty means all that change something.
	LostAnswersOf []string `json:",omitempty"`
	// Fail makes operations fail, by name or pattern, such as "ec2:Describe*".
	Fail map[string]Failure `json:",omitempty"`
	// Pools limits how many machines a pool can hold. The last rule that matches a pool counts; without one a pool is endless.
	Pools []PoolRule `json:",omitempty"`
	// SpotVCPUs and OnDemandVCPUs are the account's quotas; 0 is none.
	SpotVCPUs, OnDemandVCPUs int
	// SpotInterruptionsPerHour is the chance of each spot machine to be interrupted within an hour.
	SpotInterruptionsPerHour float64
	// ZonesDown are zones that launch nothing and whose machines are silent.
	ZonesDown []string `json:",omitempty"`
	// DeadOnArrival is the share of machines that never boot although nothing is wrong with their user data.
	DeadOnArrival float64
}

// A PoolRule limits pools. Match is a pattern over capacity-type/type/zone, such as "spot/m5.*/us-east-1a".
type PoolRule struct {
	Match string
	// Depth is how many machines the pool holds at once; 0 is dry, negative is endless.
	Depth int
}

// A Failure is an error that AWS answers.
type Failure struct {
	Code, Message string
	Status        int     // HTTP; default 400
	Share         float64 // of the calls; 0 means all
}

func (f Faults) validate() error {
	for _, p := range f.Pools {
		if _, err := path.Match(p.Match, ""); err != nil {
			return fmt.Errorf("pool rule %q: %w", p.Match, err)
		}
	}
	for op := range f.Fail {
		if _, err := path.Match(op, ""); err != nil {
			return fmt.Errorf("failing operation %q: %w", op, err)
		}
	}
	return nil
}

func (f Faults) clone() Faults {
	f.Buckets = cloneMap(f.Buckets)
	f.Fail = cloneMap(f.Fail)
	f.LostAnswersOf = slices.Clone(f.LostAnswersOf)
	f.Pools = slices.Clone(f.Pools)
	f.ZonesDown = slices.Clone(f.ZonesDown)
	return f
}

func cloneMap[V any](m map[string]V) map[string]V {
	out := make(map[string]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// endless is the depth of a pool without a limit.
const endless = -1

func (f Faults) depth(p pool) int {
	if slices.Contains(f.ZonesDown, p.zone) {
		return 0
	}
	for _, r := range slices.Backward(f.Pools) {
		if ok, _ := path.Match(r.Match, p.String()); ok {
			return max(r.Depth, endless)
		}
	}
	return endless
}

// Faults returns the switches as they stand.
func (c *Cloud) Faults() Faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.world.faults.clone()
}

// SetFaults changes the switches. A rule that cannot be parsed changes nothing.
func (c *Cloud) SetFaults(change func(*Faults)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.world.faults.clone()
	change(&next)
	if err := next.validate(); err != nil {
		return err
	}
	before := c.world.faults
	c.world.faults = next
	c.buckets = map[string]*bucket{}
	now := time.Now()
	c.world.advance(now)
	for _, z := range next.ZonesDown {
		if !slices.Contains(before.ZonesDown, z) {
			c.world.inZone(z, (*world).hush)
		}
	}
	for _, z := range before.ZonesDown {
		if !slices.Contains(next.ZonesDown, z) {
			c.world.inZone(z, (*world).speak)
		}
	}
	if next.SpotInterruptionsPerHour != before.SpotInterruptionsPerHour {
		c.world.drawInterruptions(now)
	}
	c.world.changed()
	return nil
}

// draw returns a number below one. It follows from the seed, from what is drawn about, and from how often that was:
// what happens to others in the meantime, or in which order the calls of one moment come, makes no difference.
func (w *world) draw(about string) float64 {
	w.lots[about]++
	return unit(fmt.Sprint(w.cfg.Seed, w.lots[about], about))
}

// profiles is the random draw for all instance profiles: their names cannot be foretold.
const profiles = "instance profiles"

// chance is true in the given share of cases.
func (w *world) chance(about string, share float64) bool { return share > 0 && w.draw(about) < share }

// lag draws for how long a change may stay unseen.
func (w *world) lag(about string) time.Duration {
	if w.faults.LagMillis <= 0 {
		return 0
	}
	return time.Duration(w.draw("lag of "+about)*float64(w.faults.LagMillis+1)) * time.Millisecond
}
