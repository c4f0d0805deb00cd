package disrupt

import (
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
)

// A churn remembers the pods that our steps moved within a day. Together with the ages of pods this says how much speaks against moving
// pods now. A move saves money until so many pods have come and gone that the fleet looks different anyway: days in a calm cluster, hours
// in a restless one. Pods that were moved today should not be moved again: kube-scheduler does not put all of them where they were
// planned, so a search for the last percent could go on for ever.
//
// A restart of the controller forgets the moves. Then pods that were moved look like pods that came by themselves, and less is moved for
// a while.
type churn struct {
	moved []departure // the oldest first; never changed in place
}

// A departure counts the pods that a step moves.
type departure struct {
	at   time.Time
	pods int
	old  int // of these, the pods that were not new: a moved pod that was new already is replaced by another new one
}

const (
	// newFor is how long a pod counts as new.
	newFor = 30 * time.Minute
	// spells is the number of equal parts of newFor. Only what arrives in each of them counts as arriving all the time.
	spells = 3
	// underWay is how long ago the step of a pod that is new now may have been decided: nodes boot, and drain one pod after the other.
	underWay = newFor + 15*time.Minute
	// remembered is how long moves are remembered.
	remembered = 24 * time.Hour
)

// leaves returns a churn that has noted the pods which a step is about to move.
func (c churn) leaves(step *Step, now time.Time) churn {
	recent := slices.DeleteFunc(slices.Clone(c.moved), func(d departure) bool { return now.Sub(d.at) >= remembered })
	left := departure{at: now, pods: step.Pods()}
	for _, c := range step.Remove {
		for _, p := range c.Pods {
			if now.Sub(p.Created) >= newFor {
				left.old++
			}
		}
	}
	return churn{append(recent, left)}
}

// rates are counts of pods, as parts of all pods that can move.
type rates struct {
	arrivals float64 // that arrive by themselves in an hour
	steady   float64 // that arrive in an hour, by the spell with the fewest arrivals
	moved    float64 // that steps moved within a day
}

// measure works out the rates from the ages of pods and the moves that are remembered.
//
// A pod that a step moved is new as well, though it did not arrive by itself. It has another name now, so it cannot be recognized, but
// its like can be counted: arrivals leaves out all pods that steps of the last three quarters of an hour moved, and steady leaves out,
// in each spell, those that were not new when their step was decided.
//
// If a Deployment was created a quarter of an hour ago, all of its pods are new, and that says nothing about the next hour. So steady is
// read off the spell in which fewest pods arrived.
func (c churn) measure(snap *cluster.Snapshot, now time.Time) rates {
	came, all, lately, today := 0, 0, 0, 0
	var spell [spells]int
	within := func(at time.Time) *int {
		if i := now.Sub(at) / (newFor / spells); i >= 0 && i < spells {
			return &spell[i]
		}
		return new(int) // before the spells: counted nowhere
	}
	for p := range snap.Pods() {
		if !movable.Reschedulable(p) {
			continue
		}
		all++
		*within(p.Created)++
		if now.Sub(p.Created) < newFor {
			came++
		}
	}
	for _, d := range c.moved {
		*within(d.at) -= d.old
		if now.Sub(d.at) < underWay {
			lately += d.pods
		}
		if now.Sub(d.at) < remembered {
			today += d.pods
		}
	}
	pods := float64(max(1, all))
	anHour := func(n int, in time.Duration) float64 {
		return float64(max(0, n)) / pods * float64(time.Hour) / float64(in)
	}
	return rates{
		arrivals: anHour(came-lately, newFor), steady: anHour(slices.Min(spell[:]), newFor/spells), moved: float64(today) / pods,
	}
}
