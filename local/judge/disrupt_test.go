package judge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/scenario"
)

// The kinds of findings about steps.
const (
	homeless  = "a pod of a removed node has no place"
	forbidden = "what protects a node is not heeded"
	wasteful  = "a step may cost more than it saves"
)

// judgeSteps lets the pods of a fleet run, asks for steps, and returns what speaks against them.
func judgeSteps(f *filters, text []byte) []finding {
	w, err := enter(text)
	if err != nil {
		return []finding{{"world", err.Error()}}
	}
	c := newCourt(f, w, rand.New(rand.NewPCG(1, 7)))
	c.settle()
	var proposal *disrupt.Proposal
	var memory disrupt.Memory
	var steps []*disrupt.Step
	if trouble := caught(func() { proposal, memory, steps = c.propose() }); trouble != "" {
		return []finding{{panicked, trouble}}
	}
	if found := c.overBudget(steps); len(found) > 0 {
		return found
	}
	for _, step := range steps {
		if found := c.tryStep(step); len(found) > 0 {
			return found
		}
	}
	if trouble := caught(func() { steps = c.begin(proposal.Steps, memory) }); trouble != "" {
		return []finding{{panicked, trouble}}
	}
	if found := c.overBudget(steps); len(found) > 0 {
		return found
	}
	return c.tryTogether(steps)
}

// caught calls do, and says how it panicked if it did.
func caught(do func()) (trouble string) {
	defer func() {
		if r := recover(); r != nil {
			trouble = fmt.Sprintf("%v\n%s", r, debug.Stack())
		}
	}()
	do()
	return ""
}

// tryTogether carries out all steps that have been begun.
func (c *court) tryTogether(steps []*disrupt.Step) []finding {
	var places []place
	var open []engine.Opening
	for _, step := range steps {
		for _, p := range c.placesOf(step.Place, step.Open) {
			if number, isNew := strings.CutPrefix(p.node, "new-"); isNew {
				n, _ := strconv.Atoi(number)
				p.node = fmt.Sprintf("new-%d", len(open)+n)
			}
			places = append(places, p)
		}
		open = append(open, step.Open...)
	}
	bought, none := c.buy(open)
	if len(none) > 0 {
		return none
	}
	found := c.bindAll(places, func() { c.stage(open, bought) })
	for i := range found {
		found[i].text += fmt.Sprintf(" when %d steps are done at once", len(steps))
		for _, step := range steps {
			found[i].text += "\n" + sentence.Step(step)
		}
	}
	return found
}

// settle makes the world's nodes ready and its pods run where the filters let them. Pods that find no place are taken away.
func (c *court) settle() {
	for _, in := range c.world.Pools {
		in.Pool.Spec.Disruption.ConsolidateAfter = v1.After(0)
		in.Pool.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
	}
	for i, o := range c.world.Objects {
		switch o := o.(type) {
		case *corev1.Node:
			o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			c.world.Store.Update(func(d *cluster.Draft) { d.PutNode(o) })
		case *v1.NodeClaim:
			o = o.DeepCopy()
			o.Spec.NodeClassRef = c.world.Pools[0].Pool.Spec.Template.Spec.NodeClassRef
			for _, name := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable} {
				condition.SetTrue(o, name, c.world.Now.Add(-time.Hour))
			}
			if c.draw.IntN(5) == 0 {
				condition.SetTrue(o, v1.ConditionTypeDrifted, c.world.Now.Add(-time.Hour))
			}
			c.world.Objects[i] = o
			c.world.Store.Update(func(d *cluster.Draft) { d.PutClaim(o) })
		}
	}
	c.stage(nil, nil)
	c.world.Store.Update(func(d *cluster.Draft) {
		for _, node := range c.picture.names() {
			for _, daemon := range c.picture.infos[node].GetPods() {
				d.PutPod(daemon.GetPod())
				c.world.Objects = append(c.world.Objects, daemon.GetPod())
			}
		}
	})
	c.world.Objects = slices.DeleteFunc(c.world.Objects, func(o runtime.Object) bool {
		p, ok := o.(*corev1.Pod)
		if !ok || p.Spec.NodeName != "" {
			return false
		}
		return !c.run(p)
	})
	c.keepVolumes()
}

// run binds a pod to some node that takes it, and says whether there is one.
func (c *court) run(p *corev1.Pod) bool {
	opinion := c.ask(admitted(p))
	good := slices.DeleteFunc(c.picture.names(), func(node string) bool { return opinion.on(node) != "" })
	if len(good) == 0 {
		c.world.Store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: p.Namespace, Name: p.Name}) })
		return false
	}
	p.Spec.NodeName = good[c.draw.IntN(len(good))]
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: c.world.Now.Add(-time.Hour)}}
	c.bind(admitted(p), p.Spec.NodeName)
	c.world.Store.Update(func(d *cluster.Draft) { d.PutPod(p) })
	return true
}

