package monitoring

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/bug"
	"karpenter.sh/karpenter/internal/cluster"
)

const (
	rulesFile = "../../charts/karpenter/monitoring/rules.yaml"
	runbooks  = "../../docs/runbooks.md"
)

func language() parser.Parser { return parser.NewParser(parser.Options{}) }

func readRules(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, language(), slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) == 0 {
		t.Fatal("there are no rules")
	}
	return groups.Groups
}

func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	all := map[string]rulefmt.Rule{}
	for _, g := range readRules(t) {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			if _, twice := all[r.Alert]; twice {
				t.Errorf("there are two alerts %s", r.Alert)
			}
			all[r.Alert] = r
		}
	}
	return all
}

// Whoever is woken up finds what to do, under the alert's own name.
func TestEveryAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, m := range regexp.MustCompile(`(?m)^## (Karpenter\w+)$`).FindAllStringSubmatch(string(text), -1) {
		told = append(told, m[1])
	}
	all := alerts(t)
	for name, r := range all {
		if !slices.Contains(told, name) {
			t.Errorf("%s has no runbook", name)
		}
		if want := "docs/runbooks.md#" + strings.ToLower(name); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", name, r.Annotations["runbook_url"], want)
		}
		if r.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has no summary, or the severity %q", name, r.Labels["severity"])
		}
	}
	for _, name := range told {
		if _, ok := all[name]; !ok {
			t.Errorf("there is a runbook for %s, and no such alert", name)
		}
	}
}

// fired tells after how many minutes an alert fires, negative when it never does: when its expression has had the same result for its
// time in each minute.
func fired(t *testing.T, m *memory, begin time.Time, minutes int, r rulefmt.Rule) int {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Hour, LookbackDelta: 5 * time.Minute, Parser: language()})
	defer engine.Close()
	query, err := engine.NewRangeQuery(t.Context(), m, nil, r.Expr, begin, begin.Add(time.Duration(minutes-1)*every), every)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", r.Alert, err)
	}
	first := -1
	for _, series := range matrix {
		since := int64(-1)
		last := int64(-1)
		for _, p := range series.Floats {
			if since < 0 || p.T-last > every.Milliseconds() {
				since = p.T
			}
			last = p.T
			if time.Duration(p.T-since)*time.Millisecond >= time.Duration(r.For) {
				if minute := int((p.T - begin.UnixMilli()) / every.Milliseconds()); first < 0 || minute < first {
					first = minute
				}
				break
			}
		}
	}
	return first
}

// A trial is a world in which an alert fires, in a certain minute, and one, as close to it as may be, in which it does not.
type trial struct {
	minutes int // half an hour if zero
	after   int
	fires   script
	quiet   script
}

// always does something in every minute.
func always(do func(w *world)) script { return func(w *world, _ int) { do(w) } }

// from does something in every minute from one on.
func from(minute int, do func(w *world)) script {
	return func(w *world, now int) {
		if now >= minute {
			do(w)
		}
	}
}

// until does something in every minute before one.
func until(minute int, do func(w *world)) script {
	return func(w *world, now int) {
		if now < minute {
			do(w)
		}
	}
}

// once does something in one minute.
func once(minute int, do func(w *world)) script {
	return func(w *world, now int) {
		if now == minute {
			do(w)
		}
	}
}

func both(all ...script) script {
	return func(w *world, minute int) {
		for _, s := range all {
			s(w, minute)
		}
	}
}

func nothing(*world, int) {}

func (w *world) put(edit func(d *cluster.Draft)) {
	w.store.Update(func(d *cluster.Draft) { d.Synced(true); edit(d) })
}

func (w *world) createFails(code string) {
	w.metrics.CloudErrors.WithLabelValues("nodeclaim.lifecycle", "Create", "aws", code).Inc()
}

// pool has a condition, and uses some of its limit of ten.
func (w *world) pool(condition, status, used string) {
	w.put(func(d *cluster.Draft) {
		d.PutPool(&v1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"},
			Spec:       v1.NodePoolSpec{Limits: v1.Limits{corev1.ResourceCPU: resource.MustParse("10")}},
			Status: v1.NodePoolStatus{
				Resources:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(used)},
				Conditions: conditions(condition, status),
			},
		})
	})
}

