package page

import (
	"reflect"
	"time"
)

// changes are the differences between a picture and the one before. A nil field has not changed.
type changes struct {
	Head      *heading        `json:"head,omitempty"`
	Put       []shownNode     `json:"put,omitempty"`  // nodes that came or changed
	Gone      []string        `json:"gone,omitempty"` // names of nodes
	Waiting   *[]shownWaiting `json:"waiting,omitempty"`
	Promised  *[]promised     `json:"promised,omitempty"`
	Steps     *[]step         `json:"steps,omitempty"`
	Held      *[]shownHeld    `json:"held,omitempty"`
	Decisions []decision      `json:"decisions,omitempty"` // new ones
	Costs     []moment        `json:"costs,omitempty"`     // new ones
}

// diff returns what is different in picture is from picture was. Decisions and costs only grow, so it returns the new
// ones.
func diff(was, is *picture) changes {
	c := changes{
		Head: ifChanged(&was.Head, &is.Head), Waiting: ifChanged(&was.Waiting, &is.Waiting),
		Promised: ifChanged(&was.Promised, &is.Promised), Steps: ifChanged(&was.Steps, &is.Steps), Held: ifChanged(&was.Held, &is.Held),
	}
	c.Put, c.Gone = nodeChanges(was.Nodes, is.Nodes)
	var seq uint64
	if n := len(was.Decisions); n > 0 {
		seq = was.Decisions[n-1].Seq
	}
	for i := range is.Decisions {
		if is.Decisions[i].Seq > seq {
			c.Decisions = is.Decisions[i:]
			break
		}
	}
	var at time.Time
	if n := len(was.Costs); n > 0 {
		at = was.Costs[n-1].At
	}
	for i := range is.Costs {
		if is.Costs[i].At.After(at) {
			c.Costs = is.Costs[i:]
			break
		}
	}
	return c
}

// ifChanged returns is if it differs from was, else nil.
func ifChanged[T any](was, is *T) *T {
	if reflect.DeepEqual(was, is) {
		return nil
	}
	return is
}

// nodeChanges returns the nodes that are new or changed, and the names of those that are gone. Both lists are sorted
// by name.
func nodeChanges(was, is []shownNode) (put []shownNode, gone []string) {
	for len(was) > 0 || len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && was[0].Name < is[0].Name:
			gone = append(gone, was[0].Name)
			was = was[1:]
		case len(was) == 0 || is[0].Name < was[0].Name:
			put = append(put, is[0])
			is = is[1:]
		default:
			if was[0] != is[0] {
				put = append(put, is[0])
			}
			was, is = was[1:], is[1:]
		}
	}
	return put, gone
}
