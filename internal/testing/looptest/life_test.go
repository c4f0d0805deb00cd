package looptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/breaker"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/control/commitment"
	"karpenter.sh/karpenter/internal/control/hint"
	pools "karpenter.sh/karpenter/internal/control/pool"
	"karpenter.sh/karpenter/internal/control/quotas"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/observe"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// Why a metric or event has a test of its own.
const (
	noHTTP     = "there is no HTTP here"
	operators  = "the operator measures around the provider"
	noLease    = "there is one process and no lease"
	noReboots  = "broken machines are repaired as before 1.15"
	noTime     = "plans take no simulated time"
	aBug       = "a bug fails this test"
	onlyOrphan = "nothing else happens while most machines are orphans"
	secondLook = "it takes a change within the ten seconds of a second look"
)

// elsewhere are the metrics and events that the life below does not have: the test that asserts each, and why it needs a world of its own.
// What can never be other than zero has no test.
var elsewhere = map[string]struct{ folder, test, why string }{
	"karpenter_nodes_reboots_total":                    {"internal/control/disruption", "TestABrokenMachineIsRebooted", noReboots},
	"karpenter_nodes_reboot_duration_seconds":          {"internal/control/disruption", "TestABrokenMachineIsRebooted", noReboots},
	"karpenter_nodes_reboot_recovery_duration_seconds": {"internal/control/disruption", "TestABrokenMachineIsRebooted", noReboots},
	"RebootObserved":                                   {"internal/control/disruption", "TestABrokenMachineIsRebooted", noReboots},
	"RebootFailed":                                     {"internal/control/disruption", "TestAFailedRebootEndsInAReplacement", noReboots},

	"karpenter_voluntary_disruption_consolidation_timeouts_total": {why: "a pass has no limit of time; older dashboards want the name"},
	"controller_runtime_terminal_reconcile_errors_total":          {why: "every step is tried again; older dashboards want the name"},

	"client_go_request_total":                                          {"internal/operator", "TestRequestsAreCounted", noHTTP},
	"client_go_request_duration_seconds":                               {"internal/operator", "TestRequestsAreCounted", noHTTP},
	"karpenter_cloudprovider_duration_seconds":                         {"internal/operator", "TestCloudErrorsAreNamed", operators},
	"karpenter_cloudprovider_errors_total":                             {"internal/operator", "TestCloudErrorsAreNamed", operators},
	"karpenter_build_info":                                             {"internal/operator", "TestThisProgramSaysItsVersion", "the operator sets it"},
	"leader_election_master_status":                                    {"internal/operator", "TestOneReplicaActs", noLease},
	"leader_election_slowpath_total":                                   {"internal/operator", "TestSlowRenewalsAreCounted", noLease},
	"karpenter_cluster_state_failed_feeds":                             {"internal/observe", "TestFailedFeedsAreCountedOnEveryReplica", "the API in memory has no feeds of single kinds"},
	"karpenter_scheduler_queue_depth":                                  {"internal/control/provision", "TestTheClockCutsAPlanAfterTenSeconds", noTime},
	"karpenter_scheduler_unfinished_work_seconds":                      {"internal/control/provision", "TestTheClockCutsAPlanAfterTenSeconds", noTime},
	"karpenter_scheduler_plans_partial_total":                          {"internal/control/provision", "TestTheClockCutsAPlanAfterTenSeconds", noTime},
	"karpenter_pods_places_lost_total":                                 {"internal/testing/crashtest", "TestPodsThatAreNeverBoundCostLessAndLess", "kube-scheduler binds here"},
	"controller_runtime_reconcile_timeouts_total":                      {"internal/observe/telemetry", "TestATurnThatTakesTooLongIsCounted", "the API in memory answers in time"},
	"karpenter_commitments_import_failures_total":                      {"internal/control/commitment", "TestOnlyAWholeAnswerDeletes", "it takes an import that fails"},
	"karpenter_machines_latched":                                       {"internal/control/gc", "TestMassOrphaningStopsNothing", onlyOrphan},
	"OrphanKept":                                                       {"internal/control/gc", "TestMassOrphaningStopsNothing", onlyOrphan},
	"OlderKind":                                                        {"test/conversion", "TestProvisionersThatSomebodyApplies", "the API in memory has no older kinds"},
	"ConsolidationRejected":                                            {"internal/control/disruption", "TestAStepThatNoLongerHoldsIsToldOf", secondLook},
	"karpenter_voluntary_disruption_failed_validations_total":          {"internal/control/disruption", "TestAStepThatNoLongerHoldsIsToldOf", secondLook},
	"MachinesNeverReady":                                               {"internal/testing/crashtest", "TestATemplateWhoseMachinesNeverJoinCostsTwoMachinesAnHour", "it takes a pool of which no machine joins"},
	"karpenter_pod_deletion_cost_pod_annotation_writes_total":          {"internal/control/deletioncost", "TestAPodThatChangedIsLeftForTheNextLook", "no ReplicaSet owns these pods"},
	"karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes": {"internal/control/deletioncost", "TestALookWritesSoManyPodsAtMost", "no ReplicaSet owns these pods"},
	"karpenter_rollout_trips_total":                                    {"internal/control/rollout", "TestATripIsToldAndResumed", "it takes a RolloutPolicy and a bad image"},
	"RolloutStopped":                                                   {"internal/control/rollout", "TestATripIsToldAndResumed", "it takes a RolloutPolicy and a bad image"},
	"SurgeRestart":                                                     {"internal/control/disruption", "TestSurges", "a Deployment needs its controller"},

	"SpotShareExceeded": {"internal/aws", "TestSpotMaxShare", "no pool limits its share"},
	"karpenter_cloudprovider_instance_type_offering_interruptions_estimate": {"internal/aws", "TestInterruptionsAreAMetric", "interruptions cost nothing here"},

	"karpenter_forecast_pods_total":           {"internal/control/learn", "TestWhatRoomCostsAndBrings", "it takes days to learn"},
	"karpenter_forecast_unused_dollars_total": {"internal/control/learn", "TestWhatRoomCostsAndBrings", "it takes days to learn"},
	"karpenter_forecast_switched_off":         {"internal/control/learn", "TestWhatRoomCostsAndBrings", "it takes days to learn"},
	"LearningOff":                             {"internal/control/learn", "TestWhatRoomCostsAndBrings", "it takes days to learn"},

	"node_total_hourly_cost": {"internal/observe", "TestOpenCostsMetrics", "a setting asks for them"},
	"node_cpu_hourly_cost":   {"internal/observe", "TestOpenCostsMetrics", "a setting asks for them"},
	"node_ram_hourly_cost":   {"internal/observe", "TestOpenCostsMetrics", "a setting asks for them"},
	"node_gpu_hourly_cost":   {"internal/observe", "TestOpenCostsMetrics", "a setting asks for them"},
	"node_gpu_count":         {"internal/observe", "TestOpenCostsMetrics", "a setting asks for them"},
	"kubecost_node_is_spot":  {"internal/observe", "TestOpenCostsMetrics", "a setting asks for them"},

	"karpenter_bugs_total":                               {"internal/observe/telemetry", "TestBugsAreCounted", aBug},
	"controller_runtime_reconcile_panics_total":          {"internal/observe/telemetry", "TestATurnThatPanicsFails", aBug},
	"controller_runtime_conversion_webhook_panics_total": {"internal/compat/conversion", "TestAPanicOfTheWebhookIsCounted", aBug},
	"LeftOut": {"internal/control/provision", "TestWhatTheEnginePanicsOverIsLeftOut", aBug},
}

