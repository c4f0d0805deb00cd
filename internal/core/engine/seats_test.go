package engine_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// TestRoomOfSeatsIsNotGivenAway asks for a pod for which there is room only where another one, which is not asked for, has a seat.
func TestRoomOfSeatsIsNotGivenAway(t *testing.T) {
	key := cluster.PodKey{Namespace: "default", Name: "other"}
	seated := func(node string) func(*cluster.Draft) {
		return func(d *cluster.Draft) {
			yes := true
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "other"}}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}
			p.Spec.NodeName = node
			p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}}
			d.PutPod(p)
			d.Plan(key, "there", time.Now())
		}
	}
	for name, tc := range map[string]struct {
		edits []func(*cluster.Draft)
		after time.Duration
		free  bool
	}{
		"nobody has a seat":                   {nil, 0, true},
		"a pod that waits has one":            {[]func(*cluster.Draft){seated("")}, 0, false},
		"but not for ever":                    {[]func(*cluster.Draft){seated("")}, 10 * time.Minute, true},
		"a pod that is still to leave a node": {[]func(*cluster.Draft){seated("old")}, 0, false},
		"it is vacant":                        {[]func(*cluster.Draft){seated("old"), func(d *cluster.Draft) { d.DeletePod(key) }}, 0, false},
		"it has been vacant for too long":     {[]func(*cluster.Draft){seated("old"), func(d *cluster.Draft) { d.DeletePod(key) }}, 21 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, "A pod.\n-- shapes --\ndefault cpu=4 mem=4Gi od=0.4\n-- nodes --\nthere cpu=4\n-- pods --\nmine cpu=3\n")
			for _, edit := range tc.edits {
				w.Store.Update(edit)
			}
			snap := w.Store.Snapshot()
			pods := slices.DeleteFunc(snap.Provisionable(), func(p *cluster.Pod) bool { return p.PodKey == key })
			plan := engine.New().Plan(engine.Question{Snap: snap, Pools: w.Pools, Pods: pods, Settings: w.Settings, Now: time.Now().Add(tc.after)})
			if len(plan.Place)+len(plan.Open) != 1 || len(plan.Place) == 1 != tc.free {
				t.Errorf("placed %d, opened %d; the room is free = %v", len(plan.Place), len(plan.Open), tc.free)
			}
		})
	}
}

// TestAPodKeepsItsOwnSeat asks again for a pod that has a seat or runs, alone with a claim for one pod at a time: it stands in nobody's way, least of all its own.
func TestAPodKeepsItsOwnSeat(t *testing.T) {
	const world = "A pod.\n-- shapes --\ndefault cpu=4 mem=4Gi od=0.4\n-- objects --\n" +
		"{kind: StorageClass, metadata: {name: late}, provisioner: csi.example, volumeBindingMode: WaitForFirstConsumer}\n---\n" +
		"{kind: PersistentVolumeClaim, metadata: {name: mine, namespace: default}, spec: {accessModes: [ReadWriteOncePod], storageClassName: late}, status: {phase: Pending}}\n" +
		"-- nodes --\nhere cpu=4\nthere cpu=4\n-- pods --\nmine cpu=3 "
	key := cluster.PodKey{Namespace: "default", Name: "mine-1"}
	for name, tc := range map[string]struct {
		pod  string
		seat string
	}{
		"a seat":                           {"", "there"},
		"a seat, and a volume claim":       {"pvc=mine", "there"},
		"it runs with a claim on the node": {"pvc=mine on=here", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, world+tc.pod+"\n")
			gone := map[string]bool{}
			if tc.seat != "" {
				w.Store.Update(func(d *cluster.Draft) { d.Plan(key, tc.seat, w.Now) })
			} else {
				gone["here"] = true
			}
			snap := w.Store.Snapshot()
			plan := engine.New().Plan(engine.Question{Snap: snap, Pools: w.Pools, Pods: []*cluster.Pod{snap.Pod(key)}, Gone: gone, Settings: w.Settings, Now: w.Now})
			if len(plan.Place) != 1 || plan.Place[0].Node != "there" {
				t.Errorf("placed %v, opened %d, refused %v", plan.Place, len(plan.Open), plan.Refused)
			}
		})
	}
}
