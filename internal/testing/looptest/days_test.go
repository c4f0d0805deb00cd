package looptest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// What every bad day has.
const (
	mostAtOnce  = 2             // nodes that may go voluntarily at a time
	limitCPU    = 220           // of the pool
	unavailable = 2             // pods of a set with a budget that may be missing
	recovery    = time.Hour     // until every pod runs again: a machine that never joins is given up after fifteen minutes, and the next may not join either
	renewal     = 2 * time.Hour // until nothing is left to be done: nodes that drifted go by twos, and wait when machines did not join
	shortDays   = 200           // so many seeds are days of few troubles and pods, which make test has the time for
)

// TestBadDays has two replicas live through a day on which everything goes wrong that can: the leader is killed and the other one takes over, API server
// and EC2 fail, throttle, answer late or never, watches stand still, clocks are wrong, capacity runs out, machines are taken back or never join, and users
// scale, delete and edit. No pod is lost, no machine stays behind or is launched twice, budgets and the limit hold all the time, and afterwards
// nothing is stuck.
func TestBadDays(t *testing.T) {
	sim.EachSeed(t, "BAD_DAYS", 100, 10_000, badDayOf)
}

// TestWholeDays plays days with all their troubles and pods, of which the first seeds have few.
func TestWholeDays(t *testing.T) {
	for _, seed := range []uint64{335} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { badDayOf(t, seed) })
		})
	}
}

func badDayOf(t *testing.T, seed uint64) {
	d := newBadDay(t, seed)
	d.live()
	d.recover()
	d.end()
}

// A badDay is a world, what its users want, and what has gone wrong.
type badDay struct {
	*world
	random   *rand.Rand // of the trouble that comes now, and
	lot      lot        // on whom it falls
	begun    time.Time
	stopping map[types.UID]bool
	removed  map[string]time.Time // claims that a user removed: the next plan for the same pods gives their names again
	sets     []*podSet

	most, troubles int // pods of a set, and what goes wrong

	leads, stands *running

	api struct {
		sync.Mutex
		fails int // of a hundred requests
		lot   lot
		asked map[string]int // how often for the same
	}
	quiet struct {
		sync.Mutex
		until time.Time // before it the leader's watches show nothing
	}
	broken struct {
		sync.Mutex
		promises []string
	}
}

// A podSet is what a ReplicaSet and its budget want.
type podSet struct {
	name, cpus, memory string
	want, made         int
	budget             bool
}

func newBadDay(t *testing.T, seed uint64) *badDay {
	random := lots(seed, "day").source("morning")
	d := &badDay{
		world:  newWorld(t, awsmodel.Config{Seed: seed, Types: []string{"m5.*", "c5.*"}, Faults: badTime(random)}),
		random: random, begun: time.Now(), stopping: map[types.UID]bool{}, removed: map[string]time.Time{},
	}
	d.search = work.Second / 1000 // plans need not be cheap
	d.api.lot, d.api.asked = lots(seed, "API server"), map[string]int{}
	memapi.Edit(d.API, "", "default", func(p *v1.NodePool) {
		p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
		p.Spec.Disruption.ConsolidateAfter = v1.After(20 * time.Second)
		p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: fmt.Sprint(mostAtOnce)}}
		p.Spec.Limits = v1.Limits{corev1.ResourceCPU: *resource.NewQuantity(limitCPU, resource.DecimalSI)}
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements,
			v1.NodeSelectorRequirementWithMinValues{Key: awsv1.LabelInstanceCPU, Operator: "Lt", Values: []string{"9"}})
	})
	d.most, d.troubles = 35, 10+random.IntN(10)
	if seed < shortDays {
		d.most, d.troubles = 10, 3
	}
	d.sets = []*podSet{{name: "web", cpus: "900m", memory: "1Gi", budget: true}, {name: "fat", cpus: "2500m", memory: "6Gi"}, {name: "thin", cpus: "200m", memory: "3Gi"}}
	for _, s := range d.sets {
		if s.budget {
			d.API.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name, Generation: 1}, Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromInt32(unavailable)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": s.name}},
			}})
		}
		d.want(s)
	}
	d.API.SetFault(d.answer)
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { d.watch(ctx) })
	t.Cleanup(func() { stop(); wait.Wait() })
	return d
}

