package learn

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/forecast"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
)

var monday = time.Date(2026, 7, 13, 0, 0, 0, 0, time.UTC)

var pool = forecast.Object{Kind: "NodePool", Name: "default"}

// shop sells one type of machine for a dollar an hour.
type shop struct{}

func (shop) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	it := fakecloud.Kind("large", 10, 1, "a")
	return map[string]engine.Pool{"default": {Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{it}}}}, nil
}

// A town is a learner with a cluster.
type town struct {
	*Learner
	store *cluster.Store
	now   time.Time
	made  int
	told  []*corev1.Event
}

func newTown(t *testing.T) *town {
	c := &town{store: cluster.NewStore(), now: monday}
	metrics := telemetry.NewMetrics(prometheus.NewRegistry(), nil)
	events := telemetry.NewEvents(func(_ context.Context, e *corev1.Event) error { c.told = append(c.told, e); return nil }, metrics)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = events.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	c.Learner = New(shop{}, metrics, events, 0.9)
	c.store.Update(func(d *cluster.Draft) {
		claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c", Labels: map[string]string{v1.NodePoolLabelKey: "default",
			corev1.LabelInstanceTypeStable: "large", corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}}}
		claim.Status.ProviderID, claim.Status.Allocatable = "p", corev1.ResourceList{"cpu": resource.MustParse("10")}
		claim.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeInitialized, Status: metav1.ConditionTrue}}
		d.PutClaim(claim)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.NodePoolLabelKey: "default", v1.NodeInitializedLabelKey: "true"}}}
		n.Spec.ProviderID = "p"
		d.PutNode(n)
		d.Synced(true)
	})
	return c
}

func (c *town) annotate(value string, more ...string) {
	c.store.Update(func(d *cluster.Draft) {
		p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool", Annotations: map[string]string{}}}
		if value != "" {
			p.Annotations[v1.LearnAnnotationKey] = value
		}
		for i := 0; i < len(more); i += 2 {
			p.Annotations[more[i]] = more[i+1]
		}
		cluster.Pools.Put(d, p)
	})
}

func (c *town) turn() []forecast.Room {
	return c.Turn(context.Background(), c.store.Snapshot(), c.now, 40*time.Second, 2*time.Minute)
}

// days lives through days on which so many pods of one CPU come to the Deployment web at nine and go at ten.
func (c *town) days(n int, pods int) {
	for range n {
		for at := range 24 * 6 {
			c.now = monday.Truncate(24 * time.Hour).Add(c.now.Sub(monday).Truncate(24 * time.Hour)).Add(time.Duration(at) * 10 * time.Minute)
			if at == 9*6 {
				c.start(pods)
			}
			if at == 10*6 {
				c.stop()
			}
			c.turn()
		}
		c.now = c.now.Add(10 * time.Minute)
	}
}

func (c *town) start(pods int) {
	c.store.Update(func(d *cluster.Draft) {
		for range pods {
			c.made++
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", c.made), UID: types.UID(fmt.Sprint(c.made)),
				CreationTimestamp: metav1.NewTime(c.now), Labels: map[string]string{"pod-template-hash": "x"}}}
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-x", UID: "web", Controller: new(true)}}
			p.Spec.NodeName = "n"
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
			d.PutPod(p)
		}
	})
}

func (c *town) stop() {
	snap := c.store.Snapshot()
	c.store.Update(func(d *cluster.Draft) {
		for p := range snap.Pods() {
			d.DeletePod(p.PodKey)
		}
	})
}

// atNine is the room that is asked for a minute before nine, as text.
func (c *town) atNine() string {
	c.now = c.now.Truncate(24 * time.Hour).Add(9*time.Hour - time.Minute)
	var out []string
	for _, r := range c.turn() {
		out = append(out, fmt.Sprintf("%d of %s/%s, %s", r.Pods, r.Workload.Namespace, r.Name(), sentence.LearnedFrom(r.Basis)))
	}
	return strings.Join(out, "; ")
}

func TestWithoutTheAnnotationNothingIsRemembered(t *testing.T) {
	c := newTown(t)
	for _, value := range []string{"", "false"} {
		c.annotate(value)
		c.days(1, 5)
		if kept, err := c.Kept(); len(c.all) != 0 || kept != nil || err != nil {
			t.Errorf("%q: %d objects learn", value, len(c.all))
		}
	}
}

