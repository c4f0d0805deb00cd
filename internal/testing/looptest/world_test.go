package looptest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/follow"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestMain lets garbage lie for longer: little is alive in these worlds.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	slog.SetLogLoggerLevel(slog.LevelError)
	os.Exit(m.Run())
}

// A world is a cluster whose machines are EC2's. The cloud of sim.World is not used.
type world struct {
	*sim.World
	t    *testing.T
	aws  *awsmodel.Cloud
	seed uint64

	// seller, if set, stands between the loops and the provider.
	seller func(cloud.Provider) cloud.Provider

	shifts   bool        // zonal shifts are followed
	reboots  bool        // broken machines are repaired, and rebooted where that may mend them
	unqueued bool        // there is no interruption queue
	untaint  atomic.Bool // kubelets join without the taint of unregistered nodes
	search   work.Units  // of the engine, 0 for as much as it likes
	process  int
	mu       sync.Mutex
	cut      []string // pods that ran when their machine was stopped under them

	pardoned []string // nodes whose machine a user stopped
}

// readyAfter is how long a kubelet takes from joining to ready.
const readyAfter = time.Second

// newWorld makes a world with the class and the pool "default", in the bubble of a test. It ends with the test.
func newWorld(t *testing.T, cfg awsmodel.Config) *world {
	t.Helper()
	s, err := sim.New(sim.Options{Cloud: fakecloud.Options{Catalog: sim.Shop}, PodStart: time.Second, PodStop: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{World: s, t: t, seed: cfg.Seed}
	services, dns := "10.100.0.0/16", "10.100.0.10"
	if cfg.Cluster.ServiceCIDR != "" { // of IPv6
		services, dns = cfg.Cluster.ServiceCIDR, "fd00:ec2::a"
	}
	cfg.Cluster = awsmodel.Cluster{Name: "demo", Endpoint: "https://k8s.example", CA: "Q0E=", Version: "1.36", ServiceCIDR: services}
	cfg.Join, cfg.Gone = w.join, w.gone
	if w.aws, err = awsmodel.New(cfg); err != nil {
		t.Fatal(err)
	}
	w.API.Put(class())
	w.API.Put(pool())
	w.API.Put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}, Spec: corev1.ServiceSpec{ClusterIP: dns}})
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { w.Run(ctx) })
	wait.Go(func() {
		if err := w.aws.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("AWS ended: %v", err)
		}
	})
	t.Cleanup(func() { stop(); wait.Wait() })
	return w
}

func class() *awsv1.EC2NodeClass {
	discovery := map[string]string{v1.Group + "/discovery": "demo"}
	return &awsv1.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class-1", Generation: 1},
		Spec: awsv1.EC2NodeClassSpec{
			Role:                       "KarpenterNodeRole-demo",
			AMISelectorTerms:           []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms:        []awsv1.SubnetSelectorTerm{{Tags: discovery}},
			SecurityGroupSelectorTerms: []awsv1.SecurityGroupSelectorTerm{{Tags: discovery}},
		},
	}
}

// pool buys spot and on-demand machines, and keeps what it has unless that is empty.
func pool() *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool-1"}}
	p.Spec.Template.Spec.NodeClassRef = sim.Ref("default")
	p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
		{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{v1.CapacityTypeSpot, v1.CapacityTypeOnDemand}},
	}
	p.Spec.Disruption.ConsolidateAfter = v1.After(0)
	p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmpty
	return p
}

// join is a kubelet that registers, or is heard of again and finds its Node as it was, and is ready a little later.
func (w *world) join(j awsmodel.Join) {
	if n, ok := sim.Find[*corev1.Node](w.World, j.NodeName); !ok || n.Spec.ProviderID != j.ProviderID {
		w.register(j)
	}
	time.AfterFunc(readyAfter, func() {
		memapi.Edit(w.API, "", j.NodeName, func(n *corev1.Node) {
			sim.SetReady(n, corev1.ConditionTrue)
			n.Status.NodeInfo.BootID = j.BootID
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) })
		})
	})
}

