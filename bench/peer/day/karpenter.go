package day

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	peerv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	claimdisruption "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/podevents"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	"sigs.k8s.io/karpenter/pkg/test"

	"karpenter.sh/karpenter/bench/peer/sold"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/history/replay"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

const (
	batchIdle, batchMax = time.Second, 10 * time.Second // how long its provisioner waits for further pods
	again               = 10 * time.Second              // after how long its provisioner looks again while pods wait
	polling             = 10 * time.Second              // how often its disruption controller looks at the fleet
)

// PlayKarpenter plays a day with Karpenter's provisioner, its disruption controller and its marks on NodeClaims. Where
// that controller found nothing to do it looks again after pace, or after ten seconds if a node is empty.
func PlayKarpenter(ctx context.Context, trace *Trace, catalog *cloud.Catalog, calm Calm, spot bool,
	pace time.Duration) (*replay.Result, error) {
	name := fmt.Sprintf("Karpenter, `consolidateAfter: %s`", calm.Name)
	log.SetLogger(logging.NopLogger)
	k := &karpenter{pace: pace, done: make(chan looked)}
	k.api = newAPI(k, catalog, sold.Pool(benchload.Pool(spot, false)))
	k.api.pool.Spec.Disruption.ConsolidateAfter = peerv1.NillableDuration{Duration: calm.After.Duration}
	k.api.pool.Spec.Disruption.ConsolidationPolicy = peerv1.ConsolidationPolicyWhenEmptyOrUnderutilized
	k.api.pool.Spec.Disruption.Budgets = []peerv1.Budget{{Nodes: "10%"}}
	none := test.FeatureGates{ReservedCapacity: new(false)} // nothing is reserved, and without it its scheduler is faster
	k.ctx = options.ToContext(ctx, test.Options(test.OptionsFields{FeatureGates: none}))
	return playFleet(k.ctx, trace.Recording, name, k)
}

// karpenter has Karpenter's controllers play in simulated time: it calls them as their watches, queues and timers
// would. Between two waits of its disruption controller nothing else runs.
type karpenter struct {
	*fleet
	ctx  context.Context
	pace time.Duration
	api  *api

	cluster     *state.Cluster
	provisioner *provisioning.Provisioner
	disruption  *disruption.Controller
	queue       *disruption.Queue
	marks       *claimdisruption.Controller
	podEvents   *podevents.Controller

	clock       *steppedClock
	done        chan looked
	looking     bool      // its disruption controller runs or waits
	began       time.Time // when it did last
	quiet       time.Time // until when there is no need to look
	first, last time.Time // of the batch, zero for none
	working     bool      // its queue is looked at every second
}

// A looked is what a run of the disruption controller returns.
type looked struct {
	next time.Duration
	err  error
}

// A steppedClock shows simulated time. Waits are handed to the simulation, which ends them.
type steppedClock struct {
	clock.Clock // only what is below is called
	k           *karpenter
	waits       chan wait
}

type wait struct {
	length time.Duration
	over   chan time.Time
}

func (c *steppedClock) Now() time.Time                  { return c.k.now }
func (c *steppedClock) Since(t time.Time) time.Duration { return c.k.now.Sub(t) }
func (c *steppedClock) After(d time.Duration) <-chan time.Time {
	w := wait{d, make(chan time.Time, 1)}
	c.waits <- w
	return w.over
}

// silent drops events.
type silent struct{}

func (silent) Publish(...events.Event) {}

func (k *karpenter) begin(f *fleet) {
	k.fleet, k.quiet = f, f.now
	k.clock = &steppedClock{k: k, waits: make(chan wait)}
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = k.api.types
	k.cluster = state.NewCluster(k.clock, k.api, provider)
	k.cluster.SetSynced(true)
	k.provisioner = provisioning.NewProvisioner(k.api, silent{}, provider, k.cluster, k.clock,
		deviceallocation.NewController(k.api), virtualpods.NewVirtualPodCache(k.api))
	k.queue = disruption.NewQueue(k.api, silent{}, k.cluster, k.clock, k.provisioner)
	k.disruption = disruption.NewController(k.ctx, k.clock, k.api, k.provisioner, provider, silent{}, k.cluster, k.queue, nil)
	k.marks = claimdisruption.NewController(k.clock, k.api, provider)
	k.podEvents = podevents.NewController(k.clock, k.api, provider)
	f.at(f.now, k.poll)
}

// check ends the day if a controller failed.
func (k *karpenter) check(what string, err error) {
	if err != nil && k.err == nil {
		k.err = fmt.Errorf("Karpenter at %s: %s: %w", k.now.Format(time.TimeOnly), what, err)
	}
}

func (k *karpenter) waits(p *pod) {
	k.api.putPod(p, k.now)
	k.trigger()
}

