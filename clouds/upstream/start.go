package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpoperator "sigs.k8s.io/karpenter/pkg/operator"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/version"
	"karpenter.sh/karpenter/internal/operator"
)

// consistencyWindow is for how long a provider may not list a machine that it started.
const consistencyWindow = 2 * time.Minute

// An Option changes how the core runs over a provider.
type Option func(*settings)

type settings struct {
	window time.Duration
	hooks  []cloudprovider.NodeLifecycleHook
}

// WithConsistencyWindow says for how long the provider may not list a machine that it started: two minutes without this option. After
// a lost answer a claim waits that long before the provider is asked for another machine.
func WithConsistencyWindow(d time.Duration) Option { return func(s *settings) { s.window = d } }

// WithRegistrationHook keeps Nodes from being registered until the hook says that the provider is done with them. It may be given several
// times.
func WithRegistrationHook(h cloudprovider.NodeLifecycleHook) Option {
	return func(s *settings) { s.hooks = append(s.hooks, h) }
}

// Start runs our core over a provider, in the place of Karpenter's own controllers, together with the controllers that were
// registered with op. The manager of op elects, under the name that Karpenter's own core uses, so that the two never act at
// the same time; it serves metrics and probes. Start returns after SIGTERM, and panics when it cannot go on, as
// op.Start does.
func Start(ctx context.Context, op *karpoperator.Operator, provider cloudprovider.CloudProvider, opts ...Option) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := add(ctx, op.Manager, provider, opts...); err != nil {
		panic(err)
	}
	op.Start(ctx)
}

// add makes the core a part of a manager.
func add(ctx context.Context, mgr manager.Manager, provider cloudprovider.CloudProvider, opts ...Option) error {
	s := settings{window: consistencyWindow}
	for _, o := range opts {
		o(&s)
	}
	if core.settings.Serve.MetricsAuthentication {
		return errors.New("metrics-authentication: the provider's operator serves the metrics and does not authenticate; unset it")
	}
	if len(provider.RepairPolicies()) == 0 {
		core.settings.Gates.NodeRepair = false // the provider knows no broken nodes
	}
	in := inputs{base: baseOf(ctx), scheme: mgr.GetScheme(), classes: mgr.GetClient(), window: s.window, hooks: s.hooks}
	a, err := newAdapter(provider, in)
	if err != nil {
		return err
	}
	served := &coreServer{}
	crmetrics.Registry = &mergedRegistry{crmetrics.Registry, served}
	for _, err := range []error{
		mgr.AddHealthzCheck("core", func(*http.Request) error {
			return served.check(func(s *operator.Served) error { return s.Alive() }, true)
		}),
		mgr.AddReadyzCheck("core", func(*http.Request) error {
			return served.check(func(s *operator.Served) error { return s.Ready() }, false)
		}),
		mgr.AddMetricsServerExtraHandler("/journal", served),
		mgr.AddMetricsServerExtraHandler("/snapshot", served),
	} {
		if err != nil {
			return err
		}
	}
	return mgr.Add(everyReplica(func(ctx context.Context) error {
		return operator.Run(ctx, operator.Options{
			REST: mgr.GetConfig(), Settings: core.settings, NodeClasses: a.nodeClasses(),
			Version: version.Number(), Commit: version.Commit(),
			Host: &operator.Host{Elected: mgr.Elected(), Serve: func(s operator.Served) { served.Store(&s) }},
			Cloud: func(_ context.Context, in operator.CloudInput) (*operator.Cloud, error) {
				a.client, a.claims, a.nodes = in.Client, in.Claims, in.Nodes
				if core.settings.Gates.NodeOverlay {
					a.corrected = in.Corrected
				}
				out := &operator.Cloud{Provider: a, Labels: labels(), Settled: a.settled,
					Leader: []func(context.Context) error{a.watchEarlierLaunches}}
				if len(a.hooks) > 0 {
					out.RegistrationHook = a.registrationHook
				}
				return out, nil
			},
		})
	}))
}

// everyReplica runs on every replica of a manager: our core decides itself what waits for the lease.
type everyReplica func(context.Context) error

// Start implements manager.Runnable.
func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// nodeClasses describes the provider's node classes to our core.
func (a *adapter) nodeClasses() operator.NodeClasses {
	first := a.kinds[0].gvk
	return operator.NodeClasses{
		Group: first.Group, Label: karpv1.NodeClassLabelKey(first.GroupKind()),
		AddToScheme: func(s *runtime.Scheme) error {
			for _, k := range a.kinds {
				s.AddKnownTypeWithName(k.gvk, k.new)
			}
			return nil
		},
	}
}

// labels returns what the provider has told Karpenter's library about labels, in its package variables.
func labels() label.Table {
	var t label.Table
	for _, domain := range karpv1.RestrictedLabelDomains.UnsortedList() {
		if domain != v1.Group {
			t.RestrictedDomains = append(t.RestrictedDomains, domain)
		}
	}
	slices.Sort(t.RestrictedDomains)
	reservation := cloudprovider.ReservedCapacityLabels.Clone()
	if cloudprovider.ReservationIDLabel != "" {
		reservation.Insert(cloudprovider.ReservationIDLabel)
	}
	aliases := map[string][]string{}
	for old, key := range karpv1.NormalizedLabels {
		aliases[key] = append(aliases[key], old)
	}
	for _, key := range slices.Sorted(slices.Values(karpv1.WellKnownLabels.Union(reservation).UnsortedList())) {
		slices.Sort(aliases[key])
		t.Labels = append(t.Labels, label.Label{Key: key, WellKnown: true, Reservation: reservation.Has(key), Aliases: aliases[key]})
	}
	return t
}

// A coreServer passes on what our core serves, from when it runs.
type coreServer struct {
	atomic.Pointer[operator.Served]
}

var errStarting = errors.New("the core is starting")

// check asks the core. Before the core runs it returns nil if early is set.
func (r *coreServer) check(ask func(*operator.Served) error, early bool) error {
	s := r.Load()
	switch {
	case s != nil:
		return ask(s)
	case early:
		return nil
	}
	return errStarting
}

// ServeHTTP implements http.Handler.
func (r *coreServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	s := r.Load()
	if s == nil {
		http.Error(w, errStarting.Error(), http.StatusServiceUnavailable)
		return
	}
	s.Metrics.ServeHTTP(w, q)
}

// A mergedRegistry shows the metrics of our core, and those of the provider and of its libraries that have other names: libraries
// register what Karpenter's own core counts, and ours counts it too.
type mergedRegistry struct {
	crmetrics.RegistererGatherer
	ours *coreServer
}

// Gather implements prometheus.Gatherer.
func (j *mergedRegistry) Gather() ([]*dto.MetricFamily, error) {
	out, err := j.RegistererGatherer.Gather()
	if j.ours.Load() == nil {
		return out, err
	}
	answer := httptest.NewRecorder()
	j.ours.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		return out, errors.Join(err, fmt.Errorf("metrics of the core: status %d", answer.Code))
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	core, wrong := parser.TextToMetricFamilies(bytes.NewReader(answer.Body.Bytes()))
	out = slices.DeleteFunc(out, func(f *dto.MetricFamily) bool { return core[f.GetName()] != nil })
	for _, f := range core {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return bytes.Compare([]byte(a.GetName()), []byte(b.GetName())) })
	return out, errors.Join(err, wrong)
}

var (
	_ prometheus.Gatherer = (*mergedRegistry)(nil)
	_ cloud.Provider      = (*adapter)(nil)
	_ cloud.Rebooter      = (*adapter)(nil)
)