// keepVolumes makes what became of claims and volumes part of the world.
func (c *court) keepVolumes() {
	c.world.Objects = slices.DeleteFunc(c.world.Objects, func(o runtime.Object) bool {
		switch o.(type) {
		case *corev1.PersistentVolume, *corev1.PersistentVolumeClaim:
			return true
		}
		return false
	})
	c.world.Store.Update(func(d *cluster.Draft) {
		for _, o := range c.feeds["PersistentVolume"].objects() {
			c.world.Objects = append(c.world.Objects, o.(*corev1.PersistentVolume))
			cluster.PVs.Put(d, o.(*corev1.PersistentVolume))
		}
		for _, o := range c.feeds["PersistentVolumeClaim"].objects() {
			c.world.Objects = append(c.world.Objects, o.(*corev1.PersistentVolumeClaim))
			cluster.PVCs.Put(d, o.(*corev1.PersistentVolumeClaim))
		}
	})
}

// propose returns what the planner proposes, and the steps of it that hold when each is looked at again beside the others.
func (c *court) propose() (proposal *disrupt.Proposal, memory disrupt.Memory, steps []*disrupt.Step) {
	asked := engine.New()
	proposal, memory = disrupt.Propose(worldOf(c.world, asked), disrupt.Memory{})
	for i, step := range proposal.Steps {
		w := worldOf(c.world, asked)
		for _, other := range slices.Concat(steps, proposal.Steps[i+1:]) { // as they were confirmed, or else proposed
			await(w, other)
		}
		if step, refusal, _ := disrupt.Confirm(w, memory, step); refusal.Code == "" {
			steps = append(steps, step)
		}
	}
	return proposal, memory, steps
}

// await keeps the nodes of a step for it, and the room that its pods go to.
func await(w *disrupt.World, step *disrupt.Step) {
	for _, r := range step.Remove {
		w.Busy[r.Node.Claim.UID] = true
	}
	w.Coming = append(w.Coming, step.Place...)
}

// begin begins the steps of a proposal as the loop does: those that do not wait at once, and then each of the others, if it holds in the world
// that has come of those before it. It returns the steps as they were begun.
func (c *court) begin(proposed []*disrupt.Step, memory disrupt.Memory) (begun []*disrupt.Step) {
	asked := engine.New()
	busy := map[types.UID]bool{}
	claims := 0
	start := func(step *disrupt.Step) {
		begun = append(begun, step)
		c.world.Store.Update(func(d *cluster.Draft) {
			var names []string
			for i := range step.Open {
				claims++
				claim := step.Open[i].Claim.DeepCopy()
				claim.Name, claim.GenerateName, claim.UID = fmt.Sprintf("claim-of-new-%d", claims), "", types.UID(fmt.Sprintf("claim-of-new-%d", claims))
				names = append(names, claim.Name)
				d.PutClaim(claim)
			}
			step.Begin(d, names, c.world.Now)
		})
		for _, r := range step.Remove {
			busy[r.Node.Claim.UID] = true
		}
	}
	var waiting []*disrupt.Step
	for _, step := range proposed {
		if step.Method.Waits() {
			waiting = append(waiting, step)
		} else {
			start(step)
		}
	}
	slices.SortFunc(waiting, func(a, b *disrupt.Step) int { return strings.Compare(a.ID(), b.ID()) })
	for i, step := range waiting {
		w := worldOf(c.world, asked)
		maps.Copy(w.Busy, busy)
		for _, other := range waiting[i+1:] {
			await(w, other)
		}
		var refusal disrupt.Refusal
		if step, refusal, memory = disrupt.Confirm(w, memory, step); refusal.Code == "" {
			start(step)
		}
	}
	return begun
}

func worldOf(w *scenario.World, asked *engine.Engine) *disrupt.World {
	out := w.Disruption()
	out.Engine, out.Busy, out.Landing = asked, map[types.UID]bool{}, map[string]bool{}
	out.Settings.Toll, out.Settings.MinSaving = 0, 0 // whatever saves anything is done
	return out
}

