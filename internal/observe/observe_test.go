package observe_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/observe"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const classKey = "karpenter.k8s.aws/ec2nodeclass"

type world struct {
	store    *cluster.Store
	observer *observe.Observer
	metrics  *telemetry.Metrics
	times    *telemetry.PodTimes
	leading  bool

	mu     sync.Mutex
	events []string
}

// Pools is the catalogue: one type, one offering. Whoever asks is named, because calls of the cloud are counted by it.
func (w *world) Pools(ctx context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	if telemetry.Controller(ctx) == "" {
		panic("nobody asks for the instance types of pools")
	}
	pools := map[string]engine.Pool{}
	for p := range cluster.Pools.All(snap) {
		pools[p.Name] = engine.Pool{Pool: p, Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{{
			Name: "m5.large",
			Offerings: []cloud.Offering{{
				Labels: map[string]string{corev1.LabelTopologyZone: "z", v1.CapacityTypeLabelKey: "spot"}, Price: cloud.FromDollars(0.25),
			}},
		}}}}
	}
	return pools, nil
}

func newWorld(t *testing.T, detailed bool) *world {
	w := &world{store: cluster.NewStore(), times: telemetry.NewPodTimes(), leading: true}
	kinds := telemetry.ConditionKinds(classKey)
	w.metrics = telemetry.NewMetrics(prometheus.NewRegistry(), kinds)
	events := telemetry.NewEvents(func(_ context.Context, e *corev1.Event) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name+" "+e.Reason)
		return nil
	}, w.metrics)
	w.observer = observe.New(observe.Deps{
		Store: w.store, Metrics: w.metrics, Events: events, Times: w.times, Catalogs: w, Kinds: kinds, Detailed: detailed,
		NodeLabels: []string{corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable, v1.CapacityTypeLabelKey, v1.NodePoolLabelKey, corev1.LabelHostname},
		Leading:    func() bool { return w.leading },
		Missing:    func() ([]string, time.Duration) { return nil, 0 },
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.observer.Run(ctx) })
	wg.Go(func() { events.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	w.store.Update(func(d *cluster.Draft) { d.Synced(true) })
	return w
}

// check compares what a scrape says with want, metric by metric.
func (w *world) check(t *testing.T, names []string, want string) {
	t.Helper()
	var got []string
	var text bytes.Buffer
	if err := w.observer.Scrape(&text); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			got = append(got, strings.TrimPrefix(f.GetName(), "karpenter_")+"{"+strings.Join(labels, " ")+"} "+
				strings.TrimRight(strings.TrimRight(resource.NewMilliQuantity(int64(m.GetGauge().GetValue()*1000+.5), resource.DecimalSI).AsDec().String(), "0"), "."))
		}
	}
	slices.Sort(got)
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	if text, wanted := strings.Join(got, "\n"), strings.Join(lines, "\n"); text != wanted {
		t.Errorf("scrape:\n%s\nwant:\n%s", text, wanted)
	}
}

func list(kv ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		out[corev1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return out
}

// fill puts one pool with one node that runs a pod and a daemon.
func fill(d *cluster.Draft, now time.Time) {
	labels := map[string]string{
		v1.NodePoolLabelKey: "default", corev1.LabelTopologyZone: "z", corev1.LabelInstanceTypeStable: "m5.large",
		v1.CapacityTypeLabelKey: "spot", v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true", classKey: "default",
	}
	cluster.Pools.Put(d, &v1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}, Spec: v1.NodePoolSpec{Limits: v1.Limits(list("cpu", "10"))},
		Status: v1.NodePoolStatus{Resources: list("cpu", "2")},
	})
	d.PutClaim(&v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "claim", Labels: labels},
		Spec:       v1.NodeClaimSpec{NodeClassRef: &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}},
		Status:     v1.NodeClaimStatus{ProviderID: "id"},
	})
	d.PutNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node", Labels: labels, CreationTimestamp: metav1.NewTime(now)},
		Spec:       corev1.NodeSpec{ProviderID: "id"},
		Status:     corev1.NodeStatus{Capacity: list("cpu", "2"), Allocatable: list("cpu", "1900m")},
	})
	d.PutPod(pod("web", "n", "500m", "1", ""))
	d.PutPod(pod("agent", "n", "100m", "200m", "DaemonSet"))
	d.PutPod(pod("waits", "", "1", "1", ""))
}

