package interrupt

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// fleet is so many machines of ten pods that name so many types in one zone.
func fleet(machines, types int) []Claim {
	var sent []Offer
	for i := range types {
		sent = append(sent, Offer{Pool{fmt.Sprintf("type-%d", i), "a"}, 1 + float64(i)/100})
	}
	out := make([]Claim, machines)
	for i := range out {
		out[i] = Claim{Pods: 10, Sent: sent, OnDemand: 3}
	}
	return out
}

func TestMoreTypesLoseFewerPodsAtOnce(t *testing.T) {
	var mean, most [2]float64
	for seed := range uint64(20) {
		for i, types := range []int{1, 15} {
			o := Play(fleet(30, types), seed)
			mean[i] += o.Mean
			most[i] += o.Most
		}
	}
	if mean[1] > mean[0]/2 || most[1] > most[0]*0.8 {
		t.Errorf("of 15 types a failure ends %.2f of the pods, %.2f at worst; of one %.2f and %.2f", mean[1]/20, most[1]/20, mean[0]/20, most[0]/20)
	}
}

func TestTheSameSeedGivesTheSameMonths(t *testing.T) {
	if a, b := Play(fleet(20, 5), 7), Play(fleet(20, 5), 7); a != b {
		t.Errorf("%+v, then %+v", a, b)
	}
}

func TestWithoutSpotTheFleetIsOnDemand(t *testing.T) {
	if o := Play(fleet(4, 0), 1); o.Dollars < 11.999 || o.Dollars > 12.001 || math.Abs(o.OnDemand-1) > 1e-9 || o.Lost != 0 {
		t.Errorf("%+v", o)
	}
}

func TestAPoolThatFailedGivesNothingForAWhile(t *testing.T) {
	g := &game{fleet: fleet(1, 1), on: []int{0}, market: &market{kinds: map[Pool]Kind{}, taken: map[Pool]int{}, back: map[Pool]time.Duration{}}}
	p := g.fleet[0].Sent[0].Pool
	g.kinds[p] = Kind{1, 40, day}
	if gone := g.fail(p); gone != 10 || g.on[0] >= 0 {
		t.Errorf("%d pods went, the machine is on offer %d", gone, g.on[0])
	}
	g.pass(away + waver)
	if g.on[0] != 0 || g.dear != away {
		t.Errorf("on offer %d after %s on-demand", g.on[0], g.dear)
	}
}
