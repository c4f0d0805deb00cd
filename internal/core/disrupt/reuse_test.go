package disrupt

import (
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// TestVerdict is the table above the type: a search that ended at noon and found nothing, looked at later.
func TestVerdict(t *testing.T) {
	catalog := map[string]*cloud.Catalog{"p": {}}
	found := lastSearch{
		world: fingerprint{7, catalog}, sameUntil: noon.Add(sameFor), waitUntil: noon.Add(betweenSearches), cramped: map[string]int{"p": 1},
	}
	same, other := fingerprint{7, maps.Clone(catalog)}, fingerprint{8, catalog}
	for name, tc := range map[string]struct {
		last  lastSearch
		world fingerprint
		left  int // what the pool's budget allows now
		after time.Duration
		want  verdict
	}{
		"the same world at once":                         {found, same, 1, 0, sameAnswer},
		"the same world nearly five minutes later":       {found, same, 1, sameFor - 1, sameAnswer},
		"the same world five minutes later":              {found, same, 1, sameFor, searchAnew},
		"another world nearly ten seconds later":         {found, other, 1, betweenSearches - 1, waitFirst},
		"another world ten seconds later":                {found, other, 1, betweenSearches, searchAnew},
		"another world whose budget is used up still":    {found, other, 0, 0, waitFirst},
		"another world whose budget is free again":       {found, other, 2, 0, searchAnew},
		"other catalogues make another world":            {found, fingerprint{7, map[string]*cloud.Catalog{"p": {}}}, 1, 0, waitFirst},
		"so does a pool less":                            {found, fingerprint{7, nil}, 1, 0, waitFirst},
		"a search that found steps or did not end":       {lastSearch{world: same}, same, 1, 0, searchAnew},
		"nothing was searched yet, and the sum is zero":  {lastSearch{}, fingerprint{}, 1, 0, searchAnew},
		"five minutes in another world: nothing is kept": {found, other, 1, sameFor - 1, searchAnew},
	} {
		t.Run(name, func(t *testing.T) {
			budgets := &ledger{counts: map[string]*PoolCount{"p": {Raw: map[v1.DisruptionReason]int{v1.DisruptionReasonUnderutilized: tc.left}}}, taken: map[string]int{}}
			if got := tc.last.verdict(tc.world, budgets, noon.Add(tc.after)); got != tc.want {
				t.Errorf("verdict %d, want %d", got, tc.want)
			}
		})
	}
}

// TestAMemoryIsAValue lets passes, failures and confirmations go on from one memory, and looks whether it still says what it said.
func TestAMemoryIsAValue(t *testing.T) {
	f := newFixture(small()...).pool("p", allowing("1")).node("a", "p", "mid", onDemand).pods("a", "web", 1, "1", "1Gi").node("b", "p", "mid", onDemand).pods("b", "db", 3, "1", "1Gi")
	w := f.world()
	w.Engine = realEngine()
	out, first := Propose(w, Memory{})
	if len(out.Steps) != 1 {
		t.Fatalf("steps %v", say(out))
	}
	first = first.Failed(out.Steps[0], noon)
	want := maps.Clone(first.setbacks)
	second := first.Failed(out.Steps[0], noon)
	if second.setbacks["claim-a"].wait != 2*firstSetback {
		t.Errorf("after two failures the wait is %v", second.setbacks["claim-a"].wait)
	}
	late := *w
	late.Now = noon.Add(3 * time.Hour)
	late.Busy = map[types.UID]bool{"claim-a": true} // it is no candidate, and its setback is long over
	if _, third := Propose(&late, first); len(third.setbacks) != 0 {
		t.Errorf("%d setbacks are remembered of nodes that are gone", len(third.setbacks))
	}
	_, why, moved := Confirm(w, first.Afresh(), out.Steps[0])
	if why.Code != "" || len(moved.churn.moved) != 1 {
		t.Fatalf("refused with %q, %d departures", why.Code, len(moved.churn.moved))
	}
	_, _, _ = Confirm(w, moved, out.Steps[0])
	if !maps.Equal(first.setbacks, want) || len(first.churn.moved) != 0 || len(moved.churn.moved) != 1 {
		t.Error("a memory that was given away has changed")
	}
}
