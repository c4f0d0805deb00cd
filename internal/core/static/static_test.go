package static_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/static"
)

var now = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

// A machine of the pool "fixed" that was launched and runs nothing.
func machine(name string, edits ...func(*v1.NodeClaim, *cluster.Draft)) func(*cluster.Draft) {
	return func(d *cluster.Draft) {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{v1.NodePoolLabelKey: "fixed"}, CreationTimestamp: metav1.NewTime(now),
		}}
		c.Status.ProviderID = "id://" + name
		for _, edit := range edits {
			edit(c, d)
		}
		d.PutClaim(c)
		if c.Status.ProviderID != "" {
			d.PutNode(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.NodePoolLabelKey: "fixed", v1.NodeRegisteredLabelKey: "true"}},
				Spec:       corev1.NodeSpec{ProviderID: c.Status.ProviderID},
			})
		}
	}
}

func runs(kind string, edits ...func(*corev1.Pod)) func(*v1.NodeClaim, *cluster.Draft) {
	return func(c *v1.NodeClaim, d *cluster.Draft) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "on-" + c.Name, UID: types.UID("on-" + c.Name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "o", Controller: new(true)}},
		}}
		p.Spec.NodeName, p.Status.Phase = c.Name, corev1.PodRunning
		for _, edit := range edits {
			edit(p)
		}
		d.PutPod(p)
	}
}

func protect(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} }

func costs(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: fmt.Sprint(n)} }
}

func dies(in time.Duration) func(*v1.NodeClaim, *cluster.Draft) {
	return func(c *v1.NodeClaim, _ *cluster.Draft) { c.Spec.ExpireAfter = v1.After(in) }
}

func pool(replicas int64) *v1.NodePool {
	return &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Spec: v1.NodePoolSpec{Replicas: &replicas}}
}

func standOf(machines ...func(*cluster.Draft)) static.Stand {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for _, put := range machines {
			put(d)
		}
	})
	return static.StandOf(store.Snapshot(), "fixed", func(c *v1.NodeClaim) bool { return c.Name == "forgotten" })
}

func TestWhichMachinesGoFirst(t *testing.T) {
	unlaunched := func(c *v1.NodeClaim, _ *cluster.Draft) { c.Status.ProviderID = "" }
	asked := func(c *v1.NodeClaim, _ *cluster.Draft) {
		c.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
	}
	stand := standOf(
		machine("a-protected-daemon", runs("DaemonSet", protect)),
		machine("b-protected", runs("ReplicaSet", protect)),
		machine("c-asked", asked),
		machine("d-dear", runs("ReplicaSet", costs(1<<27))),
		machine("e-cheap", runs("ReplicaSet")),
		machine("f-cheap-and-old", runs("ReplicaSet"), dies(720*time.Hour)),
		machine("g-daemons-only", runs("DaemonSet")),
		machine("h-empty-and-old", dies(time.Minute)),
		machine("i-empty"),
		machine("j-unlaunched", unlaunched),
	)
	want := []string{
		"j-unlaunched", "h-empty-and-old", "g-daemons-only", "i-empty", "f-cheap-and-old", "e-cheap", "d-dear", "a-protected-daemon", "c-asked", "b-protected",
	}
	for excess := range len(want) + 1 {
		var got []string
		for _, n := range stand.Surplus(pool(int64(len(want)-excess)), now.Add(time.Second)) {
			got = append(got, n.Claim.Name)
		}
		if !slices.Equal(got, want[:excess]) {
			t.Errorf("of %d too many %v go, want %v", excess, got, want[:excess])
		}
	}
}

