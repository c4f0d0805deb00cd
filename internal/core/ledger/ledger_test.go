package ledger

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
)

func TestDivide(t *testing.T) {
	for name, tc := range map[string]struct {
		total   int64
		weights []int64
		want    []int64
	}{
		"equal weights, the first gets what is left": {100, []int64{1, 1, 1}, []int64{34, 33, 33}},
		"the largest remainder gets what is left":    {10, []int64{14, 26, 60}, []int64{1, 3, 6}},
		"no weight, no part":                         {10, []int64{0, 0}, []int64{0, 0}},
		"products beyond 64 bits":                    {1 << 50, []int64{1 << 40, 3 << 40}, []int64{1 << 48, 3 << 48}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := divide(tc.total, tc.weights); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A world is a cluster of machines and pods, and what a naive biller charged every few seconds.
type world struct {
	store    *cluster.Store
	machines map[string]*machine
	pods     map[string]*corev1.Pod
	random   *rand.Rand
	serial   int // of objects
	launches int
	spot     int64                                       // the price of spot machines now
	naive    map[string]map[int64]int64                  // nano-dollars an hour × seconds, by machine and hour
	parts    map[string]map[int64]map[[2]string]*big.Rat // part of the machine × seconds, by namespace and kind
}

type machine struct {
	claim       *v1.NodeClaim
	node        *corev1.Node
	spot        bool
	launched    int64
	quote       int64
	quotedUntil int64
}

func newWorld(seed uint64) *world {
	w := &world{store: cluster.NewStore(), machines: map[string]*machine{}, pods: map[string]*corev1.Pod{},
		random: rand.New(rand.NewPCG(seed, 1)), spot: 31_234_567, naive: map[string]map[int64]int64{}, parts: map[string]map[int64]map[[2]string]*big.Rat{}}
	w.store.Update(func(d *cluster.Draft) { d.Synced(true) })
	return w
}

const onDemand = 98_765_431

func (w *world) price(_ string, labels map[string]string) (Quote, bool) {
	if labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeSpot {
		return quote(w.spot, onDemand), true
	}
	return quote(onDemand, onDemand), true
}

func payer(p *cluster.Pod) (string, string) {
	return "Deployment " + p.Namespace + "/web", "team=" + p.Namespace
}

func list4(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func (w *world) launch(at int64) {
	w.launches++
	name := fmt.Sprint("m", w.launches)
	m := &machine{spot: w.random.IntN(2) == 0, launched: at}
	capacity := v1.CapacityTypeOnDemand
	if m.spot {
		capacity = v1.CapacityTypeSpot
	}
	labels := map[string]string{v1.NodePoolLabelKey: "default", v1.CapacityTypeLabelKey: capacity, corev1.LabelInstanceTypeStable: "t",
		corev1.LabelTopologyZone: "a"}
	m.claim = &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels}}
	m.claim.Status.ProviderID = "aws:///a/" + name
	m.claim.Status.Capacity, m.claim.Status.Allocatable = list4("4", "16Gi"), list4("3900m", "15Gi")
	m.claim.Status.Conditions = append(m.claim.Status.Conditions, metav1.Condition{Type: v1.ConditionTypeLaunched, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.Unix(at, 0)})
	w.machines[name] = m
	w.put(m)
}

func (w *world) put(m *machine) {
	w.serial++
	w.store.Update(func(d *cluster.Draft) {
		c := m.claim.DeepCopy()
		c.ResourceVersion = fmt.Sprint(w.serial)
		d.PutClaim(c)
		if m.node != nil {
			n := m.node.DeepCopy()
			n.ResourceVersion = fmt.Sprint(w.serial)
			d.PutNode(n)
		}
	})
}

func (w *world) join(m *machine, at int64) {
	labels := map[string]string{v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
	for k, v := range m.claim.Labels {
		labels[k] = v
	}
	m.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + m.claim.Name, UID: types.UID("n" + m.claim.Name), Labels: labels}}
	m.node.Spec.ProviderID = m.claim.Status.ProviderID
	m.node.Status.Capacity, m.node.Status.Allocatable = m.claim.Status.Capacity, m.claim.Status.Allocatable
	m.claim.Status.Conditions = append(m.claim.Status.Conditions, metav1.Condition{Type: v1.ConditionTypeInitialized,
		Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(at, 0)})
	w.put(m)
}

func (w *world) bind(m *machine, at int64) {
	w.serial++
	namespace := []string{"shop", "batch", "kube-system"}[w.random.IntN(3)]
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("p", w.serial), UID: types.UID(fmt.Sprint("p", w.serial))}}
	p.Spec.NodeName = m.node.Name
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: list4(fmt.Sprintf("%dm", 100+w.random.IntN(1500)), fmt.Sprintf("%dMi", w.random.IntN(6000)))}}}
	if namespace == "kube-system" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "ds", Controller: &yes}}
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(at, 0)}}
	w.pods[p.Name] = p
	w.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
}

