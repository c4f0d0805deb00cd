package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/history/costs"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// one sells one type to the pool "p".
type one struct{}

func (one) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	return map[string]engine.Pool{"p": {Pool: pool, Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{fakecloud.Kind("t", 16, 0.8, "a")}}}}, nil
}

func (one) Commitments(context.Context, *cluster.Snapshot, time.Time) *commitment.Books { return nil }

// crowd fills a store with nodes of 100 pods each. Every pod is a workload with a name that does not compress.
func crowd(pods int) *cluster.Store {
	random, store := rand.New(rand.NewPCG(1, 2)), cluster.NewStore()
	labels := map[string]string{v1.NodePoolLabelKey: "p", v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelInstanceTypeStable: "t",
		corev1.LabelTopologyZone: "a", v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
	store.Update(func(d *cluster.Draft) {
		d.Synced(true)
		for i := range pods {
			node := fmt.Sprint("n", i/100)
			if i%100 == 0 {
				c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node), Labels: labels}}
				c.Status.ProviderID = "aws:///a/" + node
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node), Labels: labels}}
				n.Spec.ProviderID = c.Status.ProviderID
				n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")}
				n.Status.Allocatable = n.Status.Capacity
				d.PutClaim(c)
				d.PutNode(n)
			}
			name := fmt.Sprintf("%016x%016x%016x%016x", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("s", i%200), Name: name, UID: types.UID(name)}}
			p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m")}}}}
			d.PutPod(p)
		}
	})
	return store
}

func filled(t *testing.T, pods int) (*Ledger, *memapi.Server, context.Context) {
	api := memapi.New(memapi.Scheme())
	for n := range costs.Slots {
		api.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: costs.Name("l", n)}})
	}
	l := New(Deps{Store: crowd(pods), Client: api.Client("l"), Catalogs: one{}, Metrics: telemetry.NewMetrics(prometheus.NewRegistry(), nil),
		Engine: engine.New(awsv1.Labels())}, Settings{ConfigMaps: client.ObjectKey{Namespace: "n", Name: "l"}})
	return l, api, telemetry.WithLog(t.Context(), slog.New(slog.DiscardHandler))
}

const began = int64(1_700_000_000) / 3600 * 3600

// look takes a look at a second and writes the book.
func (l *Ledger) look(t *testing.T, ctx context.Context, at int64) {
	t.Helper()
	if l.meter == nil {
		l.meter = ledger.NewMeter(l.payer, at)
	}
	l.keep(look{at, l.Store.Snapshot()})
	l.charge(ctx)
	if err := l.write(ctx); err != nil {
		t.Fatal(err)
	}
}

// read adds up what was kept.
func read(t *testing.T, api *memapi.Server) (books int, paid cloud.NanoUSD, workloads map[string]bool, losses []ledger.Loss) {
	t.Helper()
	var maps []corev1.ConfigMap
	memapi.Each(api, func(m *corev1.ConfigMap) {
		if maps = append(maps, *m); len(m.BinaryData["ledger.json.gz"]) > costs.MostBytes {
			t.Errorf("%s has %d bytes", m.Name, len(m.BinaryData["ledger.json.gz"]))
		}
	})
	all, until, torn := costs.Books(maps)
	if len(torn) > 0 {
		t.Fatal(torn)
	}
	workloads = map[string]bool{}
	for i, b := range all {
		end := until + 3600
		if i+1 < len(all) {
			end = all[i+1].First()
		}
		b.Bills(0, end, func(bill *ledger.Bill) {
			paid += bill.Paid
			for _, p := range bill.Parts {
				workloads[p.Account.Workload] = true
			}
		})
		losses = append(losses, b.Losses(0, end)...)
	}
	return len(all), paid, workloads, losses
}

// A book that is nearly full when an hour ends is followed by another one. Together they have every second once.
func TestAFullBookIsFollowedByAnother(t *testing.T) {
	l, api, ctx := filled(t, 24_000)
	for at := began; at <= began+3*3600; at += 900 {
		l.look(t, ctx, at)
	}
	books, paid, workloads, _ := read(t, api)
	if want := 3 * 240 * cloud.NanoUSD(800_000_000); books < 3 || paid != want || len(workloads) < 24_000 {
		t.Errorf("%d books, paid %d, want %d; %d workloads", books, paid, want, len(workloads))
	}
}

// An hour that does not fit loses workloads, and no money.
func TestAnHourThatDoesNotFitIsCoarser(t *testing.T) {
	l, api, ctx := filled(t, 40_000)
	l.look(t, ctx, began)
	l.look(t, ctx, began+1800)
	if _, paid, workloads, _ := read(t, api); paid != 400*400_000_000 || len(workloads) > 3 {
		t.Errorf("paid %d, want %d; %d workloads", paid, 400*400_000_000, len(workloads))
	}
}

// A small book is followed by another one after two days.
func TestABookEndsAfterTwoDays(t *testing.T) {
	l, api, ctx := filled(t, 100)
	for at := began; at <= began+100*3600; at += 3600 {
		l.look(t, ctx, at)
	}
	if books, paid, _, _ := read(t, api); books != 3 || paid != 100*800_000_000 {
		t.Errorf("%d books, paid %d", books, paid)
	}
}

// What a sample found is noted until the next one: by cause, and by holder in proportion to the price of nodes.
func TestWhatIsMissed(t *testing.T) {
	got := causes(&savings.Report{Gap: []savings.Part{
		{Cause: savings.Fragmentation, PerHour: 7}, {Cause: savings.Preferences},
		{Cause: savings.PDB, PerHour: 10, By: []string{"a/x", "b/y"}, Held: []cloud.NanoUSD{300, 100}}}})
	if diff := cmp.Diff(map[holder]cloud.NanoUSD{{"fragmentation", ""}: 7, {"pdb", "a/x"}: 8, {"pdb", "b/y"}: 2}, got); diff != "" {
		t.Error(diff)
	}
	l, api, ctx := filled(t, 300) // pods on three machines, of which two lose all
	l.look(t, ctx, began)
	l.Store.Update(func(d *cluster.Draft) {
		for p := range l.Store.Snapshot().Pods() {
			if p.NodeName != "n0" {
				d.DeletePod(p.PodKey)
			}
		}
	})
	l.Verdicts = board.New()
	over, end := context.WithCancel(ctx)
	end()
	l.sample(over, metav1.Unix(began, 0).Time)
	if s := l.Verdicts.View().Savings; s.Report != nil || l.missed != nil {
		t.Errorf("a sample that was cut short is taken: %+v", s)
	}
	l.sample(ctx, metav1.Unix(began, 0).Time)
	if s := l.Verdicts.View().Savings; s.Report == nil || s.Report.Least >= s.Report.Today || s.At.Unix() != began {
		t.Errorf("the page is shown %+v", s)
	}
	l.look(t, ctx, began+1800)
	_, _, _, losses := read(t, api)
	losses = slices.DeleteFunc(losses, func(l ledger.Loss) bool { return l.Cause == string(savings.Open) })
	if diff := cmp.Diff([]ledger.Loss{{Hour: began, Cause: "empty", Cost: 800_000_000}}, losses); diff != "" {
		t.Error(diff)
	}
}