// A life is one process that does everything that Karpenter can, and what its metrics and events have shown so far.
type life struct {
	*world
	kinds    map[string][]string
	registry *prometheus.Registry
	metrics  *telemetry.Metrics
	observer *observe.Observer
	gauges   prometheus.Collector
	store    *cluster.Store

	mu     sync.Mutex
	shown  map[string]bool // metrics that were other than zero
	events map[string]bool
}

// TestALifeShowsEveryMetricAndEvent drives a cluster through everything that happens to one. Every metric and every event of the tables is
// seen in it, or is named in elsewhere.
func TestALifeShowsEveryMetricAndEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t)
		l.live()
		l.wantAll()
	})
}

func newLife(t *testing.T) *life {
	l := &life{world: newWorld(t, awsmodel.Config{Seed: 30, Types: []string{"m5.*", "c5.*"}}), shown: map[string]bool{}, events: map[string]bool{},
		kinds: telemetry.ConditionKinds("karpenter.k8s.aws/ec2nodeclass"), registry: prometheus.NewRegistry()}
	l.shifts = true
	l.metrics = telemetry.NewMetrics(l.registry, l.kinds)
	ctx, stop := context.WithCancel(sim.Loud(t.Context(), "LOOP_LOG", 1))
	r, err := l.replicaWith(ctx, "process 1", l.metrics, l.hear)
	if err != nil {
		t.Fatal(err)
	}
	l.store = r.store
	k := l.process(r)
	l.scrape() // of a process that has read nothing yet
	var wait sync.WaitGroup
	wait.Go(func() { k.Run(ctx) })
	wait.Go(func() { l.sample(ctx, k) })
	t.Cleanup(func() { stop(); wait.Wait() })
	return l
}

