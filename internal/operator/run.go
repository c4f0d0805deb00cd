package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/follow"
	"karpenter.sh/karpenter/internal/compat/conversion"
	"karpenter.sh/karpenter/internal/compat/legacy"
	"karpenter.sh/karpenter/internal/control/breaker"
	"karpenter.sh/karpenter/internal/control/buffer"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/control/claim"
	"karpenter.sh/karpenter/internal/control/commitment"
	"karpenter.sh/karpenter/internal/control/definition"
	"karpenter.sh/karpenter/internal/control/deletioncost"
	"karpenter.sh/karpenter/internal/control/disruption"
	"karpenter.sh/karpenter/internal/control/drain"
	"karpenter.sh/karpenter/internal/control/gated"
	"karpenter.sh/karpenter/internal/control/gc"
	"karpenter.sh/karpenter/internal/control/hint"
	"karpenter.sh/karpenter/internal/control/learn"
	"karpenter.sh/karpenter/internal/control/ledger"
	"karpenter.sh/karpenter/internal/control/open"
	"karpenter.sh/karpenter/internal/control/overlay"
	"karpenter.sh/karpenter/internal/control/pool"
	"karpenter.sh/karpenter/internal/control/provision"
	"karpenter.sh/karpenter/internal/control/quotas"
	"karpenter.sh/karpenter/internal/control/repair"
	"karpenter.sh/karpenter/internal/control/rollout"
	"karpenter.sh/karpenter/internal/control/static"
	"karpenter.sh/karpenter/internal/control/watch"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/selector"
	"karpenter.sh/karpenter/internal/kit/watchhealth"
	"karpenter.sh/karpenter/internal/observe"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/ui/page"
	"karpenter.sh/karpenter/internal/ui/scalable"
)

// Options are what Run needs.
type Options struct {
	REST     *rest.Config // how to reach the API server; rates are set from the settings
	Settings Settings
	// Cloud makes the provider. It is called once the API clients exist and before anything runs.
	Cloud           func(ctx context.Context, in CloudInput) (*Cloud, error)
	NodeClasses     NodeClasses
	Version, Commit string
	// Started, if set, receives the addresses at which metrics, probes and the page are served.
	Started func(Addresses)
	// Host, if set, is the program that this one runs inside of.
	Host *Host
	// Preview, if set, plans on the page for pods of manifests, and answers with JSON. The question holds the cluster, its pools and the
	// settings.
	Preview func(ctx context.Context, manifests []byte, in engine.Question) ([]byte, error)
}

// A Host is a program that elects the leader and listens for the core that runs inside of it.
type Host struct {
	// Elected is closed when this process may act. The host ends the process when it may no longer.
	Elected <-chan struct{}
	// Serve is called once, before anything runs, with what the host is to serve. The ports of metrics and probes in Settings are not used.
	Serve func(Served)
}

// Served is what a host serves.
type Served struct {
	Metrics      http.Handler // /metrics, /journal and /snapshot
	Alive, Ready func() error
}

// NodeClasses is what a provider's own kind is called.
type NodeClasses struct {
	Group string // of the API, such as karpenter.k8s.aws
	Label string // by which claims name their node class, such as karpenter.k8s.aws/ec2nodeclass
	// AddToScheme makes the kind known to API clients.
	AddToScheme func(*runtime.Scheme) error
}

// CloudInput is what a provider may use.
type CloudInput struct {
	REST    *rest.Config
	Client  client.WithWatch // not cached
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
	Claims  *follow.Objects[*v1.NodeClaim]
	Nodes   *follow.Objects[*corev1.Node]
	// Corrected applies NodeOverlays to a catalogue, for machines of a pool. Plans know no other prices, so launches should not either.
	Corrected func(ctx context.Context, pool string, c *cloud.Catalog) *cloud.Catalog
}

