package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/scenario"
)

// A finding is one thing in which a plan and the filters differ.
type finding struct {
	kind string // what shrinking must keep
	text string
}

// The kinds of findings.
const (
	panicked = "panic"
	unsold   = "nothing serves a claim"
	answers  = "answers"
	rejected = "rejected"
	hadRoom  = "refused though a node has room"
	openable = "refused though a node could be opened"
)

// draws is how often machines are picked at random for one plan.
const draws = 2

// judge plans a world and returns what the filters have against the plan.
func judge(f *filters, text []byte) []finding {
	w, err := enter(text)
	if err != nil {
		return []finding{{"world", err.Error()}}
	}
	plan, trouble := planOf(w)
	if trouble != "" {
		return []finding{{panicked, trouble}}
	}
	for draw := range uint64(draws) {
		c := newCourt(f, w, rand.New(rand.NewPCG(draw, 5)))
		if found := c.try(plan); len(found) > 0 {
			return found
		}
	}
	return nil
}

func enter(text []byte) (*scenario.World, error) {
	s, err := scenario.Parse(text)
	if err != nil {
		return nil, err
	}
	w, err := s.World()
	if err != nil {
		return nil, err
	}
	w.Settings.Search = work.Second / 50
	return w, w.Enter(s, 1)
}

func planOf(w *scenario.World) (plan *engine.Plan, trouble string) {
	defer func() {
		if r := recover(); r != nil {
			trouble = fmt.Sprintf("%v\n%s", r, debug.Stack())
		}
	}()
	return w.Engine.Plan(w.Input()), ""
}

// A place is where a plan puts a pod.
type place struct {
	pod  *corev1.Pod
	node string
}

// try judges a plan.
func (c *court) try(plan *engine.Plan) []finding {
	if found := c.complete(plan); len(found) > 0 {
		return found
	}
	bought, none := c.buy(plan.Open)
	if len(none) > 0 {
		return none
	}
	places := c.placesOf(plan.Place, plan.Open)
	if found := c.bindAll(places, func() { c.stage(plan.Open, bought) }); len(found) > 0 {
		return found
	}
	// Whether it was right to refuse a pod may depend on what the claims become: kube-scheduler counts a domain only if a node
	// is in it that the pod may use. So refusals are judged beside the machines that the plan reckons with.
	reckoned := c.reckoned(plan.Open, bought)
	if found := c.bindAll(places, func() { c.stage(plan.Open, reckoned) }); len(found) > 0 {
		return found
	}
	return c.refusals(plan, reckoned)
}

// reckoned returns the machine that a plan reckons with for each opening: that of the offering that was priced.
func (c *court) reckoned(open []engine.Opening, bought []machine) []machine {
	out := slices.Clone(bought)
	for i := range open {
		for _, m := range machinesFor(open[i].Claim, c.world.Catalog) {
			if m.kind.Name == open[i].Type && m.offer.Zone() == open[i].Zone && m.offer.CapacityType() == open[i].CapacityType {
				out[i] = m
				break
			}
		}
	}
	return out
}

// bindAll binds pods in the first order in which all of them can be, each time on a fresh stage, and says which cannot.
func (c *court) bindAll(places []place, stage func()) []finding {
	var left map[place]string
	for _, order := range c.orders(places) {
		stage()
		if left = c.play(order); len(left) == 0 {
			return nil
		}
	}
	var found []finding
	for p, why := range left {
		plugin, _, _ := strings.Cut(why, ":")
		found = append(found, finding{rejected + " by " + plugin, fmt.Sprintf("%s on %s (%s): %s", p.pod.Name, p.node, c.picture.infos[p.node].Node().Labels[corev1.LabelInstanceTypeStable], why)})
	}
	slices.SortFunc(found, func(a, b finding) int { return cmp.Compare(a.text, b.text) })
	return found
}

// buy picks a machine for each opening.
func (c *court) buy(open []engine.Opening) ([]machine, []finding) {
	var bought []machine
	for i := range open {
		all := machinesFor(open[i].Claim, c.world.Catalog)
		if len(all) == 0 {
			return nil, []finding{{unsold, fmt.Sprintf("claim %d: %v", i+1, open[i].Claim.Spec.Requirements)}}
		}
		bought = append(bought, all[c.draw.IntN(len(all))])
	}
	return bought, nil
}

