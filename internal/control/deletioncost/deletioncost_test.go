package deletioncost_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	control "karpenter.sh/karpenter/internal/control/deletioncost"
	"karpenter.sh/karpenter/internal/core/deletioncost"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// A fleet is an API with pods, and the picture of it.
type fleet struct {
	t       *testing.T
	api     *memapi.Server
	store   *cluster.Store
	metrics *telemetry.Metrics
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, api: memapi.New(memapi.Scheme()), store: cluster.NewStore(), metrics: telemetry.NewMetrics(prometheus.NewRegistry(), nil)}
	f.store.Update(func(d *cluster.Draft) { d.Synced(true) })
	return f
}

// node puts a node of Karpenter with its claim; edits may make it one that goes.
func (f *fleet) node(name string, edits ...func(*corev1.Node, *v1.NodeClaim)) {
	labels := map[string]string{v1.NodePoolLabelKey: "default", v1.NodeRegisteredLabelKey: "true"}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "id://" + name}}
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels}}
	c.Status.ProviderID = n.Spec.ProviderID
	for _, edit := range edits {
		edit(n, c)
	}
	f.store.Update(func(d *cluster.Draft) { d.PutClaim(c); d.PutNode(n) })
}

// pod creates a pod of a ReplicaSet on a node.
func (f *fleet) pod(name, node string, edits ...func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}},
	}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, edit := range edits {
		edit(p)
	}
	f.api.Put(p)
	f.see(name)
}

// see puts a pod into the picture as the API has it.
func (f *fleet) see(name string) { f.store.Update(func(d *cluster.Draft) { d.PutPod(f.read(name)) }) }

func (f *fleet) read(name string) *corev1.Pod {
	f.t.Helper()
	p := &corev1.Pod{}
	if err := f.api.Client("test").Get(f.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// look lets the loop look once, and shows it what became of the pods.
func (f *fleet) look(pods ...string) {
	f.t.Helper()
	ctx, end := context.WithCancel(f.t.Context())
	go func() { _ = control.New(f.store, f.api.Client("karpenter"), f.metrics).Run(ctx) }()
	synctest.Wait()
	end()
	synctest.Wait()
	for _, name := range pods {
		f.see(name)
	}
}

func (f *fleet) want(values map[string]string) {
	f.t.Helper()
	for name, want := range values {
		if got := f.read(name).Annotations[corev1.PodDeletionCost]; got != want {
			f.t.Errorf("pod %s has the value %q, want %q", name, got, want)
		}
	}
}

func underused(n *corev1.Node, _ *v1.NodeClaim) {
	n.Spec.Taints = append(n.Spec.Taints, v1.UnderusedTaint())
}

func drifted(_ *corev1.Node, c *v1.NodeClaim) {
	condition.SetTrue(c, v1.ConditionTypeDrifted, time.Unix(1, 0))
}

func leaving(_ *corev1.Node, c *v1.NodeClaim) {
	c.DeletionTimestamp, c.Finalizers = new(metav1.NewTime(time.Unix(1, 0))), []string{"x"}
}

func value(n int) string { return strconv.Itoa(n) }

func TestPodsOfNodesThatGoNextAreGivenUpFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.node("leaving", leaving)
		f.node("drifted", drifted)
		f.node("underused-a", underused)
		f.node("underused-b", underused)
		f.node("stays")
		theirs := value(deletioncost.Drifted + 7)
		pods := []string{"leaving", "drifted", "underused-a", "underused-b", "stays"}
		for _, name := range pods {
			f.pod(name, name)
		}
		f.pod("theirs", "drifted", func(p *corev1.Pod) { p.Annotations[corev1.PodDeletionCost] = theirs })
		f.pod("ending", "drifted", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = new(metav1.NewTime(time.Unix(1, 0))), []string{"x"}
		})
		f.pod("daemon", "drifted", func(p *corev1.Pod) { p.OwnerReferences[0].Kind, p.OwnerReferences[0].UID = "DaemonSet", "ds" })
		f.look(pods...)
		want := map[string]string{
			"leaving": value(deletioncost.Leaving), "drifted": value(deletioncost.Drifted), "underused-a": value(deletioncost.Underused),
			"underused-b": value(deletioncost.Underused + 1), "stays": "", "theirs": theirs, "ending": "", "daemon": "",
		}
		f.want(want)

		if again := deletioncost.Edits(f.store.Snapshot()); len(again) > 0 {
			t.Errorf("what is written is written again: %d pods, the first is %s", len(again), again[0].Pod.Name)
		}
		// The first node stays after all, a third one comes: the second keeps its number.
		f.node("underused-a")
		f.node("underused-0", underused)
		f.pod("underused-0", "underused-0")
		f.look()
		f.want(map[string]string{"underused-a": "", "underused-b": want["underused-b"], "underused-0": value(deletioncost.Underused + 2)})
	})
}

func TestAPodThatItsUserGivesAValueIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.node("n", underused)
		f.pod("a", "n")
		f.look("a")
		p := f.read("a")
		p.Annotations[corev1.PodDeletionCost] = "5"
		f.api.Put(p)
		f.see("a")
		f.node("n") // it stays: Karpenter's values go
		f.look("a")
		f.want(map[string]string{"a": "5"})
		if row := f.store.Snapshot().Pod(cluster.PodKey{Namespace: "default", Name: "a"}); row.DisruptionCost != 5 {
			t.Errorf("the user's value counts %v in disruption, want 5", row.DisruptionCost)
		}
	})
}

func TestValuesOfKarpenterDoNotSteerEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.node("n", leaving)
		f.pod("a", "n")
		f.look("a")
		if row := f.store.Snapshot().Pod(cluster.PodKey{Namespace: "default", Name: "a"}); !row.DeletionCost.Ours || row.DisruptionCost != 0 {
			t.Errorf("the value counts %v in disruption (Karpenter's: %v), want 0", row.DisruptionCost, row.DeletionCost.Ours)
		}
	})
}

func TestAPodThatChangedIsLeftForTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.node("n", underused)
		f.pod("a", "n")
		p := f.read("a")
		p.Labels = map[string]string{"x": "y"} // the picture does not have it yet
		f.api.Put(p)
		f.pod("gone", "n")
		if err := f.api.Client("test").Delete(t.Context(), f.read("gone"), client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		f.look()
		f.want(map[string]string{"a": ""})
		for result, want := range map[string]float64{"skipped_conflict": 1, "skipped_notfound": 1, "updated": 0} {
			if got := testutil.ToFloat64(f.metrics.DeletionCostWrites.WithLabelValues(result)); got != want {
				t.Errorf("%v writes were %s, want %v", got, result, want)
			}
		}
		f.see("a")
		f.look()
		f.want(map[string]string{"a": value(deletioncost.Underused)})
	})
}

func TestALookWritesSoManyPodsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.node("n", underused)
		var names []string
		for i := range 250 {
			names = append(names, fmt.Sprint("pod-", i))
			f.pod(names[i], "n")
		}
		f.look(names...)
		if left := len(deletioncost.Edits(f.store.Snapshot())); left != 50 {
			t.Errorf("%d of 250 pods are left, want 50", left)
		}
		if got := testutil.ToFloat64(f.metrics.DeletionCostPending.WithLabelValues("default")); got != 1 {
			t.Errorf("%v nodes are said to wait, want 1", got)
		}
		f.look(names...)
		if left := len(deletioncost.Edits(f.store.Snapshot())); left != 0 {
			t.Errorf("%d pods are left after the second look", left)
		}
	})
}
