package pack

import (
	"encoding/binary"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// hostile makes a problem of whatever bytes say: huge and empty needs, rooms and prices, tiny stocks, contradictions.
func hostile(data []byte) *Problem {
	next := func() int64 {
		if len(data) < 2 {
			return 1
		}
		n := int64(binary.LittleEndian.Uint16(data))
		data = data[2:]
		return n
	}
	number := func() int64 { // now and then beyond everything
		n := next()
		return n % 97 << (n % 5 * n % 53)
	}
	p := &Problem{}
	dims := 1 + int(next()%3)
	vector := func() []int64 {
		v := make([]int64, dims)
		for d := range v {
			v[d] = number()
		}
		return v
	}
	for range 1 + next()%7 {
		p.Cells = append(p.Cells, Cell{Room: vector(), Price: number() % (1 << 40), Over: int(next() % 100 / 34), Stock: int(next() % 3 * (next() % 2))})
	}
	for range 1 + next()%7 {
		c := Class{Need: vector(), Count: int(next() % 60), PerNode: int(next() % 3)}
		if n := next(); n%3 == 0 {
			c.Cells = bits.Set{uint64(n >> 2)}
		}
		p.Classes = append(p.Classes, c)
	}
	for range next() % 4 {
		p.Conflicts = append(p.Conflicts, [2]int{int(next()) % len(p.Classes), int(next()) % len(p.Classes)})
	}
	if next()%3 == 0 {
		l := Limit{Max: number()}
		for range p.Cells {
			l.Use = append(l.Use, number())
		}
		p.Limits = append(p.Limits, l)
	}
	return p
}

func FuzzSolveOfHostileProblems(f *testing.F) {
	for i := range 200 {
		seed := make([]byte, 160)
		for j := range seed {
			seed[j] = byte((i*131 + j*j*29 + j*i) >> (j % 3))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := hostile(data)
		for _, fast := range []bool{true, false} {
			r := Solve(p, Options{Gain: gain, Fast: fast, Most: work.Second / 100})
			if err := verify.Check(p, r.Fleet, r.Left); err != nil {
				t.Fatalf("%v\n%+v\n%+v", err, p, r)
			}
			if err := verify.Verify(p, r.Certificate); err != nil {
				t.Fatalf("%v\n%+v\n%+v", err, p, r)
			}
			if complete(r) && r.Bound() > r.Price {
				t.Fatalf("bound %d above price %d\n%+v\n%+v", r.Bound(), r.Price, p, r)
			}
		}
	})
}