// A Cloud is what a provider consists of.
type Cloud struct {
	Provider cloud.Provider
	Labels   label.Table // what the provider knows about labels
	// Always runs on every replica, Leader only on the leader. Both block until their context ends.
	Always, Leader []func(context.Context) error
	// RegistrationHook, if set, is asked before a Node is registered, and Settled before a claim without a machine goes; see
	// claim.Settings.
	RegistrationHook func(ctx context.Context, claim *v1.NodeClaim) (pending string, again time.Duration)
	Settled          func(ctx context.Context, claim *v1.NodeClaim) (bool, error)
	// Gauges, if set, tells about the cloud when a scraper asks the replica that acts.
	Gauges prometheus.Collector
	// Ears tell when what the provider follows itself was last heard of, by name: disruption stops without it.
	Ears map[string]*watchhealth.Ear
}

func (c *Cloud) others() (out []watch.Ear) {
	for _, kind := range slices.Sorted(maps.Keys(c.Ears)) {
		out = append(out, watch.Ear{Kind: kind, Ear: c.Ears[kind]})
	}
	return out
}

// Run runs Karpenter until ctx ends or the lease is lost.
func Run(ctx context.Context, o Options) error {
	s := o.Settings
	if err := s.Validate(); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	ctx, closeLog, err := withLog(ctx, s.Log, o.Commit)
	if err != nil {
		return err
	}
	defer closeLog()
	if s.MemoryLimit > 0 {
		debug.SetMemoryLimit(s.MemoryLimit / 10 * 9)
	}
	telemetry.Log(ctx).Info("starting", "version", o.Version, "service", s.Service)
	if unknown := s.Gates.Unknown; len(unknown) > 0 {
		telemetry.Log(ctx).Warn("feature gates without effect: this version does not have them; remove them from "+
			"feature-gates", "gates", unknown)
	}

	registered := prometheus.NewRegistry()
	metrics := newMetrics(registered, o)
	clients, err := newClients(o, metrics)
	if err != nil {
		return err
	}
	clients.tellVersion(ctx, &s)
	events := telemetry.NewEvents(clients.writeEvent, metrics)
	store := cluster.NewStore()
	var catalogs *catalog.Service
	provider, err := o.Cloud(ctx, CloudInput{
		REST: clients.rest, Client: clients.main, Metrics: metrics, Events: events,
		Claims: follow.Claims(store), Nodes: follow.Nodes(store),
		Corrected: func(ctx context.Context, pool string, c *cloud.Catalog) *cloud.Catalog {
			return catalogs.Corrected(ctx, pool, c)
		},
	})
	if err != nil {
		return fmt.Errorf("cloud provider: %w", err)
	}
	metered := meter(provider.Provider, metrics)
	feeds := watch.New(watch.API{Client: clients.main, REST: clients.raw}, store, s.watched(metered.NodeClassKinds(), provider))
	catalogs = catalog.New(metered)
	if s.Gates.NodeOverlay {
		catalogs.WithOverlays(store, label.NewVocabulary(v1.Labels(), provider.Labels))
	}
	if s.Gates.RolloutPolicies {
		catalogs.WithRollouts(label.NewVocabulary(v1.Labels(), provider.Labels))
	}
	p := parts{store: store, clients: clients, cloud: metered, catalogs: catalogs, labels: provider.Labels,
		metrics: metrics, events: events, journal: journal.New(), verdicts: board.New(), desk: &provision.Desk{}, settings: s, host: o.Host,
		provider: *provider}
	if s.Gates.NodeRepair && !s.LegacyNodeRepair {
		if err := cloud.CheckRepairPolicies(metered.RepairPolicies()); err != nil {
			return err
		}
		p.repairs = lifecycle.NewRepairs(metered.RepairPolicies())
	}
	loops, times := p.loops()
	if s.Scheduling.ImportCommitments != "" {
		importer, err := p.importer(provider.Provider)
		if err != nil {
			return err
		}
		loops = append(loops, importer.Run)
	}
	loops = append(loops, provider.Leader...)

	var leading atomic.Bool
	observer := p.observer(times, leading.Load, feeds.Missing, o.NodeClasses.Label)
	if provider.Gauges != nil {
		registered.MustRegister(whileLeading{provider.Gauges, &leading})
	}

	metrics.LeaderStatus.WithLabelValues(s.LeaderElection.Name).Set(0)
	if o.Host != nil {
		s.Serve.MetricsPort, s.Serve.HealthProbePort = 0, 0
	}
	shown := page.New(page.Deps{Store: store, Catalogs: catalogs, Journal: p.journal, Verdicts: p.verdicts,
		Metrics: metrics, Leading: leading.Load, Leave: p.leave, Preview: p.preview(o.Preview)})
	scraped := guarded(s, clients, metricsHandler(s.registry(registered), observer, p.journal, p.desk, p.learner, s.Serve.EnableProfiling))
	probes := checks{alive(metrics), ready(clients.main.RESTMapper(), feeds.Missing, &leading, s.DisableWarmup)}
	if o.Host != nil {
		o.Host.Serve(Served{scraped, probes.alive, probes.ready})
	}
	stopServers, err := serve(ctx, s, scraped, pageHandler(s, clients, shown), probes, o.Started)
	if err != nil {
		return err
	}
	defer stopServers()

	always := append(p.always(), provider.Always...)
	if s.Serve.UIPort != 0 {
		always = append(always, shown.Run)
	}
	past, err := p.history(shown)
	if err != nil {
		return err
	}
	older, err := p.older(ctx)
	if err != nil {
		return err
	}
	always, loops = append(always, older.always...), append(loops, older.leader...)
	costs, err := p.ledger()
	if err != nil {
		return err
	}
	if s.Journal.Ledger.ConfigMaps != "" {
		always, loops = append(always, costs.Watch), append(loops, costs.Run)
	}
	if costs != nil {
		loops = append(loops, costs.Sample)
	}
	lead := func(ctx context.Context) error {
		leading.Store(true)
		defer leading.Store(false)
		telemetry.Log(ctx).Info("leading")
		past.restore(ctx)
		return together(ctx, append(loops, observer.Run, past.run)...)
	}
	if s.DisableWarmup {
		return together(ctx, append(always, p.elected(o.REST,
			func(ctx context.Context) error { return together(ctx, feeds.Run, lead) }))...)
	}
	return together(ctx, append(always, feeds.Run, p.elected(o.REST, lead))...)
}