// beat is how often something happens.
const beat = 5

// charge charges some seconds to the naive books: each machine at its price, each pod by its requests.
func (w *world) charge(at int64) {
	for name, m := range w.machines {
		if at >= m.quotedUntil {
			m.quote, m.quotedUntil = onDemand, (at/hour+1)*hour
			if m.spot {
				m.quote, m.quotedUntil = w.spot, m.launched+((at-m.launched)/hour+1)*hour
			}
		}
		if w.naive[name] == nil {
			w.naive[name] = map[int64]int64{}
		}
		w.naive[name][at/hour] += m.quote * beat
		weigh := func(l corev1.ResourceList) int64 {
			return l.Cpu().MilliValue()*31_611 + l.Memory().Value()*4_237_000/(1<<30)
		}
		whole := weigh(m.claim.Status.Capacity)
		free := weigh(m.claim.Status.Allocatable)
		weights := map[[2]string]int64{{"", string(System)}: whole - free}
		for _, p := range w.pods {
			if m.node != nil && p.Spec.NodeName == m.node.Name {
				kind := Requested
				if len(p.OwnerReferences) > 0 {
					kind = DaemonSet
				}
				ask := weigh(p.Spec.Containers[0].Resources.Requests)
				weights[[2]string{p.Namespace, string(kind)}] += ask
				free -= ask
			}
		}
		idle := Starting
		switch {
		case m.claim.DeletionTimestamp != nil:
			idle = Draining
		case m.node != nil:
			idle = Ready
		}
		weights[[2]string{"", string(idle)}] = max(0, free)
		sum := int64(0)
		for _, x := range weights {
			sum += x
		}
		if w.parts[name] == nil {
			w.parts[name] = map[int64]map[[2]string]*big.Rat{}
		}
		hours := w.parts[name]
		if hours[at/hour] == nil {
			hours[at/hour] = map[[2]string]*big.Rat{}
		}
		for key, x := range weights {
			got := hours[at/hour][key]
			if got == nil {
				got = new(big.Rat)
				hours[at/hour][key] = got
			}
			got.Add(got, big.NewRat(beat*x, sum))
		}
	}
}

