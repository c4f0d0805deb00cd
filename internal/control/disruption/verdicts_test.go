package disruption

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/explain/board"
)

func TestAStepIsShownAsFarAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		latest := board.New()
		s := newStage(t.Context())
		s.spoil = func(l *Loop) { l.tell.Verdicts = latest }
		defer s.run(t)()
		look := func(when string, want board.Stage) {
			t.Helper()
			steps := latest.View().Steps
			if len(steps) != 1 || steps[0].Stage != want || !slices.Equal(steps[0].Claims, []string{"claim-a"}) || steps[0].Saves <= 0 || steps[0].Pods != 3 || steps[0].Text == "" {
				t.Errorf("%s: %+v, want one that %q", when, steps, want)
			}
		}
		time.Sleep(disrupt.SecondLook - time.Second)
		look("before the second look", board.Waits)
		time.Sleep(5 * time.Second)
		look("with a replacement that boots", board.Opening)
		s.initialise(replacementName)
		time.Sleep(3 * time.Second)
		v := latest.View()
		if len(v.Steps) > 0 {
			t.Errorf("once its node goes: %+v, want none", v.Steps)
		}
		if v.Before != cloud.FromDollars(1) || v.Target <= 0 || v.Target >= v.Before {
			t.Errorf("all that may move costs %v, the target %v; want a dollar and less", v.Before, v.Target)
		}
	})
}

func TestWhatKeepsNodesIsShown(t *testing.T) {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID("uid-a")}})
	})
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	dear := disrupt.Refusal{Code: disrupt.NothingCheaper, Claim: "a", Reason: v1.DisruptionReasonUnderutilized}
	waits := disrupt.Refusal{Code: disrupt.SearchWaits, Claim: "a", Reason: v1.DisruptionReasonUnderutilized, Until: at.Add(time.Minute)}
	guarded := disrupt.Refusal{Code: disrupt.PodProtected, Claim: "a"}
	gone := disrupt.Refusal{Code: disrupt.NothingCheaper, Claim: "gone", Reason: v1.DisruptionReasonUnderutilized}
	tell := newTeller(Telling{Verdicts: board.New()})
	for i, pass := range []struct {
		at            time.Time
		blocks, notes []disrupt.Refusal
		want          []disrupt.Refusal
	}{
		{at, []disrupt.Refusal{guarded}, nil, []disrupt.Refusal{guarded}},
		{at, nil, nil, nil}, // what kept it for any reason is over
		{at, nil, []disrupt.Refusal{dear, gone}, []disrupt.Refusal{dear, gone}},
		{at, nil, nil, []disrupt.Refusal{dear}}, // a pass that does not search
		{at, []disrupt.Refusal{guarded}, nil, []disrupt.Refusal{guarded}},
		{at, nil, []disrupt.Refusal{waits}, []disrupt.Refusal{waits}},
		{at.Add(59 * time.Second), nil, nil, []disrupt.Refusal{waits}},
		{at.Add(time.Minute), nil, nil, nil},
	} {
		tell.say(&disrupt.World{Snap: store.Snapshot(), Now: pass.at}, &disrupt.Proposal{Blocks: pass.blocks, Notes: pass.notes})
		if got := tell.Verdicts.View().Kept; fmt.Sprint(got) != fmt.Sprint(pass.want) {
			t.Errorf("after pass %d: %v, want %v", i, got, pass.want)
		}
	}
}
