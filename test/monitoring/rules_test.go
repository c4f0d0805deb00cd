package monitoring

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/bug"
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

// An alarm is when an alert begins to fire, for how many minutes in all it does, and what it then says it is about.
type alarm struct {
	after, lasts int
	about        string
}

// never is the alarm of an alert that does not fire.
var never = alarm{after: -1}

// fired tells the alarm of an alert: it fires while its expression has had the same result for its time in each minute.
func fired(t *testing.T, m *memory, begin time.Time, minutes int, r rulefmt.Rule) alarm {
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
	first, fires := never, map[int]bool{}
	for _, series := range matrix {
		since, last := int64(-1), int64(-1)
		for _, p := range series.Floats {
			if since < 0 || p.T-last > every.Milliseconds() {
				since = p.T
			}
			last = p.T
			if time.Duration(p.T-since)*time.Millisecond < time.Duration(r.For) {
				continue
			}
			minute := int((p.T - begin.UnixMilli()) / every.Milliseconds())
			fires[minute] = true
			if first.after < 0 || minute < first.after {
				first.after, first.about = minute, series.Metric.String()
			}
		}
	}
	first.lasts = len(fires)
	return first
}

// A trial is a world in which an alert fires, in a certain minute, and one, as close to it as may be, in which it does not.
type trial struct {
	minutes int // half an hour if zero
	after   int
	lasts   int    // until the world ends if zero; a counter's increase is seen a minute less than its range is long
	about   string // labels of the alert; {} if empty
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
	w.metrics.CloudErrors.WithLabelValues("nodeclaim.lifecycle", "Create", "aws", code, "default").Inc()
}