// step does something to the cluster.
func (w *world) step(at int64) {
	names := make([]string, 0, len(w.machines))
	for name := range w.machines {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		w.launch(at)
		return
	}
	m := w.machines[names[w.random.IntN(len(names))]]
	switch w.random.IntN(8) {
	case 0:
		if len(names) < 8 {
			w.launch(at)
		}
	case 1, 2, 3:
		if m.node == nil {
			w.join(m, at)
		} else {
			w.bind(m, at)
		}
	case 4, 5:
		var pods []string
		for name := range w.pods {
			pods = append(pods, name)
		}
		if slices.Sort(pods); len(pods) > 0 {
			p := w.pods[pods[w.random.IntN(len(pods))]]
			delete(w.pods, p.Name)
			w.store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: p.Namespace, Name: p.Name}) })
		}
	case 6:
		w.spot = 20_000_000 + w.random.Int64N(20_000_000)
	case 7:
		if m.claim.DeletionTimestamp == nil {
			gone := metav1.Unix(at, 0)
			m.claim.DeletionTimestamp, m.claim.Finalizers = &gone, []string{"karpenter.sh/termination"}
			w.put(m)
			return
		}
		for name, p := range w.pods {
			if m.node != nil && p.Spec.NodeName == m.node.Name {
				delete(w.pods, name)
				w.store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: p.Namespace, Name: p.Name}) })
			}
		}
		w.store.Update(func(d *cluster.Draft) {
			d.DeleteClaim(m.claim.Name)
			d.DeleteNode("node-" + m.claim.Name)
		})
		delete(w.machines, m.claim.Name)
	}
}

// check compares the ledger with the naive books.
func (w *world) check(t *testing.T, books []*Book, at int64) {
	t.Helper()
	want, got := cloud.NanoUSD(0), cloud.NanoUSD(0)
	for _, hours := range w.naive {
		for _, amount := range hours {
			want += cloud.NanoUSD(nano(amount))
		}
	}
	parts, kinds := cloud.NanoUSD(0), map[string]map[Kind]cloud.NanoUSD{}
	for i, b := range books {
		end := at + hour
		if i+1 < len(books) {
			end = books[i+1].First()
		}
		b.Bills(0, end, func(bill *Bill) {
			got += bill.Paid
			if bill.Paid > bill.List || bill.Estimated != 0 {
				t.Errorf("paid %d, list %d, estimated %d", bill.Paid, bill.List, bill.Estimated)
			}
			for _, p := range bill.Parts {
				parts += p.Cost
				if kinds[p.Account.Namespace] == nil {
					kinds[p.Account.Namespace] = map[Kind]cloud.NanoUSD{}
				}
				kinds[p.Account.Namespace][p.Account.Kind] += p.Cost
				if p.Cost < 0 {
					t.Errorf("%v costs %d", p.Account, p.Cost)
				}
			}
		})
	}
	if got != want || parts != want {
		t.Fatalf("at %d: bills %d, parts %d, want %d", at, got, parts, want)
	}
	exact := map[[2]string]float64{}
	for name, hours := range w.parts {
		for h, keys := range hours {
			whole := new(big.Rat)
			for _, part := range keys {
				whole.Add(whole, part)
			}
			for key, part := range keys {
				of, _ := new(big.Rat).Quo(part, whole).Float64()
				exact[key] += of * float64(nano(w.naive[name][h]))
			}
		}
	}
	for key, want := range exact {
		if off := want - float64(kinds[key[0]][Kind(key[1])]); off > 1e-4*want+100 || off < -1e-4*want-100 {
			t.Fatalf("at %d: %s costs %d, want %.0f", at, key, kinds[key[0]][Kind(key[1])], want)
		}
	}
}

// In every minute the parts add up to the bills, and the bills to what a naive biller charges every five seconds, whether the same process goes
// on, or another one reads what it kept.
func TestTheBookHasEverySecondOnce(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(seed)
			begin := int64(1_700_000_000) / hour * hour
			m := NewMeter(payer, begin)
			m.Look(w.store.Snapshot(), begin, w.price)
			var full []*Book
			for at := begin; at < begin+5*hour; at += beat {
				if w.random.IntN(4) == 0 {
					w.step(at)
				}
				m.Look(w.store.Snapshot(), at, w.price)
				if at%60 != 0 {
					w.charge(at)
					continue
				}
				book, tabs := m.Peek()
				w.check(t, append(full[:len(full):len(full)], book), at)
				w.charge(at)
				switch w.random.IntN(10) {
				case 0: // a restart
					var err error
					if m, err = Resume(payer, book.File(m.Until(), tabs)); err != nil {
						t.Fatal(err)
					}
					m.Look(w.store.Snapshot(), at, w.price)
				case 1:
					m.Turn()
					full = append(full, book)
				}
			}
		})
	}
}

