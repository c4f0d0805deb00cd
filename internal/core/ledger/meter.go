package ledger

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
)

const (
	// WriteEvery is the time between two writes of a book. A machine that went while no process looked is charged for at most this time.
	WriteEvery = 5 * time.Minute
	// LookEvery is the longest time between two looks while a controller runs. What a resumed meter charges for a gap of more than three
	// times this is estimated.
	LookEvery = 10 * time.Second
	// spotFirst is how many seconds after its launch a spot machine may wait for a price that is not the on-demand price.
	spotFirst = 10 * 60
	// mostWorkloads is the most workloads of a namespace with accounts of their own in an hour; the others share the account "(other)".
	mostWorkloads = 500
)

// A Quote is what a machine costs in an hour, and would cost on demand.
type Quote struct{ Paid, List cloud.NanoUSD }

func quote(paid, list int64) Quote { return Quote{cloud.NanoUSD(paid), cloud.NanoUSD(list)} }

// Prices returns the present price of a pool's machine with these labels, and whether that is known.
type Prices func(pool string, labels map[string]string) (Quote, bool)

// Payer returns the workload and labels of a pod, as Account has them.
type Payer func(p *cluster.Pod) (workload, labels string)

// A Meter charges the machines of Karpenter to a book. Look is called again and again. A Meter is for one goroutine.
type Meter struct {
	book     *Book
	payer    Payer
	last     *cluster.Snapshot
	until    int64                      // the second up to which everything with a known price is charged; 0 before the first look
	running  map[string]*metered        // by provider ID
	resumed  map[string]Tab             // of the file that Resume read, until the first look
	asks     map[*podclass.Class]size   // cache: what pods of a class request
	workload map[string]map[string]bool // by namespace: workloads with an account in this hour
	spares   map[string]size            // by machine: what buffers keep free
}

// A Tab says up to when a machine is charged, and at what price it is charged next. Times are in seconds.
type Tab struct {
	Machine     Machine
	From        int64 // it is charged up to here
	Quote       Quote // valid if Priced
	Priced      bool
	QuotedUntil int64 // Quote counts until then
	Launched    int64
}

// A metered is a machine that runs, as of the last look.
type metered struct {
	Tab
	row                 *cluster.Node
	at                  int32 // index in the book
	capacity, allocated size
	spare               size // kept free for buffers
	pods                []share
	ready, leaving      int64 // the seconds at which it became ready and at which its removal began; never if not yet
	uncertain           bool  // no process looked since From: what is charged next is estimated
}

// parts is the number of parts of a machine.
const parts = 1_000_000

// never is later than any second.
const never = 1 << 60

// A share is what a pod requests on its machine, from a second on; from 0 means as long as the machine runs.
type share struct {
	uid     types.UID
	account Account
	from    int64
	asks    size
}

// NewMeter returns a meter with a new book that begins with the first look. What machines cost before that is left out.
func NewMeter(payer Payer, now int64) *Meter {
	return &Meter{book: newBook(now), payer: payer, running: map[string]*metered{}, asks: map[*podclass.Class]size{},
		workload: map[string]map[string]bool{}}
}

// Resume returns a meter that continues the book of a file.
func Resume(payer Payer, f *File) (*Meter, error) {
	b, err := f.Book()
	if err != nil {
		return nil, err
	}
	m := NewMeter(payer, f.Until)
	m.book, m.until, m.resumed = b, f.Until, map[string]Tab{}
	for _, t := range f.Tabs {
		m.resumed[t.Machine.ProviderID] = t
	}
	return m, nil
}

// Until returns the second up to which everything with a known price is charged, 0 before the first look.
func (m *Meter) Until() int64 { return m.until }

// Began returns the first second of the first hour of the book.
func (m *Meter) Began() int64 { return m.book.First() }

