package costs

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

const began = int64(1_700_000_000) / 3600 * 3600

func api() *memapi.Server {
	s := memapi.New(memapi.Scheme())
	for n := range Slots {
		s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: Name("l", n)}})
	}
	return s
}

func book(t *testing.T, hour int64) []byte {
	t.Helper()
	first := int32(began/3600 + hour)
	packed, err := Pack(&ledger.File{Version: 1, Until: int64(first+1) * 3600, First: first, Since: first, Machines: []ledger.Machine{{}}})
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// The ring keeps the newest books, in order, and the next process goes on with the newest.
func TestTheOldestBookGoes(t *testing.T) {
	s := api()
	of := client.ObjectKey{Namespace: "n", Name: "l"}
	k := NewKeeper(s.Client("a"), of)
	for hour := range int64(25) {
		if f, err := k.Load(t.Context()); err != nil || (f == nil) != (hour == 0) || f != nil && f.Until != began+3600*hour {
			t.Fatalf("hour %d: %+v, %v", hour, f, err)
		}
		if hour > 0 {
			k.Turn()
		}
		if err := k.Write(t.Context(), book(t, hour)); err != nil {
			t.Fatal(err)
		}
		k = NewKeeper(s.Client("a"), of)
	}
	var all []corev1.ConfigMap
	memapi.Each(s, func(c *corev1.ConfigMap) { all = append(all, *c) })
	books, until, torn := Books(all)
	if len(books) != Slots || until != began+25*3600 || len(torn) > 0 {
		t.Fatalf("%d books until %d, torn %v", len(books), until, torn)
	}
	for i, b := range books {
		if want := began + int64(i+5)*3600; b.First() != want {
			t.Errorf("book %d begins at %d, want %d", i, b.First(), want)
		}
	}
}

// Of two processes that write, that which did not see the other's write hears of it.
func TestWritesDoNotOverwriteThoseOfOthers(t *testing.T) {
	s := api()
	a, b := NewKeeper(s.Client("a"), client.ObjectKey{Namespace: "n", Name: "l"}), NewKeeper(s.Client("b"), client.ObjectKey{Namespace: "n", Name: "l"})
	for _, k := range []*Keeper{a, b} {
		if _, err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write := func(k *Keeper, hour int64) error { return k.Write(t.Context(), book(t, hour)) }
	if err := write(a, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write(a, 2); err != nil {
		t.Fatal(err)
	}
	if err := write(b, 3); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// A large cluster has nodes with pods of many workloads, some of which come and go, and spot prices that change.
type large struct {
	store  *cluster.Store
	random *rand.Rand
	nodes  []string
	bound  []cluster.PodKey
	serial int
	spot   map[string]cloud.NanoUSD // by type
}

const largeTypes = 40

func newLarge(nodes, pods int) *large {
	l := &large{store: cluster.NewStore(), random: rand.New(rand.NewPCG(3, 4)), spot: map[string]cloud.NanoUSD{}}
	l.store.Update(func(d *cluster.Draft) {
		d.Synced(true)
		for range nodes {
			l.node(d, began-86_400+l.random.Int64N(80_000))
		}
		for i := range pods {
			l.pod(d, l.nodes[i%nodes], began-1000)
		}
	})
	return l
}

func (l *large) node(d *cluster.Draft, launched int64) {
	l.serial++
	id := fmt.Sprintf("aws:///us-east-1%c/i-%017x", 'a'+l.serial%3, l.random.Uint64()>>4)
	name := fmt.Sprintf("ip-10-%d-%d-%d.ec2.internal", l.random.IntN(256), l.random.IntN(256), l.serial%256)
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi")}
	labels := map[string]string{v1.NodePoolLabelKey: fmt.Sprint("pool-", l.serial%5), v1.CapacityTypeLabelKey: []string{"spot", "on-demand"}[l.serial%2],
		corev1.LabelInstanceTypeStable: fmt.Sprintf("m%d.4xlarge", l.serial%largeTypes), corev1.LabelTopologyZone: fmt.Sprintf("us-east-1%c", 'a'+l.serial%3),
		corev1.LabelTopologyRegion: "us-east-1", v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", l.serial), UID: types.UID(id), Labels: labels,
		CreationTimestamp: metav1.Unix(launched, 0)}}
	c.Status.ProviderID, c.Status.Capacity, c.Status.Allocatable = id, capacity, capacity
	c.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeInitialized, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(launched+60, 0)}}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels}}
	n.Spec.ProviderID, n.Status.Capacity, n.Status.Allocatable = id, capacity, capacity
	d.PutClaim(c)
	d.PutNode(n)
	l.nodes = append(l.nodes, name)
}