// register makes the Node of a machine.
func (w *world) register(j awsmodel.Join) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: j.NodeName, Labels: j.Labels}}
	n.Labels[corev1.LabelHostname] = j.NodeName
	n.Spec.ProviderID = j.ProviderID
	n.Spec.Taints = append(slices.Clone(j.Taints), notReady)
	if w.untaint.Load() {
		n.Spec.Taints = n.Spec.Taints[len(j.Taints):]
	}
	n.Status.Capacity, n.Status.Allocatable = j.Capacity, j.Allocatable
	sim.SetReady(n, corev1.ConditionFalse)
	w.API.Put(n)
}

var notReady = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}

// gone is a kubelet that is heard of no more, and the cloud's controller that removes the Node when the machine is gone.
func (w *world) gone(g awsmodel.Gone) {
	memapi.Edit(w.API, "", g.NodeName, func(n *corev1.Node) { sim.SetReady(n, corev1.ConditionUnknown) })
	switch {
	case g.State == "shutting-down" && strings.HasPrefix(g.Reason, "Client."): // we did it, not EC2
		w.noteCut(g.NodeName)
	case g.State == "terminated":
		_ = w.API.Client("cloud-controller").Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.NodeName}}) // may be gone already
	}
}

func (w *world) noteCut(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if p.Spec.NodeName == node && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			w.cut = append(w.cut, p.Name+" on "+node)
		}
	}
}

// start starts a process that knows nothing, and returns what stops it in the middle of whatever it does. AWS may be so bad
// that the provider takes several attempts, as of a pod that is restarted.
func (w *world) start() (end func()) {
	w.process++
	ctx, stop := context.WithCancel(sim.Loud(w.t.Context(), "LOOP_LOG", w.process))
	done := make(chan struct{})
	name := fmt.Sprint("process ", w.process)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if w.live(ctx, name) == nil {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return func() { stop(); <-done }
}

// live is the life of one process, from its start until ctx ends.
func (w *world) live(ctx context.Context, name string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, err := w.replica(ctx, name)
	if err != nil {
		return err
	}
	k := r.karpenter(r.provider.Always())
	k.Run(ctx)
	return nil
}

// A replica is one process.
type replica struct {
	world    *world
	name     string
	store    *cluster.Store
	provider *aws.Provider
	events   *telemetry.Events
	deaf     func(memapi.Event) bool // which events do not reach the loops by a feed of their own; nil for none
}

// replica makes a process that knows nothing.
func (w *world) replica(ctx context.Context, name string) (*replica, error) {
	metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds("karpenter_k8s_aws_ec2nodeclass"))
	return w.replicaWith(ctx, name, metrics, func(*corev1.Event) {})
}

// replicaWith makes one that counts with these metrics. heard receives the provider's events.
func (w *world) replicaWith(ctx context.Context, name string, metrics *telemetry.Metrics, heard func(*corev1.Event)) (*replica, error) {
	settings := aws.DefaultSettings()
	settings.ClusterName, settings.EKSControlPlane, settings.ClusterCABundle, settings.InterruptionQueue = "demo", true, "Q0E=", "demo"
	settings.EnableZonalShift, settings.Gates.RebootForRepair = w.shifts, w.reboots
	if w.unqueued {
		settings.InterruptionQueue = ""
	}
	tell := func(_ context.Context, e *corev1.Event) error { heard(e); return nil }
	r := &replica{world: w, name: name, store: cluster.NewStore(), events: telemetry.NewEvents(tell, metrics)}
	var err error
	r.provider, err = aws.New(ctx, settings, aws.Input{
		Claims: follow.Claims(r.store), Nodes: follow.Nodes(r.store),
		Config: w.awsConfig(name), Kube: &watching{Client: w.API.Client(name), server: w.API, listed: map[string][]runtime.Object{}}, Metrics: metrics, Events: r.events, Version: "test",
	})
	return r, err
}

