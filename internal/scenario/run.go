package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

// Run plays all rounds and returns the answer of each as text.
func (s *Scenario) Run() ([]string, error) {
	w, err := s.World()
	if err != nil {
		return nil, err
	}
	var out []string
	for round := 1; round <= s.rounds; round++ {
		if err := w.Enter(s, round); err != nil {
			return nil, err
		}
		text := ""
		if s.doing(round) == propose {
			text = proposalText(w.Propose())
		} else {
			text = w.playPlan(s)
		}
		out = append(out, text)
	}
	return out, nil
}

// playPlan plans for the pods that wait, applies the plan to the world, and returns it as text, with what the
// settings count and tied ask for.
func (w *World) playPlan(s *Scenario) string {
	plan := w.Plan()
	text := describe(plan)
	w.Apply(plan)
	for _, l := range lines(s.section("settings", 1)) {
		switch k, v, _ := strings.Cut(l.name, "="); k {
		case "count":
			text += w.countPods(v)
		case "tied":
			text += tiedText(plan.Zones)
		}
	}
	return text
}

// Input returns the question at this moment. If the story has a memory section, it is the question that was recorded,
// with the same pods.
func (w *World) Input() engine.Question {
	snap := w.Store.Snapshot()
	in := engine.Question{Snap: snap, Pools: w.Pools, Settings: w.Settings, Now: w.Now, Commitments: w.Commitments}
	if w.Memory != nil {
		in.Pods, in.LeftOut = w.askedAbout(snap)
		return in
	}
	in.Pods = snap.Provisionable()
	for n := range snap.Nodes() {
		if n.MarkedForRemoval {
			in.Pods = append(in.Pods, n.Pods...)
		}
	}
	for s := range snap.Spares() {
		in.Pods = append(in.Pods, s.Pods...)
	}
	return in
}

// askedAbout returns the pods that a story asks about, and how many plans have left which of them out.
func (w *World) askedAbout(snap *cluster.Snapshot) (pods []*cluster.Pod, leftOut map[cluster.PodKey]int) {
	leftOut = map[cluster.PodKey]int{}
	for p := range snap.Pods() {
		n := w.notes[p.PodKey]
		if n.asked || p.NodeName == "" && !n.aside {
			pods = append(pods, p)
		}
		if n.plansLeftOut > 0 {
			leftOut[p.PodKey] = n.plansLeftOut
		}
	}
	return pods, leftOut
}

// Plan answers Input.
func (w *World) Plan() *engine.Plan { return w.Engine.Plan(w.Input()) }

// describe writes a plan as text.
func describe(p *engine.Plan) string {
	var b strings.Builder
	for i := range p.Open {
		o := &p.Open[i]
		fmt.Fprintf(&b, "claim %d: pool=%s type=%s", i+1, o.Pool, o.Type)
		if len(o.Types) > 1 {
			fmt.Fprintf(&b, "+%d", len(o.Types)-1)
		}
		fmt.Fprintf(&b, " zones=%s ct=%s price=%g pods=%s\n", strings.Join(o.Zones, ","),
			strings.Join(o.CapacityTypes, ","), o.Price.Dollars(), podNames(o.Pods))
	}
	byNode := map[string][]*cluster.Pod{}
	for _, x := range p.Place {
		byNode[x.Node] = append(byNode[x.Node], x.Pod)
	}
	for _, n := range slices.Sorted(maps.Keys(byNode)) {
		fmt.Fprintf(&b, "node %s: %s\n", n, podNames(byNode[n]))
	}
	byText := map[string][]*cluster.Pod{}
	for _, r := range p.Refused {
		text := sentence.Explanation(r.Reasons)
		byText[text] = append(byText[text], r.Pod)
	}
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		fmt.Fprintf(&b, "refused %s: %s\n", podNames(byText[text]), text)
	}
	fmt.Fprintf(&b, "price %g\n", p.Price.Dollars())
	return b.String()
}