// process has every loop that settings can turn on.
func (l *life) process(r *replica) *sim.Karpenter {
	api := l.API.Client("process 1")
	hints := hint.New(r.store, api, l.metrics, func() (bool, error) { return true, nil })
	catalogs := catalog.New(r.provider)
	planner := disrupt.DefaultSettings()
	planner.TerminateFirstDrift = true
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	k := l.Karpenter(sim.KarpenterOptions{
		Name: r.name, Store: r.store, Lag: watchLag, Delay: 30 * time.Millisecond, Cloud: r.provider, Telling: sim.Telling{Metrics: l.metrics}, Hint: hints.Before, Planner: planner,
		Provision: true, Disrupt: true, Repairs: true, Buffers: true, Foresight: true, Devices: true, Gates: pools.Gates{StaticCapacity: true},
	})
	l.observer = observe.New(observe.Deps{
		Store: r.store, Metrics: l.metrics, Events: k.Sink(), Times: k.Times, Catalogs: catalogs, Kinds: l.kinds, Detailed: true,
		Leading: func() bool { return true }, Missing: func() ([]string, time.Duration) {
			if !r.store.Snapshot().Synced() {
				return []string{"Pod"}, time.Second
			}
			return nil, 0
		},
	})
	l.gauges = r.provider.Gauges()
	for _, loop := range append(append(r.provider.Always(), r.provider.Leader()...), r.events.Run, hints.Run, l.observer.Run,
		commitment.New(r.store, api, catalogs, l.metrics).Run,
		quotas.New(quotas.Deps{Store: r.store, Client: api, Catalogs: catalogs, Known: known, Metrics: l.metrics, Events: k.Sink()}).Run,
		breaker.New(breaker.Deps{Store: r.store, Client: api, Metrics: l.metrics, Events: k.Sink()},
			breaker.Settings{Percent: 20, Window: 30 * time.Minute, Pause: 10 * time.Minute, Ready: 5 * time.Minute}).Run,
	) {
		k.Add(loop)
	}
	return k
}

func (l *life) hear(e *corev1.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[e.Reason] = true
}

// sample reads the gauges of the observer every five seconds, and the others every ten.
func (l *life) sample(ctx context.Context, k *sim.Karpenter) {
	own := prometheus.NewRegistry()
	own.MustRegister(l.gauges)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
		l.scrape()
		if i%2 == 0 {
			l.gather(l.registry)
		}
		if i%100 == 10 {
			l.gather(own)
		}
		for _, e := range k.Events() {
			l.hear(e)
		}
	}
}

