package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/control/ledger"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/history/costs"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// dayShop returns what is sold: two types at their on-demand prices of us-east-1, and spot at a price that changes every 25 minutes.
func dayShop() func(*v1.NodePool) (*cloud.Catalog, error) {
	var lock sync.Mutex
	began, made := time.Now(), map[int]*cloud.Catalog{}
	return func(*v1.NodePool) (*cloud.Catalog, error) {
		lock.Lock()
		defer lock.Unlock()
		turn := int(time.Since(began) / (25 * time.Minute))
		if made[turn] == nil {
			made[turn] = &cloud.Catalog{}
			for _, it := range []*cloud.InstanceType{sim.Kind("m7i.2xlarge", 8, 0.4032), sim.Kind("m7i.xlarge", 4, 0.2016)} {
				it.Labels[v1.CapacityTypeLabelKey] = []string{v1.CapacityTypeOnDemand, v1.CapacityTypeSpot}
				it.Labels[corev1.LabelTopologyRegion] = []string{"us-east-1"}
				for _, o := range it.Offerings {
					o.Labels = map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeSpot, corev1.LabelTopologyZone: o.Zone()}
					o.Price = o.Price*2/5 + cloud.NanoUSD(turn*7919%1000)*1001
					it.Offerings = append(it.Offerings, o)
				}
				made[turn].Types = append(made[turn].Types, it)
			}
		}
		return made[turn], nil
	}
}

// of makes a pod one of a workload.
func of(namespace, kind, owner string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Namespace, p.Labels = namespace, map[string]string{"app": owner}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true)}}
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
	}
}

func onDemand(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}
}

// keptDay runs the loops for half a simulated day and writes the ledger that they keep to a file: a service on demand that a Savings Plan pays and a
// PodDisruptionBudget holds, a service that grows at noon, jobs, and room that a CapacityBuffer keeps.
func keptDay(t *testing.T) string {
	list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	sell := sim.Shop
	sold := func(p *v1.NodePool) (*cloud.Catalog, error) { return sell(p) }
	sim.Bubble(t, sim.Options{Cloud: fakecloud.Options{Catalog: sold}}, sim.KarpenterOptions{Provision: true, Disrupt: true, Buffers: true},
		func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			sell = dayShop()
			for n := range costs.Slots {
				w.API.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: costs.Name("l", n)}})
			}
			w.API.Put(&v1alpha1.CommitmentDiscount{ObjectMeta: metav1.ObjectMeta{Name: "sp-4f21"}, Spec: v1alpha1.CommitmentDiscountSpec{
				Category: v1alpha1.CommitmentSpend, Type: v1alpha1.ComputeSavingsPlan, Quantity: "0.50", Share: "100%",
				Rates: []v1alpha1.CommitmentRate{{Family: "m7i", Discount: "28%"}}}})
			w.API.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"},
				Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}}}})
			template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spare"}}
			template.Template.Spec = sim.Pod("spare", "1").Spec
			sim.Create(t, w, template)
			buffer := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spare", Generation: 1}}
			buffer.Spec.PodTemplateRef, buffer.Spec.Replicas = &autoscalingv1beta1.LocalObjectRef{Name: "spare"}, new(int32(2))
			sim.Create(t, w, buffer)
			ctx, stop := context.WithCancel(telemetry.WithLog(t.Context(), slog.New(slog.DiscardHandler)))
			l := ledger.New(ledger.Deps{Store: k.Store, Client: w.API.Client("ledger"), Catalogs: catalog.New(w.Cloud), Metrics: k.Metrics,
				Engine: engine.New(awsv1.Labels())}, ledger.Settings{ConfigMaps: client.ObjectKey{Namespace: "kube-system", Name: "l"}})
			var loops sync.WaitGroup
			for _, run := range []func(context.Context) error{l.Watch, l.Run, l.Sample} {
				loops.Go(func() { _ = run(ctx) })
			}
			scale := func(n int, name, cpus string, edits ...func(*corev1.Pod)) {
				for i := range n {
					w.API.Put(sim.Pod(fmt.Sprint(name, "-", i), cpus, edits...))
				}
			}
			scale(3, "cart", "1500m", of("shop", "StatefulSet", "cart"), onDemand)
			scale(4, "web", "700m", of("shop", "Deployment", "web"))
			for hour := range 12 {
				noon := hour >= 4 && hour < 9
				if noon {
					scale(6, "noon", "700m", of("shop", "Deployment", "web"))
				}
				report := of("batch", "Job", "report")
				scale(4, "report", "900m", report)
				time.Sleep(40 * time.Minute)
				for _, p := range memapi.All[*corev1.Pod](w.API) {
					if p.Namespace == "batch" || !noon && strings.HasPrefix(p.Name, "noon") {
						w.API.Remove(p)
					}
				}
				time.Sleep(20 * time.Minute)
			}
			stop()
			loops.Wait()
			memapi.Each(w.API, func(m *corev1.ConfigMap) { list.Items = append(list.Items, *m) })
		})
	text, err := yaml.Marshal(list)
	path := filepath.Join(t.TempDir(), "day.yaml")
	if err := errors.Join(err, os.WriteFile(path, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// alike reports whether two texts differ by their spaces, and by a quarter in their numbers: the order of events within a second is not
// always the same.
func alike(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	number := func(text string) (float64, error) { return strconv.ParseFloat(strings.TrimRight(text, "%;,"), 64) }
	return slices.EqualFunc(x, y, func(a, b string) bool {
		f, errA := number(a)
		g, errB := number(b)
		return a == b || errA == nil && errB == nil && math.Abs(f-g) < 0.25*math.Abs(f)+0.01
	})
}

// The sample in docs/cost.md is what the command prints after half a simulated day. The export of the same time adds up to the same amounts, by
// what was used and by what was billed.
func TestCostOfADay(t *testing.T) {
	path := keptDay(t)
	page := filepath.Join("..", "..", "..", "docs", "cost.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "```\n2000-", "\n```\n"
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	want := before + strings.TrimSuffix(begin, "2000-") + strings.TrimSuffix(costOf(t, "-f", path), "\n") + end + after
	switch {
	case !found:
		t.Fatal("the page has no sample")
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	case !alike(want, string(text)):
		t.Errorf("the page is old: go test ./internal/ui/cli -run TestCostOfADay -update\n%s", cmp.Diff(string(text), want))
	}
	for _, by := range []string{"node", "nodepool", "workload"} {
		if got := costOf(t, "-f", path, "--by", by); !strings.Contains(got, "(unused sp-4f21)") {
			t.Errorf("--by %s has no row of what is unused:\n%s", by, got)
		}
	}
	checkFOCUS(t, path)
}
