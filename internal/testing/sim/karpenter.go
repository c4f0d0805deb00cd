package sim

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/buffer"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/control/claim"
	"karpenter.sh/karpenter/internal/control/definition"
	"karpenter.sh/karpenter/internal/control/disruption"
	"karpenter.sh/karpenter/internal/control/drain"
	"karpenter.sh/karpenter/internal/control/gc"
	"karpenter.sh/karpenter/internal/control/learn"
	"karpenter.sh/karpenter/internal/control/open"
	"karpenter.sh/karpenter/internal/control/pool"
	"karpenter.sh/karpenter/internal/control/provision"
	"karpenter.sh/karpenter/internal/control/repair"
	"karpenter.sh/karpenter/internal/control/static"
	corebuffer "karpenter.sh/karpenter/internal/core/buffer"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/selector"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// A Karpenter is one process: a store of its own and the loops that look after claims, nodes and pools.
type Karpenter struct {
	Store   *cluster.Store
	Metrics *telemetry.Metrics
	Journal *journal.Journal
	Desk    provision.Desk // of what is provisioned
	Times   *telemetry.PodTimes
	Client  *memapi.Client
	Learner *learn.Learner

	mu     sync.Mutex
	events []*corev1.Event

	sink *telemetry.Events
	runs []func(context.Context) error
}

// KarpenterOptions change what the process does.
type KarpenterOptions struct {
	Name  string                  // of its clients, for faults
	Lag   time.Duration           // of its watches
	Deaf  func(memapi.Event) bool // which events its watches do not show; nil for none
	Store *cluster.Store          // its own by default
	Claim claim.Settings
	Gates pool.Gates
	Cloud cloud.Provider // the world's by default
	// Hint is called before a node loses the taint that keeps pods away; nil for no hints.
	Hint func(ctx context.Context, node string)
	// Delay is how long a call to the API server takes.
	Delay time.Duration
	// Provision adds the loops that plan for pods, and with the gate StaticCapacity the loop that keeps static pools.
	Provision bool
	// Disrupt adds the loop that removes nodes; it needs Provision.
	Disrupt bool
	// Repairs has broken machines replaced; it needs Disrupt. LegacyRepair adds the loop that did so before 1.15.
	Repairs, LegacyRepair bool
	// Buffers adds the loop that keeps room for CapacityBuffers; it needs Provision.
	Buffers bool
	// Foresight adds it too, for pods that other objects announce.
	Foresight bool
	// Devices has resource claims planned for.
	Devices bool
	// Search limits the engine's search for cheaper fleets; 0 for the default.
	Search work.Units
	// Planner are the settings of disruption; zero for the default.
	Planner disrupt.Settings
	// Stories is a folder for worlds in which pods are not bound; "" for none.
	Stories string
	Telling
}

// Telling is where the process says what it does.
type Telling struct {
	Log     *slog.Logger       // nil for nowhere
	Metrics *telemetry.Metrics // its own by default
}

// known is what the core and AWS know about labels.
func known() *label.Vocabulary { return label.NewVocabulary(v1.Labels(), awsv1.Labels()) }

// Karpenter makes a process for the world. More loops may be added before it runs.
func (w *World) Karpenter(o KarpenterOptions) *Karpenter {
	k := &Karpenter{Store: o.Store, Client: w.API.Client(o.Name), Times: telemetry.NewPodTimes()}
	if k.Store == nil {
		k.Store = cluster.NewStore()
	}
	k.Client.Delay, k.Client.Careful = o.Delay, true
	if o.Deaf == nil {
		o.Deaf = func(memapi.Event) bool { return false }
	}
	if k.Metrics = o.Metrics; k.Metrics == nil {
		k.Metrics = telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds("karpenter_k8s_aws_ec2nodeclass"))
	}
	k.sink = telemetry.NewEvents(k.keep, k.Metrics)
	k.Journal = journal.New()
	provider := o.Cloud
	if provider == nil {
		provider = w.Cloud
	}
	pools := pool.New(pool.Deps{Store: k.Store, Client: k.Client, Cloud: provider, Known: known(), Metrics: k.Metrics,
		Events: k.sink, Gates: o.Gates})
	garbage := gc.New(gc.Deps{Store: k.Store, Client: k.Client, Cloud: provider, Metrics: k.Metrics, Events: k.sink})
	o.Claim.Devices, o.Claim.Reboots = o.Claim.Devices || o.Devices, o.Claim.Reboots || o.Repairs
	claims := claim.New(claim.Deps{
		Store: k.Store, Client: k.Client, Cloud: provider, Metrics: k.Metrics, Events: k.sink, Journal: k.Journal,
		Known: known(), Health: pools, Suspect: garbage.Suspect,
		Hint: o.Hint, Definition: definition.New(k.Client),
	}, o.Claim)
	drains := drain.New(drain.Deps{
		Store: k.Store, Client: k.Client, Evictions: k.Client, Cloud: provider, Metrics: k.Metrics, Events: k.sink, Journal: k.Journal,
		Definition: definition.New(k.Client),
	}, drain.Settings{})
	k.runs = []func(context.Context) error{
		func(ctx context.Context) error { w.API.FeedDeaf(ctx, k.Store, o.Lag, o.Deaf); return nil },
		k.sink.Run, pools.Run, garbage.Run, claims.Run, drains.Run,
	}
	if o.LegacyRepair {
		k.Add(repair.New(repair.Deps{Store: k.Store, Client: k.Client, Cloud: provider, Metrics: k.Metrics,
			Events: k.sink, Journal: k.Journal}).Run)
	}
	if o.Provision {
		k.provision(provider, o, pools)
	}
	return k
}