// Look charges all machines for the time since the last look, as far as anything about them changed; what does not change is charged later,
// at the same price. The first look after Resume also charges machines that went in the meantime.
func (m *Meter) Look(snap *cluster.Snapshot, now int64, prices Prices) {
	now = max(now, m.until)
	if len(m.asks) > 10_000 { // classes come and go
		m.asks = map[*podclass.Class]size{}
	}
	if now/hour > m.until/hour {
		m.workload = map[string]map[string]bool{}
	}
	for _, id := range m.changed(snap) {
		x, row := m.running[id], snap.NodeByProviderID(id)
		if idOf(row) == "" {
			row = nil
		}
		switch {
		case x == nil && row != nil:
			m.begin(row, now, prices)
		case x != nil && row == nil:
			m.charge(x, nil, now, prices, m.book.add)
			delete(m.running, id)
		case x != nil:
			m.charge(x, row, now, prices, m.book.add)
			m.refresh(x, row)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.resumed)) {
		if tab := m.resumed[id]; m.running[id] == nil {
			m.chargeGap(&tab, min(now, m.until+int64(WriteEvery/time.Second)))
		}
	}
	m.resumed = nil
	for _, id := range slices.Sorted(maps.Keys(m.running)) {
		x := m.running[id]
		if x.From < now && (!x.Priced || x.QuotedUntil <= now || now/hour > x.From/hour) {
			m.charge(x, x.row, now, prices, m.book.add)
		}
		x.quote(prices, now) // a price of the present hour has to be read in this hour
		x.uncertain = false
	}
	m.last, m.until = snap, now
	m.book.closeBefore(now)
}

// changed returns, sorted, the machines whose row, or whose room for buffers, differs from the last look. It sets m.spares to the room for
// buffers of the snapshot.
func (m *Meter) changed(snap *cluster.Snapshot) []string {
	ids := map[string]bool{}
	for was, is := range snap.NodeChanges(m.last) {
		ids[idOf(was)], ids[idOf(is)] = true, true
	}
	before, after := m.spares, sparesOf(snap)
	for id := range after {
		ids[id] = ids[id] || before[id] != after[id]
	}
	for id := range before {
		ids[id] = ids[id] || before[id] != after[id]
	}
	m.spares = after
	maps.DeleteFunc(ids, func(_ string, differs bool) bool { return !differs })
	return slices.Sorted(maps.Keys(ids))
}

// sparesOf returns, by machine, the room that is kept free for CapacityBuffers and announced pods.
func sparesOf(snap *cluster.Snapshot) map[string]size {
	out := map[string]size{}
	for s := range snap.Spares() {
		for _, p := range s.Pods {
			if id := idOf(snap.PlaceOf(p)); id != "" {
				sum, asks := out[id], sizeOf(podclass.Requests(p.Class.Spec))
				out[id] = size{sum.milli + asks.milli, sum.bytes + asks.bytes, sum.accelerators + asks.accelerators}
			}
		}
	}
	return out
}

// idOf returns the provider ID of a row, "" if it is not a machine of Karpenter, or not launched yet.
func idOf(row *cluster.Node) string {
	if row == nil || row.Claim == nil {
		return ""
	}
	return row.Claim.Status.ProviderID
}

// begin starts to charge a machine that the meter sees for the first time: from its launch on; in the first look of a new book from now on;
// after Resume from where its tab ends.
func (m *Meter) begin(row *cluster.Node, now int64, prices Prices) {
	x := &metered{Tab: m.resumed[idOf(row)]}
	x.Launched = row.Claim.CreationTimestamp.Unix()
	if c := meta.FindStatusCondition(row.Claim.Status.Conditions, v1.ConditionTypeLaunched); c != nil && c.Status == metav1.ConditionTrue {
		x.Launched = c.LastTransitionTime.Unix()
	}
	switch {
	case x.From > 0: // resumed
	case m.last == nil && m.until == 0:
		x.From = now
	case m.last == nil:
		x.From = max(x.Launched, m.until)
	default:
		x.From = x.Launched
	}
	x.From = min(x.From, now)
	x.uncertain = m.last == nil && m.until > 0 && now-m.until > 3*int64(LookEvery/time.Second)
	m.refresh(x, row)
	m.running[idOf(row)] = x
	m.charge(x, row, now, prices, m.book.add)
}

// refresh copies what the meter needs from the present row of a machine.
func (m *Meter) refresh(x *metered, row *cluster.Node) {
	labels := row.Labels()
	x.spare = m.spares[idOf(row)]
	x.row, x.capacity, x.allocated = row, sizeOf(row.Capacity()), sizeOf(row.Allocatable())
	x.Machine = Machine{ProviderID: idOf(row), Node: row.Name, Pool: row.Pool(), Type: labels[corev1.LabelInstanceTypeStable],
		Zone: labels[corev1.LabelTopologyZone], Region: labels[corev1.LabelTopologyRegion], CapacityType: labels[v1.CapacityTypeLabelKey]}
	x.at = m.book.addMachine(x.Machine)
	x.ready, x.leaving = never, never
	if since, ok := row.InitializedSince(); ok {
		x.ready = since.Unix()
	}
	if d := row.Claim.DeletionTimestamp; d != nil {
		x.leaving = d.Unix()
	}
	x.pods = m.shares(row)
}

