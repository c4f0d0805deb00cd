package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// errLostLease ends a program that no longer leads. It is started again and is a standby then.
var errLostLease = errors.New("lost the lease")

// elected returns a function that runs lead for as long as this replica may act: it holds the lease, or a Host or the settings decide.
// When ctx ends, lead has returned before the lease is given back, so that two replicas never act at the same time.
func (p *parts) elected(base *rest.Config, lead func(context.Context) error) func(context.Context) error {
	s := p.settings.LeaderElection
	if p.host != nil {
		return p.host.elected(p.acting(lead))
	}
	if s.Disabled {
		return p.acting(lead)
	}
	return func(ctx context.Context) error {
		lock, err := newLock(base, s)
		if err != nil {
			return err
		}
		return p.elect(ctx, lock, lead)
	}
}

// elected returns a function that runs lead once the host says that this process may act.
func (h *Host) elected(lead func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-h.Elected:
			return lead(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// acting returns lead, preceded by setting the metric that this replica acts.
func (p *parts) acting(lead func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		p.metrics.LeaderStatus.WithLabelValues(p.settings.LeaderElection.Name).Set(1)
		return lead(ctx)
	}
}

// elect waits for the lock and runs lead for as long as the lock is held. It returns the error of lead, with errLostLease if the lease
// was lost. The election runs with a context of its own (lease), which ends only after lead has returned.
func (p *parts) elect(ctx context.Context, lock resourcelock.Interface, lead func(context.Context) error) error {
	s := p.settings.LeaderElection
	lease, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	began, ended := make(chan struct{}), make(chan error, 1)
	leaderelection.SetProvider(slowRenewals{p.metrics.LeaderSlowpath})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: s.Name, ReleaseOnCancel: true,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				close(began)
				both, stop := context.WithCancel(ctx)
				defer stop()
				defer context.AfterFunc(held, stop)()
				err := p.acting(lead)(both)
				if held.Err() != nil && ctx.Err() == nil {
					err = errors.Join(err, errLostLease)
				}
				ended <- err
				release()
			},
			OnStoppedLeading: func() { p.metrics.LeaderStatus.WithLabelValues(s.Name).Set(0) },
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	// A standby that is stopped has nothing to finish: its election ends at once.
	defer context.AfterFunc(ctx, func() {
		select {
		case <-began:
		default:
			release()
		}
	})()
	elector.Run(lease)
	select {
	case <-began:
		return <-ended
	default:
		return nil
	}
}

// slowRenewals counts the renewals of the lease that were slow, for client-go. On and Off are empty: the gauge of the leader is set
// where a replica begins to act. client-go keeps the first such counter of a process.
type slowRenewals struct{ count *prometheus.CounterVec }

func (s slowRenewals) NewLeaderMetric() leaderelection.LeaderMetric { return s }

func (s slowRenewals) On(string)  {}
func (s slowRenewals) Off(string) {}

func (s slowRenewals) SlowpathExercised(name string) { s.count.WithLabelValues(name).Inc() }

// newLock returns the lease, reached by a client of its own, so that no load can keep it from being renewed.
func newLock(base *rest.Config, s LeaderElectionSettings) (resourcelock.Interface, error) {
	c := rest.CopyConfig(base)
	c.QPS, c.Burst, c.RateLimiter = 0, 0, nil
	c.Timeout = renewDeadline / 2
	set, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("leader election client: %w", err)
	}
	namespace, err := leaseNamespace(s)
	if err != nil {
		return nil, err
	}
	host, err := hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: s.Name},
		Client:     set.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, nil
}

// hostname returns the name of the pod. If the pod uses the host's network, only the environment variable has it.
func hostname() (string, error) {
	if name := os.Getenv("HOSTNAME"); name != "" {
		return name, nil
	}
	return os.Hostname()
}

const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaseNamespace returns where the lease is: as set, or where this program runs.
func leaseNamespace(s LeaderElectionSettings) (string, error) {
	if s.Namespace != "" {
		return s.Namespace, nil
	}
	if ns := os.Getenv("SYSTEM_NAMESPACE"); ns != "" {
		return ns, nil
	}
	data, err := os.ReadFile(namespaceFile)
	if err != nil {
		return "", errors.New("leader election: not in a cluster; set leader-election-namespace, or disable-leader-election")
	}
	return strings.TrimSpace(string(data)), nil
}