// A meter that looks seldom charges pods from their binding and machines from their launch.
func TestTimesOfTheAPICount(t *testing.T) {
	w := newWorld(1)
	begin := int64(1_700_000_000) / hour * hour
	m := NewMeter(payer, begin)
	m.Look(w.store.Snapshot(), begin, w.price)
	w.launch(begin + 10)
	x := w.machines["m1"]
	w.join(x, begin+40)
	w.bind(x, begin+50)
	m.Look(w.store.Snapshot(), begin+60, w.price)
	seconds := map[Kind]float64{}
	book, _ := m.Peek()
	book.Bills(0, begin+hour, func(b *Bill) {
		if b.Seconds != 50 {
			t.Errorf("charged %d seconds, want 50", b.Seconds)
		}
		for _, p := range b.Parts {
			seconds[p.Account.Kind] += float64(p.Cost)
		}
	})
	if seconds[Starting] < 25*seconds[Ready]/25 || seconds[Starting] == 0 || seconds[Ready] == 0 {
		t.Errorf("costs %v, want 30 seconds of starting and 20 of ready", seconds)
	}
}

// While no process looks machines go on to cost what they cost. What went is charged for at most the time between two writes.
func TestRoomForABufferIsChargedWhileItIsKeptThoughTheNodeStaysTheSame(t *testing.T) {
	w := newWorld(1)
	w.launch(0)
	m := w.machines["m1"]
	w.join(m, 0)
	meter := NewMeter(payer, hour)
	look := func(at int64, edit func(*cluster.Draft)) {
		w.store.Update(edit)
		meter.Look(w.store.Snapshot(), at, w.price)
	}
	look(hour, func(*cluster.Draft) {})
	look(hour+600, func(d *cluster.Draft) {
		half := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "spare"}}
		half.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list4("2", "8Gi")}}}
		d.PutSpares("shop", "spare", []*corev1.Pod{half})
		d.PlaceSpares("shop", "spare", []string{m.node.Name})
	})
	look(hour+1200, func(*cluster.Draft) {})
	look(hour+1800, func(d *cluster.Draft) { d.DropSpares("shop", "spare") })
	look(2*hour, func(*cluster.Draft) {})
	book, _ := meter.Peek()
	book.Bills(0, 2*hour, func(bill *Bill) {
		kinds := map[Kind]cloud.NanoUSD{}
		for _, p := range bill.Parts {
			kinds[p.Account.Kind] += p.Cost
		}
		if off := 6*kinds[Buffer] - bill.Paid; off < -6 || off > 6 || bill.Paid == 0 { // half of the machine for 20 minutes
			t.Errorf("the buffer costs %d of %d, want a sixth", kinds[Buffer], bill.Paid)
		}
	})
}