// pool has a condition, and uses some of its limit of ten.
func (w *world) pool(condition, status, used string) {
	w.put(func(d *cluster.Draft) {
		cluster.Pools.Put(d, &v1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"},
			Spec:       v1.NodePoolSpec{Limits: v1.Limits{corev1.ResourceCPU: resource.MustParse("10")}},
			Status: v1.NodePoolStatus{
				Resources:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(used)},
				Conditions: append(conditions("NodeRegistrationHealthy", "False"), conditions(condition, status)...),
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
		Status:     v1.NodeClaimStatus{ProviderID: "id", Conditions: append(conditions("Drifted", "False"), conditions("Ready", status)...)},
	}
	if !deleted.IsZero() {
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: deleted}, []string{v1.TerminationFinalizer}
	}
	w.put(func(d *cluster.Draft) { d.PutClaim(c) })
}

func (w *world) class(status string) {
	w.put(func(d *cluster.Draft) {
		d.PutNodeClass(&cluster.NodeClass{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default", UID: "class", Conditions: append(conditions("AMIsReady", "False"), conditions("Ready", status)...)})
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

// holds are the metrics of others about a container that holds some bytes of memory, and may hold so many.
func (w *world) holds(pod, container string, bytes, limit float64) {
	of := func(more ...string) labels.Labels {
		return labels.FromStrings(append(more, "namespace", "karpenter", "pod", pod, "container", container)...)
	}
	w.foreign = append(w.foreign, foreign{of(labels.MetricName, "container_memory_working_set_bytes"), bytes},
		foreign{of(labels.MetricName, "kube_pod_container_resource_limits", "resource", "memory"), limit},
		foreign{of(labels.MetricName, "kube_pod_container_resource_limits", "resource", "ephemeral_storage"), 10 * limit})
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
		after: 14,
		fires: func(w *world, minute int) {
			if minute%4 == 0 { // one NodeClaim, which waits longer each time
				w.createFails("")
			}
		},
		quiet: both(until(5, func(w *world) { w.createFails("") }), always(func(w *world) {
			w.createFails("InsufficientCapacityError")
			w.metrics.CloudErrors.WithLabelValues("nodeclaim.lifecycle", "Delete", "aws", "", "default").Inc()
		})),
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
		about: `{nodepool="default"}`,
		fires: once(5, func(w *world) { w.metrics.PlacesLost.WithLabelValues("default").Add(4) }),
		quiet: once(5, func(w *world) {
			w.metrics.PlacesLost.WithLabelValues("default").Add(3)
			w.metrics.PlacesLost.WithLabelValues("another").Add(3)
		}),
	},
	"KarpenterPodsLosePlaces, and lost some long ago": {
		minutes: 150,
		lasts:   59,
		after:   70,
		about:   `{nodepool="default"}`,
		fires:   func(w *world, minute int) { onceMore(w.metrics.PlacesLost.WithLabelValues("default"), minute, 4) },
		quiet:   func(w *world, minute int) { onceMore(w.metrics.PlacesLost.WithLabelValues("default"), minute, 2) },
	},
	"KarpenterProviderTaskFails": {
		minutes: 90,
		after:   61,
		about:   `{controller="providers.version"}`,
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
		about: `{controller="providers.pricing"}`,
		fires: once(0, func(w *world) { w.succeeded("providers.pricing", 13*time.Hour-20*time.Minute) }),
		quiet: once(0, func(w *world) { w.succeeded("providers.instancetype", 12*time.Hour+30*time.Minute) }),
	},
	"KarpenterNodesDoNotGetReady": {
		after: 15,
		about: `{karpenter_sh_nodepool="default"}`,
		fires: once(0, func(w *world) { w.claim("False", time.Time{}) }),
		quiet: both(once(0, func(w *world) { w.claim("Unknown", time.Time{}) }), once(15, func(w *world) { w.claim("True", time.Time{}) })),
	},
	"KarpenterPoolNotReady": {
		after: 10,
		about: `{name="default"}`,
		fires: once(0, func(w *world) { w.pool("Ready", "False", "0") }),
		quiet: both(once(0, func(w *world) { w.pool("Ready", "Unknown", "0") }), once(10, func(w *world) { w.pool("Ready", "True", "0") })),
	},
	"KarpenterNodeClassNotReady": {
		after: 10,
		about: `{name="default"}`,
		fires: once(0, func(w *world) { w.class("False") }),
		quiet: both(once(0, func(w *world) { w.class("False") }), once(10, func(w *world) { w.class("True") })),
	},
	"KarpenterMachinesNeverReady": {
		after: 3,
		about: `{name="default"}`,
		fires: once(3, func(w *world) { w.pool("MachinesGetReady", "False", "0") }),
		quiet: func(w *world, minute int) {
			w.pool("MachinesGetReady", map[bool]string{true: "Unknown", false: "True"}[minute < 9], "0")
		},
	},
	"KarpenterPoolNearItsLimit": {
		after: 10,
		about: `{nodepool="default", resource_type="cpu"}`,
		fires: once(0, func(w *world) { w.pool("Ready", "True", "9100m") }),
		quiet: once(0, func(w *world) { w.pool("Ready", "True", "9") }),
	},
	"KarpenterIsThrottled": {
		after: 12,
		about: `{action="CreateFleet", service="ec2"}`,
		fires: always(func(w *world) { w.aws("CreateFleet", "400", 6); w.aws("CreateFleet", "200", 5) }),
		quiet: always(func(w *world) {
			w.aws("CreateFleet", "503", 5)
			w.aws("CreateFleet", "200", 6)
			w.aws("DescribeSubnets", "200", 1)
		}),
	},
	"KarpenterIsDenied": {
		after: 6,
		about: `{action="CreateFleet", service="ec2"}`,
		lasts: 17,
		fires: until(10, func(w *world) { w.metrics.AWSRequests.WithLabelValues("ec2", "CreateFleet", "403").Inc() }),
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
		about: `{controller="provisioner"}`,
		fires: once(0, func(w *world) { w.metrics.Loop("provisioner", 1) }),
		quiet: both(once(0, func(w *world) { w.loop = w.metrics.Loop("provisioner", 1) }), always(func(w *world) { w.loop.Beat() })),
	},
	"KarpenterStepHangs": {
		after: 6,
		about: `{controller="provisioner"}`,
		fires: once(0, func(w *world) { w.metrics.Loop("provisioner", 1).Begin(w.ctx, "planning") }),
		quiet: func(w *world, minute int) {
			if minute == 0 {
				w.metrics.Loop("interruption", 1).Begin(w.ctx, "waiting for messages")
			}
		},
	},
	"KarpenterHasABug": {
		after: 5,
		lasts: 14,
		fires: once(5, func(*world) {
			bug.Reportf("a test of the alert about bugs")
		}),
		quiet: always(func(w *world) { w.metrics.ReconcileErrors.WithLabelValues("provisioner").Inc() }),
	},
	"KarpenterLoopFails": {
		after: 23,
		about: `{controller="provisioner"}`,
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
			func(w *world, minute int) { w.metrics.MachinesOrphaned.WithLabelValues("adopted").Add(30) }),
	},
	"KarpenterCannotStopMachines": {
		after: 16,
		about: `{zone="a"}`,
		fires: always(func(w *world) { w.metrics.InstanceTerminationFailures.WithLabelValues("a", "a1").Inc() }),
		quiet: until(2, func(w *world) { w.metrics.InstanceTerminationFailures.WithLabelValues("a", "a1").Add(30) }),
	},
	"KarpenterNodeDoesNotEnd": {
		after:   61,
		about:   `{name="c"}`,
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
		lasts: 17,
		fires: until(10, func(w *world) {
			w.metrics.InterruptionReceived.WithLabelValues("spot_interrupted").Inc()
			w.metrics.InterruptionDeleted.Add(0)
		}),
		quiet: func(w *world, minute int) {
			w.metrics.InterruptionReceived.WithLabelValues("spot_interrupted").Inc()
			if minute%9 < 2 { // one that cannot be dealt with comes again and again, and others are
				w.metrics.InterruptionDeleted.Inc()
			}
		},
	},
	"KarpenterInterruptionsNotHandled, any more": {
		minutes: 60,
		after:   28,
		fires: both(always(func(w *world) { w.metrics.InterruptionReceived.WithLabelValues("spot_interrupted").Inc() }),
			until(10, func(w *world) { w.metrics.InterruptionDeleted.Inc() })),
		quiet: both(until(10, func(w *world) { w.metrics.InterruptionReceived.WithLabelValues("spot_interrupted").Inc() }),
			until(10, func(w *world) { w.metrics.InterruptionDeleted.Inc() })),
	},
	"KarpenterInterruptionsLate": {
		after: 6,
		lasts: 17,
		fires: until(10, func(w *world) { w.metrics.InterruptionQueueDuration.Observe(100) }),
		quiet: always(func(w *world) {
			w.metrics.InterruptionQueueDuration.Observe(55)
			w.metrics.InterruptionQueueDuration.Observe(55)
			w.metrics.InterruptionQueueDuration.Observe(100)
		}),
	},
	"KarpenterDropsEvents": {
		after:   28,
		about:   `{reason="Evicted"}`,
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
			w.metrics.ClientRequests.WithLabelValues("409", "PATCH").Add(5) // somebody else was first
		}),
	},
	"KarpenterNearItsMemoryLimit": {
		after: 10,
		about: `{namespace="karpenter", pod="karpenter-0"}`,
		fires: always(func(w *world) {
			w.holds("karpenter-0", "controller", 91, 100)
			w.holds("karpenter-0", "sidecar", 10, 1000)
		}),
		quiet: always(func(w *world) {
			w.holds("karpenter-0", "controller", 90, 100)
			w.holds("karpenter-0", "sidecar", 99, 100)
			w.holds("web-0", "controller", 99, 100)
		}),
	},
	"KarpenterMachinesOrphaned, once more": {
		after:   70,
		minutes: 150,
		lasts:   59,
		fires: func(w *world, minute int) {
			onceMore(w.metrics.MachinesOrphaned.WithLabelValues("terminated"), minute, 4)
		},
		quiet: func(w *world, minute int) {
			onceMore(w.metrics.MachinesOrphaned.WithLabelValues("terminated"), minute, 2)
		},
	},
	"KarpenterReplacementsFail, once more": {
		after:   70,
		minutes: 150,
		lasts:   59,
		fires: func(w *world, minute int) {
			onceMore(w.metrics.DisruptionQueueFailures.WithLabelValues("replace", "drifted", ""), minute, 4)
		},
		quiet: func(w *world, minute int) {
			onceMore(w.metrics.DisruptionQueueFailures.WithLabelValues("replace", "drifted", ""), minute, 2)
		},
	},
	"KarpenterNodesBreak, once more": {
		after:   70,
		about:   `{condition="ready"}`,
		minutes: 150,
		lasts:   59,
		fires: func(w *world, minute int) {
			onceMore(w.metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", "spot", "ami-1", "eventual"), minute, 4)
		},
		quiet: func(w *world, minute int) {
			onceMore(w.metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", "spot", "ami-1", "eventual"), minute, 2)
		},
	},
	"KarpenterNodeDoesNotEnd, as a Node": {
		after:   61,
		about:   `{name="n"}`,
		minutes: 90,
		fires:   once(0, (*world).leavingNode),
		quiet:   both(once(0, (*world).leavingNode), once(60, func(w *world) { w.put(func(d *cluster.Draft) { d.DeleteNode("n") }) })),
	},
	"KarpenterIsThrottled, in a rare call": {
		after:   18,
		about:   `{action="DescribeImages", service="ec2"}`,
		minutes: 60,
		fires:   func(w *world, minute int) { w.rareCall(minute, 3) },
		quiet:   func(w *world, minute int) { w.rareCall(minute, 1) },
	},
	"KarpenterHasABug, a panic": {
		after: 5,
		lasts: 14,
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
		about: `{condition="ready"}`,
		fires: once(5, func(w *world) {
			w.metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", "spot", "ami-1", "eventual").Add(4)
		}),
		quiet: both(once(5, func(w *world) {
			w.metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", "spot", "ami-1", "eventual").Add(3)
		}),
			once(5, func(w *world) {
				w.metrics.NodeClaimsUnhealthy.WithLabelValues("storage_ready", "default", "spot", "ami-1", "eventual").Add(3)
			})),
	},
	"KarpenterPlansAreCutShort": {
		after:   5,
		about:   `{controller="provisioner"}`,
		minutes: 90,
		lasts:   59,
		fires:   until(10, func(w *world) { w.metrics.PlanPartial.WithLabelValues("provisioner").Inc() }),
		quiet:   both(until(5, func(w *world) { w.metrics.PlanPartial.WithLabelValues("provisioner").Inc() }), until(5, func(w *world) { w.metrics.PlanPartial.WithLabelValues("disruption").Inc() })),
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
		about:   `{nodepool="default"}`,
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
		minutes := cmp.Or(tc.minutes, 30)
		want := alarm{tc.after, cmp.Or(tc.lasts, minutes-tc.after), cmp.Or(tc.about, "{}")}
		t.Run(name+" fires", func(t *testing.T) {
			m, begin := record(t, minutes, tc.fires)
			if got := fired(t, m, begin, minutes, r); got != want {
				t.Errorf("it does %+v, want %+v; after -1 is never", got, want)
			}
		})
		t.Run(name+" is quiet", func(t *testing.T) {
			m, begin := record(t, minutes, tc.quiet)
			if got := fired(t, m, begin, minutes, r); got != never {
				t.Errorf("it fires: %+v", got)
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
		if got := fired(t, m, begin, minutes, r); got != never {
			t.Errorf("%s fires: %+v", name, got)
		}
	}
}

// What is recorded are the numbers of the fleet, however many replicas tell of it, and of no nodes of others.
func TestRecordsAreTheNumbersOfTheFleet(t *testing.T) {
	const minutes = 20
	m, begin := record(t, minutes, func(w *world, _ int) {
		tell := func(name string, number float64, more ...string) {
			w.foreign = append(w.foreign, foreign{labels.FromStrings(append(more, labels.MetricName, name)...), number})
		}
		for _, replica := range []string{"karpenter-0", "karpenter-1"} {
			tell("karpenter_nodepools_cost_total", 3, "nodepool", "default", "pod", replica)
			tell("karpenter_nodepools_cost_total", 2, "nodepool", "frugal", "pod", replica)
			for node, pool := range map[string]string{"a": "default", "b": "frugal", "of-others": ""} {
				tell("karpenter_nodes_allocatable", 4, "resource_type", "cpu", "nodepool", pool, "node_name", node, "pod", replica)
				tell("karpenter_nodes_total_pod_requests", map[string]float64{"a": 3, "b": 2, "of-others": 1}[node], "resource_type", "cpu", "nodepool", pool, "node_name", node, "pod", replica)
			}
		}
		tell("karpenter_nodes_allocatable", 16, "resource_type", "memory", "nodepool", "default", "node_name", "a")
		tell("karpenter_nodes_total_pod_requests", 4, "resource_type", "memory", "nodepool", "default", "node_name", "a")
		w.metrics.PlanPrice.WithLabelValues("provisioner").Set(11)
		w.metrics.PlanBound.WithLabelValues("provisioner", "volume").Set(8)
		w.metrics.PlanBound.WithLabelValues("provisioner", "configuration").Set(10)
		w.metrics.PlanPrice.WithLabelValues("disruption").Set(11)
		w.metrics.PlanBound.WithLabelValues("disruption", "volume").Set(0) // nothing is proven
		for pod := range 20 {
			w.metrics.PodBound.WithLabelValues("false").Observe(map[bool]float64{true: 5, false: 30}[pod < 17])
		}
	})
	want := map[string]map[string]float64{
		"karpenter:cost_dollars_per_hour:sum": {"{}": 5},
		"karpenter:requested:ratio":           {`{resource_type="cpu"}`: 0.625, `{resource_type="memory"}`: 0.25},
		"karpenter:plan_above_bound:ratio":    {`{controller="provisioner"}`: 1.1},
		"karpenter:pod_bound_seconds:p90":     {"{}": 26.667}, // of 20 pods three are between 25 and 30 seconds, and 18 are nine tenths
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Hour, LookbackDelta: 5 * time.Minute, Parser: language()})
	defer engine.Close()
	got := map[string]map[string]float64{}
	for _, g := range readRules(t) {
		for _, r := range g.Rules {
			if r.Record == "" {
				continue
			}
			query, err := engine.NewInstantQuery(t.Context(), m, nil, r.Expr, begin.Add((minutes-1)*every))
			if err != nil {
				t.Fatal(err)
			}
			defer query.Close()
			found, err := query.Exec(t.Context()).Vector()
			if err != nil {
				t.Fatalf("%s: %v", r.Record, err)
			}
			got[r.Record] = map[string]float64{}
			for _, s := range found {
				got[r.Record][s.Metric.DropMetricName().String()] = math.Round(s.F*1000) / 1000
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("recorded are\n%v, want\n%v", got, want)
	}
}
