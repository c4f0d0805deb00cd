package evict_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/evict"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestNext(t *testing.T) {
	const minute = time.Minute
	for name, tc := range map[string]struct {
		pods     []*corev1.Pod
		deadline time.Duration // from now; 0 for none
		want     string
	}{
		"an empty node has nothing to do": {nil, 0, "waiting 0"},
		"ordinary pods go first": {
			[]*corev1.Pod{pod("a"), pod("b", daemon), pod("c", critical), pod("d", critical, daemon)}, 0, "evict a; waiting 4",
		},
		"then ordinary daemons":     {[]*corev1.Pod{pod("b", daemon), pod("c", critical), pod("d", critical, daemon)}, 0, "evict b; waiting 3"},
		"then critical pods":        {[]*corev1.Pod{pod("c", critical), pod("d", critical, daemon)}, 0, "evict c; waiting 2"},
		"critical daemons are last": {[]*corev1.Pod{pod("d", critical, daemon)}, 0, "evict d; waiting 1"},
		"a pod that is still ending holds the next wave": {
			[]*corev1.Pod{pod("a", ending(minute/2)), pod("c", critical)}, 0, "waiting 2 until 1m31s",
		},
		"a pod that should have ended over a minute ago is forgotten": {
			[]*corev1.Pod{pod("a", ending(-minute-time.Second)), pod("c", critical)}, 0, "evict c; waiting 1",
		},
		"pods that tolerate the taint, mirror pods and ended pods do not count": {
			[]*corev1.Pod{pod("a", tolerating), pod("b", mirror), pod("c", ended)}, 0, "waiting 0",
		},
		"a protected pod holds its wave and is not evicted": {
			[]*corev1.Pod{pod("a", protected("true")), pod("c", critical)}, 0, "waiting 2",
		},
		"a protection that ends by itself is looked at again then": {
			[]*corev1.Pod{pod("a", protected("10m"))}, 0, "waiting 1 until 9m0s",
		},
		"a pod keeps its own grace before the deadline":   {[]*corev1.Pod{pod("a", grace(60))}, 2 * minute, "evict a; waiting 1 until 1m1s"},
		"a pod that needs the rest of the time must go":   {[]*corev1.Pod{pod("a", grace(60))}, minute - time.Second, "delete a 59s; waiting 1"},
		"a protected pod must go as well":                 {[]*corev1.Pod{pod("a", grace(60), protected("true"))}, minute / 2, "delete a 30s; waiting 1"},
		"the deadline does not wait for waves":            {[]*corev1.Pod{pod("a"), pod("c", critical, grace(300))}, 2 * minute, "evict a; delete c 2m0s; waiting 2 until 1m31s"},
		"a pod that ends after the deadline is shortened": {[]*corev1.Pod{pod("a", ending(10*minute))}, minute, "delete a 1m0s; waiting 1 until 11m1s"},
		"a pod that ends before it is not":                {[]*corev1.Pod{pod("a", ending(minute))}, 2 * minute, "waiting 1 until 2m1s"},
		"past the deadline one second is left":            {[]*corev1.Pod{pod("a")}, -minute, "delete a 1s; waiting 1"},
		"and is not asked for again and again":            {[]*corev1.Pod{pod("a", ending(time.Second))}, -minute, "waiting 1 until 1m2s"},
	} {
		t.Run(name, func(t *testing.T) {
			row, _ := place(tc.pods)
			var deadline time.Time
			if tc.deadline != 0 {
				deadline = now.Add(tc.deadline)
			}
			if got := describe(evict.Next(row.Pods, deadline, now)); got != tc.want {
				t.Errorf("plan = %s, want %s", got, tc.want)
			}
		})
	}
}

func describe(p evict.Plan) string {
	var parts []string
	for _, e := range p.Evict {
		parts = append(parts, "evict "+e.Name)
	}
	for _, d := range p.Delete {
		parts = append(parts, fmt.Sprintf("delete %s %s", d.Pod.Name, d.Grace))
	}
	last := fmt.Sprintf("waiting %d", len(p.Waiting))
	if !p.Until.IsZero() {
		last += " until " + p.Until.Sub(now).String()
	}
	return strings.Join(append(parts, last), "; ")
}