// complete says which pods have not exactly one answer.
func (c *court) complete(plan *engine.Plan) []finding {
	n := map[cluster.PodKey]int{}
	for i := range plan.Open {
		for _, p := range plan.Open[i].Pods {
			n[p.PodKey]++
		}
	}
	for _, x := range plan.Place {
		n[x.Pod.PodKey]++
	}
	for _, r := range plan.Refused {
		n[r.Pod.PodKey]++
	}
	var found []finding
	for _, p := range c.world.Input().Pods {
		if n[p.PodKey] != 1 {
			found = append(found, finding{answers, fmt.Sprintf("%s has %d answers", p.Name, n[p.PodKey])})
		}
	}
	return found
}

func (c *court) placesOf(old []engine.Placement, open []engine.Opening) []place {
	var out []place
	for _, x := range old {
		out = append(out, place{c.again(x.Pod), x.Node})
	}
	for i := range open {
		for _, p := range open[i].Pods {
			out = append(out, place{c.again(p), fmt.Sprintf("new-%d", i+1)})
		}
	}
	return out
}

// again is the pod that waits, or that takes the place of one whose node goes.
func (c *court) again(row *cluster.Pod) *corev1.Pod {
	p := c.pods[row.PodKey].DeepCopy()
	p.Spec.NodeName = ""
	return p
}

// stage shows the world with the nodes that are opened, before any pod is bound to them.
func (c *court) stage(open []engine.Opening, bought []machine) {
	c.show()
	for _, node := range c.picture.names() {
		c.startDaemons(node)
	}
	for i, m := range bought {
		c.open(m, open[i].Claim)
	}
}

// orders returns orders that kube-scheduler could take. Its queue goes by priority, then by age; but pods that it refused come
// back one by one, after a wait of their own, so that among equals any order is possible.
func (c *court) orders(places []place) [][]place {
	byPriority := func(a, b place) int { return cmp.Compare(priority(b.pod), priority(a.pod)) }
	queue := slices.Clone(places)
	slices.SortStableFunc(queue, func(a, b place) int {
		return cmp.Or(byPriority(a, b), a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time))
	})
	planned := slices.Clone(places)
	slices.SortStableFunc(planned, byPriority)
	spreadFirst := slices.Clone(queue)
	slices.SortStableFunc(spreadFirst, func(a, b place) int {
		return cmp.Or(byPriority(a, b), cmp.Compare(len(b.pod.Spec.TopologySpreadConstraints), len(a.pod.Spec.TopologySpreadConstraints)))
	})
	out := [][]place{queue, planned, spreadFirst}
	for range 12 {
		mixed := slices.Clone(places)
		c.draw.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		slices.SortStableFunc(mixed, byPriority)
		out = append(out, mixed)
	}
	return out
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// play binds pods in an order. Pods of one kind may take each other's places. What the filters refuse is tried again when others have
// been bound. It returns what is left, and why.
func (c *court) play(order []place) map[place]string {
	free := map[string][]string{} // nodes, by kind of pod
	for _, p := range order {
		free[kindOf(p.pod)] = append(free[kindOf(p.pod)], p.node)
	}
	for {
		left := map[place]string{}
		var again []place
		for _, p := range order {
			kind := kindOf(p.pod)
			opinion, why := c.ask(p.pod), ""
			at := slices.IndexFunc(free[kind], func(node string) bool { why = opinion.on(node); return why == "" })
			if at < 0 {
				left[p] = why
				again = append(again, p)
				continue
			}
			c.bind(p.pod, free[kind][at])
			free[kind] = slices.Delete(free[kind], at, at+1)
		}
		if len(again) == 0 || len(again) == len(order) {
			return left
		}
		order = again
	}
}

// kindOf is what copies of one pod have in common.
func kindOf(p *corev1.Pod) string {
	return p.Namespace + "/" + p.Name[:strings.LastIndexByte(p.Name, '-')]
}

// refusals tries the pods that the plan refuses on all nodes of the plan, and on all that could be opened beside them.
func (c *court) refusals(plan *engine.Plan, bought []machine) []finding {
	var found []finding
	asked := map[string]bool{}
	for _, r := range plan.Refused {
		pod := c.again(r.Pod)
		if asked[kindOf(pod)] {
			continue
		}
		asked[kindOf(pod)] = true
		c.showDomains(pod)
		if where := c.hasRoom(plan, bought, pod); where != "" {
			found = append(found, finding{hadRoom, fmt.Sprintf("%s on %s, but: %s", pod.Name, where, sentence.Explanation(r.Reasons))})
		}
		if where := c.couldOpen(plan, bought, pod); where != "" {
			found = append(found, finding{openable, fmt.Sprintf("%s on %s, but: %s", pod.Name, where, sentence.Explanation(r.Reasons))})
		}
		c.hideDomains()
	}
	return found
}

