package quotas

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

type shop struct{}

func (shop) Pools(_ context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	offers := []cloud.Offering{{Price: 200_000_500, Labels: map[string]string{
		corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}}}
	return map[string]engine.Pool{"default": {Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{{Name: "m", Offerings: offers}}}}}, nil
}

// Two nodes with 4 CPU each, at $0.2000005 an hour, of which one has a label of a person.
func TestStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		selector map[string]string
		limits   map[autoscalingv1beta1.ResourceName]string
		others   bool // Cluster Autoscaler keeps the quota too
		used     map[autoscalingv1beta1.ResourceName]string
		enforced metav1.ConditionStatus
		reason   string
	}{
		"all nodes":        {nil, quantities("cpu", "8"), false, quantities("cpu", "8"), metav1.ConditionTrue, "Enforced"},
		"one node by type": {map[string]string{"team": "a"}, quantities("nodes", "3"), false, quantities("nodes", "1"), metav1.ConditionTrue, "Enforced"},
		"dollars, rounded up for each machine": {nil, quantities(autoscalingv1beta1.ResourceDollars, "500k"), false,
			quantities(autoscalingv1beta1.ResourceDollars, "400002"), metav1.ConditionTrue, "Enforced"},
		"more than is allowed":             {nil, quantities("cpu", "7"), false, quantities("cpu", "8"), metav1.ConditionTrue, "Exceeded"},
		"half a node":                      {nil, quantities("nodes", "500m"), false, nil, metav1.ConditionFalse, "InvalidQuota"},
		"less than nothing":                {nil, quantities("nodes", "-1"), false, nil, metav1.ConditionFalse, "InvalidQuota"},
		"a label that only people set":     {map[string]string{"room": "7"}, quantities("nodes", "1"), false, quantities("nodes", "0"), metav1.ConditionFalse, "UnforeseenLabel"},
		"a status that is somebody else's": {nil, quantities("cpu", "8"), true, nil, metav1.ConditionTrue, "Enforced"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, store := memapi.New(memapi.Scheme()), cluster.NewStore()
				metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
				q := &autoscalingv1beta1.CapacityQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
				q.Spec.Selector = &metav1.LabelSelector{MatchLabels: tc.selector}
				q.Spec.Limits.Resources = amountsOf(tc.limits)
				c := api.Client("test")
				if err := c.Create(t.Context(), q); err != nil {
					t.Fatal(err)
				}
				if tc.others {
					condition.SetFalse(q, clusterAutoscaler, "Valid", "", time.Now())
					if err := c.Status().Update(t.Context(), q); err != nil {
						t.Fatal(err)
					}
				}
				store.Update(func(d *cluster.Draft) {
					d.Synced(true)
					cluster.Quotas.Put(d, q)
					pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
					pool.Spec.Template.Labels = map[string]string{"team": "a"}
					cluster.Pools.Put(d, pool)
					for name, team := range map[string]string{"one": "a", "two": "b"} {
						d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team,
							corev1.LabelInstanceTypeStable: "m", corev1.LabelTopologyZone: "a"}}, Spec: corev1.NodeSpec{ProviderID: name},
							Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": resource.MustParse("4")}}})
					}
				})
				l := New(Deps{Store: store, Client: c, Catalogs: shop{}, Known: label.NewVocabulary(v1.Labels()), Metrics: metrics,
					Events: telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, metrics)})
				if err := l.turn(t.Context(), time.Now()); err != nil {
					t.Fatal(err)
				}
				got := cluster.Quotas.Get(store.Snapshot(), "q")
				if e := condition.Get(got, autoscalingv1beta1.ConditionTypeEnforced); e == nil || e.Status != tc.enforced || e.Reason != tc.reason {
					t.Errorf("enforced = %+v, want %s because of %s", e, tc.enforced, tc.reason)
				}
				if (got.Status.Used == nil) != (tc.used == nil) {
					t.Fatalf("used = %+v, want %v", got.Status.Used, tc.used)
				}
				for name, want := range tc.used {
					if have := got.Status.Used.Resources[autoscalingv1beta1.ResourceName(name)]; have.Cmp(resource.MustParse(want)) != 0 {
						t.Errorf("used %s = %s, want %s", name, have.String(), want)
					}
				}
			})
		})
	}
}

func quantities(name autoscalingv1beta1.ResourceName, amount string) map[autoscalingv1beta1.ResourceName]string {
	return map[autoscalingv1beta1.ResourceName]string{name: amount}
}

func amountsOf(list map[autoscalingv1beta1.ResourceName]string) autoscalingv1beta1.QuotaAmounts {
	out := autoscalingv1beta1.QuotaAmounts{}
	for name, amount := range list {
		out[name] = resource.MustParse(amount)
	}
	return out
}