// A running replica is one that lives, whether it leads or not.
type running struct {
	day   *badDay
	leads chan struct{} // closed when it begins to
	stop  context.CancelFunc
	done  chan struct{}
}

// replicate starts a replica that reads along and does not lead yet.
func (d *badDay) replicate() *running {
	d.process++
	ctx, stop := context.WithCancel(sim.Loud(d.t.Context(), "LOOP_LOG", d.process))
	r := &running{day: d, leads: make(chan struct{}), stop: stop, done: make(chan struct{})}
	name := fmt.Sprint("replica ", d.process)
	go func() {
		defer close(r.done)
		for ctx.Err() == nil && r.run(ctx, name) != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return r
}

// run is the life of a replica: it reads along from its start on, and leads when it is told to.
func (r *running) run(ctx context.Context, name string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	replica, err := r.day.replica(ctx, name)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { r.day.API.FeedDeaf(ctx, replica.store, watchLag, r.stalls(ctx)) })
	for _, loop := range replica.provider.Always() {
		wait.Go(func() { _ = loop(ctx) })
	}
	select {
	case <-ctx.Done():
		return nil
	case <-r.leads:
	}
	for !replica.store.Snapshot().Synced() {
		select {
		case <-ctx.Done():
			return nil
		case <-replica.store.Snapshot().Stale():
		}
	}
	replica.deaf = func(memapi.Event) bool { return true } // it has been reading along
	replica.karpenter(nil).Run(ctx)
	return nil
}

// stalls holds events up while the leader's watches stand still. None is lost: a watch that breaks is taken up where it ended.
func (r *running) stalls(ctx context.Context) func(memapi.Event) bool {
	return func(memapi.Event) bool {
		select {
		case <-r.leads:
		default:
			return false
		}
		r.day.quiet.Lock()
		until := r.day.quiet.until
		r.day.quiet.Unlock()
		if wait := time.Until(until); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		return false
	}
}

func (r *running) end() { r.stop(); <-r.done }

func (d *badDay) upTo(most time.Duration) time.Duration {
	return time.Duration(d.random.Int64N(int64(most)))
}

// live lets the day pass.
func (d *badDay) live() {
	d.leads, d.stands = d.replicate(), d.replicate()
	close(d.leads.leads)
	d.t.Cleanup(func() { d.leads.end(); d.stands.end() })
	time.Sleep(d.upTo(30 * time.Second))
	for i := range d.troubles {
		d.lot = lots(d.seed, fmt.Sprint("trouble ", i))
		d.random = d.lot.source("")
		trouble, wait := troubles[d.random.IntN(len(troubles))], d.upTo(40*time.Second)
		d.t.Logf("%4.0f s: %s", time.Since(d.begun).Seconds(), trouble.name)
		trouble.comes(d)
		time.Sleep(wait)
	}
}

