package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/steprecord"
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
		d.PutPool(pool)
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
	var out strings.Builder
	if err := writeTop(&out, twoNodes(t, ""), "price", unbounded); err != nil {
		t.Fatal(err)
	}
	want := `2 nodes, $0.3000 an hour; 0 pods wait for a node. Savings Plans, reserved instances and discounts are left out.

NODE   POOL  TYPE      $/H     CPU              MEMORY           PODS  STATE
dear   p     m.x spot  0.2000  ###.......  25%  ###.......  25%  1     
cheap  p     c.x spot  0.1000  ########..  75%  ###.......  25%  1     
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestTopIsSorted(t *testing.T) {
	for order, first := range map[string]string{"price": "dear", "cpu": "cheap", "memory": "cheap", "pods": "cheap", "name": "cheap"} {
		var out strings.Builder
		if err := writeTop(&out, twoNodes(t, ""), order, unbounded); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Split(out.String(), "\n"); !strings.HasPrefix(lines[3], first) {
			t.Errorf("by %s the first is %q, want %s", order, lines[3], first)
		}
	}
}

func TestTopShowsWhatIsPaused(t *testing.T) {
	var out strings.Builder
	if err := writeTop(&out, twoNodes(t, "true"), "name", unbounded); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "NodePool p: its NodePool is paused until somebody resumes it\n") || strings.Count(out.String(), "  paused\n") != 2 {
		t.Errorf("got\n%s", out.String())
	}
}

func TestTopSaysWhatIsWrong(t *testing.T) {
	for args, want := range map[string]string{"top --sort age": "cpu, memory, name, pods, price", "top nodes": "nodes", "top --once --kubeconfig /no/such/file": "/no/such/file"} {
		var errs bytes.Buffer
		if code := Run(t.Context(), Env{Out: &bytes.Buffer{}, Err: &errs}, strings.Fields(args)); code != exitBadInput || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: code %d, %q", args, code, errs.String())
		}
	}
}

func TestNobodyDrawsOnTheScreenOfTop(t *testing.T) {
	w := twoNodes(t, "true")
	w.Snap.Pool("p").Annotations[v1.PausedReasonAnnotationKey] = "\x1b[2Jall is well\nreally"
	var out strings.Builder
	if err := writeTop(&out, w, "name", unbounded); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "\nreally") || strings.Count(out.String(), "?[2Jall is well?really") < 1 {
		t.Errorf("got\n%q", out.String())
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

// The first line, which is the bill, stays on the screen however many nodes there are.
func TestTopShowsWhatFits(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes int
		size  window
		rows  int
	}{
		"a large fleet in a window":          {1000, window{50, 200}, 32},
		"steps that take two lines each":     {1000, window{50, 60}, 20},
		"a window that is too small for all": {1000, window{5, 200}, leastRows},
		"a small fleet":                      {3, window{50, 200}, 3},
		"no window":                          {1000, unbounded, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := writeTop(&out, fleetOf(tc.nodes), "name", tc.size); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(out.String(), "\nnode-"); got != tc.rows {
				t.Errorf("%d rows, want %d:\n%s", got, tc.rows, out.String()[:min(3000, out.Len())])
			}
			taken := 0
			for line := range strings.Lines(out.String()) {
				taken += 1 + max(0, len(line)-2)/max(1, tc.size.columns)
			}
			if tc.size.lines > 10 && taken > tc.size.lines {
				t.Errorf("it takes %d lines of %d:\n%s", taken, tc.size.lines, out.String())
			}
			if more := tc.nodes - tc.rows; more > 0 && !strings.HasSuffix(out.String(), fmt.Sprintf("\nand %d more nodes; --sort puts others first, --once shows all", more)) {
				t.Errorf("it does not say that there are more:\n%s", out.String())
			}
		})
	}
}

func TestTopCountsInWords(t *testing.T) {
	var out strings.Builder
	if err := writeTop(&out, fleetOf(1), "name", unbounded); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "1 node, $0.0000 an hour; 0 pods wait for a node.") || podsWait(1) != "1 pod waits for a node" {
		t.Errorf("got\n%s", out.String())
	}
}

func BenchmarkTop(b *testing.B) {
	w := fleetOf(5000)
	for name, size := range map[string]window{"window": {50, 200}, "all": unbounded} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var out strings.Builder
				if err := writeTop(&out, w, "price", size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
