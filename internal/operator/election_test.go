package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// replicas are several programs that share one lease.
type replicas struct {
	api     *fake.Clientset
	cut     map[string]*atomic.Bool // replicas that cannot reach the API server
	acting  atomic.Int32
	overlap atomic.Bool
	terms   atomic.Int32
	wg      sync.WaitGroup
	mu      sync.Mutex
	results map[string]error
	status  map[string]prometheus.Gauge // the metric that says that a replica acts
}

func newReplicas() *replicas {
	return &replicas{api: fake.NewClientset(), cut: map[string]*atomic.Bool{}, results: map[string]error{}, status: map[string]prometheus.Gauge{}}
}

// shown is what the metrics say about who acts.
func (r *replicas) shown() string {
	out := ""
	for _, name := range slices.Sorted(maps.Keys(r.status)) {
		out += fmt.Sprintf("%s=%v ", name, testutil.ToFloat64(r.status[name]))
	}
	return strings.TrimSpace(out)
}

// start runs one replica, whose loops take a while to end. What it returns stops it.
func (r *replicas) start(t *testing.T, name string, wind time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	cut := &atomic.Bool{}
	r.cut[name] = cut
	api := fake.NewClientset()
	for _, verb := range []string{"get", "create", "update"} {
		api.PrependReactor(verb, "leases", func(a k8stesting.Action) (bool, runtime.Object, error) {
			if cut.Load() {
				return true, nil, errors.New("unreachable")
			}
			o, err := r.api.Invokes(a, nil)
			return true, o, err
		})
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "lease"}, Client: api.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
	p := &parts{settings: DefaultSettings(), metrics: telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())}
	r.status[name] = p.metrics.LeaderStatus.WithLabelValues(p.settings.LeaderElection.Name)
	r.wg.Go(func() {
		err := p.elect(ctx, lock, func(ctx context.Context) error {
			if r.acting.Add(1) > 1 {
				r.overlap.Store(true)
			}
			r.terms.Add(1)
			<-ctx.Done()
			time.Sleep(wind)
			r.acting.Add(-1)
			return nil
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.results[name] = err
	})
	return cancel
}

func (r *replicas) result(name string) (error, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err, ended := r.results[name]
	return err, ended
}

func TestOneReplicaActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		stopA := r.start(t, "a", 3*time.Second)
		time.Sleep(time.Second)
		stopB := r.start(t, "b", 0)
		time.Sleep(time.Minute)
		if got := r.terms.Load(); got != 1 || r.acting.Load() != 1 {
			t.Fatalf("%d terms, %d act; want one replica that acts and one that waits", got, r.acting.Load())
		}
		if got := r.shown(); got != "a=1 b=0" {
			t.Errorf("metrics say %s, want that a acts", got)
		}
		// A replica that is stopped hands over at once, but not before its loops have ended.
		stopA()
		time.Sleep(2 * time.Second)
		if r.terms.Load() != 1 {
			t.Error("the second replica acts before the loops of the first have ended")
		}
		// Three seconds after its stop the first gives the lease back; the second looks every 2 s, and up to 1.2 times that later.
		time.Sleep(6 * time.Second)
		if err, ended := r.result("a"); !ended || err != nil {
			t.Errorf("the first replica: %v, ended %v; want a quiet end", err, ended)
		}
		if r.terms.Load() != 2 || r.acting.Load() != 1 {
			t.Errorf("%d terms, %d act; want the second replica to act within seconds", r.terms.Load(), r.acting.Load())
		}
		if got := r.shown(); got != "a=0 b=1" {
			t.Errorf("after the handover metrics say %s, want that b acts", got)
		}
		stopB()
		r.wg.Wait()
		if r.overlap.Load() {
			t.Error("two replicas acted at the same time")
		}
	})
}