// podNames writes pods by their names without numbers: "web x3".
func podNames(pods []*cluster.Pod) string {
	counts := map[string]int{}
	for _, p := range pods {
		name := p.Name
		if at := strings.LastIndexByte(name, '-'); at > 0 {
			name = name[:at]
		}
		counts[name]++
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		text := name
		if counts[name] > 1 {
			text = fmt.Sprintf("%s x%d", name, counts[name])
		}
		out = append(out, text)
	}
	return strings.Join(out, ",")
}

// Apply makes a plan real: its claims become nodes of the type, zone and capacity type that were priced, and pods are
// bound.
func (w *World) Apply(p *engine.Plan) {
	bound := map[cluster.PodKey]string{}
	for i := range p.Open {
		w.claims++
		name := fmt.Sprintf("new-%02d", w.claims)
		w.launch(name, &p.Open[i])
		for _, pod := range p.Open[i].Pods {
			bound[pod.PodKey] = name
		}
	}
	for _, x := range p.Place {
		bound[x.Pod.PodKey] = x.Node
	}
	w.Store.Update(func(d *cluster.Draft) {
		for _, old := range w.pending {
			node, ok := bound[cluster.PodKey{Namespace: old.Namespace, Name: old.Name}]
			if !ok {
				continue
			}
			pod := old.DeepCopy()
			pod.Spec.NodeName = node
			pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
			d.PutPod(pod)
		}
	})
	w.pending = slices.DeleteFunc(w.pending, func(pod *corev1.Pod) bool {
		_, ok := bound[cluster.PodKey{Namespace: pod.Namespace, Name: pod.Name}]
		return ok
	})
}

// launch adds the node of an opening, with the labels that it would have.
func (w *World) launch(name string, o *engine.Opening) {
	it := w.typeOf(o.Type)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: maps.Clone(o.Claim.Labels)}}
	n.Labels[corev1.LabelHostname] = name
	for k, values := range it.Labels {
		if len(values) == 1 {
			n.Labels[k] = values[0]
		}
	}
	for i := range it.Offerings {
		f := &it.Offerings[i]
		if f.Zone() == o.Zone && f.CapacityType() == o.CapacityType {
			maps.Copy(n.Labels, f.Labels)
			break
		}
	}
	for _, r := range o.Claim.Spec.Requirements { // what the pods chose among several values
		if r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			n.Labels[r.Key] = r.Values[0]
		}
	}
	n.Spec.ProviderID = "test://" + name
	n.Spec.Taints = o.Claim.Spec.Taints
	n.Status.Capacity = it.Capacity
	n.Status.Allocatable = it.Capacity
	w.putNode(n, w.claimOf(n, o.Pool, true), false)
}

// countPods writes how many pods on nodes have a label, for each value of a topology key: "zone/app|web" gives "count
// zone/app|web: a=1 b=2". Without a label all pods count. For "host" only the numbers are written, sorted as text,
// because node names differ.
func (w *World) countPods(what string) string {
	key, sel, _ := strings.Cut(what, "/")
	k, v, _ := strings.Cut(sel, "|")
	counts := map[string]int{}
	for n := range w.Store.Snapshot().Nodes() {
		for _, p := range n.Pods {
			if sel == "" || p.Labels.Map[k] == v {
				d := n.Labels()[longKey(key)]
				counts[d]++
			}
		}
	}
	var parts []string
	for _, d := range slices.Sorted(maps.Keys(counts)) {
		if key == "host" {
			parts = append(parts, fmt.Sprint(counts[d]))
		} else {
			parts = append(parts, fmt.Sprintf("%s=%d", d, counts[d]))
		}
	}
	if key == "host" {
		slices.Sort(parts)
	}
	return fmt.Sprintf("count %s: %s\n", what, strings.Join(parts, " "))
}

// tiedText writes in which zones how many pods are tied by the plan.
func tiedText(zones engine.Zones) string {
	var b strings.Builder
	b.WriteString("tied:")
	for _, zone := range slices.Sorted(maps.Keys(zones.In)) {
		fmt.Fprintf(&b, " %s=%d", zone, zones.In[zone])
	}
	fmt.Fprintf(&b, " several=%d none=%d\n", zones.Flexible, zones.None)
	return b.String()
}
