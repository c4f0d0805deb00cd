package disrupt

import (
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
)

// A churn tells how much there is to be said against moving pods now. What a move saves lasts until so many pods have come and gone
// that the fleet looks different anyway: days in a calm cluster, where moves for little are worth it, hours in a restless one. And pods that
// were moved today should not be moved again: kube-scheduler does not put them where they were planned, so a search for the last
// percent could go on for ever.
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
}

const (
	// newFor is how long a pod counts as new.
	newFor = 30 * time.Minute
	// underWay is how long ago the step of a pod that is new now may have been decided: nodes boot, and drain one pod after the other.
	underWay = newFor + 15*time.Minute
	// remembered is how long moves are.
	remembered = 24 * time.Hour
)

// leaves notes pods that a step is about to move.
func (c churn) leaves(step *Step, now time.Time) churn {
	recent := slices.DeleteFunc(slices.Clone(c.moved), func(d departure) bool { return now.Sub(d.at) >= remembered })
	return churn{append(recent, departure{now, step.Pods()})}
}

// rates returns which part of the pods comes by itself in an hour, and which part we moved within a day.
//
// A pod of a step that we made is new as well, though it did not come by itself. Which pod that is cannot be known, since it has another
// name; how many there are can, so as many are taken off as the steps of the last three quarters of an hour moved.
func (c churn) rates(snap *cluster.Snapshot, now time.Time) (arrivalsPerHour, movedPerDay float64) {
	came, all, lately, today := 0, 0, 0, 0
	for p := range snap.Pods() {
		if !movable.Reschedulable(p) {
			continue
		}
		all++
		if now.Sub(p.Created) < newFor {
			came++
		}
	}
	for _, d := range c.moved {
		if now.Sub(d.at) < underWay {
			lately += d.pods
		}
		if now.Sub(d.at) < remembered {
			today += d.pods
		}
	}
	pods := float64(max(1, all))
	return float64(max(0, came-lately)) / pods * float64(time.Hour) / float64(newFor), float64(today) / pods
}
