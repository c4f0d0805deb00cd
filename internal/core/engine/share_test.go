package engine_test

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/scenario"
)

// worldOf builds the first round of a story.
func worldOf(t *testing.T, story string) *scenario.World {
	t.Helper()
	s, err := scenario.Parse([]byte(story))
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.World()
	if err == nil {
		err = w.Enter(s, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

const twoOfAVolume = `Two pods of one volume claim.
-- shapes --
default cpu=4 mem=4Gi zones=a,b od=0.4
-- nodes --
full zone=b cpu=4
-- objects --
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disk}
provisioner: ebs.csi.aws.com
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: one, namespace: default}
spec: {storageClassName: disk}
-- pods --
first cpu=3 pvc=one
second cpu=3 pvc=one
`

// TestAVolumeOfAPlannedPod plans one of two pods that share an unbound claim while the other is on its way to zone b.
func TestAVolumeOfAPlannedPod(t *testing.T) {
	w := worldOf(t, twoOfAVolume)
	w.Store.Update(func(d *cluster.Draft) {
		d.Plan(cluster.PodKey{Namespace: "default", Name: "first-1"}, "full", w.Now)
	})
	snap := w.Store.Snapshot()
	pods := slices.DeleteFunc(snap.Provisionable(), func(p *cluster.Pod) bool { return p.Name != "second-1" })
	plan := engine.New().Plan(engine.Question{Snap: snap, Pools: w.Pools, Pods: pods, Settings: w.Settings, Now: w.Now})
	if len(plan.Open) != 1 || !slices.Equal(plan.Open[0].Zones, []string{"b"}) {
		t.Errorf("got %+v, want a node in zone b", plan)
	}
}
