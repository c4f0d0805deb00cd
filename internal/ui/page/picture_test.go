package page

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/view"
	"karpenter.sh/karpenter/internal/history/journal"
)

var update = flag.Bool("update", false, "write the golden picture")

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// A town is a cluster that a test builds.
type town struct {
	*cluster.Store
	pools map[string]engine.Pool
	books *commitment.Books
}

func newTown() *town {
	t := &town{cluster.NewStore(), map[string]engine.Pool{}, nil}
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	t.pools["p"] = engine.Pool{Pool: pool, Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{{Name: "m.x", Offerings: []cloud.Offering{{
		Labels: map[string]string{corev1.LabelTopologyZone: "z", v1.CapacityTypeLabelKey: v1.CapacityTypeSpot}, Price: cloud.FromDollars(0.1), Available: true}}}}}}
	t.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, pool); d.Synced(true) })
	return t
}

// node puts a machine that is ready for pods, after some edits.
func (t *town) node(name string, edits ...func(*v1.NodeClaim, *corev1.Node)) {
	labels := func() map[string]string {
		return map[string]string{v1.NodePoolLabelKey: "p", corev1.LabelInstanceTypeStable: "m.x", corev1.LabelTopologyZone: "z",
			v1.CapacityTypeLabelKey: v1.CapacityTypeSpot, v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
	}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID("claim-" + name), Labels: labels()}}
	claim.Status.ProviderID = name
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels()}}
	node.Spec.ProviderID = name
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	for _, edit := range edits {
		edit(claim, node)
	}
	t.Update(func(d *cluster.Draft) { d.PutClaim(claim); d.PutNode(node) })
}

// pod puts a pod of a Deployment; without a node it waits.
func (t *town) pod(name, node string) {
	t.Update(func(d *cluster.Draft) { d.PutPod(townPod(name, node)) })
}

func townPod(name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
		Labels:          map[string]string{"pod-template-hash": "5d4f"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f", UID: "rs", Controller: new(true)}}}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")}}}}
	p.Status.Phase = corev1.PodRunning
	if node == "" {
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	return p
}

func (t *town) draw(edit func(*input)) picture {
	snap := t.Snapshot()
	in := input{Snap: snap, Pools: t.pools, Rows: new(view.Reader).Read(snap, t.pools), Leading: true, Now: noon}
	if edit != nil {
		edit(&in)
	}
	return draw(in)
}

// TestThePicture is one of everything.
func TestThePicture(t *testing.T) {
	w := newTown()
	w.node("boots", func(_ *v1.NodeClaim, n *corev1.Node) { delete(n.Labels, v1.NodeInitializedLabelKey) })
	w.node("held")
	w.node("dear")
	w.pod("web-5d4f-a", "held")
	w.pod("web-5d4f-b", "held")
	w.pod("web-5d4f-c", "")
	w.pod("web-5d4f-d", "")
	w.Update(func(d *cluster.Draft) {
		d.Plan(cluster.PodKey{Namespace: "shop", Name: "web-5d4f-d"}, "claim-boots", noon.Add(-10*time.Second))
		plan := &v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: "plan-1"}}
		plan.Status = v1alpha1.DisruptionPlanStatus{Phase: v1alpha1.DisruptionPending, ExpiresAt: metav1.NewTime(noon.Add(time.Hour)), Step: &v1alpha1.DisruptionStep{
			Reason: v1.DisruptionReasonDrifted, Pods: 2, Saves: "0.0500", Remove: []v1alpha1.DisruptedNode{{Node: "dear", InstanceType: "m.x", CapacityType: "spot"}}}}
		d.PutDisruptionPlan(plan)
	})
	got := w.draw(func(in *input) {
		in.Verdict = board.View{
			Refused: map[types.UID]string{"web-5d4f-c": "1 existing node: 1 not enough cpu"},
			Disruption: board.Disruption{
				Kept: []disrupt.Refusal{
					{Code: disrupt.NothingCheaper, Reason: v1.DisruptionReasonUnderutilized, Claim: "claim-dear", Node: "dear", Need: 0.03},
					{Code: disrupt.NothingCheaper, Reason: v1.DisruptionReasonUnderutilized, Claim: "claim-held", Node: "held", Need: 0.03},
					{Code: disrupt.PodProtected, Claim: "claim-held", Node: "held", Pod: &cluster.PodKey{Namespace: "shop", Name: "web-5d4f-a"}, Name: v1.DoNotDisruptAnnotationKey, Value: "true"},
				},
				Budgets:  map[string][]v1.DisruptionReason{"p": {v1.DisruptionReasonUnderutilized, v1.DisruptionReasonEmpty}},
				HeldBack: map[string]cloud.NanoUSD{"p": cloud.FromDollars(0.02)}, Before: cloud.FromDollars(0.3), Target: cloud.FromDollars(0.2),
			},
			Steps: []board.Step{{ID: "s", Stage: board.Waits, Reason: v1.DisruptionReasonEmpty, Text: "delete 1 node: dear/m.x/spot", Claims: []string{"claim-dear"}, Saves: cloud.FromDollars(0.1), Until: noon.Add(15 * time.Second)}},
		}
		in.Records = []journal.Record{{Seq: 7, At: noon, Act: journal.Planned, PricePerHour: 0.1, About: []journal.Object{{Kind: "Pod", Namespace: "shop", Name: "web-5d4f-d"}}, Text: "1 new node for 1 pod"}}
		in.Plan = &journal.Record{At: noon, PricePerHour: 0.1, CostPerHour: 0.102, BoundPerHour: 0.101}
		in.Costs = series{{At: noon, PerHour: 0.3, Target: 0.2}}
	})
	text, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	const file = "testdata/picture.json"
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(text) {
		t.Errorf("the picture is another one than %s (-update writes it):\n%s", file, text)
	}
	if strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "PASSWORD") {
		t.Error("what a container is started with is in the picture")
	}
}

