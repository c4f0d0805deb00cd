package claim

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// notes are what a loop remembers of each claim. For a later claim of the same name nothing is remembered.
type notes[T any] struct {
	mu     sync.Mutex
	byName map[string]*note[T]
}

// A note is about one claim. Steps of one claim never run at the same time, so it needs no lock of its own.
type note[T any] struct {
	uid types.UID
	is  T
}

// of returns what is remembered of a claim, to be changed in place.
func (n *notes[T]) of(claim *v1.NodeClaim) *T {
	n.mu.Lock()
	defer n.mu.Unlock()
	if got := n.byName[claim.Name]; got != nil && got.uid == claim.UID {
		return &got.is
	}
	if n.byName == nil {
		n.byName = map[string]*note[T]{}
	}
	fresh := &note[T]{uid: claim.UID}
	n.byName[claim.Name] = fresh
	return &fresh.is
}

func (n *notes[T]) forget(claim string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byName, claim)
}