// troubles are what a day has.
var troubles = []struct {
	name  string
	comes func(*badDay)
}{
	{"the leader is killed", (*badDay).takeOver},
	{"the leader is killed", (*badDay).takeOver},
	{"the leader is killed, and the other replica too", (*badDay).restart},
	{"watches stand still", func(d *badDay) {
		d.quiet.Lock()
		defer d.quiet.Unlock()
		d.quiet.until = time.Now().Add(d.upTo(45 * time.Second))
	}},
	{"the API server fails", func(d *badDay) { d.failing(1 + d.random.IntN(60)) }},
	{"the API server is well", func(d *badDay) { d.failing(0) }},
	{"the clock of the API server jumps", func(d *badDay) { d.API.SetSkew(d.upTo(10*time.Minute) - 5*time.Minute) }},
	{"EC2 has another bad time", func(d *badDay) { d.faults(func(f *awsmodel.Faults) { *f = badTime(d.random) }) }},
	{"EC2 fails", func(d *badDay) {
		d.faults(func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"ec2:*": {Code: "InternalError", Message: "An internal error has occurred", Status: 500, Share: d.random.Float64()}}
		})
	}},
	{"a zone is down", func(d *badDay) { d.faults(func(f *awsmodel.Faults) { f.ZonesDown = []string{"us-east-1a"} }) }},
	{"machines never join", func(d *badDay) { d.faults(func(f *awsmodel.Faults) { f.DeadOnArrival = 0.1 }) }},
	{"machines are interrupted", func(d *badDay) {
		_ = d.aws.Interrupt(d.some(func(m awsmodel.Machine) bool { return m.CapacityType == v1.CapacityTypeSpot })...) // some may be ending
	}},
	{"a user stops a machine in EC2", func(d *badDay) {
		ids := d.some(func(awsmodel.Machine) bool { return true })
		d.pardon(ids)
		_ = d.aws.Kill(ids...)
	}},
	{"users scale", (*badDay).rescale},
	{"users scale", (*badDay).rescale},
	{"users scale", (*badDay).rescale},
	{"a user deletes claims", func(d *badDay) { d.deleteSome(d.lot) }},
	{"a user deletes a node", func(d *badDay) {
		for _, n := range d.aNode() {
			sim.Delete(d.t, d.World, n)
		}
	}},
	{"a user deletes pods", func(d *badDay) {
		for _, p := range first(d.lot, 3, 1, memapi.All[*corev1.Pod](d.API), (*corev1.Pod).GetName) {
			sim.Delete(d.t, d.World, p)
		}
	}},
	{"a user cordons a node", func(d *badDay) {
		for _, n := range d.aNode() {
			memapi.Edit(d.API, "", n.Name, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		}
	}},
	{"a user takes our taint off a node", func(d *badDay) { // not that of nodes nobody has registered: then pods run where nobody expects any
		for _, n := range d.aNode() {
			memapi.Edit(d.API, "", n.Name, func(n *corev1.Node) { n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isDisrupted) })
		}
	}},
	{"a user takes annotations off a claim", func(d *badDay) {
		for _, c := range d.aClaim() {
			memapi.Edit(d.API, "", c.Name, func(c *v1.NodeClaim) { c.Annotations = nil })
		}
	}},
	{"a user takes the finalizers off a claim and deletes it", func(d *badDay) {
		for _, c := range d.aClaim() {
			d.pardon([]string{c.Status.ProviderID[strings.LastIndex(c.Status.ProviderID, "/")+1:]})
			d.API.Remove(c)
			d.removed[c.Name] = time.Now()
		}
	}},
	{"a user edits the pool's template", (*badDay).release},
	{"a user edits the class", func(d *badDay) {
		memapi.Edit(d.API, "", "default", func(c *awsv1.EC2NodeClass) {
			c.Spec.Tags = map[string]string{"team": fmt.Sprint(d.random.IntN(100))}
			c.Generation++
		})
	}},
}

// takeOver kills the leader; the other replica leads, and a third one reads along.
func (d *badDay) takeOver() {
	d.leads.end()
	time.Sleep(d.upTo(3 * time.Second))
	d.leads, d.stands = d.stands, d.replicate()
	close(d.leads.leads)
}

// restart kills both replicas.
func (d *badDay) restart() {
	d.leads.end()
	d.stands.end()
	time.Sleep(d.upTo(20 * time.Second))
	d.leads, d.stands = d.replicate(), d.replicate()
	close(d.leads.leads)
}

func (d *badDay) rescale() { d.want(d.sets[d.random.IntN(len(d.sets))]) }