// watched returns which kinds of the cluster are watched: those that a feature reads only where it is on.
func (s *Settings) watched(classes []schema.GroupVersionKind, provider *Cloud) watch.Settings {
	return watch.Settings{
		NodeClasses: classes, OwnerSelectors: len(s.Scheduling.DefaultSpread) > 0,
		Overlays: s.Gates.NodeOverlay, Commitments: s.Gates.CommitmentDiscounts, Buffers: s.Gates.CapacityBuffer,
		Quotas: s.Gates.CapacityQuota, Rollouts: s.Gates.RolloutPolicies, Announcing: s.Scheduling.Foresight, Devices: s.Scheduling.Devices,
		Others: provider.others(),
	}
}

// registry returns the metrics of r: also under historic names where that is wanted.
func (s *Settings) registry(r *prometheus.Registry) registry {
	if s.HistoricMetrics {
		return telemetry.WithHistoric{Registry: r}
	}
	return r
}

// observer returns what counts the cluster's state whenever the metrics are read.
func (p *parts) observer(times *telemetry.PodTimes, leading func() bool, missing func() ([]string, time.Duration),
	classLabel string) *observe.Observer {
	return observe.New(observe.Deps{
		Store: p.store, Metrics: p.metrics, Events: p.events, Times: times, Catalogs: p.catalogs, Leading: leading,
		Missing: missing, Detailed: !p.settings.DisableObservability, Historic: p.settings.HistoricMetrics,
		OpenCost: p.settings.Journal.Ledger.OpenCost,
		Kinds:    telemetry.ConditionKinds(classLabel), NodeLabels: wellKnown(p.labels),
	})
}

// importer makes what keeps CommitmentDiscounts of what the account has bought.
func (p *parts) importer(provider cloud.Provider) (*commitment.Importer, error) {
	source, ok := provider.(cloud.CommitmentSource)
	if !ok {
		return nil, fmt.Errorf("import-commitments: the provider %s does not tell what was bought; leave it empty, and write "+
			"CommitmentDiscounts by hand", provider.Name())
	}
	return commitment.NewImporter(p.store, p.clients.main, source, p.settings.Scheduling.ImportCommitments, p.metrics)
}