func (l *life) gather(from prometheus.Gatherer) {
	families, err := from.Gather()
	if err != nil {
		l.t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range families {
		for _, m := range f.Metric {
			if m.GetCounter().GetValue() != 0 || m.GetGauge().GetValue() != 0 || m.GetHistogram().GetSampleCount() != 0 || m.GetSummary().GetSampleCount() != 0 {
				l.shown[f.GetName()] = true
			}
		}
	}
}

// scrape reads what the observer tells.
func (l *life) scrape() {
	var text bytes.Buffer
	if err := l.observer.Scrape(&text); err != nil {
		l.t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(text.String()) {
		name, _, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		at := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64); err == nil && value != 0 && name != "#" {
			l.shown[name] = true
		}
	}
}

// wantAll fails for each metric and event that was not seen, and is not named with a reason.
func (l *life) wantAll() {
	time.Sleep(10 * time.Second)
	l.mu.Lock()
	defer l.mu.Unlock()
	check := func(name string, seen bool) {
		other, excused := elsewhere[name]
		switch {
		case seen == excused:
			l.t.Errorf("%s: seen %t; in elsewhere %t", name, seen, excused)
		case excused && other.test != "" && !declares(l.t, other.folder, other.test):
			l.t.Errorf("%s: there is no test %s in %s", name, other.test, other.folder)
		}
	}
	for _, r := range slices.Concat(l.metrics.Rows(), telemetry.GaugeRows(), telemetry.ConditionGaugeRows(l.kinds)) {
		check(r.Name, l.shown[r.Name])
	}
	for _, r := range telemetry.EventRows() {
		check(string(r.Reason), l.events[string(r.Reason)])
	}
}

// declares reports whether a package of this module has a test.
func declares(t *testing.T, folder, test string) bool {
	files, err := filepath.Glob(filepath.Join("../../..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && bytes.Contains(text, []byte("func "+test+"("))
	})
}

// live is what happens in the life, from the first pod to the end of the class.
func (l *life) live() {
	for _, step := range []struct {
		what string
		does func()
	}{
		{"pods come, and get machines", l.begin},
		{"what cannot be had", l.impossible},
		{"launches fail", l.refusals},
		{"annotations of pods", l.annotations},
		{"machines are taken back", l.interruptions},
		{"nodes are drained", l.drains},
		{"fewer pods", l.consolidation},
		{"replacements fail", l.replacements},
		{"nodes are broken", l.breakdowns},
		{"room is kept ahead", l.ahead},
		{"claims are lost", l.orphans},
		{"classes", l.classes},
	} {
		begun := time.Now()
		step.does()
		l.t.Logf("%s: %s", step.what, time.Since(begun).Round(time.Second))
	}
}

// pod makes a pod of a ReplicaSet of the same name, with 1 GiB.
func (l *life) pod(name, cpus string, edits ...func(*corev1.Pod)) {
	l.API.Put(sim.Pod(name, cpus, append([]func(*corev1.Pod){sim.OwnedBy(name), func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
	}}, edits...)...))
}

// onDemand keeps a pod off spot machines, which are not replaced by others.
func onDemand(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}
}

// remove deletes the pods of sets for good.
func (l *life) remove(sets ...string) {
	for _, p := range memapi.All[*corev1.Pod](l.API) {
		if slices.Contains(sets, p.Labels["app"]) {
			memapi.Edit(l.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
			l.delete(p)
		}
	}
}

// delete deletes an object as a user does. It may be gone already.
func (l *life) delete(o client.Object) {
	if err := client.IgnoreNotFound(l.API.Client("user").Delete(context.Background(), o)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) pool(edit func(*v1.NodePool)) {
	memapi.Edit(l.API, "", "default", func(p *v1.NodePool) {
		edit(p)
		p.Generation++
	})
}

// settle waits until so many pods run.
func (l *life) settle(pods int) {
	l.t.Helper()
	l.eventually("pods run", 30*time.Minute, l.allRun(pods))
}

// nodeOf is the node of the pod of a set.
func (l *life) nodeOf(set string) string {
	for _, p := range memapi.All[*corev1.Pod](l.API) {
		if p.Labels["app"] == set {
			return p.Spec.NodeName
		}
	}
	l.t.Fatal("no pod of " + set)
	return ""
}

func quota(cpus string) *autoscalingv1beta1.CapacityQuota {
	q := &autoscalingv1beta1.CapacityQuota{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "quota-1"}}
	q.Spec.Limits.Resources = autoscalingv1beta1.QuotaAmounts{"cpu": resource.MustParse(cpus)}
	return q
}

// begin has pods of Deployments and of a DaemonSet, without requests, with limits, and more at a time than events are sent for.
func (l *life) begin() {
	l.pool(func(p *v1.NodePool) { p.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("1000")} })
	l.deploy(6, "1500m", "2Gi")
	l.settle(6)
	l.pod("naked", "1", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	})
	l.settle(7)
	l.API.Put(sim.Pod("agent", "10m", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: new(true)}}
		p.Spec.NodeName = l.nodeOf("naked")
		p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
	}))
	many := make([]string, 60)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
		l.pod(many[i], "2")
	}
	l.settle(68)
	l.remove(append(many, "agent")...)
	l.settle(7)
}