// ghost begins the names of nodes that are there to be counted only.
const ghost = "ghost-"

// showDomains adds empty nodes on which nothing runs, for the sake of spread constraints. kube-scheduler counts the domains of Nodes
// that exist. We count also those that could exist: where a pool that the pod may use can launch something it accepts, whatever
// limits and minValues say; and another host like each that there is. A spread that looks even until the first node of a zone
// opens would not stay so.
func (c *court) showDomains(pod *corev1.Pod) {
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		return
	}
	for _, name := range c.picture.names() {
		n := c.picture.infos[name].Node().DeepCopy()
		c.addGhost(n)
	}
	alone := pod.DeepCopy()
	alone.Spec.TopologySpreadConstraints, alone.Spec.Volumes = nil, nil
	for _, in := range c.world.Pools {
		for _, claim := range claimsOf(in.Pool, pod) {
			for _, m := range machinesFor(claim, in.Catalog) {
				name := c.open(m, claim)
				n := c.picture.infos[name].Node()
				why := c.ask(alone).on(name)
				c.close(name)
				if why == "" || strings.HasPrefix(why, names.InterPodAffinity) {
					c.addGhost(n)
				}
			}
		}
	}
}

func (c *court) addGhost(n *corev1.Node) {
	n.Name = ghost + strconv.Itoa(len(c.picture.infos))
	n.Labels[corev1.LabelHostname], n.Spec.Unschedulable = n.Name, true
	c.picture.addNode(n)
}

func (c *court) hideDomains() {
	for _, name := range c.picture.names() {
		if strings.HasPrefix(name, ghost) {
			delete(c.picture.infos, name)
		}
	}
}

// hasRoom names a node of the finished plan that would take the pod as well; "" if there is none.
func (c *court) hasRoom(plan *engine.Plan, bought []machine, pod *corev1.Pod) string {
	opinion := c.ask(pod)
	for _, node := range c.picture.names() {
		if !strings.HasPrefix(node, "new-") && !strings.HasPrefix(node, ghost) && opinion.on(node) == "" {
			return node
		}
	}
	for i := range plan.Open {
		node := fmt.Sprintf("new-%d", i+1)
		good := map[string][]machine{}
		for _, m := range machinesFor(plan.Open[i].Claim, c.world.Catalog) {
			become := func() string { c.become(node, m, plan.Open[i].Claim); return node }
			if at, ok := c.takes(pod, become, func() {}); ok {
				good[at] = append(good[at], m)
			}
		}
		c.become(node, bought[i], plan.Open[i].Claim)
		for _, at := range slices.Sorted(maps.Keys(good)) {
			if enoughValues(c.poolOf(plan.Open[i].Pool), good[at]) {
				return fmt.Sprintf("%s (%s in %s)", node, good[at][0].kind.Name, at)
			}
		}
	}
	return ""
}

func (c *court) poolOf(name string) *v1.NodePool {
	for _, in := range c.world.Pools {
		if in.Pool.Name == name {
			return in.Pool
		}
	}
	return nil
}

// takes reports whether a node takes a pod whether daemons of one zone are on it or not, as nobody knows before its claim is launched, and where
// it is in the eyes of the pod. It is shown, asked and taken away again.
func (c *court) takes(pod *corev1.Pod, show func() string, hide func()) (at string, ok bool) {
	ok = true
	for _, c.wary = range []bool{false, true} {
		node := show()
		ok = ok && c.ask(pod).on(node) == ""
		at = c.domainsOf(pod, node)
		hide()
	}
	c.wary = false
	return at, ok
}

// couldOpen names a node that a pool could have opened for a pod beside all that it opens; "" if there is none.
func (c *court) couldOpen(plan *engine.Plan, bought []machine, pod *corev1.Pod) string {
	for _, in := range c.world.Pools {
		left := c.leftOf(in.Pool, plan)
		for _, claim := range claimsOf(in.Pool, pod) {
			good := map[string][]machine{} // by domains: the machines of one claim may need to be alike
			for _, m := range machinesFor(claim, in.Catalog) {
				if !within(m.kind.Capacity, left) {
					continue
				}
				var name string
				open := func() string { name = c.open(m, claim); return name }
				if at, ok := c.takes(pod, open, func() { c.close(name) }); ok {
					good[at] = append(good[at], m)
				}
			}
			for _, at := range slices.Sorted(maps.Keys(good)) {
				if enoughValues(in.Pool, good[at]) && slices.ContainsFunc(good[at], func(m machine) bool { return c.leavesPlan(plan, bought, m, claim, pod) }) {
					return fmt.Sprintf("%s of %s in %s with %v", good[at][0].kind.Name, in.Pool.Name, at, claim.Labels)
				}
			}
		}
	}
	return ""
}