// shares returns the pods of a row with their accounts. It counts the workloads of each namespace, and gives those beyond mostWorkloads a
// common account.
func (m *Meter) shares(row *cluster.Node) []share {
	out := make([]share, 0, len(row.Pods))
	for _, p := range row.Pods {
		asks, known := m.asks[p.Class]
		if !known {
			asks = sizeOf(podclass.Requests(p.Class.Spec))
			m.asks[p.Class] = asks
		}
		s := share{uid: p.UID, account: Account{Kind: Requested, Namespace: p.Namespace}, asks: asks}
		if p.DaemonSet || p.Mirror {
			s.account.Kind = DaemonSet
		}
		s.account.Workload, s.account.Labels = m.payer(p)
		if known := m.workload[p.Namespace]; known == nil {
			m.workload[p.Namespace] = map[string]bool{s.account.Workload: true}
		} else if len(known) < mostWorkloads {
			known[s.account.Workload] = true
		} else if !known[s.account.Workload] {
			s.account.Workload = "(other)"
		}
		if !p.Scheduled.IsZero() {
			s.from = p.Scheduled.Unix()
		}
		out = append(out, s)
	}
	return out
}

// podsUntil returns the pods that a machine has up to a second: the pods of the last look, and the new ones of the next row. A new pod
// without a time of binding counts from that second on.
func (m *Meter) podsUntil(to int64, x *metered, next *cluster.Node) []share {
	if next == nil || next == x.row {
		return x.pods
	}
	had := make(map[types.UID]bool, len(x.pods))
	for i := range x.pods {
		had[x.pods[i].uid] = true
	}
	out := x.pods[:len(x.pods):len(x.pods)]
	for _, s := range m.shares(next) {
		if !had[s.uid] {
			if s.from == 0 {
				s.from = to
			}
			out = append(out, s)
		}
	}
	return out
}

// A sink adds an amount to an account of a machine, in the hour of a second.
type sink func(at int64, machine int32, a Account, amount int64)

// charge charges a machine up to a second, in pieces during which neither its price, its state nor its pods change. next is its row at
// that second, nil if it is gone. While its price is not known, it charges nothing; a later call then charges this time as well.
func (m *Meter) charge(x *metered, next *cluster.Node, to int64, prices Prices, into sink) {
	if x.From >= to {
		return
	}
	pods, ready, leaving := m.podsUntil(to, x, next), x.ready, x.leaving
	if next != nil {
		if since, ok := next.InitializedSince(); ok {
			ready = min(ready, since.Unix())
		}
		if d := next.Claim.DeletionTimestamp; d != nil {
			leaving = min(leaving, d.Unix())
		}
	}
	for x.From < to {
		if !x.quote(prices, to) {
			return
		}
		end := min(to, x.QuotedUntil, (x.From/hour+1)*hour)
		for _, at := range []int64{ready, leaving} {
			if at > x.From {
				end = min(end, at)
			}
		}
		for i := range pods {
			if pods[i].from > x.From {
				end = min(end, pods[i].from)
			}
		}
		idle := Ready
		switch {
		case leaving <= x.From:
			idle = Draining
		case ready > x.From:
			idle = Starting
		}
		x.chargePiece(pods, idle, end, into)
		x.From = end
	}
}

// quote reads the price of the machine for the hour of From, unless it was read already, and reports whether a price is known. If prices no
// longer have the machine, its last price still counts.
func (x *metered) quote(prices Prices, now int64) bool {
	if x.Priced && x.From < x.QuotedUntil {
		return true
	}
	spot := x.Machine.CapacityType == v1.CapacityTypeSpot
	q, known := prices(x.Machine.Pool, x.row.Labels())
	if spot && !x.Priced && q.Paid == q.List && now-x.Launched < spotFirst {
		known = false // providers return the on-demand price until they know the spot price
	}
	if known {
		x.Quote, x.Priced = q, true
	}
	if !x.Priced {
		return false
	}
	begin := int64(0) // hours of its price begin here: spot at its launch, others with the clock hour
	if spot {
		begin = x.Launched
	}
	x.QuotedUntil = begin + ((x.From-begin)/hour+1)*hour
	return true
}