func (k *karpenter) bound(p *pod) {
	o := k.api.putPod(p, k.now)
	k.check("a pod is bound", k.cluster.UpdatePod(k.ctx, o))
	k.noted(o)
}

func (k *karpenter) left(p *pod, m *machine) {
	o := k.api.deletePod(p, m)
	if m != nil {
		k.noted(o)
	}
	k.cluster.DeletePod(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
}

// noted has its controllers note on a NodeClaim that a pod came or went, which may end that it is consolidatable.
func (k *karpenter) noted(o *corev1.Pod) {
	_, err := k.podEvents.Reconcile(k.ctx, o)
	k.check("an event of a pod", err)
	k.mark(o.Spec.NodeName)
}

func (k *karpenter) mark(claim string) {
	if c := k.api.claim(claim); c != nil {
		_, err := k.marks.Reconcile(k.ctx, c)
		k.check("marks of a claim", err)
	}
}

func (k *karpenter) joined(m *machine) {
	node, claim := k.api.join(m, k.now)
	k.cluster.UpdateNodeClaim(claim)
	k.check("a node", k.cluster.UpdateNode(k.ctx, node))
}

func (k *karpenter) ended(m *machine) {
	k.api.forget(m)
	k.cluster.DeleteNode(m.name)
	k.cluster.DeleteNodeClaim(m.name)
}

// trigger begins a batch, or makes it longer.
func (k *karpenter) trigger() {
	begun := !k.first.IsZero()
	k.last = k.now
	if !begun {
		k.first = k.now
		k.at(k.now.Add(batchIdle), k.provision)
	}
}

// provision runs its provisioner when the batch is over.
func (k *karpenter) provision() {
	if over := k.last.Add(batchIdle); k.now.Before(over) && k.now.Before(k.first.Add(batchMax)) {
		k.at(over, k.provision)
		return
	}
	k.first = time.Time{}
	results, err := k.provisioner.Schedule(k.ctx)
	k.check("provisioning", err)
	_, err = k.provisioner.CreateNodeClaims(k.ctx, results.NewNodeClaims)
	k.check("creating claims", err)
	if len(k.waiting) > 0 || !k.queue.IsEmpty() {
		k.at(k.now.Add(again), k.trigger)
	}
}

// poll runs its disruption controller when it is time.
func (k *karpenter) poll() {
	k.at(k.now.Add(polling), k.poll)
	empty := false
	for _, m := range k.machines {
		if m.ready && !m.closed {
			k.mark(m.name)
			empty = empty || len(m.pods) == 0
		}
	}
	if empty || !k.now.Before(k.quiet) {
		k.look()
	}
}

// look starts its disruption controller.
func (k *karpenter) look() {
	if k.looking {
		return
	}
	k.looking, k.began = true, k.now
	go func() {
		r, err := k.disruption.Reconcile(k.ctx)
		k.done <- looked{r.RequeueAfter, err}
	}()
	k.follow()
}

// follow lets the disruption controller run until it waits, and ends the wait when it is over, or until it is done.
func (k *karpenter) follow() {
	select {
	case w := <-k.clock.waits:
		k.at(k.now.Add(w.length), func() {
			w.over <- k.now
			k.follow()
		})
	case r := <-k.done:
		k.check("disruption", r.err)
		k.looking = false
		if k.now.Equal(k.began) { // it found nothing, where otherwise it waits before it acts
			k.quiet = k.now.Add(k.pace)
		} else if r.next < polling { // something was done: it looks again at once
			k.at(k.now, k.look)
		}
		if !k.working {
			k.work()
		}
	}
}

// work has its queue look at all commands, every second while there are any.
func (k *karpenter) work() {
	k.working = !k.queue.IsEmpty()
	if !k.working {
		return
	}
	commands := k.queue.GetCommands()
	slices.SortFunc(commands, func(x, y *disruption.Command) int { return x.CreationTimestamp.Compare(y.CreationTimestamp) })
	for _, c := range commands {
		_, err := k.queue.Reconcile(k.ctx, c.Candidates[0].NodeClaim)
		k.check("the queue", err)
	}
	k.at(k.now.Add(time.Second), k.work)
}

// object returns a pod as the API server shows it.
func (p *pod) object(now time.Time) *corev1.Pod {
	o := &corev1.Pod{ObjectMeta: p.life.Pod.ObjectMeta, Spec: p.life.Pod.Spec}
	o.Name, o.UID, o.CreationTimestamp = p.name, types.UID(p.name), metav1.NewTime(p.since)
	if p.on == nil {
		o.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled,
			Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
		return o
	}
	o.Spec.NodeName = p.on.name
	at := metav1.NewTime(now)
	o.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &at, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}}}
	return o
}