// want scales a set to so many pods as chance says.
func (d *badDay) want(s *podSet) {
	s.want = 1 + d.random.IntN(d.most)
	if s.name == "fat" {
		s.want = (s.want + 2) / 3
	}
	d.scale(s)
}

// scale makes pods, or takes some away as a ReplicaSet does.
func (d *badDay) scale(s *podSet) {
	pods := slices.DeleteFunc(memapi.All[*corev1.Pod](d.API), func(p *corev1.Pod) bool {
		return p.Labels["app"] != s.name || len(p.OwnerReferences) == 0 // those that are being deleted come again
	})
	for range s.want - len(pods) {
		s.made++
		d.API.Put(sim.Pod(fmt.Sprintf("%s-%03d", s.name, s.made), s.cpus, func(p *corev1.Pod) {
			sim.OwnedBy(s.name)(p)
			p.Labels["app"] = s.name
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(s.memory)
		}))
	}
	for n := len(pods); n > s.want; n-- {
		p := pods[n-1]
		memapi.Edit(d.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
		sim.Delete(d.t, d.World, p)
	}
}

// podsOf are the pods of a set that stay.
func (d *badDay) podsOf(s *podSet) []*corev1.Pod {
	return slices.DeleteFunc(memapi.All[*corev1.Pod](d.API), func(p *corev1.Pod) bool {
		return p.Labels["app"] != s.name || p.DeletionTimestamp != nil
	})
}

// aNode is the node on which the lot falls, if there is any, by its claim: the names of machines follow from when they were launched.
func (d *badDay) aNode() []*corev1.Node {
	claims := map[string]string{}
	memapi.Each(d.API, func(c *v1.NodeClaim) { claims[c.Status.NodeName] = c.Name })
	return first(d.lot, 1, 1, memapi.All[*corev1.Node](d.API), func(n *corev1.Node) string { return cmp.Or(claims[n.Name], n.Name) })
}

func (d *badDay) aClaim() []*v1.NodeClaim {
	return first(d.lot, 1, 1, memapi.All[*v1.NodeClaim](d.API), (*v1.NodeClaim).GetName)
}

// some are ids of at most two machines, each of which one time in four.
func (d *badDay) some(of func(awsmodel.Machine) bool) (ids []string) {
	machines := slices.DeleteFunc(d.aws.Alive(), func(m awsmodel.Machine) bool { return !of(m) })
	for _, m := range first(d.lot, 2, 0.25, machines, func(m awsmodel.Machine) string { return cmp.Or(m.Tags[awsv1.TagNodeClaim], m.ID) }) {
		ids = append(ids, m.ID)
	}
	return ids
}

func (d *badDay) failing(percent int) {
	d.api.Lock()
	defer d.api.Unlock()
	d.api.fails = percent
}

// answer is what the API server makes of a request.
func (d *badDay) answer(r memapi.Request) error {
	if !strings.HasPrefix(r.Client, "replica") {
		return nil
	}
	if r.Verb == "delete" && r.Kind == "Pod" && !d.ends(r.Name) {
		d.broke("%s deleted pod %s, whatever its budget", r.Client, r.Name.Name)
	}
	d.api.Lock()
	defer d.api.Unlock()
	same := fmt.Sprint(r.Verb, r.Subresource, r.Kind, r.Name)
	d.api.asked[same]++
	if d.api.lot.of(fmt.Sprint(same, d.api.asked[same])) < float64(d.api.fails)/100 {
		return errors.New("etcdserver: request timed out")
	}
	return nil
}

// ends tells whether a pod is on a machine that ends soon, whatever anybody does: there is no time to ask for budgets. A pod that is not there any more
// is not deleted either: whoever asks for it has not heard yet.
func (d *badDay) ends(pod types.NamespacedName) (ends bool) {
	p, ok := sim.Find[*corev1.Pod](d.World, pod.Name)
	if !ok {
		return true
	}
	memapi.Each(d.API, func(c *v1.NodeClaim) {
		if p.Spec.NodeName != "" && c.Status.NodeName == p.Spec.NodeName {
			ends = c.Annotations == nil || c.Annotations[v1.NodeClaimTerminationTimestampAnnotationKey] != "" // a user may have taken them off
		}
	})
	return ends
}

func (d *badDay) broke(format string, args ...any) {
	d.broken.Lock()
	defer d.broken.Unlock()
	if len(d.broken.promises) < 5 {
		d.broken.promises = append(d.broken.promises, fmt.Sprintf("%.0f s: ", time.Since(d.begun).Seconds())+fmt.Sprintf(format, args...))
	}
}

// watch plays the controller of pod disruption budgets, and looks all the time whether what is promised holds.
func (d *badDay) watch(ctx context.Context) {
	for ctx.Err() == nil {
		for _, s := range d.sets {
			if s.budget {
				d.allow(s)
			}
		}
		d.look()
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// allow says how many pods of a set may go.
func (d *badDay) allow(s *podSet) {
	pods, ready := 0, 0
	memapi.Each(d.API, func(p *corev1.Pod) {
		if p.Labels["app"] == s.name && len(p.OwnerReferences) > 0 {
			pods++
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				ready++
			}
		}
	})
	b, _ := sim.Find[*policyv1.PodDisruptionBudget](d.World, s.name)
	now := policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, CurrentHealthy: int32(ready), ExpectedPods: int32(pods), DesiredHealthy: int32(max(0, pods-unavailable)),
	}
	now.DisruptionsAllowed = max(0, now.CurrentHealthy-now.DesiredHealthy)
	if equality.Semantic.DeepEqual(b.Status, now) {
		return // what is written anew is news, which would wake everybody
	}
	memapi.Edit(d.API, "default", s.name, func(b *policyv1.PodDisruptionBudget) { b.Status = now })
}

// look compares with what is promised at every moment.
func (d *badDay) look() {
	going, cpu := 0, int64(0)
	var names []string
	there := map[string]bool{} // nodes; one that is gone takes nothing from anybody, though its claim may not say so yet
	memapi.Each(d.API, func(n *corev1.Node) { there[n.Name] = true })
	memapi.Each(d.API, func(c *v1.NodeClaim) {
		if condition.IsTrue(c, v1.ConditionTypeInstanceTerminating) {
			d.stopping[c.UID] = true
		} else if d.stopping[c.UID] {
			d.broke("%s was stopping and is not any more", c.Name)
		}
		ours := condition.IsTrue(c, v1.ConditionTypeDisruptionReason)
		switch {
		case c.DeletionTimestamp != nil && ours && there[c.Status.NodeName] && !condition.IsTrue(c, v1.ConditionTypeInstanceTerminating):
			going++
			names = append(names, fmt.Sprint(c.Name, " since ", c.DeletionTimestamp.Sub(d.begun)))
			for _, x := range c.Status.Conditions {
				names = append(names, fmt.Sprint(x.Type, "=", x.Status, " ", x.Reason, " ", x.LastTransitionTime.Sub(d.begun)))
			}
		case c.DeletionTimestamp == nil && !ours:
			cpu += c.Status.Capacity.Cpu().Value()
		}
	})
	if going > mostAtOnce {
		d.broke("%d nodes go at a time, the budget is %d: %v", going, mostAtOnce, names)
	}
	if cpu > limitCPU {
		d.broke("the pool has %d CPUs, its limit is %d", cpu, limitCPU)
	}
}

// twice says which claims have two machines.
func (d *badDay) twice() (out []string) {
	of := map[string]int{}
	for _, m := range d.aws.Alive() {
		if name := m.Tags[awsv1.TagNodeClaim]; name != "" && !m.Launched.Before(d.removed[name]) {
			if of[name]++; of[name] == 2 {
				out = append(out, name)
			}
		}
	}
	return out
}

// recover waits until the day is forgotten.
func (d *badDay) recover() {
	d.faults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{Throttle: true} })
	d.failing(0)
	d.API.SetSkew(0)
	for _, n := range memapi.All[*corev1.Node](d.API) {
		memapi.Edit(d.API, "", n.Name, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	}
	if two := d.twice(); len(two) > 0 {
		d.broke("claims with two machines: %v", two)
	}
	d.eventually("every pod runs", recovery, d.missing)
	d.eventually("nothing is left to be done", renewal, d.unfinished)
	d.eventually("every pod runs still", recovery, d.missing)
	d.broken.Lock()
	defer d.broken.Unlock()
	if len(d.broken.promises) > 0 {
		d.t.Errorf("promises were broken:\n%s", strings.Join(d.broken.promises, "\n"))
	}
	if cut := d.stopped(); len(cut) > 0 {
		d.t.Errorf("machines were stopped under %d running pods: %s", len(cut), strings.Join(cut, ", "))
	}
}