func (l *life) impossible() {
	l.pod("huge", "5000")
	none := pool()
	none.Name, none.UID = "nothing", "pool-2"
	none.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"none"}}}
	classless := pool()
	classless.Name, classless.UID, classless.Finalizers = "classless", "pool-3", []string{"test/stays"}
	classless.Spec.Template.Spec.NodeClassRef = sim.Ref("none")
	static := pool()
	static.Name, static.UID = "static", "pool-4"
	static.Spec.Replicas, static.Spec.Limits = new(int64(3)), v1.Limits{"nodes": resource.MustParse("1")}
	for _, p := range []*v1.NodePool{none, classless, static} {
		l.API.Put(p)
	}
	stray := sim.Claim("stray", func(c *v1.NodeClaim) {
		c.Labels[v1.NodePoolLabelKey], c.Labels[corev1.LabelInstanceTypeStable], c.OwnerReferences = "gone", "m5.large", nil
	})
	l.API.Put(stray)
	l.store.Update(func(d *cluster.Draft) {
		d.PutBroken(cluster.Broken{Kind: "NodePool", Name: "odd", Err: "cannot be read"})
	})
	l.pod("elsewhere", "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "nowhere"} })
	time.Sleep(2 * time.Minute)
	l.delete(stray)
	memapi.Edit(l.API, "", "static", func(p *v1.NodePool) { p.Spec.Template.Labels = map[string]string{"release": "2"}; p.Generation++ })
	time.Sleep(3 * time.Minute)
	l.remove("huge", "elsewhere")
	for _, p := range []*v1.NodePool{none, classless, static} {
		l.delete(p)
	}
	time.Sleep(time.Minute)
	memapi.Edit(l.API, "", "classless", func(p *v1.NodePool) { p.Finalizers = nil })

	l.API.Put(quota("30"))
	time.Sleep(time.Minute)
	l.pod("beyond", "40")
	time.Sleep(time.Minute)
	memapi.Edit(l.API, "", "all", func(q *autoscalingv1beta1.CapacityQuota) { q.Spec = quota("1").Spec })
	time.Sleep(2 * time.Minute)
	l.remove("beyond")
	l.delete(quota("1"))
}

// refusals has the API server and EC2 refuse machines.
func (l *life) refusals() {
	l.API.SetFault(func(r memapi.Request) error {
		switch {
		case r.Verb == "create" && r.Kind == "NodeClaim":
			return apierrors.NewForbidden(v1.GroupVersion.WithResource("nodeclaims").GroupResource(), "", errors.New("a policy says no"))
		case r.Kind == "NodePool":
			return fmt.Errorf("etcd: %w", context.DeadlineExceeded)
		}
		return nil
	})
	l.pod("refused", "40")
	time.Sleep(time.Minute)
	l.API.SetFault(nil)
	for _, fault := range []awsmodel.Faults{
		{Fail: map[string]awsmodel.Failure{"ec2:CreateFleet": {Code: "UnauthorizedOperation", Message: "no", Status: 403}}},
		{Fail: map[string]awsmodel.Failure{"ec2:CreateFleet": {Code: "AuthFailure.ServiceLinkedRoleCreationNotPermitted", Message: "no", Status: 403}}},
		{Pools: []awsmodel.PoolRule{{Match: "*/*/*"}}},
	} {
		l.faults(func(f *awsmodel.Faults) { *f = fault })
		time.Sleep(4 * time.Minute)
	}
	l.faults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{} })
	l.settle(8)
	l.faults(func(f *awsmodel.Faults) {
		f.Fail = map[string]awsmodel.Failure{"ec2:TerminateInstances": {Code: "InternalError", Message: "no", Status: 500}}
	})
	l.remove("refused")
	time.Sleep(5 * time.Minute)
	l.faults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{} })
	l.settle(7)
}

