package page

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/explain/board"
)

func TestWhatWouldGoWithANode(t *testing.T) {
	w := newTown()
	w.node("a")
	w.node("b")
	w.node("c")
	w.pod("web-5d4f-a", "a")
	w.pod("web-5d4f-b", "a")
	w.pod("web-5d4f-c", "a")
	w.Update(func(d *cluster.Draft) {
		agent := townPod("agent", "a")
		agent.OwnerReferences[0].Kind = "DaemonSet"
		d.PutPod(agent)
	})
	s := service(w)
	server := served(t, s, s.Open())
	get := func(question string) (int, string) {
		t.Helper()
		r := ask(t, "GET", server.URL+"/picture?"+question, nil)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	if status, _ := get("leave=a"); status != 501 {
		t.Errorf("without a planner: status %d", status)
	}
	fails := true
	s.Leave = func(_ context.Context, node string) (*engine.Plan, error) {
		if fails {
			return nil, errors.New("no NodePool may open nodes")
		}
		pods := w.Snapshot().Node(node).Pods
		if len(pods) == 0 {
			return &engine.Plan{}, nil
		}
		return &engine.Plan{
			Place: []engine.Placement{{Pod: pods[1], Node: "b"}},
			Open:  []engine.Opening{{Type: "m.x", CapacityType: "spot", Pool: "p", Price: cloud.FromDollars(0.03), Pods: pods[2:3]}}, Price: cloud.FromDollars(0.03),
			Refused: []engine.Refused{{Pod: pods[3], Reasons: []reason.Count{{Code: reason.TooLarge, Key: "cpu", Candidates: 2}}}},
		}, nil
	}
	if status, text := get("leave=a"); status != 422 || !strings.Contains(text, "no NodePool may open nodes") {
		t.Errorf("a plan that fails: status %d: %s", status, text)
	}
	fails = false
	s.Verdicts.Step([]board.Step{{ID: "s", Stage: board.Waits, Reason: v1.DisruptionReasonUnderutilized, Text: "delete 2 nodes", Claims: []string{"claim-a", "claim-c"}}})
	status, text := get("leave=a")
	var got leaving
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 {
		t.Fatalf("status %d, %v: %s", status, err, text)
	}
	if got.Step != "delete 2 nodes" || !slices.Equal(got.With, []string{"c"}) || got.Ends != 1 || got.PerHour != -0.07 {
		t.Errorf("%+v", got)
	}
	if want := []place{{What: "m.x, spot, NodePool p", PerHour: 0.03, Pods: 1}, {Node: "b", Pods: 1}}; !slices.Equal(got.Places, want) {
		t.Errorf("places %+v", got.Places)
	}
	if len(got.Stuck) != 1 || got.Stuck[0].Pods != 1 || !strings.Contains(got.Stuck[0].Why, "cpu") {
		t.Errorf("stuck %+v", got.Stuck)
	}
	if status, text := get("leave=b"); status != 200 || strings.Contains(text, "delete 2 nodes") {
		t.Errorf("a node without a step: status %d: %s", status, text)
	}
	if status, _ := get("leave=no-such"); status != 404 {
		t.Errorf("a node that is not there: status %d", status)
	}
	s.previewing.Lock()
	if status, _ := get("leave=a"); status != 429 {
		t.Errorf("while another plan is made: status %d", status)
	}
	s.previewing.Unlock()
}

func TestTheProvenLeast(t *testing.T) {
	w := newTown()
	w.node("a")
	w.node("b")
	report := &savings.Report{Today: cloud.FromDollars(0.25), Least: cloud.FromDollars(0.2), Gap: []savings.Part{
		{Cause: savings.Fragmentation, PerHour: cloud.FromDollars(0.01)}, {Cause: savings.Preferences},
		{Cause: savings.PDB, PerHour: cloud.FromDollars(0.04), By: []string{"shop/a", "shop/b", "shop/c", "shop/d", "shop/e", "shop/f"}}}}
	proven := func(s board.Savings) (*shownSavings, float64) {
		var least float64
		return w.draw(func(in *input) {
			in.Verdict.Savings = s
			least = momentOf(*in, nil).Least
		}).Head.Savings, least
	}
	got, least := proven(board.Savings{At: noon.Add(-time.Hour), Report: report})
	if got == nil || got.Gap != 0.05 || len(got.Parts) != 2 || got.Parts[0].Cause != "pdb" || got.Parts[0].PerDay != 0.96 || len(got.Parts[0].By) != 5 || got.Parts[0].More != 1 {
		t.Errorf("%+v", got)
	}
	if least != 0.15 { // two nodes for 0.2, of which 0.05 could be saved
		t.Errorf("the least is %v", least)
	}
	for what, s := range map[string]board.Savings{"none": {}, "an old one": {At: noon.Add(-4 * time.Hour), Report: report}, "one without prices": {At: noon, Report: &savings.Report{}}} {
		if got, least := proven(s); got != nil || least != 0 {
			t.Errorf("%s: %+v, %v", what, got, least)
		}
	}
	if _, least := proven(board.Savings{At: noon, Report: &savings.Report{Today: cloud.FromDollars(0.2)}}); least != leastLeast {
		t.Errorf("of a fleet without pods: %v", least)
	}
}