// parts is what loops are made of.
type parts struct {
	store    *cluster.Store
	clients  *clients
	cloud    *metered
	catalogs *catalog.Service
	labels   label.Table
	metrics  *telemetry.Metrics
	events   *telemetry.Events
	journal  *journal.Journal
	verdicts *board.Board
	desk     *provision.Desk
	settings Settings
	host     *Host
	repairs  *lifecycle.Repairs // nil where broken nodes are not repaired, or as before 1.15
	learner  *learn.Learner     // nil where no room is kept for anything
	provider Cloud
}

// always makes what runs on every replica.
func (p *parts) always() []func(context.Context) error {
	run := []func(context.Context) error{p.events.Run, p.watchHeap}
	if p.settings.Journal.Dir != "" {
		run = append(run, p.keepJournal)
	}
	if p.settings.RecordDir != "" {
		run = append(run, p.record)
	}
	return run
}

// ledger returns what notes the cost of machines, nil if neither ConfigMaps nor a page want it. Without ConfigMaps only its Sample may run.
func (p *parts) ledger() (*ledger.Ledger, error) {
	s, namespace, err := p.settings.Journal.Ledger, "", error(nil)
	switch {
	case s.ConfigMaps != "":
		namespace, err = leaseNamespace(p.settings.LeaderElection)
	case p.settings.Serve.UIPort == 0:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ledger.New(ledger.Deps{Store: p.store, Client: p.clients.main, Catalogs: p.catalogs, Metrics: p.metrics,
		Engine: engine.New(p.labels), Verdicts: p.verdicts}, ledger.Settings{
		ConfigMaps: client.ObjectKey{Namespace: namespace, Name: s.ConfigMaps}, Labels: s.Labels, Engine: p.settings.engineSettings(),
	}), nil
}

// older is what serves v1beta1 on every replica, and what rewrites on the leader what is stored in it.
type older struct{ always, leader []func(context.Context) error }

// older makes them, none if v1beta1 is not served.
func (p *parts) older(ctx context.Context) (older, error) {
	s := p.settings.Older
	if s.V1Beta1 == olderNone {
		p.clients.tellUnconverted(ctx)
		return older{}, nil
	}
	namespace, err := leaseNamespace(p.settings.LeaderElection)
	if err != nil {
		return older{}, err
	}
	service, err := conversion.New(p.clients.main, conversion.Settings{
		Leaving: s.V1Beta1 == olderDrop, Host: p.settings.Serve.Host, Port: s.Port, Namespace: namespace,
		Service: p.settings.Service + "-conversion", URL: s.URL,
	}, p.metrics)
	if err != nil {
		return older{}, err
	}
	return older{[]func(context.Context) error{service.Run}, []func(context.Context) error{service.Migration(p.clients.rewrites).Run}}, nil
}

// engineSettings returns the settings of the engine, which are the same in every loop.
func (s *Settings) engineSettings() engine.Settings {
	out := engine.Settings{
		AssumeRequests:      s.Scheduling.AssumeRequests,
		IgnorePreferences:   s.Scheduling.IgnorePreferences,
		MinValuesBestEffort: s.Scheduling.MinValuesBestEffort,
		ReservedCapacity:    s.Gates.ReservedCapacity,
		DefaultSpread:       s.Scheduling.DefaultSpread,
		Band:                shape.SpotBand(s.Scheduling.SpotTypes),
		NodePrice:           s.nodePrice(),
		InterruptionCost:    cloud.FromDollars(s.Scheduling.InterruptionCost),
	}
	if s.Scheduling.Devices {
		out.Selects = selector.Selects
	}
	return out
}

// nodePrice is what the engine adds for each node. It takes zero for the default.
func (s *Settings) nodePrice() cloud.NanoUSD {
	if s.Scheduling.NodePrice <= 0 {
		return -1
	}
	return cloud.NanoUSD(math.Round(s.Scheduling.NodePrice * 1e9))
}

// loops makes everything that acts on the cluster.
func (p *parts) loops() ([]func(context.Context) error, *telemetry.PodTimes) {
	s := &p.settings
	known := label.NewVocabulary(v1.Labels(), p.labels)
	times := telemetry.NewPodTimes()

	catalogs := p.catalogs
	opener := open.New(p.store, p.clients.main, catalogs, p.metrics, p.events)
	opener.Journal = p.journal
	provisioning := provision.New(provision.Deps{
		Store: p.store, Engine: engine.New(p.labels), Catalogs: catalogs, Opener: opener, Metrics: p.metrics,
		Events: p.events, Times: times, Journal: p.journal, Verdicts: p.verdicts, Desk: p.desk,
	}, provision.Settings{Idle: s.Batch.Idle, Max: s.Batch.Max, Engine: s.engineSettings(), Stories: s.Stories})

	hints := hint.New(p.store, p.clients.hints, p.metrics, p.clients.understandsHints)
	pools := pool.New(pool.Deps{
		Store: p.store, Client: p.clients.main, Cloud: p.cloud, Known: known, Metrics: p.metrics, Events: p.events,
		Gates: pool.Gates{StaticCapacity: s.Gates.StaticCapacity},
	})
	garbage := gc.New(gc.Deps{Store: p.store, Client: p.clients.main, Cloud: p.cloud, Metrics: p.metrics, Events: p.events})
	claimDeps := claim.Deps{
		Store: p.store, Client: p.clients.main, Cloud: p.cloud, Metrics: p.metrics, Events: p.events, Journal: p.journal, Known: known,
		Health: pools, Suspect: garbage.Suspect, Definition: definition.New(p.clients.main), Corrected: catalogs.Corrected,
	}
	life := lifecycle.Settings{Reboots: p.repairs.Reboots()}
	if s.Hints.Enabled {
		claimDeps.Hint = hints.Before
		if s.Hints.HoldTaint {
			life.HoldTaint = time.Minute
		}
	}
	claims := claim.New(claimDeps, claim.Settings{Settings: life, Workers: s.Workers(1000, 5000), Devices: s.Scheduling.Devices,
		RegistrationHook: p.provider.RegistrationHook, Settled: p.provider.Settled})
	drains := drain.New(drain.Deps{
		Store: p.store, Client: p.clients.main, Evictions: p.clients.evictions, Cloud: p.cloud, Metrics: p.metrics,
		Events: p.events, Journal: p.journal, Definition: claimDeps.Definition,
	}, drain.Settings{Workers: s.Workers(100, 5000)})
	disruptions := disruption.New(p.store, p.clients.main, catalogs, opener,
		disruption.Telling{Metrics: p.metrics, Events: p.events, Journal: p.journal, Verdicts: p.verdicts, NeverReady: pools.NeverReady},
		disruption.Settings{Labels: p.labels, Planner: p.planner(), Engine: s.engineSettings(), Repairs: p.repairs,
			MayReboot: p.cloud.MayReboot})

	loops := []func(context.Context) error{
		provisioning.Run, claims.Run, drains.Run, disruptions.Run, pools.Run, garbage.Run,
		gated.New(p.clients.main, gated.Gates{NodeOverlay: s.Gates.NodeOverlay, CapacityBuffer: s.Gates.CapacityBuffer}, p.metrics).Run,
	}
	if s.Hints.Enabled {
		loops = append(loops, hints.Run)
	}
	if b := s.Disruption.Breaker; b.Percent > 0 {
		loops = append(loops, breaker.New(breaker.Deps{Store: p.store, Client: p.clients.main, Metrics: p.metrics, Events: p.events},
			breaker.Settings{Percent: b.Percent, Window: b.Window, Pause: b.Pause, Ready: breakerReady}).Run)
	}
	if s.Gates.PodDeletionCostManagement {
		loops = append(loops, deletioncost.New(p.store, p.clients.main, p.metrics).Run)
	}
	if s.Gates.RolloutPolicies {
		loops = append(loops, rollout.New(rollout.Deps{Store: p.store, Client: p.clients.main, Metrics: p.metrics, Events: p.events,
			Known: label.NewVocabulary(v1.Labels(), p.labels)}).Run)
	}
	if s.Gates.StaticCapacity {
		loops = append(loops, static.New(static.Deps{
			Store: p.store, Client: p.clients.main, Catalogs: catalogs, Opener: opener, Engine: engine.New(p.labels),
			Metrics: p.metrics, Events: p.events,
		}, s.engineSettings()).Run)
	}
	if s.Older.Provisioners != provisionersIgnore {
		loops = append(loops, legacy.New(p.clients.main, s.Older.Provisioners == provisionersConvert, p.events, p.metrics).Run)
	}
	if s.Gates.NodeOverlay {
		loops = append(loops, overlay.New(p.store, p.clients.main, catalogs, p.metrics).Run)
	}
	if s.Gates.CommitmentDiscounts {
		loops = append(loops, commitment.New(p.store, p.clients.main, catalogs, p.metrics).Run)
	}
	if s.Gates.CapacityBuffer || s.Scheduling.Foresight {
		p.learner = learn.New(catalogs, p.metrics, p.events, s.Scheduling.LearnQuantile)
		loops = append(loops, buffer.New(buffer.Deps{
			Store: p.store, Client: p.clients.main, Workloads: scalable.Workloads{Client: p.clients.main},
			Catalogs: catalogs, Opener: opener, Engine: engine.New(p.labels),
			Metrics: p.metrics, Events: p.events, Learner: p.learner,
		}, buffer.Settings{Foresight: s.Scheduling.Foresight, Idle: s.Batch.Idle, Max: s.Batch.Max, Engine: s.engineSettings()}).Run)
	}
	if s.Gates.CapacityQuota {
		loops = append(loops, quotas.New(quotas.Deps{Store: p.store, Client: p.clients.main, Catalogs: catalogs, Known: known,
			Metrics: p.metrics, Events: p.events}).Run)
	}
	if s.Gates.NodeRepair && s.LegacyNodeRepair {
		loops = append(loops, repair.New(repair.Deps{Store: p.store, Client: p.clients.main, Cloud: p.cloud,
			Metrics: p.metrics, Events: p.events, Journal: p.journal}).Run)
	}
	return loops, times
}

func (p *parts) planner() disrupt.Settings {
	s := disrupt.DefaultSettings()
	s.SpotToSpot = p.settings.Gates.SpotToSpotConsolidation
	s.Surge, s.RestartSaving = p.settings.Disruption.Surge.Enabled, p.settings.Disruption.Surge.Saving
	s.TerminateFirstDrift, s.TerminateFirstRepair = p.settings.Gates.TerminateFirstDrift, p.settings.Gates.TerminateFirstRepair
	return s
}

// withLog returns a context with a logger: the one it carries, or a logger that the settings describe.
func withLog(ctx context.Context, s telemetry.LogSettings, commit string) (context.Context, func(), error) {
	if telemetry.HasLog(ctx) {
		return ctx, func() {}, nil
	}
	log, closeLog, err := telemetry.NewLog(s, commit)
	if err != nil {
		return nil, nil, err
	}
	slog.SetDefault(log) // for packages that have no context, such as bug
	routeClientLogs(log)
	return telemetry.WithLog(ctx, log), closeLog, nil
}

// routeClientLogs makes the Kubernetes client libraries log through l.
func routeClientLogs(l *slog.Logger) {
	to := logr.FromSlogHandler(l.Handler())
	klog.SetLogger(to)
	ctrllog.SetLogger(to)
}

// wellKnown returns the label keys that series about nodes carry.
func wellKnown(provider label.Table) []string {
	var out []string
	for _, l := range label.NewVocabulary(v1.Labels(), provider).Labels() {
		if l.WellKnown {
			out = append(out, l.Key)
		}
	}
	return out
}

// together runs functions side by side until ctx ends or one of them returns, then stops the others and waits for them.
func together(ctx context.Context, run ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan error, len(run))
	for _, f := range run {
		go func() { results <- f(ctx) }()
	}
	var errs []error
	for range run {
		err := <-results
		if err == nil && ctx.Err() == nil {
			err = errors.New("a loop ended by itself")
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
		stop()
	}
	return errors.Join(errs...)
}