// leavesPlan says whether all planned pods can still be bound when one more node is there from the start: its daemons count in their constraints. The
// pod that is refused gets its node when they are bound.
func (c *court) leavesPlan(plan *engine.Plan, bought []machine, more machine, claim *v1.NodeClaim, pod *corev1.Pod) bool {
	places := c.placesOf(plan.Place, plan.Open)
	if len(c.daemons()) == 0 {
		return true
	}
	found := c.bindAll(places, func() { c.stage(plan.Open, bought); c.open(more, claim) })
	c.bindAll(places, func() { c.stage(plan.Open, bought) })
	c.showDomains(pod)
	return len(found) == 0
}

// domainsOf is where a node is in the eyes of a pod, and as what it counts there: a plan knows that of a claim whose pods, or daemons, have to do
// with anybody's constraints, and minValues hold for machines that are alike in it.
func (c *court) domainsOf(pod *corev1.Pod, name string) string {
	info := c.picture.infos[name]
	node, daemons := info.Node(), daemonsOn(info)
	keys := constraintsOf(pod, func(*metav1.LabelSelector) bool { return true })
	values := []string{node.Labels[corev1.LabelTopologyZone], node.Labels[v1.CapacityTypeLabelKey]}
	for _, key := range slices.SortedFunc(maps.Keys(c.pods), func(a, b cluster.PodKey) int { return strings.Compare(a.Name, b.Name) }) {
		p := c.pods[key]
		more := constraintsOf(p, func(of *metav1.LabelSelector) bool {
			selector, err := metav1.LabelSelectorAsSelector(of)
			return err == nil && (selector.Matches(labels.Set(pod.Labels)) || slices.ContainsFunc(c.daemons(), func(set *appsv1.DaemonSet) bool {
				return selector.Matches(labels.Set(set.Spec.Template.Labels))
			}))
		})
		if len(more) > 0 {
			counts, _ := nodeaffinity.GetRequiredNodeAffinity(p).Match(node)
			values = append(values, fmt.Sprint(counts, daemons))
		}
		keys = append(keys, more...)
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if key != corev1.LabelHostname {
			values = append(values, node.Labels[key])
		}
	}
	return strings.Join(values, " ")
}

func (c *court) daemons() []*appsv1.DaemonSet {
	var out []*appsv1.DaemonSet
	for _, o := range c.world.Objects {
		if set, ok := o.(*appsv1.DaemonSet); ok {
			out = append(out, set)
		}
	}
	return out
}

// daemonsOn names the daemons that run on a node.
func daemonsOn(info *framework.NodeInfo) []string {
	var out []string
	for _, p := range info.GetPods() {
		if isDaemon(p.GetPod()) {
			out = append(out, p.GetPod().OwnerReferences[0].Name)
		}
	}
	return out
}

