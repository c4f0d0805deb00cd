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

// TestSeatsCountLikePods asks where a pod goes while another one, which is not asked for, is on its way from an old node in zone b to there.
func TestSeatsCountLikePods(t *testing.T) {
	const disks = `
{kind: StorageClass, metadata: {name: disk}, provisioner: csi.example, volumeBindingMode: WaitForFirstConsumer}
---
{kind: PersistentVolumeClaim, metadata: {name: v1, namespace: default}, spec: {accessModes: [ReadWriteMany], storageClassName: disk}, status: {phase: Pending}}
---
{kind: PersistentVolumeClaim, metadata: {name: v2, namespace: default}, spec: {accessModes: [ReadWriteMany], storageClassName: disk}, status: {phase: Pending}}
`
	for name, tc := range map[string]struct{ mine, other, there, want string }{
		"nobody minds":                                  {"", "", "", "beside"},
		"it must be in another zone":                    {"apart=zone:app:other", "", "", "far"},
		"the other one must be":                         {"", "apart=zone:app:mine", "", "far"},
		"it must be in the same zone":                   {"near=zone:app:other", "", "", "beside"},
		"and on the same node":                          {"near=host:app:other", "", "", "there"},
		"on another node":                               {"select=zone:a apart=host:app:other", "", "", "beside"},
		"a spread counts the other one":                 {"spread=zone:1:of=set|x", "", "", "far"},
		"a spread of others":                            {"spread=zone:1:of=set|y", "", "", "beside"},
		"one that does not count the taints there":      {"spread=zone:1:of=set|x:taints=Honor", "tolerate=:*:", "taint=special:z:NoSchedule", "beside"},
		"both want a port":                              {"port=80 select=team:x", "port=80", "", "new"},
		"two ports":                                     {"port=80 select=team:x", "port=81", "", "there"},
		"a disk each, where one may be attached":        {"pvc=v1 select=team:x", "pvc=v2", "", "new"},
		"they share the disk":                           {"pvc=v1 select=team:x", "pvc=v1", "", "there"},
		"a wish of the other one is none of its affair": {"", "apartish=1/zone:app:mine", "", "beside"},
	} {
		for _, at := range []string{"waits", "runs", "has gone"} {
			t.Run(name+", which "+at, func(t *testing.T) {
				on := " on=old"
				if at == "waits" {
					on = ""
				}
				w := worldOf(t, "A pod.\n-- shapes --\nlarge cpu=4 mem=4Gi zones=a,b od=0.4\n-- pools --\ndefault labels=team:x\n-- objects --"+disks+
					"-- nodes --\nbeside cpu=4 zone=a\nfar cpu=4 zone=b\nold cpu=4 zone=b going\nthere cpu=4 zone=a labels=team:x volumes=csi.example:1 "+tc.there+
					"\n-- pods --\nthird on=far cpu=1 labels=app:third\nmine cpu=1 labels=app:mine,set:x "+tc.mine+"\nother owner=set cpu=1 labels=app:other,set:x "+tc.other+on+"\n")
				key := cluster.PodKey{Namespace: "default", Name: "other-1"}
				w.Store.Update(func(d *cluster.Draft) { d.Plan(key, "there", w.Now) })
				if at == "has gone" {
					w.Store.Update(func(d *cluster.Draft) { d.DeletePod(key) })
				}
				snap := w.Store.Snapshot()
				pods := slices.DeleteFunc(snap.Provisionable(), func(p *cluster.Pod) bool { return p.PodKey == key })
				plan := engine.New().Plan(engine.Question{Snap: snap, Pools: w.Pools, Pods: pods, Settings: w.Settings, Now: w.Now})
				got := "new"
				if len(plan.Place) == 1 {
					got = plan.Place[0].Node
				}
				if got != tc.want || len(plan.Place)+len(plan.Open) != 1 {
					t.Errorf("it goes to %s, want %s: %+v", got, tc.want, plan)
				}
			})
		}
	}
}

// TestKeptPlacesAreNotGivenAway asks where a pod goes while another one, which runs on an old node in zone b, may come to there.
func TestKeptPlacesAreNotGivenAway(t *testing.T) {
	const disks = `
{kind: StorageClass, metadata: {name: disk}, provisioner: csi.example, volumeBindingMode: WaitForFirstConsumer}
---
{kind: PersistentVolumeClaim, metadata: {name: v1, namespace: default}, spec: {accessModes: [ReadWriteMany], storageClassName: disk}, status: {phase: Pending}}
---
{kind: PersistentVolumeClaim, metadata: {name: v2, namespace: default}, spec: {accessModes: [ReadWriteMany], storageClassName: disk}, status: {phase: Pending}}
`
	for name, tc := range map[string]struct {
		mine, other string
		asked       bool // for the other one too
		want        string
	}{
		"there is room for both":                              {"cpu=1 select=team:x", "cpu=3", false, "there"},
		"there is not":                                        {"cpu=2 select=team:x", "cpu=3", false, "new"},
		"who is asked for has no place kept":                  {"cpu=2 select=team:x", "cpu=3 select=zone:b", true, "there"},
		"both want a port":                                    {"cpu=1 port=80 select=team:x", "cpu=1 port=80", false, "new"},
		"two ports":                                           {"cpu=1 port=80 select=team:x", "cpu=1 port=81", false, "there"},
		"a disk each, where one may be attached":              {"cpu=1 pvc=v1 select=team:x", "cpu=1 pvc=v2", false, "new"},
		"they share the disk":                                 {"cpu=1 pvc=v1 select=team:x", "cpu=1 pvc=v1", false, "there"},
		"it must be in another zone than where that is":       {"cpu=1 apart=zone:app:other", "cpu=1", false, "beside"},
		"that must be in another zone, and is in zone b":      {"cpu=1", "cpu=1 apart=zone:app:mine", false, "beside"},
		"it must be in the zone where that is":                {"cpu=1 near=zone:app:other", "cpu=1", false, "far"},
		"it must be apart from where that may come by and by": {"cpu=1 select=team:x apart=host:app:other", "cpu=1", false, "there"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, "A pod.\n-- shapes --\nlarge cpu=4 mem=4Gi zones=a,b od=0.4\n-- pools --\ndefault labels=team:x\n-- objects --"+disks+
				"-- nodes --\nbeside cpu=4 zone=a\nfar cpu=4 zone=b\nold cpu=4 zone=b\nthere cpu=4 zone=a labels=team:x volumes=csi.example:1"+
				"\n-- pods --\nmine labels=app:mine "+tc.mine+"\nother owner=set labels=app:other on=old "+tc.other+"\n")
			snap := w.Store.Snapshot()
			other := snap.Pod(cluster.PodKey{Namespace: "default", Name: "other-1"})
			pods := []*cluster.Pod{snap.Pod(cluster.PodKey{Namespace: "default", Name: "mine-1"})}
			if tc.asked {
				pods = append(pods, other)
			}
			plan := engine.New().Plan(engine.Question{Snap: snap, Pools: w.Pools, Pods: pods, Closed: map[string]bool{"old": true},
				Kept: []engine.Placement{{Pod: other, Node: "there"}}, Settings: w.Settings, Now: w.Now})
			got := "new"
			for _, p := range plan.Place {
				if p.Pod == pods[0] {
					got = p.Node
				}
			}
			if got != tc.want || len(plan.Refused) > 0 {
				t.Errorf("it goes to %s, want %s: %+v", got, tc.want, plan)
			}
		})
	}
}
