package disrupt

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Memory is what one pass leaves for the next: what failed, what was moved, where the search stopped and what it found. It is a value:
// a function that gets one returns another and leaves the first as it was. The zero value remembers nothing.
//
// Everything in it may be lost: after a restart the controller decides a little worse for a while, but not wrongly. What must not be lost
// is written on the claims.
type Memory struct {
	setbacks   map[types.UID]setback // by claim
	churn      churn
	recurring  map[recurrence]pause
	editions   map[string]edition // by pool
	recovering bool               // the fleet was far from its target and is not near it yet, see toll
	avoided    map[types.UID]bool // claims of the nodes that new pods should be kept off, nil before the first search

	resume  string // the node at which the search of single nodes goes on, "" where it begins anew
	weighed int    // nodes that were weighed one at a time since something was found
	pass    lastPass
	search  lastSearch
}

// A setback keeps a node from being tried again too soon.
type setback struct {
	until time.Time
	wait  time.Duration
}

const (
	firstSetback   = time.Minute
	longestSetback = time.Hour
)

// Afresh returns a Memory that keeps only the setbacks.
func (m Memory) Afresh() Memory { return Memory{setbacks: m.setbacks} }

// Failed remembers that a step could not be carried out or was no longer right. Its nodes are left alone for a while (a setback), twice
// as long each time, because a cause such as a type that is out of stock or a webhook that refuses may last. It also forgets what the
// last pass and the last search found, so that the next pass searches anew, without these nodes.
func (m Memory) Failed(step *Step, now time.Time) Memory {
	m.setbacks = maps.Clone(m.setbacks)
	if m.setbacks == nil {
		m.setbacks = map[types.UID]setback{}
	}
	for _, c := range step.Remove {
		s := m.setbacks[c.Node.Claim.UID]
		s.wait = min(longestSetback, max(firstSetback, 2*s.wait))
		s.until = now.Add(s.wait)
		m.setbacks[c.Node.Claim.UID] = s
	}
	m.pass, m.search = lastPass{}, lastSearch{}
	return m
}

// held returns until when a node is left alone because its last step failed, and whether that is later than now.
func (m *Memory) held(c *Candidate, now time.Time) (until time.Time, held bool) {
	until = m.setbacks[c.Node.Claim.UID].until
	return until, until.After(now)
}

// forget drops the setbacks of nodes that are not among the candidates and whose setback was over an hour ago. It changes the map only if
// there are some.
func (m *Memory) forget(candidates []*Candidate, now time.Time) {
	there := make(map[types.UID]bool, len(candidates))
	for _, c := range candidates {
		there[c.Node.Claim.UID] = true
	}
	old := func(uid types.UID, s setback) bool { return !there[uid] && now.After(s.until.Add(longestSetback)) }
	for uid, s := range m.setbacks {
		if old(uid, s) {
			m.setbacks = maps.Clone(m.setbacks)
			maps.DeleteFunc(m.setbacks, old)
			return
		}
	}
}