// missing says of which set pods do not run.
func (d *badDay) missing() string {
	for _, s := range d.sets {
		running := 0
		pods := d.podsOf(s)
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != s.want || len(pods) != s.want {
			return fmt.Sprintf("%d of %d pods of %s run; %s; pool %v", running, s.want, s.name, d.unequal(), sim.Get[*v1.NodePool](d.t, d.World, "default").Status.Conditions)
		}
	}
	return ""
}

// unfinished says what is still to be done.
func (d *badDay) unfinished() string {
	if why := d.unequal(); why != "" {
		return why
	}
	for _, c := range memapi.All[*v1.NodeClaim](d.API) {
		switch {
		case c.DeletionTimestamp != nil:
			return "claim " + c.Name + " is being deleted"
		case condition.IsTrue(c, v1.ConditionTypeDrifted):
			return "claim " + c.Name + " has drifted"
		case condition.IsTrue(c, v1.ConditionTypeDisruptionReason), c.Annotations[v1.DisruptionCommandAnnotationKey] != "":
			return "claim " + c.Name + " takes part in a step"
		case !condition.IsTrue(c, v1.ConditionTypeInitialized):
			return "claim " + c.Name + " is not initialised"
		}
	}
	for _, n := range memapi.All[*corev1.Node](d.API) {
		if slices.ContainsFunc(n.Spec.Taints, isDisrupted) {
			return "node " + n.Name + " carries the taint of nodes that go"
		}
	}
	return ""
}

