package disrupt

import (
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
)

// A churn tells how much there is to be said against moving pods now. What a move saves lasts until so many pods
// have come and gone that the fleet looks different anyway: days in a calm cluster, where moves for little are
// worth it, hours in a restless one. And pods that were moved today should not be moved again: kube-scheduler does
// not put them where they were planned, so a search for the last percent could go on for ever.
//
// How many pods are new is read off their age, so a restart does not forget it. What it forgets is that some of them are new because
// they were moved, and then moves less for a while.
type churn struct {
	moved []departure // the oldest first; never changed in place
}

// A departure is the pods of a step.
type departure struct {
	at   time.Time
	pods int
	old  int // of those, the ones that were not new: what comes in the place of a new one makes no more of them
}

const (
	// newFor is how long a pod counts as new.
	newFor = 30 * time.Minute
	// spells are the equal parts of that time in each of which pods must have come, for them to come all the time.
	spells = 3
	// underWay is how long ago the step of a pod that is new now may have been decided: nodes boot, and drain one pod after the other.
	underWay = newFor + 15*time.Minute
	// remembered is how long moves are.
	remembered = 24 * time.Hour
)

// leaves notes pods that a step is about to move.
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

// rates are parts of the pods.
type rates struct {
	arrivals float64 // come by themselves in an hour
	steady   float64 // so many do whenever one looks
	moved    float64 // were moved within a day
}

// rates counts what is new and what was moved.
//
// A pod of a step that we made is new as well, though it did not come by itself. Which pod that is cannot be known, since it has another
// name; how many there are can, so as many are taken off as the steps of the last three quarters of an hour moved.
//
// All pods of a Deployment that was made a quarter of an hour ago are new, and that says nothing of the next hour.
// So what comes all the time is read off the spell in which fewest came.
func (c churn) rates(snap *cluster.Snapshot, now time.Time) rates {
	came, all, lately, today := 0, 0, 0, 0
	var spell [spells]int
	within := func(at time.Time) *int {
		if i := now.Sub(at) / (newFor / spells); i >= 0 && i < spells {
			return &spell[i]
		}
		return new(int)
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