func TestRoomIsAskedForWhatCameOnEarlierDays(t *testing.T) {
	c := newTown(t)
	c.annotate("true")
	c.days(7, 40)
	const want = "40 of shop/web :00, 7 of the last 7 days"
	if got := c.atNine(); got != want {
		t.Errorf("room is %q, want %q", got, want)
	}
	c.now = c.now.Add(time.Minute)
	if c.start(30); len(c.turn()) != 1 || c.turn()[0].Pods != 10 {
		t.Errorf("after 30 of 40 came there is room for %+v", c.turn())
	}
}

func TestAnnotationsThatCannotBeUnderstood(t *testing.T) {
	for want, annotate := range map[string]func(c *town){
		`the annotation karpenter.sh/learn is "yes"; use "true", or remove it`: func(c *town) { c.annotate("yes") },
		`there is no time zone "Europe/Atlantis"`:                              func(c *town) { c.annotate("true", v1.ScheduleTimeZoneAnnotationKey, "Europe/Atlantis") },
	} {
		c := newTown(t)
		annotate(c)
		c.turn()
		for len(c.told) == 0 {
			time.Sleep(time.Millisecond)
		}
		if e := c.told[0]; len(c.all) != 0 || e.Reason != "LearningOff" || !strings.Contains(e.Message, want) {
			t.Errorf("the event is %s: %s, want %s", e.Reason, e.Message, want)
		}
	}
}

// An hour is enough to take the annotation away and set it again: what was learned stays, and the balance begins anew.
func TestTheAnnotationIsSetAgain(t *testing.T) {
	for gone, want := range map[time.Duration]string{30 * time.Minute: "40 of shop/web :00, 7 of the last 7 days", 2 * time.Hour: ""} {
		c := newTown(t)
		c.annotate("true")
		c.days(7, 40)
		c.all[pool].Balance = forecast.Balance{Off: c.now.Add(forecast.Rest)}
		if got := c.atNine(); got != "" {
			t.Errorf("room is kept while it is switched off: %q", got)
		}
		c.annotate("")
		c.turn()
		c.now = c.now.Add(gone)
		c.turn()
		c.annotate("true")
		if got := c.atNine(); got != want {
			t.Errorf("after %v room is %q, want %q", gone, got, want)
		}
	}
}

// Ten pods of one CPU keep a machine of ten CPUs: a dollar an hour.
func TestWhatRoomCostsAndBrings(t *testing.T) {
	c := newTown(t)
	c.annotate("true")
	c.days(7, 10)
	c.atNine()
	b := &c.all[pool].Balance
	b.Usual = 100
	c.store.Update(func(d *cluster.Draft) {
		r := c.rooms[cluster.PodKey{Namespace: "shop", Name: "Forecast web :00"}]
		var pods []*corev1.Pod
		for n := range 10 {
			pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("spare", n)}, Spec: r.Template.Spec})
		}
		d.AnnounceSpares("shop", "Forecast web :00", r.At, pods)
		d.PlaceSpares("shop", "Forecast web :00", []string{"n", "n", "n", "n", "n", "n", "n", "n", "n", "n"})
	})
	for range 60 {
		c.now = c.now.Add(time.Second)
		c.turn()
	}
	if cost := b.Unused * 60; cost < 0.95 || cost > 1.2 || b.Saved != 0 {
		t.Errorf("a minute of room costs a sixtieth of $%.2f", cost)
	}
	if bill := b.Today.Bill * 60; bill < 0.95 || b.Today.Unused != b.Unused {
		t.Errorf("a minute of the pool's machine costs a sixtieth of $%.2f, %+v", bill, b)
	}
	usual := b.Usual
	if b.Usual = 10 * b.Today.Unused; len(c.turn()) != 0 || testutil.ToFloat64(c.metrics.ForecastOff.WithLabelValues(pool.String())) != 1 {
		t.Error("room is kept that a day's bill does not allow")
	}
	b.Usual = usual
	c.turn()
	c.start(8)
	c.turn()
	if saved := b.Saved * 90; saved < 0.79 || saved > 0.81 { // forty seconds of eight tenths of a dollar an hour
		t.Errorf("eight pods that need not wait for 40 s save a ninetieth of $%.2f", saved)
	}
	b.Unused = 100 * b.Saved
	c.days(1, 10)
	if c.turn(); b.Off.IsZero() {
		t.Error("what costs more than it brings goes on")
	}
	for len(c.told) == 0 {
		time.Sleep(time.Millisecond)
	}
	if e := c.told[0]; e.Reason != "LearningOff" || !strings.Contains(e.Message, "nothing is kept until 28 July 00:00 UTC") {
		t.Errorf("the event is %s: %s", e.Reason, e.Message)
	}
	m := c.metrics
	if off := testutil.ToFloat64(m.ForecastOff.WithLabelValues(pool.String())); off != 1 {
		t.Errorf("the metric is %v", off)
	}
	if unused := testutil.ToFloat64(m.ForecastUnused.WithLabelValues(pool.String())) * 60; unused < 0.95 || unused > 1.2 {
		t.Errorf("the metric of a minute is a sixtieth of $%.2f", unused)
	}
	expected, came := m.ForecastPods.WithLabelValues(pool.String(), "expected"), m.ForecastPods.WithLabelValues(pool.String(), "came")
	if e, n := testutil.ToFloat64(expected), testutil.ToFloat64(came); e < 40 || n < e {
		t.Errorf("%v pods were expected, %v came", e, n)
	}
}