// pod binds a pod: one in four of a DaemonSet, the rest of 2,000 workloads in 60 namespaces.
func (l *large) pod(d *cluster.Draft, node string, at int64) {
	l.serial++
	workload := l.random.IntN(2000)
	namespace, kind := fmt.Sprint("team-", workload%60), "StatefulSet"
	if l.serial%4 == 0 {
		namespace, kind, workload = "kube-system", "DaemonSet", l.serial/4%3
	}
	name := fmt.Sprint("p", l.serial)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: kind, Name: fmt.Sprint("workload-", workload), UID: types.UID(fmt.Sprint(kind, workload)), Controller: new(true)}}}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(100+workload%17*60), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(workload%13+1)<<28, resource.BinarySI)}}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(at, 0)}}
	d.PutPod(p)
	if kind != "DaemonSet" {
		l.bound = append(l.bound, cluster.PodKey{Namespace: namespace, Name: name})
	}
}

func (l *large) quote(_ string, labels map[string]string) (ledger.Quote, bool) {
	list := cloud.NanoUSD(768_000_000)
	if labels[v1.CapacityTypeLabelKey] == "spot" {
		return ledger.Quote{Paid: l.spot[labels[corev1.LabelInstanceTypeStable]], List: list}, true
	}
	return ledger.Quote{Paid: list, List: list}, true
}

// Four hours of 5,000 nodes and 50,000 pods: 1,000 pods of them come and go in an hour, and the spot price of each type changes four times a day. It
// reports what part of a core the ledger takes, and how large a week of it is.
func BenchmarkALargeCluster(b *testing.B) {
	const hours = 4
	for b.Loop() {
		b.StopTimer()
		l := newLarge(5000, 50_000)
		m := ledger.NewMeter(func(p *cluster.Pod) (string, string) { return p.Owner.Kind + " " + p.Owner.Name, "" }, began)
		bytes, full, first, spent, worst := 0, 0, 0, time.Duration(0), 0
		b.StartTimer()
		for at := began; at < began+hours*3600; at += 10 {
			b.StopTimer()
			l.store.Update(func(d *cluster.Draft) {
				for i := range 3 {
					if i < 2 || l.random.IntN(10) < 8 {
						n := l.random.IntN(len(l.bound))
						d.DeletePod(l.bound[n])
						l.bound[n] = l.bound[len(l.bound)-1]
						l.bound = l.bound[:len(l.bound)-1]
						l.pod(d, l.nodes[l.random.IntN(len(l.nodes))], at)
					}
				}
			})
			for n := range largeTypes {
				if name := fmt.Sprintf("m%d.4xlarge", n); l.spot[name] == 0 || l.random.IntN(6*360) == 0 {
					l.spot[name] = cloud.NanoUSD(230_000_000 + l.random.IntN(90_000)*1000)
				}
			}
			snap := l.store.Snapshot()
			b.StartTimer()
			begin := processor(b)
			m.Look(snap, at, l.quote)
			if (at-began)%300 == 0 {
				book, tabs := m.Peek()
				packed, err := Pack(book.File(at, tabs))
				if err != nil {
					b.Fatal(err)
				}
				if at == began+3600 {
					first = len(packed)
				}
				if bytes, worst = len(packed), max(worst, len(packed)); bytes > MostBytes*9/10 && at%3600 == 0 {
					m.Turn()
					full += bytes
					bytes = 0
				}
			}
			spent += processor(b) - begin
		}
		b.ReportMetric(float64(full+bytes)*7*24/hours/1e6, "MB/week")
		b.ReportMetric(float64(first)/1e3, "kB/first-hour")
		b.ReportMetric(float64(worst)/1e6, "MB/most")
		b.ReportMetric(spent.Seconds()/(hours*3600)*100, "%core")
	}
}

// processor returns the CPU time of this process.
func processor(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