func TestWhoHoldsBack(t *testing.T) {
	pod := &cluster.PodKey{Namespace: "shop", Name: "web-5d4f-a"}
	for name, tc := range map[string]struct {
		kept disrupt.Refusal
		want string // by whom and for how much; "" if nobody
	}{
		"a pod of a Deployment":       {disrupt.Refusal{Code: disrupt.PodBudget, Pod: pod, Name: "shop/min"}, "Deployment shop/web: 4.8"},
		"a pod that is gone":          {disrupt.Refusal{Code: disrupt.PodBudget, Pod: &cluster.PodKey{Namespace: "x", Name: "y"}}, "Pod x/y: 4.8"},
		"a pod without another place": {disrupt.Refusal{Code: disrupt.NoPlace, Stuck: []disrupt.Stuck{{Pod: *pod}}}, "Deployment shop/web: 4.8"},
		"a limit":                     {disrupt.Refusal{Code: disrupt.NoPlace, Limits: []string{"p"}}, "limits of NodePool p: 4.8"},
		"an annotation":               {disrupt.Refusal{Code: disrupt.NodeProtected, Name: "a"}, "annotation a: 4.8"},
		"a pause":                     {disrupt.Refusal{Code: disrupt.Paused, Name: "p"}, "a pause: 4.8"},
		"a budget that is unreadable": {disrupt.Refusal{Code: disrupt.BudgetUnread, Name: "p"}, "NodePool p: 4.8"},
		"a type that is gone":         {disrupt.Refusal{Code: disrupt.NotOffered, Name: "m.x"}, "the node: 4.8"},
		"a price is nobody's doing":   {disrupt.Refusal{Code: disrupt.NothingCheaper}, ""},
		"nor is a stage of life":      {disrupt.Refusal{Code: disrupt.NotInitialized}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown()
			w.node("a")
			w.node("b")
			w.pod("web-5d4f-a", "a")
			p := w.draw(func(in *input) {
				for _, node := range []string{"b", "a", "gone"} {
					r := tc.kept
					r.Claim, r.Node = "claim-"+node, node
					in.Verdict.Kept = append(in.Verdict.Kept, r)
				}
			})
			got := ""
			for _, h := range p.Held {
				got += fmt.Sprintf("%s: %v", h.By, h.PerDay)
				if h.Count != 2 || fmt.Sprint(h.Nodes) != "[a b]" || h.Why == "" {
					t.Errorf("%+v, want both nodes in order and a reason", h)
				}
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if held := strings.Contains(p.Nodes[0].Marks, "held back"); held != (tc.want != "") {
				t.Errorf("the node is marked %q", p.Nodes[0].Marks)
			}
		})
	}
}

func TestWhyAPodWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*input)
		want string
	}{
		"as its events say":      {func(in *input) { in.Verdict.Refused = map[types.UID]string{"web-5d4f-a": "no room"} }, "no room"},
		"before the first plan":  {nil, "no plan has been made for it yet"},
		"without pools":          {func(in *input) { in.Pools = nil }, "there is no NodePool that could get nodes"},
		"where another one acts": {func(in *input) { in.Leading = false }, "the replica that leads knows why"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown()
			w.pod("web-5d4f-a", "")
			p := w.draw(tc.edit)
			if len(p.Waiting) != 1 || p.Waiting[0].Why != tc.want || p.Head.Waiting != 1 {
				t.Errorf("%+v of %d, want one because %q", p.Waiting, p.Head.Waiting, tc.want)
			}
		})
	}
}

