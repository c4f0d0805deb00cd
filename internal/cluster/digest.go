package cluster

import "fmt"

// Digest returns a hash of the snapshot for journals and records: snapshots with the same pools, the same machines with as many pods
// each, and the same unbound pods have the same digest. Unlike a revision it can be compared across restarts.
//
// It is made for every decision, so the part of the machines (machineSum) is kept up to date row by row and not summed up here.
func (s *Snapshot) Digest() string {
	h := begin.number(uint64(s.machineSum))
	for p := range Pools.All(s) {
		h = h.text(string(p.UID)).text(p.ResourceVersion)
	}
	for p := range s.Unbound() {
		h = h.text(string(p.UID))
	}
	return fmt.Sprintf("%016x", uint64(h))
}

// sum returns the part of a row in machineSum. The parts are added, so their order does not matter.
func (n *Node) sum() sum {
	h := begin.text(n.Name)
	if n.Node != nil {
		h = h.text(n.Node.ResourceVersion)
	}
	if n.Claim != nil {
		h = h.text(n.Claim.ResourceVersion)
	}
	return h.number(uint64(len(n.Pods)))
}

// A sum is an FNV-1a hash of texts, each with an end mark, and numbers.
type sum uint64

const (
	begin sum = 14695981039346656037
	prime sum = 1099511628211
)

func (h sum) text(t string) sum {
	for i := range len(t) {
		h = (h ^ sum(t[i])) * prime
	}
	return h * prime
}

func (h sum) number(n uint64) sum {
	for range 8 {
		h = (h ^ sum(n&0xff)) * prime
		n >>= 8
	}
	return h
}