// Of any number of replicas one acts, as long as there is one.
func TestAnyNumberOfReplicasActsAsOne(t *testing.T) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas()
				stops := map[string]func(){}
				for i := range n {
					name := string(rune('a' + i))
					stops[name] = r.start(t, name, time.Second)
				}
				for left := n; left > 0; left-- {
					time.Sleep(time.Minute)
					if r.acting.Load() != 1 || int(r.terms.Load()) != n-left+1 {
						t.Fatalf("of %d replicas %d act, in term %d", left, r.acting.Load(), r.terms.Load())
					}
					lease, err := r.api.CoordinationV1().Leases("kube-system").Get(t.Context(), "lease", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					stops[*lease.Spec.HolderIdentity]()
				}
				r.wg.Wait()
				if r.overlap.Load() || r.acting.Load() != 0 {
					t.Errorf("overlap %v, and %d act at the end", r.overlap.Load(), r.acting.Load())
				}
			})
		})
	}
}

func TestALeaderThatIsCutOffStopsBeforeAnotherActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		r.start(t, "a", 0)
		time.Sleep(time.Second)
		stopB := r.start(t, "b", 0)
		time.Sleep(30 * time.Second)
		r.cut["a"].Store(true)
		time.Sleep(time.Minute)
		if err, ended := r.result("a"); !ended || !errors.Is(err, errLostLease) {
			t.Errorf("the replica that was cut off: %v, ended %v; want that it lost the lease", err, ended)
		}
		if r.terms.Load() != 2 || r.acting.Load() != 1 || r.overlap.Load() {
			t.Errorf("%d terms, %d act, overlap %v; want the other replica to act, after the first had stopped", r.terms.Load(), r.acting.Load(), r.overlap.Load())
		}
		stopB()
		r.wg.Wait()
	})
}

func TestAStandbyThatIsStoppedEndsQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		stopA := r.start(t, "a", 0)
		time.Sleep(time.Second)
		stopB := r.start(t, "b", 0)
		time.Sleep(10 * time.Second)
		stopB()
		time.Sleep(5 * time.Second)
		if err, ended := r.result("b"); !ended || err != nil || r.terms.Load() != 1 {
			t.Errorf("the standby: %v, ended %v, %d terms; want a quiet end", err, ended, r.terms.Load())
		}
		stopA()
		r.wg.Wait()
	})
}

// Whoever reads the lease finds the pod that leads.
func TestTheLeaseNamesThePod(t *testing.T) {
	t.Setenv("HOSTNAME", "karpenter-1")
	lock, err := newLock(&rest.Config{}, LeaderElectionSettings{Name: "l", Namespace: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if who := lock.Identity(); !strings.HasPrefix(who, "karpenter-1_") {
		t.Errorf("the lease is held by %q", who)
	}
}

func TestInsideOfAHostTheHostElects(t *testing.T) {
	elected := make(chan struct{})
	p := &parts{settings: DefaultSettings(), host: &Host{Elected: elected}, metrics: telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())}
	status := p.metrics.LeaderStatus.WithLabelValues(p.settings.LeaderElection.Name)
	acted := make(chan struct{})
	run := p.elected(nil, func(context.Context) error { close(acted); return nil })
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := run(ctx); err != nil {
		t.Errorf("error of a process that never led: %v", err)
	}
	select {
	case <-acted:
		t.Fatal("it acts although the host has not been elected")
	default:
	}
	if testutil.ToFloat64(status) != 0 {
		t.Error("the metric says that it acts before it does")
	}
	close(elected)
	if err := run(t.Context()); err != nil {
		t.Error(err)
	}
	<-acted
	if testutil.ToFloat64(status) != 1 {
		t.Error("it acts, and the metric does not say so")
	}
}

func TestSlowRenewalsAreCounted(t *testing.T) {
	m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
	slowRenewals{m.LeaderSlowpath}.NewLeaderMetric().SlowpathExercised("lease")
	if got := testutil.ToFloat64(m.LeaderSlowpath.WithLabelValues("lease")); got != 1 {
		t.Errorf("%v renewals counted, want one", got)
	}
}

func TestWithoutAnElectionTheReplicaActs(t *testing.T) {
	p := &parts{settings: DefaultSettings(), metrics: telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())}
	p.settings.LeaderElection.Disabled = true
	if err := p.elected(nil, func(context.Context) error { return nil })(t.Context()); err != nil {
		t.Error(err)
	}
	if testutil.ToFloat64(p.metrics.LeaderStatus.WithLabelValues(p.settings.LeaderElection.Name)) != 1 {
		t.Error("the metric does not say that it acts")
	}
}
