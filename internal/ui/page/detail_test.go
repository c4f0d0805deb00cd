package page

import (
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/history/journal"
)

func TestOneNode(t *testing.T) {
	w := newTown()
	w.node("a", func(c *v1.NodeClaim, _ *corev1.Node) {
		c.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeLaunched, Status: "True"}, {Type: v1.ConditionTypeConsolidatable, Status: "False", Message: "too young"}}
	})
	w.pod("web-5d4f-a", "a")
	w.pod("web-5d4f-waits", "")
	w.Update(func(d *cluster.Draft) { d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-others"}}) })
	s := service(w)
	pod := &cluster.PodKey{Namespace: "shop", Name: "web-5d4f-a"}
	s.Verdicts.Keep(board.Disruption{Kept: []disrupt.Refusal{
		{Code: disrupt.NothingCheaper, Claim: "claim-a"},
		{Code: disrupt.PodProtected, Claim: "claim-a", Pod: pod, Name: v1.DoNotDisruptAnnotationKey, Value: "true"},
		{Code: disrupt.PodProtected, Claim: "claim-b", Pod: pod},
	}})
	s.Journal.Add(journal.Record{At: noon, Act: journal.Opened, About: []journal.Object{{Kind: "NodeClaim", Name: "claim-a"}}})
	s.Journal.Add(journal.Record{At: noon.Add(time.Minute), Act: journal.Evicted, About: []journal.Object{{Kind: "Node", Name: "a"}, {Kind: "NodeClaim", Name: "claim-a"}}})
	server := served(t, s, s.Open())
	for question, want := range map[string]int{"node=a": 200, "node=claim-a": 200, "pod=shop/web-5d4f-a": 200, "pod=shop/web-5d4f-waits": 404, "node=b": 404, "node=of-others": 404, "what": 404} {
		r := ask(t, "GET", server.URL+"/picture?"+question, nil)
		body, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != want {
			t.Errorf("%s: status %d, want %d: %s, %v", question, r.StatusCode, want, body, err)
		}
		if want != 200 {
			continue
		}
		var d nodeDetail
		if err := json.Unmarshal(body, &d); err != nil {
			t.Fatal(err)
		}
		if d.Name != "a" || d.Claim != "claim-a" || len(d.Pods) != 1 || d.Pods[0].Owner != "Deployment shop/web" || d.Pods[0].CPU != 1 || d.Pods[0].Memory != 2 {
			t.Errorf("%s: %+v", question, d)
		}
		if len(d.Stays) != 2 || !strings.Contains(d.Stays[0], "do-not-disrupt") {
			t.Errorf("it stays because %q, want what users can change first", d.Stays)
		}
		if len(d.Conditions) != 1 || d.Conditions[0].Message != "too young" || len(d.Decisions) != 2 || d.Decisions[0].Act != "evicted" {
			t.Errorf("conditions %+v, decisions %+v", d.Conditions, d.Decisions)
		}
		if strings.Contains(string(body), "hunter2") {
			t.Error("it says what a container is started with")
		}
	}
	if r := ask(t, "POST", server.URL+"/picture?"+url.Values{"node": {"a"}}.Encode(), nil); r.StatusCode != 405 {
		t.Errorf("status %d of something that is not only read", r.StatusCode)
	}
}

// A point that is thinned out leaves what happened to another, and what was read from an earlier run comes before what was seen since.
func TestTheSeriesLosesNoEvents(t *testing.T) {
	var s series
	launched := 0
	for at := time.Duration(0); at < 2*day; at += costEvery {
		p := moment{At: noon.Add(at), PerHour: 1}
		if at%coarse == 0 {
			p.Launched, launched = 1, launched+1
		}
		s = s.add(p)
	}
	sum := 0
	for _, p := range s {
		sum += p.Launched
	}
	if sum != launched {
		t.Errorf("%d launches, want %d", sum, launched)
	}
	for name, tc := range map[string]struct {
		older, newer series
		want         int
	}{
		"nothing before":           {nil, s[:3], 3},
		"nothing since":            {s[:3], nil, 3},
		"one after the other":      {s[:3], s[3:5], 5},
		"what overlaps is no more": {s[:5], s[3:6], 6},
	} {
		if got := tc.newer.withOlder(tc.older); len(got) != tc.want {
			t.Errorf("%s: %d points, want %d", name, len(got), tc.want)
		}
	}
}

func TestWhatAPointSays(t *testing.T) {
	w := newTown()
	w.node("a")
	w.node("b", func(c *v1.NodeClaim, n *corev1.Node) { n.Labels[v1.CapacityTypeLabelKey] = v1.CapacityTypeOnDemand })
	w.pod("web-5d4f-waits", "")
	snap := w.Snapshot()
	evicted := journal.Record{Act: journal.Evicted, Reason: journal.Interrupted, About: []journal.Object{{Kind: "Node", Name: "a"}}}
	w.draw(func(in *input) {
		got := momentOf(*in, []journal.Record{{Act: journal.Launched}, {Act: journal.Stepped}, {Act: journal.Stepped}, {Act: journal.FellBack},
			evicted, evicted,
			{Act: journal.Evicted, Reason: "Drifted", About: []journal.Object{{Kind: "Node", Name: "b"}}}})
		want := moment{At: noon, PerHour: 0.1, Spot: 0.1, Nodes: 2, Pods: snap.PodCount(), Waiting: 1, Wait: 60, Launched: 1, Steps: 2, Interrupted: 1, Failed: 1}
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		pool := cluster.Pools.Get(in.Snap, "p").DeepCopy()
		pool.Annotations = map[string]string{v1.PausedAnnotationKey: "true"}
		w.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, pool) })
		if in.Snap = w.Snapshot(); momentOf(*in, nil).Paused != 1 {
			t.Error("a pool is paused, and the point does not say so")
		}
	})
	s := series{}.add(moment{At: noon}).add(moment{At: noon.Add(costEvery), Paused: 1}).add(moment{At: noon.Add(2 * costEvery)})
	if s = s.add(moment{At: noon.Add(2 * hour)}); !slices.ContainsFunc(s, func(p moment) bool { return p.Paused == 1 }) {
		t.Errorf("a pause is lost when points are thinned out: %+v", s)
	}
}

// A service goes on where an earlier one ended, and notes no price while those of spot machines are guesses.
func TestTheSeriesGoesOn(t *testing.T) {
	w := newTown()
	w.node("a")
	first := service(w)
	first.turn(t.Context(), noon)
	second := service(w)
	second.Restore([]byte("torn"))
	second.Restore(first.Kept())
	second.turn(t.Context(), noon.Add(time.Minute))
	if got := second.painter.costs; len(got) != 2 || !got[0].At.Equal(noon) || !strings.Contains(string(second.Kept()), "12:00:00Z") {
		t.Errorf("%+v", got)
	}
	offerings := &w.pools["p"].Catalog.Types[0].Offerings
	guess := (*offerings)[0]
	guess.Labels = map[string]string{corev1.LabelTopologyZone: "z", v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}
	*offerings = append(*offerings, guess)
	third := service(w)
	third.turn(t.Context(), noon)
	if got := third.painter.costs; len(got) != 0 || third.Kept() != nil {
		t.Errorf("noted %+v while the price is a guess", got)
	}
	(*offerings)[1].Price *= 3
	third.turn(t.Context(), noon)
	if got := third.painter.costs; len(got) != 1 || got[0].PerHour != 0.1 {
		t.Errorf("noted %+v of a known price", got)
	}
}
