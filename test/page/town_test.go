package page

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/history/journal"
)

// foreign is text that somebody else has written, and that must stay text.
const foreign = `<img src=x onerror="document.title='owned'"></script><script>document.title='owned'</script>`

// A town is a cluster that a test builds.
type town struct {
	*cluster.Store
	pools    map[string]engine.Pool
	kept     []byte // history of an earlier process; nil for none
	journal  *journal.Journal
	verdicts *board.Board
}

var kinds = []struct {
	name  string
	cpu   int64
	price float64
}{{"m.large", 2, 0.04}, {"m.xlarge", 4, 0.08}, {"c.4xlarge", 16, 0.31}}

var zones = []string{"us-east-1a", "us-east-1b", "us-east-1c"}

func newTown(nodes int) *town {
	w := &town{Store: cluster.NewStore(), pools: map[string]engine.Pool{}}
	catalog := &cloud.Catalog{}
	for _, k := range []int{2, 0, 1} { // by name
		sold := &cloud.InstanceType{Name: kinds[k].name}
		for _, zone := range zones {
			sold.Offerings = append(sold.Offerings, cloud.Offering{
				Labels: map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: v1.CapacityTypeSpot}, Price: cloud.FromDollars(kinds[k].price), Available: true})
		}
		catalog.Types = append(catalog.Types, sold)
	}
	for _, name := range []string{"default", "batch"} {
		w.pools[name] = engine.Pool{Pool: &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}, Catalog: catalog}
		w.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, w.pools[name].Pool) })
	}
	for i := range nodes {
		w.node(fmt.Sprintf("node-%04d", i))
	}
	w.Update(func(d *cluster.Draft) { d.Synced(true) })
	return w
}

func (w *town) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	return w.pools, nil
}

func (w *town) Commitments(context.Context, *cluster.Snapshot, time.Time) *commitment.Books {
	return nil
}

// node puts a machine with a few pods.
func (w *town) node(name string) {
	n := 0
	for _, c := range name {
		n = (n*31 + int(c)) & (1<<62 - 1)
	}
	kind, pool := kinds[n%len(kinds)], []string{"default", "default", "batch"}[n%7%3]
	labels := map[string]string{v1.NodePoolLabelKey: pool, corev1.LabelInstanceTypeStable: kind.name, corev1.LabelTopologyZone: zones[n/3%len(zones)], corev1.LabelArchStable: "amd64",
		v1.CapacityTypeLabelKey: v1.CapacityTypeSpot, v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID("claim-" + name), Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Duration(n%5000) * time.Minute))}}
	claim.Status.ProviderID = name
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	node.Spec.ProviderID = name
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(kind.cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(kind.cpu*4<<30, resource.BinarySI)}
	w.Update(func(d *cluster.Draft) {
		d.PutClaim(claim)
		d.PutNode(node)
		for i := range 1 + n%int(kind.cpu*2) {
			d.PutPod(pod(fmt.Sprintf("%s-%d", name, i), name))
		}
	})
}

func pod(name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-5d4f-" + name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Minute)),
		Labels:          map[string]string{"pod-template-hash": "5d4f"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f", UID: "rs", Controller: new(true)}}}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("400m"), corev1.ResourceMemory: resource.MustParse("1500Mi")}}}}
	if node == "" {
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	return p
}

// tell says one of everything, some of it in foreign words.
func (w *town) tell(foreign string) {
	now := time.Now()
	w.Update(func(d *cluster.Draft) {
		d.PutPod(pod("waits", ""))
		d.PutPod(pod("promised", ""))
		d.Plan(cluster.PodKey{Namespace: "shop", Name: "web-5d4f-promised"}, "claim-node-0003", now)
		cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "batch", Annotations: map[string]string{v1.PausedAnnotationKey: "true", v1.PausedReasonAnnotationKey: foreign}}})
	})
	w.verdicts.Refuse(map[types.UID]string{"waits": "no room for it: " + foreign})
	refused := disrupt.Refusal{Code: disrupt.PodProtected, Pod: &cluster.PodKey{Namespace: "shop", Name: "web-5d4f-node-0001-0"}, Name: v1.DoNotDisruptAnnotationKey, Value: "true", Claim: "claim-node-0001", Node: "node-0001"}
	w.verdicts.Keep(board.Disruption{
		Kept: []disrupt.Refusal{refused}, Budgets: map[string][]v1.DisruptionReason{"default": {v1.DisruptionReasonUnderutilized}},
		HeldBack: map[string]cloud.NanoUSD{"default": cloud.FromDollars(0.21)}, Before: cloud.FromDollars(4), Target: cloud.FromDollars(3.2),
	})
	w.verdicts.Step([]board.Step{{ID: "s", Stage: board.Waits, Reason: v1.DisruptionReasonUnderutilized, Text: "delete 1 node: node-0002/m.large/spot", Claims: []string{"claim-node-0002"},
		Saves: cloud.FromDollars(0.04), Pods: 3, Until: now.Add(15 * time.Second)}})
	w.journal.Add(journal.Record{Act: journal.Planned, PricePerHour: 0.31, CostPerHour: 0.312, BoundPerHour: 0.31, Text: "1 new node for 9 pods; 0 placed on what is there, 1 refused"})
	w.journal.Add(journal.Record{Act: journal.Opened, Reason: "provisioned", PricePerHour: 0.31, About: []journal.Object{{Kind: "NodeClaim", Name: "claim-node-0003"}}, Text: "planned as c.4xlarge in us-east-1a (spot) for 9 pods"})
	w.journal.Add(journal.Record{Act: journal.FellBack, Reason: "InsufficientCapacity", About: []journal.Object{{Kind: "NodeClaim", Name: "claim-node-0004"}}, Text: foreign})
}