func pod(name, node, request, limit, owner string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: list("cpu", request), Limits: list("cpu", limit),
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if owner != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "o", UID: "o", Controller: &yes}}
	}
	return p
}

// Historic names are only there where they are wanted, and then say what their successors say, label for label.
func TestGaugesOfReleasesBefore(t *testing.T) {
	names := []string{
		"karpenter_nodepool_limit", "karpenter_nodepool_usage", "karpenter_provisioner_limit", "karpenter_provisioner_usage", "karpenter_pods_scheduling_undecided_time_seconds",
	}
	for name, tc := range map[string]struct {
		historic bool
		want     string
	}{
		"not wanted": {want: ""},
		"wanted": {historic: true, want: `
			nodepool_limit{nodepool=default resource_type=cpu} 10
			nodepool_usage{nodepool=default resource_type=cpu} 2
			pods_scheduling_undecided_time_seconds{name=waits namespace=default} 10
			provisioner_limit{provisioner=default resource_type=cpu} 10
			provisioner_usage{provisioner=default resource_type=cpu} 2`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, true)
				w.observer.Historic = tc.historic
				w.store.Update(func(d *cluster.Draft) { fill(d, time.Now()) })
				w.times.Seen("uid-waits", time.Now())
				time.Sleep(10 * time.Second)
				w.check(t, names, tc.want)
			})
		})
	}
}

func TestGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		w.store.Update(func(d *cluster.Draft) { fill(d, time.Now()) })
		time.Sleep(10 * time.Second)
		const node = "capacity_type=spot instance_type=m5.large managed=true node_name=n nodepool=default "
		w.check(t, []string{
			"karpenter_nodes_allocatable", "karpenter_nodes_total_pod_requests", "karpenter_nodes_total_pod_limits",
			"karpenter_nodes_total_daemon_requests", "karpenter_nodes_total_daemon_limits", "karpenter_nodes_system_overhead",
			"karpenter_nodes_current_lifetime_seconds", "karpenter_cluster_utilization_percent", "karpenter_cluster_state_node_count",
		}, `
			cluster_state_node_count{} 1
			cluster_utilization_percent{resource_type=cpu} 31.579
			nodes_allocatable{`+node+`resource_type=cpu zone=z} 1.9
			nodes_current_lifetime_seconds{`+node+`zone=z} 10
			nodes_system_overhead{`+node+`resource_type=cpu zone=z} 0.1
			nodes_total_daemon_limits{`+node+`resource_type=cpu zone=z} 0.2
			nodes_total_daemon_requests{`+node+`resource_type=cpu zone=z} 0.1
			nodes_total_daemon_requests{`+node+`resource_type=pods zone=z} 1
			nodes_total_pod_limits{`+node+`resource_type=cpu zone=z} 1.2
			nodes_total_pod_requests{`+node+`resource_type=cpu zone=z} 0.6
			nodes_total_pod_requests{`+node+`resource_type=pods zone=z} 2`)
		w.check(t, []string{"karpenter_nodepools_limit", "karpenter_nodepools_usage", "karpenter_nodepools_cost_total", "karpenter_nodepools_disruption_paused", "karpenter_nodepools_disruption_plans_waiting"}, `
			nodepools_cost_total{nodepool=default} 0.25
			nodepools_disruption_paused{nodepool=default} 0
			nodepools_disruption_plans_waiting{nodepool=default} 0
			nodepools_limit{nodepool=default resource_type=cpu} 10
			nodepools_usage{nodepool=default resource_type=cpu} 2`)
		w.check(t, []string{"karpenter_pods_state", "karpenter_pods_unbound_time_seconds"}, `
			pods_state{capacity_type=spot instance_type=m5.large managed=true name=agent namespace=default node=n nodepool=default owner=/apis/apps/v1/namespaces/default/daemonsets/o phase=Pending ready=false scheduled=true zone=z} 1
			pods_state{capacity_type=spot instance_type=m5.large managed=true name=web namespace=default node=n nodepool=default phase=Pending ready=false scheduled=true zone=z} 1
			pods_state{managed=false name=waits namespace=default phase=Pending ready=false scheduled=false} 1
			pods_unbound_time_seconds{dynamic_resources=false name=waits namespace=default} 10`)
	})
}

