package claim_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

func TestClaimBecomesANodeAndGoesAgain(t *testing.T) {
	inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, sim.Claim("c"))
		time.Sleep(30 * time.Second)
		c := sim.Get[*v1.NodeClaim](t, w, "c")
		for _, want := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, condition.Ready, v1.ConditionTypeConsolidatable} {
			if !condition.IsTrue(c, want) {
				t.Errorf("condition %s is not True: %v", want, c.Status.Conditions)
			}
		}
		node := sim.Get[*corev1.Node](t, w, c.Status.NodeName)
		if node.Labels[v1.NodeRegisteredLabelKey] != "true" || node.Labels[v1.NodeInitializedLabelKey] != "true" || len(node.Spec.Taints) > 0 {
			t.Errorf("the node is not ready for pods: labels %v, taints %v", node.Labels, node.Spec.Taints)
		}
		if c.Labels[corev1.LabelInstanceTypeStable] != "small" || c.Labels["team"] != "a" || node.Labels["team"] != "a" {
			t.Errorf("labels are missing: claim %v, node %v", c.Labels, node.Labels)
		}
		counted := func(nodes ...float64) {
			t.Helper()
			pool, zone := node.Labels[v1.NodePoolLabelKey], node.Labels[corev1.LabelTopologyZone]
			for i, m := range []prometheus.Counter{
				k.Metrics.NodesCreated.WithLabelValues(pool, zone), k.Metrics.NodesDrained.WithLabelValues(pool), k.Metrics.NodesTerminated.WithLabelValues(pool, zone),
				k.Metrics.NodeClaimsTerminated.WithLabelValues(pool, c.Labels[v1.CapacityTypeLabelKey], zone),
			} {
				if got := testutil.ToFloat64(m); got != nodes[i] {
					t.Errorf("%v = %v, want %v", m.Desc(), got, nodes[i])
				}
			}
		}
		counted(1, 0, 0, 0)
		sim.Delete(t, w, c)
		time.Sleep(30 * time.Second)
		sim.WantNothing(t, w)
		counted(1, 1, 1, 1)
	})
}

// Nobody would know of a machine that goes on running.
func TestAClaimOutlivesItsMachine(t *testing.T) {
	slow := sim.Options{Cloud: fakecloud.Options{
		Boot: func(cloud.Machine) time.Duration { return time.Hour }, Shutdown: 5 * time.Minute,
	}}
	for name, fault := range map[string]fakecloud.Fault{
		"while it stops":                      {},
		"while the cloud refuses to stop it":  {Err: errors.New("throttled")},
		"while nobody hears whether it stops": {Lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, slow, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				sim.Create(t, w, sim.Claim("c"))
				time.Sleep(10 * time.Second)
				w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
					if c.Method == fakecloud.Terminate {
						return fault
					}
					return fakecloud.Fault{}
				})
				sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
				for range 60 {
					time.Sleep(time.Second)
					if _, ok := sim.Find[*v1.NodeClaim](w, "c"); !ok || len(w.Cloud.Machines()) != 1 {
						t.Fatalf("claim there: %v, %d machines; want both", ok, len(w.Cloud.Machines()))
					}
				}
				w.Cloud.SetFault(nil)
				time.Sleep(6 * time.Minute)
				sim.WantNothing(t, w)
			})
		})
	}
}

// A launch whose result could not be written down is not made again, and is counted once.
func TestALaunchThatCannotBeWrittenDownIsMadeOnce(t *testing.T) {
	inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		var calls atomic.Int32
		w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
			if c.Method == fakecloud.Launch {
				calls.Add(1)
			}
			return fakecloud.Fault{}
		})
		w.API.SetFault(func(r memapi.Request) error {
			if r.Kind == "NodeClaim" && r.Subresource == "status" && calls.Load() > 0 {
				return errors.New("not now")
			}
			return nil
		})
		sim.Create(t, w, sim.Claim("c"))
		time.Sleep(time.Minute)
		w.API.SetFault(nil)
		time.Sleep(2 * time.Minute)
		c := sim.Get[*v1.NodeClaim](t, w, "c")
		if n := calls.Load(); n != 1 || !condition.IsTrue(c, v1.ConditionTypeLaunched) {
			t.Errorf("the cloud was asked %d times for a machine, want once; conditions %v", n, c.Status.Conditions)
		}
		if n := testutil.ToFloat64(k.Metrics.MachinesOrphaned.WithLabelValues("adopted")); n != 0 {
			t.Errorf("%v machines count as adopted, want none", n)
		}
	})
}

// The life of a claim is told in the words that operators search for, each once.
func TestTheLifeOfAClaimIsLogged(t *testing.T) {
	var said lines
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Telling: sim.Telling{Log: slog.New(&said)}}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		c := sim.Claim("c")
		sim.Create(t, w, c)
		time.Sleep(30 * time.Second)
		sim.Delete(t, w, c)
		time.Sleep(30 * time.Second)
		sim.WantNothing(t, w)
	})
	want := []string{"launched nodeclaim", "registered nodeclaim", "initialized nodeclaim", "tainted node", "deleted node", "deleted nodeclaim"}
	if !slices.Equal(said.infos, want) {
		t.Errorf("the log says %q, want %q", said.infos, want)
	}
}

// lines is a log handler that keeps the messages of level info.
type lines struct {
	mu    sync.Mutex
	infos []string
}

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelInfo }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *lines) WithGroup(string) slog.Handler                    { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos = append(l.infos, r.Message)
	return nil
}

// inWorld runs a test in a bubble with a cluster and a Karpenter.
func inWorld(t *testing.T, o sim.Options, test func(*testing.T, *sim.World, *sim.Karpenter)) {
	t.Helper()
	sim.Bubble(t, o, sim.KarpenterOptions{}, test)
}