// provision adds the loops that decide what to launch and what to remove.
func (k *Karpenter) provision(provider cloud.Provider, o KarpenterOptions, pools *pool.Loop) {
	settings := engine.Settings{ReservedCapacity: true, Search: o.Search}
	if o.Devices {
		settings.Selects = selector.Selects
	}
	catalogs := catalog.New(provider).WithRollouts(known())
	opener := open.New(k.Store, k.Client, catalogs, k.Metrics, k.sink)
	opener.Journal = k.Journal
	planning := provision.New(provision.Deps{
		Store: k.Store, Engine: engine.New(awsv1.Labels()), Catalogs: catalogs, Opener: opener, Metrics: k.Metrics,
		Events: k.sink, Times: k.Times, Journal: k.Journal, Desk: &k.Desk,
	}, provision.Settings{Idle: time.Second, Max: 10 * time.Second, Engine: settings, Stories: o.Stories})
	k.Add(planning.Run)
	if o.Planner == (disrupt.Settings{}) {
		o.Planner = disrupt.DefaultSettings()
	}
	if o.Gates.StaticCapacity {
		k.Add(static.New(static.Deps{
			Store: k.Store, Client: k.Client, Catalogs: catalogs, Opener: opener, Engine: engine.New(awsv1.Labels()),
			Metrics: k.Metrics, Events: k.sink,
		}, settings).Run)
	}
	k.Learner = learn.New(catalogs, k.Metrics, k.sink, 0.9)
	if o.Buffers || o.Foresight {
		k.Add(buffer.New(buffer.Deps{
			Store: k.Store, Client: k.Client, Workloads: deployments{k.Client}, Catalogs: catalogs, Opener: opener,
			Engine: engine.New(awsv1.Labels()), Metrics: k.Metrics, Events: k.sink, Learner: k.Learner,
		}, buffer.Settings{Foresight: o.Foresight, Idle: time.Second, Max: 10 * time.Second, Engine: settings}).Run)
	}
	if o.Disrupt {
		var repairs *lifecycle.Repairs
		if o.Repairs {
			repairs = lifecycle.NewRepairs(provider.RepairPolicies())
		}
		var may func(context.Context, *v1.NodeClaim) error
		if r, ok := provider.(cloud.Rebooter); ok {
			may = r.MayReboot
		}
		k.Add(disruption.New(k.Store, k.Client, catalogs, opener, disruption.Telling{Metrics: k.Metrics,
			Events: k.sink, Journal: k.Journal, NeverReady: pools.NeverReady},
			disruption.Settings{Labels: awsv1.Labels(), Planner: o.Planner, Engine: settings, Repairs: repairs,
				MayReboot: may}).Run)
	}
}

// Add adds a loop.
func (k *Karpenter) Add(run func(context.Context) error) { k.runs = append(k.runs, run) }

// Known is what the core and AWS know about labels.
func (k *Karpenter) Known() *label.Vocabulary { return known() }

// Sink is where loops publish events.
func (k *Karpenter) Sink() *telemetry.Events { return k.sink }

// Run works until ctx ends and every loop has returned.
func (k *Karpenter) Run(ctx context.Context) {
	var wait sync.WaitGroup
	for _, run := range k.runs {
		wait.Go(func() { _ = run(ctx) })
	}
	wait.Wait()
}

func (k *Karpenter) keep(_ context.Context, e *corev1.Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, e)
	return nil
}

// Events returns what was published.
func (k *Karpenter) Events() []*corev1.Event {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*corev1.Event(nil), k.events...)
}

// ReadyClass is a node class that can be used.
func ReadyClass(name string) *awsv1.EC2NodeClass {
	class := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, dependent := range class.ConditionRules().Dependents {
		condition.SetTrue(class, dependent, time.Now())
	}
	return class
}

// deployments reads the one kind of workload that buffers of the world name. The API in memory has no discovery.
type deployments struct{ client *memapi.Client }

// Read reads a Deployment.
func (r deployments) Read(ctx context.Context, namespace string,
	ref *autoscalingv1beta1.ScalableRef) (corebuffer.Source, *corebuffer.Flaw, error) {
	d := &appsv1.Deployment{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, d)
	if apierrors.IsNotFound(err) {
		return corebuffer.Source{}, &corebuffer.Flaw{Code: corebuffer.WorkloadNotFound, Value: "there is no Deployment " + ref.Name}, nil
	}
	from := corebuffer.Source{Template: &d.Spec.Template}
	if d.Spec.Replicas != nil {
		from.Replicas = *d.Spec.Replicas
	}
	return from, nil, err
}