func conditions(name, status string) []metav1.Condition {
	return []metav1.Condition{{Type: name, Status: metav1.ConditionStatus(status), Reason: "R", LastTransitionTime: metav1.Now()}}
}

func (w *world) claim(status string, deleted time.Time) {
	c := &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "claim", Labels: map[string]string{v1.NodePoolLabelKey: "default", awsv1.LabelNodeClass: "default"}},
		Spec:       v1.NodeClaimSpec{NodeClassRef: &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}},
		Status:     v1.NodeClaimStatus{ProviderID: "id", Conditions: conditions("Ready", status)},
	}
	if !deleted.IsZero() {
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: deleted}, []string{v1.TerminationFinalizer}
	}
	w.put(func(d *cluster.Draft) { d.PutClaim(c) })
}

func (w *world) class(status string) {
	w.put(func(d *cluster.Draft) {
		d.PutNodeClass(&cluster.NodeClass{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default", UID: "class", Conditions: conditions("Ready", status)})
	})
}

// waitingPod is a pod that is first seen now.
func (w *world) waitingPod() {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "pod", CreationTimestamp: metav1.Now()}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	w.put(func(d *cluster.Draft) { d.PutPod(p) })
	w.times.Seen(types.UID("pod"), time.Now())
}

func (w *world) boundPod() {
	w.put(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: "p"}) })
	w.times.Forget("pod")
}

func (w *world) aws(action, code string, attempts int) {
	w.metrics.AWSAttempts.WithLabelValues("ec2", action, code).Add(float64(attempts))
}

// leavingNode is a node that is deleted now.
func (w *world) leavingNode() {
	now := metav1.Now()
	labels := map[string]string{v1.NodePoolLabelKey: "default"}
	w.put(func(d *cluster.Draft) {
		d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "node", Labels: labels, DeletionTimestamp: &now, Finalizers: []string{v1.TerminationFinalizer},
		}})
	})
}

// rareCall is a call of AWS that is made every other minute, some times, and always fails.
func (w *world) rareCall(minute, times int) {
	if minute%2 == 0 {
		w.aws("DescribeImages", "503", times)
	}
}

// succeeded tells when a task last succeeded.
func (w *world) succeeded(task string, ago time.Duration) {
	w.metrics.Refreshed.WithLabelValues(task).Set(float64(time.Now().Add(-ago).Unix()))
}

// onceMore counts one at first and, when that is longer ago than an hour, some more.
func onceMore(c prometheus.Counter, minute, more int) {
	switch minute {
	case 0:
		c.Inc()
	case 70:
		c.Add(float64(more))
	}
}

