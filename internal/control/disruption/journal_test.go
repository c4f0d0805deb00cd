package disruption

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/history/journal"
)

// What keeps a node is written down when it is news: once while it stays, also over passes that do not search, and again when it is another.
func TestWhatKeepsNodesIsToldWhenItIsNews(t *testing.T) {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for _, name := range []string{"a", "b"} {
			d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}})
		}
	})
	held := func(claim string, code disrupt.Code) disrupt.Refusal {
		return disrupt.Refusal{Code: code, Claim: claim}
	}
	both := []disrupt.Refusal{held("a", disrupt.NothingButSpot), held("b", disrupt.NothingButSpot)}
	tell := newTeller(Telling{Journal: journal.New()})
	for i, step := range []struct {
		notes []disrupt.Refusal
		want  int // records
		about int // objects of the last
	}{
		{both, 1, 2}, {nil, 1, 2}, {both, 1, 2},
		{[]disrupt.Refusal{held("a", disrupt.SpotForSpot), held("b", disrupt.NothingButSpot)}, 2, 1},
		{[]disrupt.Refusal{held("a", disrupt.Deleting)}, 2, 1},
		{[]disrupt.Refusal{held("a", disrupt.SpotForSpot)}, 3, 1},
	} {
		tell.writeHeld(&disrupt.World{Snap: store.Snapshot()}, &disrupt.Proposal{Notes: step.notes})
		got := tell.Journal.Select(journal.Query{})
		if len(got) != step.want || len(got[len(got)-1].About) != step.about {
			t.Errorf("after pass %d: %d records, want %d: %+v", i, len(got), step.want, got)
		}
	}
}