func TestSoManyAreOpenedBeforeOthersAreLaunched(t *testing.T) {
	unlaunched := func(c *v1.NodeClaim, _ *cluster.Draft) { c.Status.ProviderID = "" }
	deleting := func(c *v1.NodeClaim, d *cluster.Draft) {
		c.Status.ProviderID, c.DeletionTimestamp = "", new(metav1.NewTime(now))
	}
	stand := standOf(machine("a"), machine("b", unlaunched), machine("c", unlaunched), machine("d", deleting))
	if got := stand.Openable(); got != 998 {
		t.Errorf("%d more may be opened while two wait for the cloud, want 998", got)
	}
	stand.Unlaunched = 1001
	if got := stand.Openable(); got != 0 {
		t.Errorf("%d more may be opened while more than a thousand wait for the cloud", got)
	}
}

func TestHowManyAreMissing(t *testing.T) {
	deleting := func(c *v1.NodeClaim, _ *cluster.Draft) { c.DeletionTimestamp = new(metav1.NewTime(now)) }
	disrupted := func(c *v1.NodeClaim, _ *cluster.Draft) { condition.SetTrue(c, v1.ConditionTypeDisruptionReason, now) }
	elsewhere := func(c *v1.NodeClaim, _ *cluster.Draft) { c.Labels[v1.NodePoolLabelKey] = "other" }
	marked := func(d *cluster.Draft) { machine("marked")(d); d.MarkForRemoval("marked") }
	for name, c := range map[string]struct {
		machines []func(*cluster.Draft)
		replicas int64
		nodes    string // limit, "" for none
		missing  int
		surplus  int
		headroom int // -1 for no limit
	}{
		"none of none":                                    {replicas: 0, headroom: -1},
		"all of three":                                    {replicas: 3, missing: 3, headroom: -1},
		"one more than asked":                             {machines: []func(*cluster.Draft){machine("a"), machine("b")}, replicas: 1, surplus: 1, headroom: -1},
		"one that is being replaced counts":               {machines: []func(*cluster.Draft){machine("a"), machine("b", disrupted)}, replicas: 2, headroom: -1},
		"one that is marked counts":                       {machines: []func(*cluster.Draft){machine("a"), marked}, replicas: 2, headroom: -1},
		"the replacement of a marked one is not too many": {machines: []func(*cluster.Draft){machine("a"), marked, machine("c")}, replicas: 2, headroom: -1},
		"its replacement is not too many":                 {machines: []func(*cluster.Draft){machine("a"), machine("b", disrupted), machine("c")}, replicas: 2, headroom: -1},
		"one that is being deleted is missing":            {machines: []func(*cluster.Draft){machine("a"), machine("b", deleting)}, replicas: 2, missing: 1, headroom: -1},
		"one that we deleted is missing":                  {machines: []func(*cluster.Draft){machine("a"), machine("forgotten")}, replicas: 2, missing: 1, headroom: -1},
		"machines of other pools are of no help":          {machines: []func(*cluster.Draft){machine("a", elsewhere)}, replicas: 1, missing: 1, headroom: -1},
		"whatever is not gone counts against the limit": {
			machines: []func(*cluster.Draft){machine("a"), machine("b", deleting), machine("c", disrupted)}, replicas: 5, nodes: "4", missing: 3, headroom: 1,
		},
		"a limit that is exceeded leaves no room": {machines: []func(*cluster.Draft){machine("a"), machine("b")}, replicas: 3, nodes: "1", missing: 1, headroom: 0},
	} {
		t.Run(name, func(t *testing.T) {
			stand, p := standOf(c.machines...), pool(c.replicas)
			if c.nodes != "" {
				p.Spec.Limits = v1.Limits{v1.ResourceNodes: resource.MustParse(c.nodes)}
			}
			if got := stand.Missing(p); got != c.missing {
				t.Errorf("%d missing, want %d", got, c.missing)
			}
			if got := len(stand.Surplus(p, now)); got != c.surplus {
				t.Errorf("%d too many, want %d", got, c.surplus)
			}
			if got := stand.Headroom(p); got != c.headroom && (c.headroom >= 0 || got < 1<<30) {
				t.Errorf("room for %d, want %d", got, c.headroom)
			}
		})
	}
}
