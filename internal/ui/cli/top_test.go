package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/ui/top"
)

// twoNodes is a fleet of two nodes of 4 CPUs, of which the cheap one is nearly full, and a pod that waits.
func twoNodes(t *testing.T, paused string) *disrupt.World {
	t.Helper()
	s := cluster.NewStore()
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if paused != "" {
		pool.Annotations = map[string]string{v1.PausedAnnotationKey: paused}
	}
	catalog := &cloud.Catalog{}
	s.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool)
		for _, n := range []struct {
			name, kind, cpu string
			price           float64
		}{{"cheap", "c.x", "3", 0.1}, {"dear", "m.x", "1", 0.2}} {
			labels := map[string]string{v1.NodePoolLabelKey: "p", corev1.LabelInstanceTypeStable: n.kind, corev1.LabelTopologyZone: "z",
				v1.CapacityTypeLabelKey: v1.CapacityTypeSpot, v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
			room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
			claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + n.name, UID: types.UID(n.name), Labels: labels}}
			claim.Status.ProviderID, claim.Status.Allocatable = n.name, room
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels}}
			node.Spec.ProviderID, node.Status.Allocatable = n.name, room
			d.PutClaim(claim)
			d.PutNode(node)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "on-" + n.name, UID: types.UID("on-" + n.name)}}
			pod.Spec.NodeName, pod.Status.Phase = n.name, corev1.PodRunning
			pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(n.cpu), corev1.ResourceMemory: resource.MustParse("2Gi")}}}}
			d.PutPod(pod)
			catalog.Types = append(catalog.Types, &cloud.InstanceType{Name: n.kind, Offerings: []cloud.Offering{{
				Labels: map[string]string{corev1.LabelTopologyZone: "z", v1.CapacityTypeLabelKey: v1.CapacityTypeSpot}, Price: cloud.FromDollars(n.price), Available: true}}})
		}
	})
	return &disrupt.World{Snap: s.Snapshot(), Pools: map[string]engine.Pool{"p": {Pool: pool, Catalog: catalog}}}
}

