package cluster

import "fmt"

// Digest tells pictures apart for who compares decisions: two that saw the same pools, machines with as many pods, and waiting pods have
// the same one, also after a restart, which begins to count revisions anew.
//
// Whatever is decided has one, so machines, which are thousands, are not walked over for it: their part is kept up to date row by row.
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

// sum is the part of a row: those of all rows are added, in whatever order they came.
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

// A sum is an FNV-1a of texts, each with its end, and numbers.
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