// past returns the history of a week in which prices rose and fell, as an earlier process kept it.
func (w *town) past() []byte {
	now, price, nodes := time.Now(), 0.0, w.Snapshot().NodeCount()
	for row := range w.Snapshot().Nodes() {
		known, _ := w.pools[row.Pool()].Catalog.Price(row.Labels())
		price += known.Dollars()
	}
	var out []map[string]any
	for at, i := now.Add(-167*time.Hour), 0; at.Before(now); at, i = at.Add(15*time.Minute), i+1 {
		wave := 1 + 0.15*math.Sin(2*math.Pi*now.Sub(at).Hours()/24)
		cost := math.Round(1e4*price*wave) / 1e4
		p := map[string]any{"at": at, "perHour": cost, "least": 0.87 * cost, "nodes": int(float64(nodes) * wave), "pods": int(7 * float64(nodes) * wave)}
		switch i % 24 {
		case 3:
			p["launched"], p["wait"], p["waiting"] = 2, 45, 9
		case 11:
			p["steps"] = 1
		case 20:
			p["interrupted"] = 1
		case 7, 8:
			p["paused"] = 1
		}
		out = append(out, p)
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return text
}

// leave finds room for the pods of a node on two others.
func (w *town) leave(_ context.Context, node string) (*engine.Plan, error) {
	plan := &engine.Plan{}
	for i, p := range w.Snapshot().Node(node).Pods {
		plan.Place = append(plan.Place, engine.Placement{Pod: p, Node: []string{"node-0003", "node-0009"}[i%2]})
	}
	return plan, nil
}

// work shows the town at work, as one would find it on an ordinary day: nodes that boot and drift, steps at each stage, what was decided in the last hour.
func (w *town) work() {
	now := time.Now()
	edit := func(name string, how func(*v1.NodeClaim, *corev1.Node)) {
		row := w.Snapshot().Node(name)
		claim, node := row.Claim.DeepCopy(), row.Node.DeepCopy()
		how(claim, node)
		w.Update(func(d *cluster.Draft) { d.PutClaim(claim); d.PutNode(node) })
	}
	for _, name := range []string{"node-0006", "node-0021"} {
		edit(name, func(c *v1.NodeClaim, _ *corev1.Node) { condition.SetTrue(c, v1.ConditionTypeDrifted, now) })
	}
	edit("node-0012", func(_ *v1.NodeClaim, n *corev1.Node) { delete(n.Labels, v1.NodeInitializedLabelKey) })
	w.Update(func(d *cluster.Draft) { d.MarkForRemoval("claim-node-0006") })
	w.verdicts.Save(board.Savings{At: now.Add(-4 * time.Minute), Report: &savings.Report{Today: cloud.FromDollars(5.9), Least: cloud.FromDollars(5.1), Gap: []savings.Part{
		{Cause: savings.Empty, PerHour: cloud.FromDollars(0.05), By: []string{"node-0030"}}, {Cause: savings.Fragmentation, PerHour: cloud.FromDollars(0.41)},
		{Cause: savings.DoNotDisrupt, PerHour: cloud.FromDollars(0.11), By: []string{"shop/web"}}, {Cause: savings.PDB, PerHour: cloud.FromDollars(0.23), By: []string{"shop/cart", "shop/web"}}}}})
	said := w.verdicts.View()
	w.verdicts.Step(append(said.Steps, board.Step{ID: "t", Stage: board.Opening, Reason: v1.DisruptionReasonDrifted, Text: "replace 1 node: node-0006/c.4xlarge/spot, replaced by c.4xlarge (12 types, $0.3100/h)",
		Claims: []string{"claim-node-0006"}, Pods: 18, Since: now.Add(-40 * time.Second), Until: now.Add(9 * time.Minute)}))
	for _, r := range []journal.Record{
		{At: now.Add(-52 * time.Minute), Act: journal.Launched, Reason: "provisioned", About: []journal.Object{{Kind: "NodeClaim", Name: "claim-node-0012"}}, Text: "bought c.4xlarge in us-east-1b as spot at $0.3100 an hour: i-0f3a9c21"},
		{At: now.Add(-47 * time.Minute), Act: journal.Placed, Reason: "room", About: []journal.Object{{Kind: "Node", Name: "node-0015"}, {Kind: "Pod", Namespace: "shop", Name: "web-5d4f-node-0015-3"}, {Kind: "Pod", Namespace: "shop", Name: "web-5d4f-node-0015-4"}}},
		{At: now.Add(-31 * time.Minute), Act: journal.Stepped, Reason: "Underutilized", SavingPerHour: 0.08, Evictions: 2, About: []journal.Object{{Kind: "NodeClaim", Name: "claim-node-0044"}}, Text: "delete 1 node: node-0044/m.xlarge/spot"},
		{At: now.Add(-30 * time.Minute), Act: journal.Evicted, Reason: "Underutilized", About: []journal.Object{{Kind: "Node", Name: "node-0044"}, {Kind: "Pod", Namespace: "shop", Name: "web-5d4f-node-0044-0"}}, Evictions: 2},
		{At: now.Add(-1 * time.Minute), Act: journal.Stepped, Reason: "Drifted", Evictions: 18, About: []journal.Object{{Kind: "NodeClaim", Name: "claim-node-0006"}}, Text: "replace 1 node: node-0006/c.4xlarge/spot, replaced by c.4xlarge (12 types, $0.3100/h)"},
	} {
		w.journal.Add(r)
	}
}
