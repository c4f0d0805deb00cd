package provision

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/explain/board"
)

func TestWhyPodsWaitIsShown(t *testing.T) {
	for name, tc := range map[string]struct {
		story func(w *world)
		want  map[types.UID]string
	}{
		"what the engine says": {func(w *world) { w.answerWith(refuse(reason.TooLarge)); w.put(pod("a")) }, map[types.UID]string{"uid-a": `pool "default": not enough cpu`}},
		"also of pods that are looked at later": {
			func(w *world) { w.answerWith(refuse(reason.Postponed)); w.put(pod("a")) }, map[types.UID]string{"uid-a": `pool "default": this pod's constraints and those of others are more work than one plan may take; its turn comes with the next plans (cpu)`}},
		"nothing of pods that have a place": {func(w *world) { w.put(pod("a")) }, map[types.UID]string{}},
		"which pools are not ready": {func(w *world) {
			w.store.Update(func(d *cluster.Draft) {
				p := readyPool("default")
				p.Status.Conditions[0].Status = "False"
				cluster.Pools.Put(d, p)
			})
			w.put(pod("a"))
		}, map[types.UID]string{"uid-a": `no pool may open nodes; pool "default" is not ready yet`}},
		"nothing once no pod waits": {func(w *world) {
			w.answerWith(refuse(reason.TooLarge))
			w.put(pod("a"))
			time.Sleep(5 * time.Second)
			w.store.Update(func(d *cluster.Draft) { d.DeletePod(key("a")) })
		}, map[types.UID]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.loop.Verdicts = board.New()
				tc.story(w)
				time.Sleep(5 * time.Second)
				if got := w.loop.Verdicts.View().Refused; !maps.Equal(got, tc.want) {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			})
		})
	}
}
