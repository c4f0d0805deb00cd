package provision

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/compile"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
)

func TestADesk(t *testing.T) {
	var none *Desk
	none.keep(engine.Question{}, engine.Memory{}, 0)
	d := &Desk{}
	if text, err := d.Story(false); text != nil || err != nil {
		t.Errorf("%q, %v before there was a question", text, err)
	}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		d.PutPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}})
	})
	snap := store.Snapshot()
	in := engine.Question{Snap: snap, Pods: []*cluster.Pod{snap.Pod(cluster.PodKey{Namespace: "shop", Name: "cart"})}, Now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		Stop: func() bool { return true }, Ended: func() bool { return true }}
	d.keep(in, engine.Memory{Rows: compile.History{Missing: []string{"example.com/gpu"}}}, work.Second)
	if last := d.last.Load().question; last.Stop != nil || last.Ended != nil {
		t.Error("it holds on to the turn that asked")
	}
	for name, tc := range map[string]struct {
		anonymous bool
		has, not  []string
	}{
		"with names":    {false, []string{"What the controller asked at 2026-11-01T00:00:00Z: 1 pod(s), 0 node(s), 0 pool(s)", `"cart"`, "example.com/gpu", "cut-at=1000000000"}, nil},
		"without names": {true, []string{"cut-at=1000000000", `"pod-000001"`}, []string{"cart", "shop", "example.com/gpu", "-- memory --"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := d.Story(tc.anonymous)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range tc.has {
				if !strings.Contains(string(text), x) {
					t.Errorf("it does not say %q:\n%s", x, text)
				}
			}
			for _, x := range tc.not {
				if strings.Contains(string(text), x) {
					t.Errorf("it says %q:\n%s", x, text)
				}
			}
		})
	}
}