// tryStep carries a step out.
func (c *court) tryStep(step *disrupt.Step) []finding {
	gone := map[string]bool{}
	placed := map[cluster.PodKey]bool{}
	for _, r := range step.Remove {
		gone[r.Name()] = true
	}
	if len(step.Open) > 0 && step.Worst >= step.Before && step.Reason != v1.DisruptionReasonDrifted {
		return []finding{{wasteful, fmt.Sprintf("%s: %d instead of %d", sentence.Step(step), step.Worst, step.Before)}}
	}
	places := c.placesOf(step.Place, step.Open)
	for _, p := range places {
		placed[cluster.PodKey{Namespace: p.pod.Namespace, Name: p.pod.Name}] = true
		if gone[p.node] {
			return []finding{{homeless, p.pod.Name + " goes to " + p.node + ", which goes too"}}
		}
	}
	for _, o := range c.world.Objects {
		switch o := o.(type) {
		case *corev1.Pod:
			if gone[o.Spec.NodeName] && isDaemon(o) {
				continue
			}
			if gone[o.Spec.NodeName] && !placed[cluster.PodKey{Namespace: o.Namespace, Name: o.Name}] {
				return []finding{{homeless, o.Name + " of " + o.Spec.NodeName}}
			}
			if why := c.protects(o); gone[o.Spec.NodeName] && why != "" {
				return []finding{{forbidden, o.Name + " of " + o.Spec.NodeName + ": " + why}}
			}
		case *corev1.Node:
			if gone[o.Name] && o.Annotations[v1.DoNotDisruptAnnotationKey] == "true" {
				return []finding{{forbidden, o.Name + " is protected"}}
			}
		}
	}
	bought, none := c.buy(step.Open)
	if len(none) > 0 {
		return none
	}
	found := c.bindAll(places, func() {
		c.stage(nil, nil)
		for _, node := range slices.Sorted(maps.Keys(gone)) {
			c.remove(node)
		}
		for i, m := range bought {
			c.open(m, step.Open[i].Claim)
		}
	})
	for i := range found {
		found[i].text += fmt.Sprintf(" when this is done: %s", sentence.Step(step))
	}
	return found
}

// remove takes a node out of the picture with all that is on it. A volume on one of its disks is lost, which is what whoever uses
// such volumes reckons with: its claim waits for another.
func (c *court) remove(node string) {
	delete(c.picture.infos, node)
	for _, o := range c.feeds["PersistentVolume"].objects() {
		pv := o.(*corev1.PersistentVolume)
		if pv.Spec.Local == nil || volume.CheckNodeAffinity(pv, map[string]string{corev1.LabelHostname: node}) != nil {
			continue
		}
		c.feeds["PersistentVolume"].remove(pv)
		if pv.Spec.ClaimRef == nil {
			continue
		}
		found, _, _ := c.feeds["PersistentVolumeClaim"].indexer.GetByKey(pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name)
		claim := found.(*corev1.PersistentVolumeClaim).DeepCopy()
		c.feeds["PersistentVolumeClaim"].remove(claim)
		claim.Spec.VolumeName, claim.Annotations, claim.Status.Phase = "", nil, corev1.ClaimPending
		c.feeds["PersistentVolumeClaim"].put(claim)
	}
}

// protects says why a pod may not be evicted.
func (c *court) protects(p *corev1.Pod) string {
	if p.Annotations[v1.DoNotDisruptAnnotationKey] == "true" {
		return "it is protected"
	}
	if slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == "" && t.Operator == corev1.TolerationOpExists && t.Effect == ""
	}) {
		return "" // it stays until the machine stops; no budget is asked
	}
	for _, o := range c.world.Objects {
		b, ok := o.(*policyv1.PodDisruptionBudget)
		if !ok || b.Namespace != p.Namespace || b.Status.DisruptionsAllowed > 0 {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && selector.Matches(labels.Set(p.Labels)) {
			return "a budget allows no eviction"
		}
	}
	return ""
}

// overBudget says which pool's budget the steps exceed.
func (c *court) overBudget(steps []*disrupt.Step) []finding {
	nodes, removed := map[string]int{}, map[string]int{}
	for row := range c.world.Store.Snapshot().Nodes() {
		nodes[row.Pool()]++
	}
	for _, s := range steps {
		for _, r := range s.Remove {
			removed[r.Pool.Name]++
		}
	}
	for _, in := range c.world.Pools {
		n := nodes[in.Pool.Name]
		for _, b := range in.Pool.Spec.Disruption.Budgets {
			most := map[string]int{"100%": n, "50%": (n + 1) / 2, "1": 1, "0": 0}[b.Nodes]
			if removed[in.Pool.Name] > most {
				return []finding{{forbidden, fmt.Sprintf("%d of %d nodes of %s go, the budget is %s", removed[in.Pool.Name], n, in.Pool.Name, b.Nodes)}}
			}
		}
	}
	return nil
}