func TestTop(t *testing.T) {
	want := `2 nodes, $0.3000 an hour; 0 pods wait for a node. Savings Plans, reserved instances and discounts are left out.

NODE   POOL  TYPE      $/H     CPU              MEMORY           PODS  STATE
dear   p     m.x spot  0.2000  ###.......  25%  ###.......  25%  1
cheap  p     c.x spot  0.1000  ########..  75%  ###.......  25%  1
`
	if got := pictureOf(twoNodes(t, "")).Text("price"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTopIsSorted(t *testing.T) {
	for order, first := range map[string]string{"price": "dear", "cpu": "cheap", "memory": "cheap", "pods": "cheap", "name": "cheap", "type": "cheap", "pool": "cheap", "state": "cheap"} {
		if lines := strings.Split(pictureOf(twoNodes(t, "")).Text(order), "\n"); !strings.HasPrefix(lines[3], first) {
			t.Errorf("by %s the first is %q, want %s", order, lines[3], first)
		}
	}
}

func TestTopShowsWhatIsPaused(t *testing.T) {
	got := pictureOf(twoNodes(t, "true")).Text("name")
	if !strings.Contains(got, "NodePool p: its NodePool is paused until karpenter resume ends it\n") || strings.Count(got, "  paused\n") != 2 {
		t.Errorf("got\n%s", got)
	}
}

// world writes the world of testdata/top.txtar to a file.
func world(t *testing.T) string {
	t.Helper()
	story, err := txtar.ParseFile("testdata/top.txtar")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(file, story.Files[0].Data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// pictured is what top shows of a file.
func pictured(t *testing.T, file string) (p *top.Picture, said string) {
	t.Helper()
	var errs bytes.Buffer
	f := topFlags{planFlags: planFlags{files: []string{file}, static: true}}
	p, err := f.picture(t.Context(), Env{Err: &errs, Catalog: threeTypes, CheckClass: noPlacementGroups})
	if err != nil {
		t.Fatal(err)
	}
	return p, errs.String()
}

// What is opened says what is on the node and what keeps it, as karpenter why does.
func TestTopOpensANode(t *testing.T) {
	p, _ := pictured(t, world(t))
	d := p.Open("n4")
	want := []top.Pod{{Namespace: "default", Name: "web4", Owner: "ReplicaSet default/web", CPU: 3}}
	if !slices.Equal(d.Pods, want) || !slices.Contains(d.Holds, "pod default/web4 has the annotation karpenter.sh/do-not-disrupt=true") || d.Step != "" {
		t.Errorf("got %+v", d)
	}
	if gone := p.Open("no-such"); gone.Pods != nil || gone.Holds != nil {
		t.Errorf("of no node: %+v", gone)
	}
}

func TestTopSaysWhatIsWrong(t *testing.T) {
	for args, want := range map[string]string{"top --sort age": "name, pool, type, price, cpu, memory, pods, state", "top nodes": "nodes", "top --once --kubeconfig /no/such/file": "/no/such/file"} {
		var errs bytes.Buffer
		if code := Run(t.Context(), Env{Out: &bytes.Buffer{}, Err: &errs}, strings.Fields(args)); code != exitBadInput || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: code %d, %q", args, code, errs.String())
		}
	}
}

func TestNobodyDrawsOnTheScreenOfTop(t *testing.T) {
	w := twoNodes(t, "true")
	cluster.Pools.Get(w.Snap, "p").Annotations[v1.PausedReasonAnnotationKey] = "\x1b[2Jall is well\nreally"
	got := pictureOf(w).Text("name")
	if strings.Contains(got, "\x1b") || strings.Contains(got, "\nreally") || strings.Count(got, "?[2Jall is well?really") < 1 {
		t.Errorf("got\n%q", got)
	}
}

// fleetOf is a fleet of so many nodes, of which each takes part in a step.
func fleetOf(n int) *disrupt.World {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		for i := range n {
			name := fmt.Sprintf("node-%05d", i)
			labels := map[string]string{v1.NodePoolLabelKey: "p", v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
			claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels}}
			claim.Status.ProviderID = name
			claim.Annotations = map[string]string{v1.DisruptionCommandAnnotationKey: steprecord.Record{ID: name, Candidates: []steprecord.Member{steprecord.Of(claim)}}.As(steprecord.Candidate)}
			d.PutClaim(claim)
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{ProviderID: name}})
		}
	})
	return &disrupt.World{Snap: s.Snapshot(), Pools: map[string]engine.Pool{}}
}

func TestTopCountsInWords(t *testing.T) {
	if got := pictureOf(fleetOf(1)).Text("name"); !strings.HasPrefix(got, "1 node, $0.0000 an hour; 0 pods wait for a node.") {
		t.Errorf("got\n%s", got)
	}
}

// What the guide shows is what is drawn.
func TestTheScreenOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/top.md")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := pictured(t, world(t))
	p.At, p.Remarks = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), nil
	m := top.New(p, "price", top.Source{})
	m.Update(tea.WindowSizeMsg{Width: 110, Height: 11})
	var drawn strings.Builder
	for line := range strings.Lines(ansi.Strip(m.View().Content)) {
		drawn.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	for what, want := range map[string]string{"the screen": drawn.String(), "what is printed": p.Text("name")} {
		if !strings.Contains(string(guide), "```\n"+want+"```\n") {
			t.Errorf("docs/top.md does not show %s:\n%s", what, want)
		}
	}
}

// What is wrong with the pools is said, and stands on the screen, too.
func TestTopRemarks(t *testing.T) {
	p, said := pictured(t, world(t))
	const want = `NodePool "p": its EC2NodeClass "default" is in no file; planning with the defaults`
	if !slices.Equal(p.Remarks, []string{want}) || said != want+"\n" {
		t.Errorf("remarks %q, said %q", p.Remarks, said)
	}
}

func BenchmarkTop(b *testing.B) {
	w := fleetOf(5000)
	for b.Loop() {
		pictureOf(w).Text("price")
	}
}