// awsConfig has calls tried again after waits that follow from the seed, as everything else does that is left to chance.
func (w *world) awsConfig(process string) awssdk.Config {
	cfg := w.aws.AWSConfig()
	var mu sync.Mutex
	tried, waits := map[int]int{}, lots(w.seed, "retries of "+process)
	cfg.Retryer = func() awssdk.Retryer {
		return ec2api.Retryer(retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			tried[attempt]++
			most := min(float64(uint64(1)<<min(attempt, 10)), 8)
			return time.Duration(most * waits.of(fmt.Sprint(attempt, tried[attempt])) * float64(time.Second)), nil
		}))
	}
	return cfg
}

// karpenter are the loops of the replica that leads, and some more.
func (r *replica) karpenter(more []func(context.Context) error) *sim.Karpenter {
	o := sim.KarpenterOptions{
		Name: r.name, Store: r.store, Lag: watchLag, Delay: 30 * time.Millisecond, Provision: true, Disrupt: true, Cloud: r.provider, Deaf: r.deaf, Search: r.world.search,
		Repairs: r.world.reboots,
	}
	if r.world.seller != nil {
		o.Cloud = r.world.seller(r.provider)
	}
	k := r.world.Karpenter(o)
	k.Add(r.events.Run)
	for _, loop := range append(more, r.provider.Leader()...) {
		k.Add(loop)
	}
	return k
}

// watchLag is how long after an event watches show it.
const watchLag = 20 * time.Millisecond

// deploy makes pods that a ReplicaSet owns.
func (w *world) deploy(pods int, cpus, memory string) {
	for i := range pods {
		w.API.Put(sim.Pod(fmt.Sprintf("web-%03d", i), cpus, func(p *corev1.Pod) {
			sim.OwnedBy("web")(p)
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(memory)
		}))
	}
}

// running counts the pods that run and stay.
func (w *world) running() (n int) {
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// eventually waits until nothing is wrong, and nothing is wrong a second later either.
func (w *world) eventually(what string, within time.Duration, wrong func() string) {
	w.t.Helper()
	deadline := time.Now().Add(within)
	for {
		why := wrong()
		if why == "" {
			time.Sleep(time.Second)
			if why = wrong(); why == "" {
				return
			}
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s: %s", within, what, why)
		}
		time.Sleep(time.Second)
	}
}

// until waits for the very moment at which something is so, for ten minutes at most.
func (w *world) until(what string, so func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within ten minutes: %s", what)
		}
	}
}

// allRun says how many of so many pods do not run.
func (w *world) allRun(pods int) func() string {
	return func() string {
		if n := w.running(); n != pods {
			nc, _ := sim.Find[*awsv1.EC2NodeClass](w.World, "default")
			return fmt.Sprintf("%d of %d pods run; class ready: %v; %s", n, pods, nc != nil && condition.IsTrue(nc, awsv1.ConditionTypeReady), w.unequal())
		}
		return ""
	}
}

// unequal says where machines, claims and nodes are not one to one.
func (w *world) unequal() string {
	var machines, claims, nodes []string
	for _, m := range w.aws.Alive() {
		machines = append(machines, "aws:///"+m.Zone+"/"+m.ID)
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		claims = append(claims, c.Status.ProviderID)
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		nodes = append(nodes, n.Spec.ProviderID)
	}
	for _, list := range [][]string{machines, claims, nodes} {
		slices.Sort(list)
	}
	if slices.Equal(machines, claims) && slices.Equal(claims, nodes) {
		return ""
	}
	return fmt.Sprintf("%d machines, %d claims, %d nodes", len(machines), len(claims), len(nodes))
}

// left says what is left over of a cluster that has gone.
func (w *world) left() string {
	var out []string
	for _, m := range w.aws.Alive() {
		out = append(out, "machine "+m.ID)
	}
	for _, p := range w.aws.Templates() {
		out = append(out, "template "+p.Name)
	}
	for _, p := range w.aws.Profiles() {
		out = append(out, "profile "+p.Name)
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		out = append(out, "claim "+c.Name)
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		out = append(out, "node "+n.Name)
	}
	return strings.Join(out, ", ")
}
