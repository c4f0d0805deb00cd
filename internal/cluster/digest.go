package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// Digest tells pictures apart for who compares decisions: two that saw the same pools, machines with as many pods, and waiting pods have
// the same one, also after a restart, which begins to count revisions anew.
func (s *Snapshot) Digest() string {
	h := fnv.New64a()
	var number [8]byte
	note := func(texts ...string) {
		for _, t := range texts {
			io.WriteString(h, t)
			h.Write([]byte{0})
		}
	}
	for p := range s.Pools() {
		note(string(p.UID), p.ResourceVersion)
	}
	for n := range s.Nodes() {
		note(n.Name)
		if n.Node != nil {
			note(n.Node.ResourceVersion)
		}
		if n.Claim != nil {
			note(n.Claim.ResourceVersion)
		}
		binary.LittleEndian.PutUint64(number[:], uint64(len(n.Pods)))
		h.Write(number[:])
	}
	for p := range s.Unbound() {
		note(string(p.UID))
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