// A pod asks for nothing when none of its containers does and it asks for nothing as a whole; a pod that has ended does not count.
func TestPodsWithoutRequestsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		w.store.Update(func(d *cluster.Draft) {
			fill(d, time.Now())
			both := pod("both", "n", "1", "1", "")
			both.Spec.Containers[0].Resources.Requests = list("cpu", "1", "memory", "1Gi")
			whole := pod("whole", "n", "1", "1", "")
			whole.Namespace, whole.Spec.Containers[0].Resources = "b", corev1.ResourceRequirements{}
			whole.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "1Gi")}
			limits := pod("limits", "", "0", "1", "")
			limits.Namespace = "b"
			ended := pod("ended", "n", "0", "1", "")
			ended.Status.Phase = corev1.PodSucceeded
			for _, p := range []*corev1.Pod{both, whole, limits, ended} {
				d.PutPod(p)
			}
		})
		w.check(t, []string{"karpenter_pods_without_requests"}, `
			pods_without_requests{namespace=b resource_type=cpu} 2
			pods_without_requests{namespace=b resource_type=memory} 1
			pods_without_requests{namespace=default resource_type=memory} 3`)
	})
}

func TestPausedPoolsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		w.store.Update(func(d *cluster.Draft) {
			fill(d, time.Now())
			cluster.Namespaces.Put(d, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1.PausedNamespace, Annotations: map[string]string{v1.PausedAnnotationKey: "true"}}})
		})
		w.check(t, []string{"karpenter_nodepools_disruption_paused"}, "nodepools_disruption_paused{nodepool=default} 1")
	})
}

// A plan counts for each pool of its nodes, once, until somebody or a rule has decided about it.
func TestPlansThatWaitAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		plan := func(name string, edit func(*v1alpha1.DisruptionPlan), pools ...string) *v1alpha1.DisruptionPlan {
			p := &v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: name}}
			p.Status.Phase, p.Status.Step = v1alpha1.DisruptionPending, &v1alpha1.DisruptionStep{}
			for _, pool := range pools {
				p.Status.Step.Remove = append(p.Status.Step.Remove, v1alpha1.DisruptedNode{NodePool: pool})
			}
			edit(p)
			return p
		}
		w.store.Update(func(d *cluster.Draft) {
			fill(d, time.Now())
			for _, p := range []*v1alpha1.DisruptionPlan{
				plan("waits", func(*v1alpha1.DisruptionPlan) {}, "default", "default"),
				plan("waits-too", func(*v1alpha1.DisruptionPlan) {}, "other", "default"),
				plan("elsewhere", func(*v1alpha1.DisruptionPlan) {}, "other"),
				plan("approved", func(p *v1alpha1.DisruptionPlan) { p.Spec.Decision = v1alpha1.DisruptionApproved }, "default"),
				plan("denied", func(p *v1alpha1.DisruptionPlan) { p.Spec.Decision = v1alpha1.DisruptionDenied }, "default"),
				plan("by-rule", func(p *v1alpha1.DisruptionPlan) { p.Status.Rule = "pods<=3" }, "default"),
				plan("expired", func(p *v1alpha1.DisruptionPlan) { p.Status.Phase = v1alpha1.DisruptionExpired }, "default"),
				plan("empty", func(p *v1alpha1.DisruptionPlan) { p.Status.Step = nil }),
			} {
				d.PutDisruptionPlan(p)
			}
		})
		w.check(t, []string{"karpenter_nodepools_disruption_plans_waiting"}, "nodepools_disruption_plans_waiting{nodepool=default} 2")
	})
}

func TestStandbysAndQuietOnesReportLess(t *testing.T) {
	for name, tc := range map[string]struct {
		detailed, leading bool
		want              string
	}{
		"a standby reports on itself only":      {true, false, "cluster_state_synced{} 1"},
		"without details only the sum is given": {false, true, "cluster_state_node_count{} 1\ncluster_state_synced{} 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.detailed)
				w.leading = tc.leading
				w.store.Update(func(d *cluster.Draft) { fill(d, time.Now()) })
				w.check(t, []string{
					"karpenter_cluster_state_node_count", "karpenter_cluster_state_synced", "karpenter_nodes_allocatable", "karpenter_pods_state",
					"karpenter_nodepools_limit", "operator_node_status_condition_count",
				}, tc.want)
			})
		})
	}
}

func TestPodDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		p := pod("a", "", "1", "1", "")
		w.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
		time.Sleep(2 * time.Second)
		w.times.Seen(p.UID, time.Now())
		w.times.Decided(p.UID, time.Now(), true)
		time.Sleep(10 * time.Second)
		running := p.DeepCopy()
		running.Spec.NodeName, running.Status.Phase = "n", corev1.PodRunning
		running.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		w.store.Update(func(d *cluster.Draft) { d.PutPod(running) })
		time.Sleep(5 * time.Second)
		ready := running.DeepCopy()
		ready.Status.Conditions = append(ready.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
		w.store.Update(func(d *cluster.Draft) { d.PutPod(ready) })
		// A pod that ran already when this process started is not measured.
		other := ready.DeepCopy()
		other.Name, other.UID = "b", "uid-b"
		w.store.Update(func(d *cluster.Draft) { d.PutPod(other) })
		time.Sleep(15 * time.Second)
		for name, tc := range map[string]struct {
			c    prometheus.Collector
			want float64
		}{
			"bound":                {w.metrics.PodBound, 12},
			"provisioning bound":   {w.metrics.PodProvisioningBound, 10},
			"startup":              {w.metrics.PodStartup, 17},
			"provisioning startup": {w.metrics.PodProvisioningStartup, 15},
		} {
			if count, sum := sample(t, tc.c); count != 1 || sum != tc.want {
				t.Errorf("%s: %d samples of together %v, want one of %v", name, count, sum, tc.want)
			}
		}
		if _, known := w.times.Get(p.UID); known {
			t.Error("the times of a pod that runs are still remembered")
		}
	})
}

// sample returns count and sum of a histogram or summary.
func sample(t *testing.T, c prometheus.Collector) (uint64, float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) == 0 {
		return 0, 0
	}
	m := families[0].GetMetric()[0]
	if h := m.GetHistogram(); h != nil {
		return h.GetSampleCount(), h.GetSampleSum()
	}
	return m.GetSummary().GetSampleCount(), m.GetSummary().GetSampleSum()
}

func TestConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		claim := func(status metav1.ConditionStatus, finalizers ...string) *v1.NodeClaim {
			return &v1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "claim", Finalizers: finalizers, Labels: map[string]string{v1.NodePoolLabelKey: "default", classKey: "nc"}},
				Spec:       v1.NodeClaimSpec{NodeClassRef: &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "nc"}},
				Status:     v1.NodeClaimStatus{Conditions: []metav1.Condition{{Type: "Launched", Status: status, Reason: string("R" + status), LastTransitionTime: metav1.Now()}}},
			}
		}
		w.store.Update(func(d *cluster.Draft) { d.PutClaim(claim(metav1.ConditionUnknown, "f")) })
		time.Sleep(20 * time.Second)
		w.store.Update(func(d *cluster.Draft) { d.PutClaim(claim(metav1.ConditionTrue, "f")) })
		time.Sleep(20 * time.Second)
		w.check(t, []string{"operator_nodeclaim_status_condition_count", "operator_nodeclaim_status_condition_current_status_seconds"}, `
			operator_nodeclaim_status_condition_count{karpenter_k8s_aws_ec2nodeclass=nc karpenter_sh_nodepool=default name=c reason=RTrue status=True type=Launched} 1
			operator_nodeclaim_status_condition_current_status_seconds{karpenter_k8s_aws_ec2nodeclass=nc karpenter_sh_nodepool=default name=c reason=RTrue status=True type=Launched} 20`)
		transitions := w.metrics.ConditionTransitions["nodeclaim"]
		for _, status := range []string{"Unknown", "True"} { // the first appearance counts too
			if got := testutil.ToFloat64(transitions.WithLabelValues("Launched", status, "R"+status, "default", "nc")); got != 1 {
				t.Errorf("transitions to %s = %v, want 1", status, got)
			}
		}
		if count, sum := sample(t, w.metrics.ConditionTransition["nodeclaim"]); count != 1 || sum != 20 {
			t.Errorf("%d transitions took %v, want one of 20 s", count, sum)
		}
		gone := claim(metav1.ConditionTrue, "f")
		gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.store.Update(func(d *cluster.Draft) { d.PutClaim(gone) })
		time.Sleep(30 * time.Second)
		w.check(t, []string{"operator_nodeclaim_termination_current_time_seconds"},
			"operator_nodeclaim_termination_current_time_seconds{karpenter_k8s_aws_ec2nodeclass=nc karpenter_sh_nodepool=default name=c} 30")
		w.store.Update(func(d *cluster.Draft) { d.DeleteClaim("c") })
		time.Sleep(20 * time.Second)
		if count, sum := sample(t, w.metrics.ObjectTermination["nodeclaim"]); count != 1 || sum < 30 || sum > 41 {
			t.Errorf("%d terminations took %v, want one of 30 s and the time until it was noticed", count, sum)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if want := []string{"NodeClaim/c Launched", "NodeClaim/c Finalized"}; !slices.Equal(w.events, want) {
			t.Errorf("events = %q, want %q", w.events, want)
		}
	})
}

