// Package ports keeps which host ports are taken on which bin.
//
// Port triples (protocol, number, address) are interned; two of them conflict when protocol and number agree and the
// addresses are equal or one of them means every address.
package ports

import "karpenter.sh/karpenter/internal/core/bits"

// A Port is one host port of a pod.
type Port struct {
	Protocol string
	Number   int32
	IP       string // "" means every address
}

// Conflict reports whether two different pods with these ports exclude each other on one node.
func (p Port) Conflict(q Port) bool {
	return p.Protocol == q.Protocol && p.Number == q.Number && (p.IP == q.IP || every(p.IP) || every(q.IP))
}

func every(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }

// A Table interns ports. The zero value is ready.
type Table struct {
	ports []Port
	index map[Port]int
}

// Intern returns the number of p, a new one if no equal port has one. No protocol means TCP.
func (t *Table) Intern(p Port) int {
	if p.Protocol == "" {
		p.Protocol = "TCP"
	}
	if every(p.IP) && p.IP != "::" {
		p.IP = ""
	}
	if i, ok := t.index[p]; ok {
		return i
	}
	if t.index == nil {
		t.index = map[Port]int{}
	}
	t.index[p] = len(t.ports)
	t.ports = append(t.ports, p)
	return len(t.ports) - 1
}

// Port returns an interned port.
func (t *Table) Port(i int) Port { return t.ports[i] }

// Conflicts returns the interned ports that exclude any of mine.
func (t *Table) Conflicts(mine []int) bits.Set {
	s := bits.Make(len(t.ports))
	for _, m := range mine {
		for i, q := range t.ports {
			if t.ports[m].Conflict(q) {
				s.Add(i)
			}
		}
	}
	return s
}

// A Book holds the ports that are taken on each bin. The zero value has no bins.
type Book struct{ taken []bits.Set }

// Grow makes room for bins 0 … n−1.
func (b *Book) Grow(n int) {
	if more := n - len(b.taken); more > 0 {
		b.taken = append(b.taken, make([]bits.Set, more)...)
	}
}

// Free reports whether none of conflicts is taken on bin.
func (b *Book) Free(bin int, conflicts bits.Set) bool { return !b.taken[bin].Meets(conflicts) }

// Take marks ports as taken on bin.
func (b *Book) Take(bin int, ports []int) {
	for _, p := range ports {
		b.taken[bin] = b.taken[bin].Grow(p)
		b.taken[bin].Add(p)
	}
}