func (l *life) annotations() {
	of := map[string][2]string{
		"wrong": {v1.DoNotDisruptAnnotationKey, "yes"}, "timed": {v1.DoNotDisruptAnnotationKey, "5m"}, "old": {v1.DoNotEvictAnnotationKey, "true"},
	}
	for name, a := range of {
		l.pod(name, "100m", func(p *corev1.Pod) { p.Annotations = map[string]string{a[0]: a[1]} })
	}
	time.Sleep(8 * time.Minute)
	l.remove(slices.Collect(maps.Keys(of))...)
}

func (l *life) interruptions() {
	l.aws.SetAccount(func(a *awsmodel.Account) {
		a.Shifts = map[string]time.Time{awsdata.ZoneID("us-east-1", "us-east-1a"): time.Now().Add(5 * time.Minute)}
	})
	time.Sleep(10 * time.Minute)
	stop := func(ids ...string) error {
		_, err := ec2.NewFromConfig(l.aws.AWSConfig()).StopInstances(context.Background(), &ec2.StopInstancesInput{InstanceIds: ids})
		return err
	}
	for _, do := range []func(ids ...string) error{l.aws.Rebalance, l.aws.Interrupt, l.aws.ReservationWarning, l.aws.Impair, l.aws.Kill, stop} {
		l.eventually("pods of Deployments run", 10*time.Minute, l.allRun(7))
		if err := do(l.aws.Alive()[0].ID); err != nil {
			l.t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
	}
	l.settle(7)
}

// drains removes a node whose pod may not go before its deadline, and one whose volume stays attached.
func (l *life) drains() {
	l.API.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held", Generation: 1},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}}}})
	l.pod("fixed", "30")
	l.settle(8)
	fixed := l.nodeOf("fixed")
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{
		NodeName: fixed, Attacher: "ebs.csi.aws.com", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}}}
	l.API.Put(attached)
	l.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fixed}})
	time.Sleep(5 * time.Minute)
	l.delete(attached)
	l.settle(8)
	l.remove("fixed")

	l.pool(func(p *v1.NodePool) {
		p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 5 * time.Minute}
	})
	l.pod("held", "31")
	l.settle(8)
	l.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.nodeOf("held")}})
	time.Sleep(7 * time.Minute)
	l.settle(8)
	l.remove("held")
}

// consolidation has fewer pods than before: under policy Balanced, with budgets that allow nothing, with approval, and paused.
func (l *life) consolidation() {
	l.pool(func(p *v1.NodePool) {
		p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyBalanced
		p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}}
	})
	var half []string
	for i := range 12 {
		l.pod(fmt.Sprint("big-", i), "5", onDemand)
		if i%2 == 0 {
			half = append(half, fmt.Sprint("big-", i))
		}
	}
	l.settle(19)
	l.remove(half...)
	time.Sleep(3 * time.Minute)
	l.pool(func(p *v1.NodePool) {
		p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
		p.Annotations = map[string]string{v1.ApprovalAnnotationKey: "manual"}
	})
	time.Sleep(3 * time.Minute)
	l.pool(func(p *v1.NodePool) { p.Annotations = map[string]string{v1.PausedAnnotationKey: "true"} })
	time.Sleep(time.Minute)
	l.pool(func(p *v1.NodePool) { p.Annotations = nil })
	time.Sleep(20 * time.Minute)
	l.settle(13)
}

// replacements drift all nodes while nothing can be bought, and while machines do not get ready.
func (l *life) replacements() {
	l.pool(func(p *v1.NodePool) { p.Spec.Template.Labels = map[string]string{"release": "2"} })
	l.faults(func(f *awsmodel.Faults) { f.Pools = []awsmodel.PoolRule{{Match: "*/*/*"}} })
	time.Sleep(10 * time.Minute)
	l.faults(func(f *awsmodel.Faults) { f.Pools, f.DeadOnArrival = nil, 1 })
	l.untaint.Store(true)
	time.Sleep(40 * time.Minute)
	l.faults(func(f *awsmodel.Faults) { f.DeadOnArrival = 0 })
	time.Sleep(20 * time.Minute)
	l.untaint.Store(false)
	time.Sleep(20 * time.Minute)
	l.settle(13)
}

