package operator

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/history/recording"
)

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid", CreationTimestamp: metav1.Now()}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
}

// Pods are on the disk a few seconds after they came, and what came last when the program ends. A folder that fails in between costs nothing.
func TestPodsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := someParts(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.record(ctx) }()
		p.store.Update(func(d *cluster.Draft) { d.PutPod(newPod("first")) })
		time.Sleep(recordEvery + time.Millisecond)
		read := func() int {
			r, torn, err := recording.ReadFolder(p.settings.RecordDir)
			if err != nil || torn > 0 {
				t.Errorf("%d torn lines, %v", torn, err)
				return 0
			}
			return len(r.Lives)
		}
		if n := read(); n != 1 {
			t.Errorf("%d pods on the disk", n)
		}
		second := newPod("second")
		second.UID = "another"
		p.store.Update(func(d *cluster.Draft) { d.PutPod(second) })
		stop()
		if err := <-done; err != nil || read() != 2 {
			t.Errorf("%v, %d pods on the disk at the end", err, read())
		}
	})
}

func TestRecordingGoesOnAfterTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := someParts(t)
		p.settings.RecordDir += "/blocked"
		if err := os.WriteFile(p.settings.RecordDir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.record(ctx) }()
		p.store.Update(func(d *cluster.Draft) { d.PutPod(newPod("first")) })
		time.Sleep(3 * recordEvery)
		if err := os.Remove(p.settings.RecordDir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(recordEvery + time.Millisecond)
		if r, _, err := recording.ReadFolder(p.settings.RecordDir); err != nil || len(r.Lives) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
