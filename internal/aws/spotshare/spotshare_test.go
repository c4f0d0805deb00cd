package spotshare

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/aws/price"
)

func offering(i int) price.Pool {
	return price.Pool{Type: fmt.Sprintf("t%d", i/3), Zone: "abc"[i%3 : i%3+1]}
}

func offerings(n int) (out []price.Pool) {
	for i := range n {
		out = append(out, offering(i))
	}
	return out
}

func ones(n int) (out []Weights) {
	for range n {
		out = append(out, Weights{Machines: 1})
	}
	return out
}

func running(counts ...int) (out []Machine) {
	for i, n := range counts {
		for range n {
			out = append(out, Machine{offering(i), Weights{Machines: 1}})
		}
	}
	return out
}

func TestBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		running []Machine
		waiting int
		offered int
		all     bool   // nothing is left out
		named   string // else
		kept    bool
	}{
		"a pool of few machines":          {running(2), 1, 3, true, "", true},
		"what has half of four":           {running(2, 1), 1, 3, false, "t0/b t0/c", true},
		"what has less than its share":    {running(1, 1, 1), 1, 3, false, "t0/a t0/b t0/c", true},
		"one offering takes what it must": {running(3), 1, 1, false, "t0/a", false},
		"of two with room both are named": {running(4, 3, 9), 1, 2, false, "t0/a t0/b", true},
		"two are equally full":            {running(6, 6), 1, 2, false, "t0/a t0/b", false},
		"nothing is offered":              {running(6), 1, 0, true, "", true},
	} {
		q := &Question{NodePool: "p", Share: 0.5, Of: Weights{Machines: 1}, Running: tc.running, Waiting: ones(tc.waiting), Offered: offerings(tc.offered)}
		named, kept, done := New().Begin(q)
		done()
		if n := len(strings.Fields(tc.named)); n > 0 && len(named) != n {
			t.Errorf("%s: %d are named, want %s", name, len(named), tc.named)
		}
		if (named == nil) != tc.all || kept != tc.kept {
			t.Errorf("%s: all is %v, kept %v; want %v, %v", name, named == nil, kept, tc.all, tc.kept)
		}
		for o := range named {
			if text := o.Type + "/" + o.Zone; tc.named != "" && !contains(tc.named, text) {
				t.Errorf("%s: %s is named, want only %s", name, text, tc.named)
			}
		}
	}
}

func contains(list, one string) bool {
	for i := 0; i+len(one) <= len(list); i++ {
		if list[i:i+len(one)] == one {
			return true
		}
	}
	return false
}

// A workload's pods count, not only machines: two of its four are on one offering, so the third goes elsewhere.
func TestWorkloads(t *testing.T) {
	web := Weights{Machines: 1, "default/web": 1}
	q := &Question{NodePool: "p", Share: 0.5, Of: web, Waiting: []Weights{web}, Offered: offerings(6)}
	for range 2 {
		q.Running = append(q.Running, Machine{offering(0), web})
	}
	q.Running = append(q.Running, Machine{offering(1), web})
	q.Running = append(q.Running, running(0, 0, 0, 20, 20)...)
	for range 10 {
		named, kept, done := New().Begin(q)
		if done(); named[offering(0)] || !kept {
			t.Fatalf("half of the pods are there already, and it is named: %v", named)
		}
	}
	heavy := Weights{Machines: 1, "default/web": 7}
	q.Of, q.Waiting = heavy, []Weights{heavy}
	if _, kept, _ := New().Begin(q); !kept {
		t.Error("one machine may not have the pods that it was opened for")
	}
}

// Whatever EC2 picks of what launches name that are under way together, no offering gets more than its share.
func TestTogether(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n, offered, share := Few+rng.IntN(20), 3+rng.IntN(30), []float64{0.25, 0.34, 0.5, 0.75}[rng.IntN(4)]
		limit := most(share, n)
		if offered < 2*(n+limit-1)/limit {
			continue // so few offerings cannot hold them all
		}
		l, at := New(), map[price.Pool]int{}
		for i := range n {
			named, kept, _ := l.Begin(&Question{NodePool: "p", Share: share, Of: Weights{Machines: 1}, Waiting: ones(n), Offered: offerings(offered)})
			if !kept {
				t.Fatalf("seed %d: launch %d of %d with %d offerings cannot keep %v", seed, i, n, offered, share)
			}
			worst := price.Pool{}
			for o := range named { // the worst pick is what others were given too
				if at[o] >= at[worst] {
					worst = o
				}
			}
			if at[worst]++; at[worst] > limit {
				t.Fatalf("seed %d: %d of %d machines on one offering, want at most %d", seed, at[worst], n, limit)
			}
		}
	}
}

// A launch that is alone may name all that is free, however large the pool is. Where offerings are divided, each launch gets
// some of the cheap ones.
func TestWhatIsDivided(t *testing.T) {
	one := Weights{Machines: 1}
	for name, tc := range map[string]struct {
		running, waiting, near int
		least, most            int // how many are named
		dearest                int // of what is named
	}{
		"one launch beside twenty machines":      {20, 1, 0, 40, 40, 39},
		"two launches beside twenty machines":    {20, 2, 0, 40, 40, 39},
		"eight launches that begin a pool":       {0, 8, 0, 10, 10, 39},
		"the same where twelve are near":         {0, 8, 12, 5, 5, 19},
		"the same where thirty are near":         {0, 8, 30, 7, 8, 29},
		"one launch where twelve are near":       {20, 1, 12, 12, 12, 11},
		"one launch where everything is near":    {20, 1, 40, 40, 40, 39},
		"one launch where more than all is near": {20, 1, 60, 40, 40, 39},
	} {
		q := &Question{NodePool: "p", Share: 0.25, Of: one, Waiting: ones(tc.waiting), Offered: offerings(40), Near: tc.near}
		for i := range tc.running {
			q.Running = append(q.Running, Machine{offering(100 + i), one})
		}
		named, kept, _ := New().Begin(q)
		if len(named) < tc.least || len(named) > tc.most || !kept {
			t.Errorf("%s: %d are named, want %d to %d", name, len(named), tc.least, tc.most)
		}
		for i := tc.dearest + 1; i < 40; i++ {
			if named[offering(i)] {
				t.Errorf("%s: number %d is named, and there are cheaper ones", name, i)
			}
		}
	}
}