// A launch may take less than the time between two looks. Claims that were there before are nothing new.
func TestALaunchThatIsFasterThanOurLooksIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		put := func(name string) {
			w.store.Update(func(d *cluster.Draft) {
				d.PutClaim(&v1.NodeClaim{
					ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
					Status:     v1.NodeClaimStatus{Conditions: []metav1.Condition{{Type: "Launched", Status: metav1.ConditionTrue}, {Type: "Registered", Status: metav1.ConditionUnknown}}},
				})
			})
		}
		put("old")
		time.Sleep(20 * time.Second)
		put("new")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if want := []string{"NodeClaim/new Launched"}; !slices.Equal(w.events, want) {
			t.Errorf("events = %q, want %q", w.events, want)
		}
	})
}

func TestBrokenObjectsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		w.store.Update(func(d *cluster.Draft) { d.PutBroken(cluster.Broken{Kind: "NodePool", Name: "bad", Err: "no number"}) })
		for range 5 {
			time.Sleep(time.Minute)
			w.store.Update(func(*cluster.Draft) {})
		}
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if want := []string{"NodePool/bad UnreadableObject"}; !slices.Equal(w.events, want) {
			t.Errorf("events = %q, want %q", w.events, want)
		}
	})
}

// Without details nothing about single pods is measured, and nothing is remembered of them for ever either.
func TestQuietOnesForgetPodsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		p := pod("a", "", "1", "1", "")
		w.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
		w.times.Seen(p.UID, time.Now())
		time.Sleep(5 * time.Second)
		ready := p.DeepCopy()
		ready.Spec.NodeName, ready.Status.Phase = "n", corev1.PodRunning
		ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		w.store.Update(func(d *cluster.Draft) { d.PutPod(ready) })
		time.Sleep(20 * time.Second)
		if _, known := w.times.Get(p.UID); known {
			t.Error("the times of a pod that runs are still remembered")
		}
		if count, _ := sample(t, w.metrics.PodStartup); count != 0 {
			t.Errorf("%d pods were measured, want none", count)
		}
	})
}

// A pod that was ready once has started, whatever its probes say later; so has one that ran before this process did.
func TestAPodThatFailsAProbeHasStartedNevertheless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		names := []string{"karpenter_pods_unstarted_time_seconds"}
		put := func(name string, phase corev1.PodPhase, ready corev1.ConditionStatus) {
			p := pod(name, "n", "1", "1", "")
			p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Hour))
			p.Status.Phase = phase
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
			w.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
			time.Sleep(15 * time.Second)
		}
		put("old", corev1.PodRunning, corev1.ConditionFalse)
		put("new", corev1.PodPending, corev1.ConditionFalse)
		w.check(t, names, "pods_unstarted_time_seconds{name=new namespace=default} 3630")
		put("new", corev1.PodRunning, corev1.ConditionFalse)
		w.check(t, names, "pods_unstarted_time_seconds{name=new namespace=default} 3645")
		put("new", corev1.PodRunning, corev1.ConditionTrue)
		w.check(t, names, "")
		put("new", corev1.PodRunning, corev1.ConditionFalse)
		w.check(t, names, "")
	})
}

func TestFailedFeedsAreCountedOnEveryReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		names := []string{"karpenter_cluster_state_failed_feeds"}
		w.check(t, names, "cluster_state_failed_feeds{} 0")
		w.store.Update(func(d *cluster.Draft) { d.FailedFeeds([]cluster.FailedFeed{{Kind: "Node"}, {Kind: "Pod"}}) })
		w.check(t, names, "cluster_state_failed_feeds{} 2")
	})
}