// A buffer of five pods has room for five of forty; and limits are kept to.
func TestABufferLearns(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*autoscalingv1beta1.CapacityBufferSpec)
		want string
	}{
		"of a Deployment": {func(s *autoscalingv1beta1.CapacityBufferSpec) {
			s.ScalableRef = &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "web"}
		}, "35 of shop/web :00, 7 of the last 7 days"},
		"of another Deployment": {func(s *autoscalingv1beta1.CapacityBufferSpec) {
			s.ScalableRef = &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "other"}
		}, ""},
		"of a PodTemplate": {func(s *autoscalingv1beta1.CapacityBufferSpec) {
			s.PodTemplateRef = &autoscalingv1beta1.LocalObjectRef{Name: "small"}
		}, "35 of shop/small :00, 7 of the last 7 days"},
		"of a PodTemplate of other requests": {func(s *autoscalingv1beta1.CapacityBufferSpec) {
			s.PodTemplateRef = &autoscalingv1beta1.LocalObjectRef{Name: "large"}
		}, ""},
		"with a limit": {func(s *autoscalingv1beta1.CapacityBufferSpec) {
			s.ScalableRef = &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "web"}
			s.Limits = autoscalingv1beta1.ResourceList{"cpu": resource.MustParse("20")}
		}, "15 of shop/web :00, 7 of the last 7 days"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTown(t)
			c.store.Update(func(d *cluster.Draft) {
				for name, cpu := range map[string]string{"small": "1", "large": "2"} {
					one := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
					one.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
					cluster.PodTemplates.Put(d, one)
				}
				b := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b", UID: "b", Annotations: map[string]string{v1.LearnAnnotationKey: "true"}}}
				b.Spec.Replicas = new(int32(5))
				tc.edit(&b.Spec)
				cluster.Buffers.Put(d, b)
				d.PutSpares("shop", "b", []*corev1.Pod{{}, {}, {}, {}, {}})
			})
			c.days(7, 40)
			if got := c.atNine(); got != tc.want {
				t.Errorf("room is %q, want %q", got, tc.want)
			}
		})
	}
}

// Days in which thirty-two large and different workloads get pods by chance all the time are still less than a hundred kilobytes.
func TestAHistoryIsSmall(t *testing.T) {
	c := newTown(t)
	random := rand.New(rand.NewPCG(1, 1))
	h := &forecast.History{}
	c.all[pool] = &learned{History: h}
	noise := func() string { // that cannot be compressed
		b := make([]byte, 500)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return hex.EncodeToString(b)
	}
	for day := range 16 {
		for slot := range 288 {
			at := monday.AddDate(0, 0, day).Add(time.Duration(slot) * forecast.Slot)
			h.See(at)
			for n := range 32 {
				if day == 0 && slot == 0 {
					h.Add(at, forecast.Workload{Namespace: "shop", Kind: "Deployment", Name: fmt.Sprint("web-", n)},
						&corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"noise": noise()}}}, 1)
				}
				h.Classes[n].Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: h.Classes[n].Template.Labels}}
				h.Add(at, h.Classes[n].Workload, h.Classes[n].Template, 1+random.IntN(200))
			}
		}
	}
	kept, err := c.Kept()
	t.Logf("%d bytes, %d days", len(kept), len(h.Days))
	if err != nil || len(kept) > mostBytes || len(h.Days) < 7 {
		t.Errorf("%d bytes of %d days are kept: %v", len(kept), len(h.Days), err)
	}
	again := newTown(t)
	if err := again.Restore(kept); err != nil || len(again.all) != 1 {
		t.Errorf("they cannot be read: %v", err)
	}
	for _, torn := range [][]byte{kept[:len(kept)/2], []byte("torn")} {
		if err := again.Restore(torn); err == nil {
			t.Error("a torn history is read")
		}
	}
}