func isDisrupted(t corev1.Taint) bool { return t.Key == v1.DisruptedTaintKey }

// release changes the template of the pool: all its nodes have drifted then.
func (d *badDay) release() {
	memapi.Edit(d.API, "", "default", func(p *v1.NodePool) {
		p.Spec.Template.Labels = map[string]string{"release": fmt.Sprint(p.Generation)}
		p.Generation++
	})
}

// pardon forgives that pods ran on machines when a user stopped them.
func (d *badDay) pardon(ids []string) {
	for _, m := range d.aws.Alive() {
		if slices.Contains(ids, m.ID) {
			d.mu.Lock()
			d.pardoned = append(d.pardoned, m.NodeName)
			d.mu.Unlock()
		}
	}
}

// stopped are pods that ran when Karpenter stopped their machine.
func (d *badDay) stopped() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.cut), func(pod string) bool {
		return slices.ContainsFunc(d.pardoned, func(node string) bool { return strings.HasSuffix(pod, " on "+node) })
	})
}

// end takes everything away, and nothing may be left.
func (d *badDay) end() {
	sim.ScaleToZero(d.t, d.World)
	for _, c := range memapi.All[*v1.NodeClaim](d.API) {
		sim.Delete(d.t, d.World, c)
	}
	sim.Delete(d.t, d.World, sim.Get[*awsv1.EC2NodeClass](d.t, d.World, "default"))
	time.Sleep(settleTime)
	if left := d.left(); left != "" {
		d.t.Errorf("a minute after everything was deleted there are left: %s", left)
	}
}