func TestAttached(t *testing.T) {
	withVolume := func(claim string, ephemeral bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			v := corev1.Volume{Name: claim}
			if ephemeral {
				v.Ephemeral = &corev1.EphemeralVolumeSource{}
			} else {
				v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
			}
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
	}
	for name, tc := range map[string]struct {
		pods  []*corev1.Pod
		bound map[string]string // volume → claim
		want  string
	}{
		"a volume that nobody uses any more is waited for":            {nil, map[string]string{"pv": "data"}, "pv"},
		"so is one of a pod that is waited for":                       {[]*corev1.Pod{pod("a", withVolume("data", false))}, map[string]string{"pv": "data"}, "pv"},
		"not the volume of a pod that stays":                          {[]*corev1.Pod{pod("a", tolerating, withVolume("data", false))}, map[string]string{"pv": "data"}, ""},
		"nor its ephemeral volume":                                    {[]*corev1.Pod{pod("a", tolerating, withVolume("tmp", true))}, map[string]string{"pv": "a-tmp"}, ""},
		"nor that of a pod that should have ended long ago":           {[]*corev1.Pod{pod("a", ending(-time.Hour), withVolume("data", false))}, map[string]string{"pv": "data"}, ""},
		"an attachment without a persistent volume is not waited for": {nil, map[string]string{"": ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			row, store := place(tc.pods)
			store.Update(func(d *cluster.Draft) {
				for volume, claim := range tc.bound {
					a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-" + volume}}
					a.Spec.NodeName = "n"
					if volume != "" {
						a.Spec.Source.PersistentVolumeName = &volume
						pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}
						pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: claim}
						cluster.PVs.Put(d, pv)
					}
					cluster.Attachments.Put(d, a)
				}
			})
			if got := strings.Join(evict.Attached(store.Snapshot(), row, now), ","); got != tc.want {
				t.Errorf("attached = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestHeldUntil(t *testing.T) {
	for name, tc := range map[string]struct {
		after  time.Duration // of the annotation; 0 for none
		pods   []*corev1.Pod
		target string // where pods are planned to go
		want   time.Duration
	}{
		"without the annotation pods go now":                 {0, []*corev1.Pod{pod("a")}, "", 0},
		"a pod without a place may stay":                     {time.Minute, []*corev1.Pod{pod("a")}, "", time.Minute},
		"a pod whose place is not ready may stay":            {time.Minute, []*corev1.Pod{pod("a")}, "starting", time.Minute},
		"a pod whose place is ready goes":                    {time.Minute, []*corev1.Pod{pod("a")}, "other", 0},
		"when the time has passed pods go, place or not":     {-time.Second, []*corev1.Pod{pod("a")}, "", 0},
		"a node without pods that need a place holds nobody": {time.Minute, []*corev1.Pod{pod("a", daemon)}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, store := place(tc.pods)
			store.Update(func(d *cluster.Draft) {
				c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
				c.Status.ProviderID = "id"
				if tc.after != 0 {
					c.Annotations = map[string]string{v1.EvictAfterAnnotationKey: now.Add(tc.after).Format(time.RFC3339)}
				}
				d.PutClaim(c)
				d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "starting"}})
				d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
				if tc.target != "" {
					d.MarkForRemoval("c")
					d.Plan(cluster.PodKey{Namespace: "default", Name: "a"}, tc.target, now)
				}
			})
			snap := store.Snapshot()
			got := evict.HeldUntil(snap, snap.Node("n"), now)
			if tc.want == 0 && !got.IsZero() || tc.want != 0 && !got.Equal(now.Add(tc.want)) {
				t.Errorf("held until %v, want %v from now", got, tc.want)
			}
		})
	}
}

// place puts pods on a node.
func place(pods []*corev1.Pod) (*cluster.Node, *cluster.Store) {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		n.Spec.ProviderID = "id"
		d.PutNode(n)
		for _, p := range pods {
			d.PutPod(p)
		}
	})
	return store.Snapshot().Node("n"), store
}

func pod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.NodeName = "n"
	p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	p.Status.Phase = corev1.PodRunning
	started := metav1.NewTime(now.Add(-time.Minute))
	p.Status.StartTime = &started
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func daemon(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: new(true)}}
}

func mirror(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", Controller: new(true)}}
}

func critical(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func tolerating(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func protected(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: value} }
}

func grace(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// ending pods have been told to end by then.
func ending(in time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(in)}, new(int64(30))
	}
}
