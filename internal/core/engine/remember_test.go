package engine_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// outline is what a plan does, in words.
func outline(p *engine.Plan) []string {
	var out []string
	for _, at := range p.Place {
		out = append(out, at.Pod.Name+" on "+at.Node)
	}
	for _, o := range p.Open {
		var names []string
		for _, pod := range o.Pods {
			names = append(names, pod.Name)
		}
		slices.Sort(names)
		out = append(out, fmt.Sprint(names, " on a new ", o.Type, " in ", o.Zone))
	}
	for _, r := range p.Refused {
		out = append(out, fmt.Sprint(r.Pod.Name, ": ", r.Reasons))
	}
	slices.Sort(out)
	return out
}

// TestAnEngineFollowsTheCluster asks one engine again after each change, and a new one that has seen nothing.
func TestAnEngineFollowsTheCluster(t *testing.T) {
	store := largeCluster(t, 12, 4, 40, 8)
	pools := manyPools(t, 2)
	running := func(name, node string) *corev1.Pod {
		p := benchload.Pending(name, 700, 900)
		p.Labels = map[string]string{"app": "new-000"}
		p.Spec.NodeName = node
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		return p
	}
	e := engine.New()
	for _, step := range []struct {
		name string
		edit func(d *cluster.Draft)
	}{
		{"nothing changed", func(*cluster.Draft) {}},
		{"a pod came", func(d *cluster.Draft) { d.PutPod(pendingOf(41, 8)) }},
		{"a waiting pod went", func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: "new-00003"}) }},
		{"a pod runs", func(d *cluster.Draft) { d.PutPod(running("extra", "node-00001")) }},
		{"it moved", func(d *cluster.Draft) {
			d.DeletePod(cluster.PodKey{Namespace: "default", Name: "extra"})
			d.PutPod(running("extra-2", "node-00002"))
		}},
		{"a running pod of a node that nobody knows", func(d *cluster.Draft) { d.PutPod(running("lost", "elsewhere")) }},
		{"a node came", func(d *cluster.Draft) {
			d.PutClaim(runningClaim("node-9"))
			d.PutNode(runningNode("node-9", 9))
		}},
		{"it went", func(d *cluster.Draft) { d.DeleteNode("node-9") }},
		{"a node came with what no machine had, and a pod that wants it", func(d *cluster.Draft) {
			n := runningNode("node-10", 10)
			n.Status.Capacity["example.com/tape"], n.Status.Allocatable["example.com/tape"] = resource.MustParse("1"), resource.MustParse("1")
			d.PutClaim(runningClaim("node-10"))
			d.PutNode(n)
			p := pendingOf(42, 8)
			p.Spec.Containers[0].Resources.Requests["example.com/tape"] = resource.MustParse("1")
			d.PutPod(p)
		}},
	} {
		store.Update(step.edit)
		snap := store.Snapshot()
		in := engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now, Settings: engine.Settings{FirstFit: true}}
		got, want := outline(e.Plan(in)), outline(engine.New().Plan(in))
		if !slices.Equal(got, want) {
			t.Errorf("after %q an engine that was there says\n%q\nand a new one\n%q", step.name, got, want)
		}
	}
}

// TestOnePodMoreChangesLittle asks again after one pod came: nearly all of the fleet stays, and it costs no more than a fleet that is planned
// afresh. It does not depend on how far the search came: the engine keeps a fleet that was cut short as it keeps one that was finished.
func TestOnePodMoreChangesLittle(t *testing.T) {
	store := largeCluster(t, 10, 10, 2000, 150)
	pools := manyPools(t, 1)
	ask := func(e *engine.Engine) *engine.Plan {
		snap := store.Snapshot()
		return e.Plan(engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now, Settings: engine.Settings{Search: work.Second / 10}})
	}
	e := engine.New()
	before := ask(e)
	store.Update(func(d *cluster.Draft) { d.PutPod(pendingOf(2000, 150)) })
	after, fresh := ask(e), ask(engine.New())
	if float64(after.Cost) > 1.005*float64(fresh.Cost) {
		t.Errorf("cost %v, of an engine that starts afresh %v", after.Cost, fresh.Cost)
	}
	if after.Work*2 > fresh.Work {
		t.Errorf("%d units of work, %d of an engine that starts afresh", after.Work, fresh.Work)
	}
	types := map[string]int{}
	for _, o := range before.Open {
		types[o.Type+o.Zone]++
	}
	same := 0
	for _, o := range after.Open {
		if types[o.Type+o.Zone]--; types[o.Type+o.Zone] >= 0 {
			same++
		}
	}
	if same*10 < len(before.Open)*9 {
		t.Errorf("%d of %d nodes stay", same, len(before.Open))
	}
}

// A question over which an engine panics, here one whose third pod has no class, leaves nothing behind: the next answer is that of a new one.
func TestAnEngineForgetsAQuestionThatItPanickedOver(t *testing.T) {
	store := largeCluster(t, 12, 4, 40, 8)
	pools := manyPools(t, 2)
	snap := store.Snapshot()
	in := engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now, Settings: engine.Settings{FirstFit: true}}
	provider := apilabel.Table{Labels: []apilabel.Label{{Key: "example.com/size"}}}
	e := engine.New(provider)
	e.Plan(in)
	bad := in
	bad.Pods = slices.Clone(in.Pods)
	bad.Pods[2] = &cluster.Pod{}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic: the test needs another bad question")
			}
		}()
		e.Plan(bad)
	}()
	if !reflect.DeepEqual(*e, *engine.New(provider)) {
		t.Error("the engine remembers more or less than what providers know about labels")
	}
	if got, want := outline(e.Plan(in)), outline(engine.New().Plan(in)); !slices.Equal(got, want) {
		t.Errorf("after a panic: %q, want %q", got, want)
	}
}