// constraintsOf returns the topology keys of a pod's constraints, wishes among them, about certain other pods.
func constraintsOf(p *corev1.Pod, about func(*metav1.LabelSelector) bool) []string {
	var keys []string
	for _, t := range p.Spec.TopologySpreadConstraints {
		if about(t.LabelSelector) {
			keys = append(keys, t.TopologyKey)
		}
	}
	if p.Spec.Affinity == nil {
		return keys
	}
	var terms []corev1.PodAffinityTerm
	var wishes []corev1.WeightedPodAffinityTerm
	if a := p.Spec.Affinity.PodAffinity; a != nil {
		terms, wishes = append(terms, a.RequiredDuringSchedulingIgnoredDuringExecution...), append(wishes, a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if a := p.Spec.Affinity.PodAntiAffinity; a != nil {
		terms, wishes = append(terms, a.RequiredDuringSchedulingIgnoredDuringExecution...), append(wishes, a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range wishes {
		terms = append(terms, w.PodAffinityTerm)
	}
	for _, t := range terms {
		if about(t.LabelSelector) {
			keys = append(keys, t.TopologyKey)
		}
	}
	return keys
}

// leftOf is what the limits of a pool leave: a claim counts as the largest of each resource that it lists, and a node that is to go until it
// is gone.
func (c *court) leftOf(pool *v1.NodePool, plan *engine.Plan) corev1.ResourceList {
	left := corev1.ResourceList{}
	for name, q := range pool.Spec.Limits {
		left[name] = q.DeepCopy()
	}
	take := func(capacity corev1.ResourceList) {
		for name, q := range left {
			q.Sub(capacity[name])
			left[name] = q
		}
	}
	one := resource.MustParse("1")
	for _, o := range c.world.Objects {
		if n, ok := o.(*corev1.Node); ok && n.Labels[v1.NodePoolLabelKey] == pool.Name {
			capacity := n.Status.Capacity.DeepCopy()
			capacity["nodes"] = one
			take(capacity)
		}
	}
	for i := range plan.Open {
		if o := &plan.Open[i]; o.Pool == pool.Name {
			most := corev1.ResourceList{"nodes": one}
			for _, t := range c.world.Catalog.Types {
				if !slices.Contains(o.Types, t.Name) {
					continue
				}
				for name, q := range t.Capacity {
					if have := most[name]; q.Cmp(have) > 0 {
						most[name] = q
					}
				}
			}
			take(most)
		}
	}
	return left
}

func within(capacity, left corev1.ResourceList) bool {
	for name, q := range left {
		want := capacity[name]
		if name == "nodes" {
			want = resource.MustParse("1")
		}
		if want.Cmp(q) > 0 {
			return false
		}
	}
	return true
}

// claimsOf returns claims of a pool, one for each combination of the labels that no machine decides.
func claimsOf(pool *v1.NodePool, pod *corev1.Pod) []*v1.NodeClaim {
	first := &v1.NodeClaim{}
	first.Labels = map[string]string{v1.NodePoolLabelKey: pool.Name}
	if ref := pool.Spec.Template.Spec.NodeClassRef; ref != nil {
		first.Labels[v1.NodeClassLabelKey(ref.GroupKind())] = ref.Name
	}
	maps.Copy(first.Labels, pool.Spec.Template.Labels)
	first.Spec.Taints = pool.Spec.Template.Spec.Taints
	first.Spec.Requirements = pool.Spec.Template.Spec.Requirements
	for key, value := range first.Labels {
		if !allowed(first, key, value) {
			return nil
		}
	}
	claims := []*v1.NodeClaim{first}
	for _, key := range customKeys {
		if _, set := first.Labels[key]; set {
			continue
		}
		var more []*v1.NodeClaim
		for _, claim := range claims {
			for _, value := range labelsFor(claim, key, pod) {
				other := claim.DeepCopy()
				if value != "" {
					other.Labels[key] = value
				}
				more = append(more, other)
			}
		}
		claims = more
	}
	return claims
}

// labelsFor returns the values that a claim of a pool may get for a label that no machine decides, "" for none. What a pool leaves
// open is settled by a pod that asks for some values; without one the node gets the smallest number that the pool allows, or no label
// where it allows that: nobody invents domains.
func labelsFor(claim *v1.NodeClaim, key string, pod *corev1.Pod) []string {
	open, absent, asked := true, true, mentions(pod, key)
	for _, r := range claim.Spec.Requirements {
		if r.Key == key {
			open = open && r.Operator != corev1.NodeSelectorOpIn
			absent = absent && (r.Operator == corev1.NodeSelectorOpNotIn || r.Operator == corev1.NodeSelectorOpDoesNotExist)
		}
	}
	var out []string
	if absent {
		out = append(out, "")
	}
	if !slices.ContainsFunc(claim.Spec.Requirements, func(r v1.NodeSelectorRequirementWithMinValues) bool { return r.Key == key }) {
		return out
	}
	for _, value := range valuesOfKey[key] {
		if allowed(claim, key, value) && (!open || asked) {
			out = append(out, value)
		}
	}
	for n := 0; open && !absent && n < 10; n++ {
		if value := strconv.Itoa(n); allowed(claim, key, value) {
			return append(out, value)
		}
	}
	return out
}

// mentions says whether a pod asks for values of a label. It does not by naming what it avoids, or where any will do.
func mentions(pod *corev1.Pod, key string) bool {
	_, ok := pod.Spec.NodeSelector[key]
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			ok = ok || slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
				return r.Key == key && len(r.Values) > 0 && r.Operator != corev1.NodeSelectorOpNotIn
			})
		}
	}
	return ok
}

// enoughValues says whether types satisfy the minValues of a pool.
func enoughValues(pool *v1.NodePool, list []machine) bool {
	for _, r := range pool.Spec.Template.Spec.Requirements {
		if r.MinValues == nil {
			continue
		}
		values := map[string]bool{}
		for _, m := range list {
			for _, v := range m.kind.Labels[r.Key] {
				values[v] = true
			}
		}
		if len(values) < *r.MinValues {
			return false
		}
	}
	return len(list) > 0
}