// chargePiece charges a machine from From to end, a time during which nothing changes: parts for its pods, for the system and for idle
// room, and the money. idle is the kind of the idle room.
func (x *metered) chargePiece(pods []share, idle Kind, end int64, into sink) {
	one := x.capacity.accelerator(x.Quote.List) // the weight of an accelerator
	accounts := []Account{{Kind: System}, {Kind: idle}}
	whole, room := x.capacity.weight(one), x.allocated.weight(one)
	weights := []int64{max(0, whole-room), 0}
	for i := range pods {
		if p := &pods[i]; p.from <= x.From {
			w := p.asks.weight(one)
			accounts, weights, room = append(accounts, p.account), append(weights, w), room-w
		}
	}
	weights[1] = max(0, room)
	if spare := min(weights[1], x.spare.weight(one)); idle == Ready && spare > 0 {
		weights[1] -= spare
		accounts, weights = append(accounts, Account{Kind: Buffer}), append(weights, spare)
	}
	if !slices.ContainsFunc(weights, func(w int64) bool { return w > 0 }) {
		weights[1] = 1 // a machine of unknown size is idle as a whole
	}
	length := end - x.From
	for i, part := range divide(parts, weights) {
		into(x.From, x.at, accounts[i], part*length)
	}
	x.chargeMoney(x.From, x.at, length, x.uncertain, into)
}

// chargeMoney charges what the machine costs for length seconds, from the second at on. uncertain counts these seconds as estimated.
func (t *Tab) chargeMoney(at int64, machine int32, length int64, uncertain bool, into sink) {
	into(at, machine, Account{Kind: paid}, int64(t.Quote.Paid)*length)
	into(at, machine, Account{Kind: list}, int64(t.Quote.List)*length)
	into(at, machine, Account{Kind: seconds}, length)
	if uncertain {
		into(at, machine, Account{Kind: estimated}, length)
	}
}

// chargeGap charges a machine that went while no process looked, up to a second, to the account Gap.
func (m *Meter) chargeGap(t *Tab, to int64) {
	if !t.Priced || t.From >= to {
		return
	}
	at := m.book.addMachine(t.Machine)
	for t.From < to {
		end := min(to, (t.From/hour+1)*hour)
		m.book.add(t.From, at, Account{Kind: Gap}, parts*(end-t.From))
		t.chargeMoney(t.From, at, end-t.From, true, m.book.add)
		t.From = end
	}
}

// Peek returns a copy of the book in which everything is charged up to the last look, and the tabs of all machines. The meter does not
// change, so that what it charges does not depend on how often the book is read.
func (m *Meter) Peek() (*Book, []Tab) {
	b := m.book.withOpen()
	var tabs []Tab
	for _, id := range slices.Sorted(maps.Keys(m.running)) {
		x := *m.running[id]
		m.charge(&x, x.row, m.until, func(string, map[string]string) (Quote, bool) { return Quote{}, false }, b.add)
		tabs = append(tabs, x.Tab)
	}
	return b, tabs
}

// Turn begins a new book with the open hours of the present one. Callers write the present one before.
func (m *Meter) Turn() {
	m.book = m.book.continued()
	for _, x := range m.running {
		x.at = m.book.addMachine(x.Machine)
	}
}

// Coarsen makes the book smaller: from its open hours on, each namespace has one account; after a second call, all namespaces share one.
// All sums stay. The next book has workloads again.
func (m *Meter) Coarsen() { m.book.coarsen() }

// Commit notes the commitments that the cluster pays (Book.Commit).
func (m *Meter) Commit(t Terms) { m.book.Commit(t) }

// Missed notes what a cause, such as a PodDisruptionBudget, costs the fleet from one second to another. Bills do not include it.
func (m *Meter) Missed(cause string, perHour cloud.NanoUSD, from, to int64) {
	for from < to {
		end := min(to, (from/hour+1)*hour)
		m.book.add(from, 0, Account{Kind: missed, Workload: cause}, int64(perHour)*(end-from))
		from = end
	}
}
