package disrupt

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Memory is what one pass leaves for the next: what failed, what was moved, where the search stopped and what it found. It is a value:
// a function that gets one returns another and leaves the first as it was. The zero value remembers nothing.
//
// Everything in it may be lost: a controller that starts anew decides a little worse for an hour, and never wrongly. What must not be lost
// is on the claims.
type Memory struct {
	setbacks   map[types.UID]setback // by claim
	churn      churn
	recurring  map[recurrence]pause
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
	firstSetback = time.Minute
	lastSetback  = time.Hour
)

// Afresh is what is left when nothing but failures is to be remembered.
func (m Memory) Afresh() Memory { return Memory{setbacks: m.setbacks} }

// Failed remembers that a step could not be carried out or was no longer right. Its nodes are left alone for a
// while, each time for twice as long.
//
// What made a step fail is rarely gone a minute later: a type that is out of stock, a webhook that refuses, a node that will not boot.
// Doubling finds out cheaply how long it takes, and an hour is how long people are expected to wait before they look.
func (m Memory) Failed(step *Step, now time.Time) Memory {
	m.setbacks = maps.Clone(m.setbacks)
	if m.setbacks == nil {
		m.setbacks = map[types.UID]setback{}
	}
	for _, c := range step.Remove {
		s := m.setbacks[c.Node.Claim.UID]
		s.wait = min(lastSetback, max(firstSetback, 2*s.wait))
		s.until = now.Add(s.wait)
		m.setbacks[c.Node.Claim.UID] = s
	}
	m.pass, m.search = lastPass{}, lastSearch{}
	return m
}

// held returns until when a node is left alone because its last step failed, and whether it still is.
func (m *Memory) held(c *Candidate, now time.Time) (until time.Time, held bool) {
	until = m.setbacks[c.Node.Claim.UID].until
	return until, until.After(now)
}

// forget drops the setbacks of nodes that are gone.
func (m *Memory) forget(candidates []*Candidate, now time.Time) {
	there := make(map[types.UID]bool, len(candidates))
	for _, c := range candidates {
		there[c.Node.Claim.UID] = true
	}
	old := func(uid types.UID, s setback) bool { return !there[uid] && now.After(s.until.Add(lastSetback)) }
	for uid, s := range m.setbacks {
		if old(uid, s) {
			m.setbacks = maps.Clone(m.setbacks)
			maps.DeleteFunc(m.setbacks, old)
			return
		}
	}
}