// trials are keyed by the alert and, where there are several of one, by what they are about.
var trials = map[string]trial{
	"KarpenterCannotLaunch": {
		after: 11,
		fires: always(func(w *world) { w.createFails("") }),
		quiet: both(until(5, func(w *world) { w.createFails("") }), always(func(w *world) { w.createFails("InsufficientCapacityError") })),
	},
	"KarpenterPodsWithoutPlace": {
		after: 10,
		fires: always(func(w *world) { w.metrics.SchedulingUnschedulablePods.WithLabelValues("provisioner").Set(1) }),
		quiet: func(w *world, minute int) {
			w.metrics.SchedulingUnschedulablePods.WithLabelValues("provisioner").Set(float64(minute % 9)) // placed now and then
			w.metrics.SchedulingUnschedulablePods.WithLabelValues("disruption").Set(3)
		},
	},
	"KarpenterPodsUndecided": {
		after: 3,
		fires: once(0, (*world).waitingPod),
		quiet: both(once(0, (*world).waitingPod), once(2, func(w *world) { w.times.Decided("pod", time.Now(), false) })),
	},
	"KarpenterPodsWaitForNodes": {
		after: 16,
		fires: once(0, func(w *world) { w.waitingPod(); w.times.Decided("pod", time.Now(), true) }),
		quiet: both(once(0, func(w *world) { w.waitingPod(); w.times.Decided("pod", time.Now(), true) }), once(15, (*world).boundPod)),
	},
	"KarpenterPodsLosePlaces": {
		after: 5,
		fires: once(5, func(w *world) { w.metrics.PlacesLost.WithLabelValues("default").Add(4) }),
		quiet: once(5, func(w *world) {
			w.metrics.PlacesLost.WithLabelValues("default").Add(3)
			w.metrics.PlacesLost.WithLabelValues("another").Add(3)
		}),
	},
	"KarpenterPodsLosePlaces, and lost some long ago": {
		minutes: 90,
		after:   70,
		fires:   func(w *world, minute int) { onceMore(w.metrics.PlacesLost.WithLabelValues("default"), minute, 4) },
		quiet:   func(w *world, minute int) { onceMore(w.metrics.PlacesLost.WithLabelValues("default"), minute, 2) },
	},
	"KarpenterProviderTaskFails": {
		minutes: 90,
		after:   61,
		fires: both(once(0, func(w *world) { w.succeeded("providers.version", 0) }),
			always(func(w *world) { w.succeeded("providers.dns", 0) })),
		quiet: func(w *world, minute int) {
			if minute%60 == 0 {
				w.succeeded("providers.version", 0)
			}
		},
	},
	"KarpenterProviderTaskFails, twice a day": {
		after: 21,
		fires: once(0, func(w *world) { w.succeeded("providers.pricing", 13*time.Hour-20*time.Minute) }),
		quiet: once(0, func(w *world) { w.succeeded("providers.instancetype", 12*time.Hour+30*time.Minute) }),
	},
	"KarpenterNodesDoNotGetReady": {
		after: 15,
		fires: once(0, func(w *world) { w.claim("False", time.Time{}) }),
		quiet: both(once(0, func(w *world) { w.claim("Unknown", time.Time{}) }), once(15, func(w *world) { w.claim("True", time.Time{}) })),
	},
	"KarpenterPoolNotReady": {
		after: 10,
		fires: once(0, func(w *world) { w.pool("Ready", "False", "0") }),
		quiet: both(once(0, func(w *world) { w.pool("Ready", "Unknown", "0") }), once(10, func(w *world) { w.pool("Ready", "True", "0") })),
	},
	"KarpenterNodeClassNotReady": {
		after: 10,
		fires: once(0, func(w *world) { w.class("False") }),
		quiet: both(once(0, func(w *world) { w.class("False") }), once(10, func(w *world) { w.class("True") })),
	},
	"KarpenterMachinesNeverReady": {
		after: 3,
		fires: once(3, func(w *world) { w.pool("MachinesGetReady", "False", "0") }),
		quiet: once(3, func(w *world) { w.pool("NodeRegistrationHealthy", "False", "0") }),
	},
	"KarpenterPoolNearItsLimit": {
		after: 10,
		fires: once(0, func(w *world) { w.pool("Ready", "True", "9100m") }),
		quiet: once(0, func(w *world) { w.pool("Ready", "True", "9") }),
	},
	"KarpenterIsThrottled": {
		after: 12,
		fires: always(func(w *world) { w.aws("CreateFleet", "400", 6); w.aws("CreateFleet", "200", 5) }),
		quiet: always(func(w *world) {
			w.aws("CreateFleet", "503", 5)
			w.aws("CreateFleet", "200", 6)
			w.aws("DescribeSubnets", "200", 1)
		}),
	},
	"KarpenterIsDenied": {
		after: 6,
		fires: always(func(w *world) { w.metrics.AWSRequests.WithLabelValues("ec2", "CreateFleet", "403").Inc() }),
		quiet: both(always(func(w *world) { w.metrics.AWSRequests.WithLabelValues("ec2", "CreateFleet", "400").Inc() }), // no capacity
			once(3, func(w *world) { w.metrics.AWSRequests.WithLabelValues("ec2", "CreateFleet", "403").Inc() })),
	},
	"KarpenterCannotReadCluster": {
		after: 1,
		fires: once(0, func(w *world) {
			w.put(func(d *cluster.Draft) { d.FailedFeeds([]cluster.FailedFeed{{Kind: "Pod"}}) })
		}),
		quiet: both(once(0, func(w *world) {
			w.put(func(d *cluster.Draft) { d.FailedFeeds([]cluster.FailedFeed{{Kind: "Pod"}}) })
		}), once(1, func(w *world) { w.put(func(d *cluster.Draft) { d.FailedFeeds(nil) }) })),
	},
	"KarpenterKeepsOrphans": {
		after: 5,
		fires: once(5, func(w *world) { w.metrics.MachinesLatched.Set(1) }),
		quiet: always(func(w *world) { w.metrics.MachinesLatched.Set(0) }),
	},
	"KarpenterWithoutLeader": {
		after: 10,
		fires: once(5, func(w *world) { w.silent = true }),
		quiet: func(w *world, minute int) { w.silent = minute >= 5 && minute < 10 },
	},
	"KarpenterHasTwoLeaders": {
		after: 7,
		fires: once(5, func(w *world) { w.metrics.LeaderStatus.WithLabelValues("another").Set(1) }),
		quiet: func(w *world, minute int) {
			w.metrics.LeaderStatus.WithLabelValues("another").Set(map[bool]float64{true: 1}[minute == 5 || minute == 6])
		},
	},
	"KarpenterHangs": {
		after: 6,
		fires: once(0, func(w *world) { w.metrics.Loop("provisioner", 1) }),
		quiet: both(once(0, func(w *world) { w.loop = w.metrics.Loop("provisioner", 1) }), always(func(w *world) { w.loop.Beat() })),
	},
	"KarpenterStepHangs": {
		after: 6,
		fires: once(0, func(w *world) { w.metrics.Loop("provisioner", 1).Begin(w.ctx, "planning") }),
		quiet: func(w *world, minute int) {
			if minute == 0 {
				w.metrics.Loop("interruption", 1).Begin(w.ctx, "waiting for messages")
			}
		},
	},
	"KarpenterHasABug": {
		after: 5,
		fires: once(5, func(*world) {
			bug.Reportf("a test of the alert about bugs")
		}),
		quiet: always(func(w *world) { w.metrics.ReconcileErrors.WithLabelValues("provisioner").Inc() }),
	},
	"KarpenterLoopFails": {
		after: 23,
		fires: always(func(w *world) { w.metrics.ReconcileErrors.WithLabelValues("provisioner").Add(4) }),
		quiet: always(func(w *world) { w.metrics.ReconcileErrors.WithLabelValues("provisioner").Add(2) }),
	},
	"KarpenterPictureIncomplete": {
		after: 3,
		fires: once(0, func(w *world) { w.missing = time.Now() }),
		quiet: both(once(0, func(w *world) { w.missing = time.Now() }), once(3, func(w *world) { w.missing = time.Time{} })),
	},
	"KarpenterMachinesOrphaned": {
		after: 5,
		fires: once(5, func(w *world) { w.metrics.MachinesOrphaned.WithLabelValues("terminated").Add(4) }), // at once, and never before
		quiet: both(once(5, func(w *world) { w.metrics.MachinesOrphaned.WithLabelValues("terminated").Add(3) }),
			once(5, func(w *world) { w.metrics.MachinesOrphaned.WithLabelValues("adopted").Add(30) })),
	},
	"KarpenterCannotStopMachines": {
		after: 16,
		fires: always(func(w *world) { w.metrics.InstanceTerminationFailures.WithLabelValues("a", "a1").Inc() }),
		quiet: once(3, func(w *world) { w.metrics.InstanceTerminationFailures.WithLabelValues("a", "a1").Add(30) }),
	},
	"KarpenterNodeDoesNotEnd": {
		after:   61,
		minutes: 90,
		fires:   once(0, func(w *world) { w.claim("True", time.Now()) }),
		quiet: both(once(0, func(w *world) { w.claim("True", time.Now()) }),
			once(60, func(w *world) { w.put(func(d *cluster.Draft) { d.DeleteClaim("c") }) })),
	},
	"KarpenterReplacementsFail": {
		after: 5,
		fires: once(5, func(w *world) { w.metrics.DisruptionQueueFailures.WithLabelValues("replace", "drifted", "").Add(4) }),
		quiet: once(5, func(w *world) { w.metrics.DisruptionQueueFailures.WithLabelValues("replace", "drifted", "").Add(3) }),
	},
	"KarpenterInterruptionsNotHandled": {
		after: 6,
		fires: always(func(w *world) { w.metrics.InterruptionReceived.WithLabelValues("spot_interrupted").Inc() }),
		quiet: always(func(w *world) {
			w.metrics.InterruptionReceived.WithLabelValues("spot_interrupted").Inc()
			w.metrics.InterruptionDeleted.Inc()
		}),
	},
	"KarpenterInterruptionsLate": {
		after: 6,
		fires: always(func(w *world) { w.metrics.InterruptionQueueDuration.Observe(100) }),
		quiet: always(func(w *world) {
			w.metrics.InterruptionQueueDuration.Observe(5)
			w.metrics.InterruptionQueueDuration.Observe(5)
			w.metrics.InterruptionQueueDuration.Observe(100)
		}),
	},
	"KarpenterDropsEvents": {
		after:   28,
		minutes: 45,
		fires:   always(func(w *world) { w.metrics.EventsDropped.WithLabelValues("Evicted").Add(7) }),
		quiet: always(func(w *world) {
			w.metrics.EventsDropped.WithLabelValues("Evicted").Add(5)
			w.metrics.EventsDropped.WithLabelValues("Nominated").Add(500)
		}),
	},
	"KarpenterAPIErrors": {
		after: 11,
		fires: always(func(w *world) {
			w.metrics.ClientRequests.WithLabelValues("200", "GET").Add(90)
			w.metrics.ClientRequests.WithLabelValues("403", "PATCH").Add(6)
		}),
		quiet: always(func(w *world) {
			w.metrics.ClientRequests.WithLabelValues("200", "GET").Add(90)
			w.metrics.ClientRequests.WithLabelValues("403", "PATCH").Add(2)
			w.metrics.ClientRequests.WithLabelValues("500", "PATCH").Add(2)
			w.metrics.ClientRequests.WithLabelValues("409", "PATCH").Add(50) // somebody else was first
		}),
	},
	"KarpenterNearItsMemoryLimit": {
		after: 10,
		fires: always(func(w *world) {
			w.foreign["container_memory_working_set_bytes"], w.foreign["kube_pod_container_resource_limits"] = 91, 100
		}),
		quiet: always(func(w *world) {
			w.foreign["container_memory_working_set_bytes"], w.foreign["kube_pod_container_resource_limits"] = 90, 100
		}),
	},
	"KarpenterMachinesOrphaned, once more": {
		after:   70,
		minutes: 90,
		fires: func(w *world, minute int) {
			onceMore(w.metrics.MachinesOrphaned.WithLabelValues("terminated"), minute, 4)
		},
		quiet: func(w *world, minute int) {
			onceMore(w.metrics.MachinesOrphaned.WithLabelValues("terminated"), minute, 2)
		},
	},
	"KarpenterReplacementsFail, once more": {
		after:   70,
		minutes: 90,
		fires: func(w *world, minute int) {
			onceMore(w.metrics.DisruptionQueueFailures.WithLabelValues("replace", "drifted", ""), minute, 4)
		},
		quiet: func(w *world, minute int) {
			onceMore(w.metrics.DisruptionQueueFailures.WithLabelValues("replace", "drifted", ""), minute, 2)
		},
	},
	"KarpenterNodesBreak, once more": {
		after:   70,
		minutes: 90,
		fires: func(w *world, minute int) {
			onceMore(w.metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", "spot", "ami-1"), minute, 4)
		},
		quiet: func(w *world, minute int) {
			onceMore(w.metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", "spot", "ami-1"), minute, 2)
		},
	},
	"KarpenterNodeDoesNotEnd, as a Node": {
		after:   61,
		minutes: 90,
		fires:   once(0, (*world).leavingNode),
		quiet:   both(once(0, (*world).leavingNode), once(60, func(w *world) { w.put(func(d *cluster.Draft) { d.DeleteNode("n") }) })),
	},
	"KarpenterIsThrottled, in a rare call": {
		after:   18,
		minutes: 60,
		fires:   func(w *world, minute int) { w.rareCall(minute, 3) },
		quiet:   func(w *world, minute int) { w.rareCall(minute, 1) },
	},
	"KarpenterHasABug, a panic": {
		after: 5,
		fires: both(once(0, func(w *world) { w.loop = w.metrics.Loop("provisioner", 1) }), once(5, func(w *world) { w.loop.Panicked() })),
		quiet: once(0, func(w *world) { w.metrics.Loop("provisioner", 1) }),
	},
	"KarpenterWithoutLeader, but a standby": {
		after: 10,
		fires: once(5, func(w *world) { w.metrics.LeaderStatus.WithLabelValues("karpenter-leader-election").Set(0) }),
		quiet: once(5, func(w *world) { w.metrics.LeaderStatus.WithLabelValues("karpenter-leader-election").Set(1) }),
	},
	"KarpenterNodesBreak": {
		after: 5,
		fires: once(5, func(w *world) {
			w.metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", "spot", "ami-1").Add(4)
		}),
		quiet: both(once(5, func(w *world) {
			w.metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", "spot", "ami-1").Add(3)
		}),
			once(5, func(w *world) {
				w.metrics.NodeClaimsUnhealthy.WithLabelValues("storage_ready", "default", "spot", "ami-1").Add(3)
			})),
	},
	"KarpenterPlansAreCutShort": {
		after: 5,
		fires: always(func(w *world) { w.metrics.PlanPartial.WithLabelValues("provisioner").Inc() }),
		quiet: from(25, func(w *world) { w.metrics.PlanPartial.WithLabelValues("provisioner").Inc() }),
	},
	"KarpenterVersionsDiffer": {
		after:   35,
		minutes: 45,
		fires:   once(5, func(w *world) { w.metrics.BuildInfo.WithLabelValues("2", "go", "amd64", "d").Set(1) }),
		quiet: both(once(5, func(w *world) { w.metrics.BuildInfo.WithLabelValues("2", "go", "amd64", "d").Set(1) }),
			once(35, func(w *world) { w.metrics.BuildInfo.DeleteLabelValues("1", "go", "amd64", "c") })),
	},
	"KarpenterBudgetsHoldBack": {
		after:   360,
		minutes: 8 * 60,
		fires:   always(func(w *world) { w.metrics.DisruptionHeldBackSavings.WithLabelValues("default").Set(1.1) }),
		quiet: func(w *world, minute int) {
			w.metrics.DisruptionHeldBackSavings.WithLabelValues("default").Set(map[bool]float64{true: 5}[minute < 6*60])
			w.metrics.DisruptionHeldBackSavings.WithLabelValues("frugal").Set(1)
		},
	},
}

func TestAlertsFireAndAreQuiet(t *testing.T) {
	bug.Expect(t)
	all := alerts(t)
	for name := range all {
		if _, ok := trials[name]; !ok {
			t.Errorf("%s is not tried", name)
		}
	}
	for name, tc := range trials {
		alert, _, _ := strings.Cut(name, ",")
		r, ok := all[alert]
		if !ok {
			t.Errorf("there is no alert %s", alert)
			continue
		}
		minutes := tc.minutes
		if minutes == 0 {
			minutes = 30
		}
		t.Run(name+" fires", func(t *testing.T) {
			m, begin := record(t, minutes, tc.fires)
			if minute := fired(t, m, begin, minutes, r); minute != tc.after {
				t.Errorf("it does after %d minutes, want %d; -1 is never", minute, tc.after)
			}
		})
		t.Run(name+" is quiet", func(t *testing.T) {
			m, begin := record(t, minutes, tc.quiet)
			if minute := fired(t, m, begin, minutes, r); minute >= 0 {
				t.Errorf("it fires after %d minutes", minute)
			}
		})
	}
}

// An hour in which all goes well, with work to do, wakes nobody.
func TestNoAlertFiresOnAGoodDay(t *testing.T) {
	const minutes = 60
	good := both(once(0, func(w *world) { w.pool("Ready", "True", "5"); w.class("True"); w.claim("True", time.Time{}) }), always(func(w *world) {
		w.metrics.ClientRequests.WithLabelValues("200", "GET").Add(50)
		w.metrics.ClientRequests.WithLabelValues("404", "GET").Add(2)
		w.aws("CreateFleet", "200", 3)
		w.metrics.NodeClaimsCreated.WithLabelValues("provisioned", "default", "false").Inc()
		w.metrics.InterruptionReceived.WithLabelValues("no_op").Inc()
		w.metrics.InterruptionDeleted.Inc()
		w.metrics.InterruptionQueueDuration.Observe(1)
		w.createFails("InsufficientCapacityError")
	}))
	m, begin := record(t, minutes, good)
	for name, r := range alerts(t) {
		if minute := fired(t, m, begin, minutes, r); minute >= 0 {
			t.Errorf("%s fires after %d minutes", name, minute)
		}
	}
}