func TestAGapIsEstimatedAndNotDropped(t *testing.T) {
	w := newWorld(3)
	begin := int64(1_700_000_000) / hour * hour
	m := NewMeter(payer, begin)
	m.Look(w.store.Snapshot(), begin, w.price)
	for range 3 {
		w.launch(begin)
	}
	stays, goes := w.machines["m1"], w.machines["m2"]
	for _, x := range w.machines {
		x.spot = false
	}
	w.join(stays, begin)
	m.Look(w.store.Snapshot(), begin+600, w.price)
	book, tabs := m.Peek()
	file := book.File(m.Until(), tabs)
	w.store.Update(func(d *cluster.Draft) { d.DeleteClaim(goes.claim.Name) })
	w.launch(begin + 1000) // and this one comes meanwhile
	m, err := Resume(payer, file)
	if err != nil {
		t.Fatal(err)
	}
	m.Look(w.store.Snapshot(), begin+4000, w.price)
	book, _ = m.Peek()
	got := map[string][2]int64{}
	gap := cloud.NanoUSD(0)
	book.Bills(0, begin+2*hour, func(b *Bill) {
		was := got[b.Machine.ProviderID]
		got[b.Machine.ProviderID] = [2]int64{was[0] + b.Seconds, was[1] + b.Estimated}
		for _, p := range b.Parts {
			if p.Account.Kind == Gap {
				gap += p.Cost
			}
		}
	})
	for id, want := range map[string][2]int64{"m1": {4000, 3400}, "m2": {900, 300}, "m3": {4000, 3400}, "m4": {3000, 3000}} {
		if got["aws:///a/"+id] != want {
			t.Errorf("%s: %d seconds, want %d", id, got["aws:///a/"+id], want)
		}
	}
	if tab := file.Tabs[1]; gap != cloud.NanoUSD(nano(int64(tab.Quote.Paid)*int64(WriteEvery/time.Second))) {
		t.Errorf("the gap costs %d", gap)
	}
}

// Where pods ask for more than a machine has, nothing is idle and nothing is negative. Accelerators take what cores and memory leave of the price.
func TestWeights(t *testing.T) {
	capacity := list4("8", "32Gi")
	capacity["nvidia.com/gpu"] = resource.MustParse("2")
	r := RatesOf(capacity, 2_000_000_000, 3_000_000_000)
	if sum := r.Cores*r.Core + r.GiBs*r.GiB + r.Accelerators*r.Accelerator; sum < 2-1e-9 || sum > 2+1e-9 || r.Accelerator < 0.8 {
		t.Errorf("%+v is %v together", r, sum)
	}
	x := &metered{Tab: Tab{From: 0, Quote: quote(3600, 3600)}, capacity: sizeOf(list4("1", "1Gi")), allocated: sizeOf(list4("900m", "1Gi"))}
	got := map[Kind]int64{}
	x.chargePiece([]share{{account: Account{Kind: Requested}, asks: sizeOf(list4("4", "1Gi"))}}, Ready, 10,
		func(_ int64, _ int32, a Account, amount int64) { got[a.Kind] += amount })
	if got[Ready] != 0 || got[Requested]+got[System] != 10*parts || got[System] <= 0 || got[paid] != 36000 {
		t.Errorf("got %v", got)
	}
}

// A torn or strange file is refused.
func TestAFileThatIsTorn(t *testing.T) {
	good := func() *File {
		b := newBook(7200)
		b.add(7200, b.addMachine(Machine{ProviderID: "a"}), Account{Kind: Ready}, 5)
		b.closeBefore(10800)
		b.add(10800, 1, Account{Kind: Ready}, 5)
		return b.File(10900, []Tab{{Machine: b.machines[1], From: 10900}})
	}
	if _, err := good().Book(); err != nil {
		t.Fatal(err)
	}
	for name, tear := range map[string]func(*File){
		"another version":           func(f *File) { f.Version = 2 },
		"no machines":               func(f *File) { f.Machines = nil },
		"a machine that is not":     func(f *File) { f.Cells[0] = 9 },
		"an account that is not":    func(f *File) { f.Cells[1] = 9 },
		"more runs than there are":  func(f *File) { f.Cells[2] = 1 << 40 },
		"a negative amount":         func(f *File) { f.Cells[5] = -1 },
		"a run without an end":      func(f *File) { f.Cells[4] = 1 << 31 },
		"a cut":                     func(f *File) { f.Cells = f.Cells[:len(f.Cells)-1] },
		"a tab of another length":   func(f *File) { f.Open = f.Open[:3] },
		"a tab of no machine":       func(f *File) { f.Open[0] = 7 },
		"a tab of a machine before": func(f *File) { f.Open[0] = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			f := good()
			tear(f)
			if _, err := f.Book(); err == nil {
				t.Error("it was read")
			}
		})
	}
}