// breakdowns has a node that is less than was promised, and broken ones: first most, then one.
func (l *life) breakdowns() {
	nodes := memapi.All[*corev1.Node](l.API)
	memapi.Edit(l.API, "", nodes[0].Name, func(n *corev1.Node) { n.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("1") })
	for i, n := range nodes {
		if i > 0 {
			memapi.Edit(l.API, "", n.Name, func(n *corev1.Node) { sim.SetReady(n, corev1.ConditionFalse) })
		}
	}
	time.Sleep(40 * time.Minute)
	for i, n := range nodes {
		if i > 1 {
			memapi.Edit(l.API, "", n.Name, func(n *corev1.Node) { sim.SetReady(n, corev1.ConditionTrue) })
		}
	}
	time.Sleep(30 * time.Minute)
}

// ahead keeps room for CapacityBuffers, for a CronJob whose pods never come, and counts a commitment.
func (l *life) ahead() {
	l.API.Put(&v1alpha1.CommitmentDiscount{ObjectMeta: metav1.ObjectMeta{Name: "sp"}, Spec: v1alpha1.CommitmentDiscountSpec{
		Category: v1alpha1.CommitmentSpend, Type: v1alpha1.ComputeSavingsPlan, Quantity: "1", Share: "100%",
		Rates: []v1alpha1.CommitmentRate{{Family: "m5", Discount: "30%"}, {Family: "c5", Discount: "30%"}},
	}})
	for name, cpus := range map[string]string{"web": "1", "vast": "5000"} {
		l.API.Put(&corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{Containers: sim.Pod(name, cpus).Spec.Containers}}})
		l.API.Put(&autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1, Finalizers: []string{"test/stays"}},
			Spec: autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: name}, Replicas: new(int32(3))}})
	}
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report"}}
	c.Spec.Schedule, c.Spec.JobTemplate.Spec.Parallelism = "*/10 * * * *", new(int32(20))
	c.Spec.JobTemplate.Spec.Template.Spec.Containers = sim.Pod("report", "8").Spec.Containers
	l.API.Put(c)
	time.Sleep(52 * time.Minute)
	l.delete(c)
	l.delete(&corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	time.Sleep(2 * time.Minute)
	for _, name := range []string{"web", "vast"} {
		l.delete(&autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	time.Sleep(time.Minute)
	for _, name := range []string{"web", "vast"} {
		memapi.Edit(l.API, "default", name, func(b *autoscalingv1beta1.CapacityBuffer) { b.Finalizers = nil })
	}
	time.Sleep(time.Minute)
}

// orphans are machines whose claims somebody removed with force: one, and then most.
func (l *life) orphans() {
	claims := memapi.All[*v1.NodeClaim](l.API)
	l.API.Remove(claims[0])
	time.Sleep(10 * time.Minute)
	for _, c := range memapi.All[*v1.NodeClaim](l.API)[1:] {
		l.API.Remove(c)
	}
	time.Sleep(10 * time.Minute)
}

func (l *life) classes() {
	lost, twice := class(), class()
	lost.Name, lost.UID, lost.Spec.SubnetSelectorTerms = "lost", "class-2", []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"no": "where"}}}
	twice.Name, twice.UID, twice.Spec.UserData = "twice", "class-3", new("#!/bin/bash\n/etc/eks/bootstrap.sh demo\n")
	l.API.Put(lost)
	l.API.Put(twice)
	time.Sleep(2 * time.Minute)
	memapi.Edit(l.API, "", "lost", func(c *awsv1.EC2NodeClass) { c.Spec.SubnetSelectorTerms = class().Spec.SubnetSelectorTerms })
	time.Sleep(2 * time.Minute)
	l.delete(class())
	time.Sleep(2 * time.Minute)
	l.delete(pool())
	time.Sleep(30 * time.Minute)
}