func TestManyPodsAreFewLines(t *testing.T) {
	w := newTown()
	for i := range 1000 {
		w.pod(fmt.Sprintf("web-5d4f-%04d", i), "")
	}
	p := w.draw(func(in *input) {
		in.Verdict.Refused = map[types.UID]string{}
		for i := range 1000 {
			in.Verdict.Refused[types.UID(fmt.Sprintf("web-5d4f-%04d", i))] = fmt.Sprint("why ", i%400)
		}
	})
	if len(p.Waiting) != mostGroups || p.Head.Waiting != 1000 || len(p.Waiting[0].Pods) > mostNamed {
		t.Errorf("%d lines for %d pods", len(p.Waiting), p.Head.Waiting)
	}
}

// What waits for one reason is one line: how many, the first few by name, since when the oldest; the most come first.
func TestPodsThatWaitForOneReason(t *testing.T) {
	w := newTown()
	refused := map[types.UID]string{}
	for i := range 9 {
		name := fmt.Sprint("web-5d4f-", i)
		pod := townPod(name, "")
		pod.CreationTimestamp = metav1.NewTime(noon.Add(-time.Duration(i) * time.Minute))
		w.Update(func(d *cluster.Draft) { d.PutPod(pod) })
		refused[types.UID(name)] = "a zone is full"
		if i >= 2 {
			refused[types.UID(name)] = "no room"
		}
	}
	w.pod("web-5d4f-promised", "")
	w.Update(func(d *cluster.Draft) {
		d.Plan(cluster.PodKey{Namespace: "shop", Name: "web-5d4f-promised"}, "claim", noon)
	})
	p := w.draw(func(in *input) { in.Verdict.Refused = refused })
	if len(p.Waiting) != 2 || p.Head.Waiting != 10 || len(p.Promised) != 1 {
		t.Fatalf("%d lines, %d promised, for %d pods", len(p.Waiting), len(p.Promised), p.Head.Waiting)
	}
	if first := p.Waiting[0]; first.Why != "no room" || first.Count != 7 || len(first.Pods) != mostNamed || !first.Since.Equal(noon.Add(-8*time.Minute)) {
		t.Errorf("first comes %+v", first)
	}
}

// All that is happening to a node is said, and nodes of others and prices that nobody knows are counted.
func TestNodesOfManyKinds(t *testing.T) {
	w := newTown()
	w.node("a", func(c *v1.NodeClaim, n *corev1.Node) {
		delete(n.Labels, v1.NodeInitializedLabelKey)
		c.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue}}
	})
	w.node("b", func(_ *v1.NodeClaim, n *corev1.Node) {
		n.Labels[corev1.LabelInstanceTypeStable] = "of nobody's catalogue"
	})
	w.Update(func(d *cluster.Draft) { d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-others"}}) })
	p := w.draw(nil)
	if p.Nodes[0].Marks != "boots, drifted" || p.Head.Unknown != 1 || p.Head.Others != 1 || p.Head.Nodes != 2 {
		t.Errorf("marks %q, %+v", p.Nodes[0].Marks, p.Head)
	}
}

func TestTheNotice(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*town, *input)
		want string
	}{
		"there is none where all is well": {nil, ""},
		"a standby says that it is one":   {func(_ *town, in *input) { in.Leading = false }, "This replica does not lead"},
		"a feed that is silent is told of": {func(w *town, in *input) {
			w.Update(func(d *cluster.Draft) { d.FailedFeeds([]cluster.FailedFeed{{Kind: "Pod"}}) })
			in.Snap = w.Snapshot()
		}, "no longer heard of"},
		"a store that is not filled": {func(w *town, in *input) { in.Snap = cluster.NewStore().Snapshot() }, "not been read to its end"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown()
			p := w.draw(func(in *input) {
				if tc.edit != nil {
					tc.edit(w, in)
				}
			})
			if (p.Head.Notice == "") != (tc.want == "") || !strings.Contains(p.Head.Notice, tc.want) {
				t.Errorf("got %q, want %q", p.Head.Notice, tc.want)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	w := newTown()
	w.node("a")
	w.node("b")
	w.node("c")
	was := w.draw(nil)
	w.pod("web-5d4f-a", "b")
	w.Update(func(d *cluster.Draft) { d.DeleteNode("c"); d.DeleteClaim("claim-c") })
	w.node("d")
	is := w.draw(func(in *input) {
		in.Records = []journal.Record{{Seq: 1}, {Seq: 2}}
		in.Costs = series{{At: noon}}
	})
	c := diff(&was, &is)
	var put []string
	for _, n := range c.Put {
		put = append(put, n.Name)
	}
	if fmt.Sprint(put, c.Gone) != "[b d] [c]" || c.Head == nil || c.Waiting != nil || len(c.Decisions) != 2 || len(c.Costs) != 1 {
		t.Errorf("put %v, gone %v, %+v", put, c.Gone, c)
	}
	if text, _ := json.Marshal(diff(&is, &is)); string(text) != "{}" {
		t.Errorf("a picture differs from itself: %s", text)
	}
}
