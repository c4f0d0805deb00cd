package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/scenario"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// purchases are the times at which claims were created, from when it was made.
type purchases struct {
	began time.Time
	mu    sync.Mutex
	seen  map[types.UID]bool
	at    []time.Duration
}

func watchPurchases(t *testing.T, w *sim.World) *purchases {
	p := &purchases{began: time.Now(), seen: map[types.UID]bool{}}
	var done sync.WaitGroup
	done.Go(func() {
		w.API.Watch(t.Context(), 0, func(e memapi.Event) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if c, ok := e.Object.(*v1.NodeClaim); ok && !p.seen[c.UID] {
				p.seen[c.UID] = true
				p.at = append(p.at, time.Since(p.began))
			}
		}, func() {})
	})
	t.Cleanup(done.Wait)
	return p
}

// count returns how many there were until now.
func (p *purchases) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at)
}

// gaps returns the minutes between one and the next.
func (p *purchases) gaps() (out []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.at); i++ {
		out = append(out, int((p.at[i]-p.at[i-1]).Round(time.Minute)/time.Minute))
	}
	return out
}

var refusesAll = sim.Options{Refuses: func(*corev1.Pod, *corev1.Node) bool { return true }}

// replica is a pod of a ReplicaSet.
func replica(set string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": set}
		sim.OwnedBy(set)(p)
	}
}

// TestPodsThatAreNeverBoundCostLessAndLess has kube-scheduler refuse pods for reasons that nobody knows.
func TestPodsThatAreNeverBoundCostLessAndLess(t *testing.T) {
	for name, tc := range map[string]struct {
		pods int
		gaps []int // minutes
	}{
		"one":        {1, []int{1, 6, 11, 21, 41, 61, 61}},
		"a thousand": {1000, []int{1, 6, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Bubble(t, refusesAll, everything, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				bought := watchPurchases(t, w)
				for i := range tc.pods {
					w.API.Put(sim.Pod(fmt.Sprintf("pod-%d", i), "10m", replica("web")))
				}
				time.Sleep(30 * time.Second)
				first := bought.count() - 1
				for _, gap := range tc.gaps {
					time.Sleep(time.Duration(gap) * time.Minute)
				}
				time.Sleep(4 * time.Minute)
				if got := bought.gaps()[first:]; !slices.Equal(got, tc.gaps) {
					t.Errorf("after the %d first ones nodes are bought after %v minutes, want %v", first+1, got, tc.gaps)
				}
				if n := len(w.Cloud.Machines()); n > 0 {
					t.Errorf("%d machines wait for pods that do not come", n)
				}
				if got := testutil.ToFloat64(k.Metrics.PlacesLost.WithLabelValues("default")); got < float64(tc.pods) {
					t.Errorf("%v lost places are counted, want %d at least", got, tc.pods)
				}
				wantText(t, k, "pod-0", `node node-`, `scheduler "default-scheduler" does not bind it there`, "a further node is tried at ")
			})
		})
	}
}

// wantText fails the test if no event about a pod has all of these words.
func wantText(t *testing.T, k *sim.Karpenter, pod string, words ...string) {
	t.Helper()
	var have []string
	for _, e := range k.Events() {
		if e.InvolvedObject.Name != pod || e.Reason != "FailedScheduling" {
			continue
		}
		if have = append(have, e.Message); !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Message, w) }) {
			return
		}
	}
	t.Errorf("no event of %s says %q; there are %q", pod, words, have)
}

// TestWhatResetsAPodThatIsNotBound waits until a pod has used up its further node, changes something, and asks whether that is tried at once.
func TestWhatResetsAPodThatIsNotBound(t *testing.T) {
	edit := func(name string, change func(*corev1.Pod)) func(*testing.T, *sim.World) {
		return func(_ *testing.T, w *sim.World) { memapi.Edit(w.API, "default", name, change) }
	}
	for name, tc := range map[string]struct {
		change func(*testing.T, *sim.World)
		want   int // purchases more
	}{
		"nothing": {func(*testing.T, *sim.World) {}, 0},
		"what the pod asks for": {edit("pod", func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "new"})
		}), 2},
		"the labels of the pod":      {edit("pod", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }), 2},
		"an annotation of the pod":   {edit("pod", func(p *corev1.Pod) { p.Annotations = map[string]string{"seen": "yes"} }), 0},
		"a pod of the same set more": {func(_ *testing.T, w *sim.World) { w.API.Put(sim.Pod("more", "1500m", replica("web"))) }, 0},
		"the pod is made anew by the same set": {func(t *testing.T, w *sim.World) {
			sim.Delete(t, w, sim.Get[*corev1.Pod](t, w, "pod"))
		}, 0},
		"the pod is made anew by another set": {func(t *testing.T, w *sim.World) {
			w.API.Remove(sim.Get[*corev1.Pod](t, w, "pod"))
			w.API.Put(sim.Pod("new", "1500m", replica("next")))
		}, 2},
		"the pool": {func(_ *testing.T, w *sim.World) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Generation++ })
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Bubble(t, refusesAll, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				bought := watchPurchases(t, w)
				w.API.Put(sim.Pod("pod", "1500m", replica("web")))
				time.Sleep(24 * time.Minute) // the next is due in the 38th
				before := bought.count()
				tc.change(t, w)
				time.Sleep(4 * time.Minute)
				if got := bought.count() - before; got != tc.want {
					t.Errorf("%d nodes more, want %d", got, tc.want)
				}
			})
		})
	}
}

// TestASchedulerThatIsDownSpurnsNothing has schedulers that stop before the node is ready, and come back.
func TestASchedulerThatIsDownSpurnsNothing(t *testing.T) {
	custom := func(p *corev1.Pod) { p.Spec.SchedulerName = "custom" }
	gate := func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "later"}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated, LastTransitionTime: metav1.Now()}}
	}
	for name, tc := range map[string]struct {
		down  func(string) bool
		edit  func(*corev1.Pod)
		noise func(*corev1.Pod) // how pods are that come meanwhile
	}{
		"all":                            {func(string) bool { return true }, func(*corev1.Pod) {}, nil},
		"all, and gated pods come":       {func(string) bool { return true }, func(*corev1.Pod) {}, gate},
		"its own, and another goes on":   {func(name string) bool { return name == "custom" }, custom, func(*corev1.Pod) {}},
		"the usual one is of no concern": {func(name string) bool { return name == "custom" }, custom, nil},
	} {
		t.Run(name, func(t *testing.T) {
			stopped := false
			options := sim.Options{Down: func(name string) bool { return stopped && tc.down(name) }}
			sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				w.API.Put(sim.Pod("pod", "1500m", tc.edit))
				time.Sleep(2 * time.Second)
				stopped = true
				time.Sleep(20 * time.Second)
				claim := memapi.All[*v1.NodeClaim](w.API)[0].Name
				bought := watchPurchases(t, w)
				for i := range 9 {
					time.Sleep(time.Minute)
					if tc.noise != nil {
						w.API.Put(sim.Pod(fmt.Sprintf("other-%d", i), "100m", tc.noise))
					}
				}
				if leaving(w, claim) != "" {
					t.Fatal("the node went, although nobody has looked at it yet")
				}
				time.Sleep(40 * time.Minute)
				wantText(t, k, "pod", "is that scheduler running?")
				down := bought.count()
				if down > 6 {
					t.Errorf("%d nodes were bought in 50 minutes for a scheduler that is down", down)
				}
				stopped = false
				time.Sleep(time.Minute)
				w.API.Put(sim.Pod("sign", "100m", tc.edit))
				time.Sleep(time.Minute)
				if sim.Get[*corev1.Pod](t, w, "pod").Spec.NodeName == "" {
					t.Error("the scheduler is back, and the pod does not run")
				}
			})
		})
	}
}

// TestPodsFollowOneThatWasBoundElsewhere has a node that kube-scheduler takes no pod of a set to, for reasons of its own.
func TestPodsFollowOneThatWasBoundElsewhere(t *testing.T) {
	spurned := ""
	options := sim.Options{Refuses: func(_ *corev1.Pod, n *corev1.Node) bool {
		if spurned == "" {
			spurned = n.Name
		}
		return n.Name == spurned
	}}
	sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		bought := watchPurchases(t, w)
		for i := range 4 {
			w.API.Put(sim.Pod(fmt.Sprintf("pod-%d", i), "1500m", replica("web")))
		}
		time.Sleep(6 * time.Minute)
		for _, p := range memapi.All[*corev1.Pod](w.API) {
			if p.Spec.NodeName == "" {
				t.Errorf("%s does not run", p.Name)
			}
		}
		if n := bought.count(); n > 6 {
			t.Errorf("%d nodes were bought", n)
		}
	})
}

// TestBootsAndRestartsWhilePodsAreNotBound has machines that take longer to boot than any timer, and a Karpenter that is restarted.
func TestBootsAndRestartsWhilePodsAreNotBound(t *testing.T) {
	t.Run("slow boots", func(t *testing.T) {
		options := sim.Options{Cloud: fakecloud.Options{Boot: func(cloud.Machine) time.Duration { return 12 * time.Minute }}, Refuses: refusesAll.Refuses}
		sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			bought := watchPurchases(t, w)
			w.API.Put(sim.Pod("pod", "1500m"))
			time.Sleep(4 * time.Hour)
			if got, want := bought.gaps(), []int{13, 18, 23, 33, 53, 73}; !slices.Equal(got, want) {
				t.Errorf("nodes are bought after %v minutes, want %v", got, want)
			}
		})
	})
	t.Run("restarts", func(t *testing.T) {
		sim.BubbleAlone(t, refusesAll, func(t *testing.T, w *sim.World) {
			bought := watchPurchases(t, w)
			w.API.Put(sim.Pod("pod", "1500m"))
			for range 6 {
				w.With(t, everything, func(*sim.Karpenter) { time.Sleep(10 * time.Minute) })
			}
			if n := bought.count(); n > 18 {
				t.Errorf("%d nodes were bought in six lives of ten minutes", n)
			}
		})
	})
}

// TestANodeIsNotJudgedBeforeItHasAll has a driver for volumes that comes to the node later than anybody's patience lasts.
func TestANodeIsNotJudgedBeforeItHasAll(t *testing.T) {
	const driver = "disks.example.com"
	late := map[string]bool{}
	options := sim.Options{Refuses: func(_ *corev1.Pod, n *corev1.Node) bool { return !late[n.Name] }}
	sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		w.API.Put(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: driver, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)})
		w.API.Put(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "disk"}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("disks"), Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}})
		bought := watchPurchases(t, w)
		w.API.Put(sim.Pod("pod", "1500m", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
		}))
		time.Sleep(4 * time.Minute)
		node := memapi.All[*corev1.Node](w.API)[0].Name
		w.API.Put(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: node}}}})
		time.Sleep(50 * time.Second)
		late[node] = true
		time.Sleep(10 * time.Second)
		if got := sim.Get[*corev1.Pod](t, w, "pod").Spec.NodeName; got != node || bought.count() != 1 {
			t.Errorf("the pod is on %q, and %d nodes were bought; want it on %s, the only one", got, bought.count(), node)
		}
	})
}

// TestNothingIsBoughtTwiceWhileADriverRegisters has a driver that kube-scheduler waits for, and that registers late or never.
func TestNothingIsBoughtTwiceWhileADriverRegisters(t *testing.T) {
	const driver = "disks.example.com"
	for name, tc := range map[string]struct {
		after time.Duration // the node is there
		runs  bool
		most  int // nodes that are bought in two hours
	}{
		"soon":                         {40 * time.Second, true, 1},
		"just before room is given up": {7 * time.Minute, true, 1},
		"never":                        {3 * time.Hour, false, 7},
	} {
		t.Run(name, func(t *testing.T) {
			having := map[string]bool{}
			options := sim.Options{Refuses: func(_ *corev1.Pod, n *corev1.Node) bool { return !having[n.Name] }}
			sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				w.API.Put(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: driver,
					VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)})
				w.API.Put(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver},
					Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(true)}})
				bought := watchPurchases(t, w)
				for _, name := range []string{"a", "b"} {
					w.API.Put(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
						Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("disks")}})
					w.API.Put(sim.Pod(name, "500m", replica("web"), func(p *corev1.Pod) {
						p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
							PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
					}))
				}
				time.Sleep(2 * time.Minute)
				node := memapi.All[*corev1.Node](w.API)[0].Name
				w.API.Put(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}})
				time.Sleep(tc.after)
				if tc.runs {
					having[node] = true
					w.API.Put(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node},
						Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: node}}}})
				}
				time.Sleep(2*time.Hour - min(tc.after, 2*time.Hour))
				if n := bought.count(); n > tc.most {
					t.Errorf("%d nodes were bought, at most %d wanted", n, tc.most)
				}
				for _, p := range memapi.All[*corev1.Pod](w.API) {
					if tc.runs != (p.Spec.NodeName == node) {
						t.Errorf("pod %s is on %q; the first node is %s", p.Name, p.Spec.NodeName, node)
					}
				}
			})
		})
	}
}

// TestTheWorldOfAPodThatIsNotBoundIsWrittenDown plays what was written: in it the engine puts the pod where it was not bound.
func TestTheWorldOfAPodThatIsNotBoundIsWrittenDown(t *testing.T) {
	folder := t.TempDir()
	options := everything
	options.Stories = folder
	sim.Bubble(t, refusesAll, options, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		for i, want := range []int{1, 1, 1, 2} {
			w.API.Put(sim.Pod("pod", "1500m", replica(fmt.Sprint("web-", i))))
			time.Sleep(21 * time.Minute)
			w.API.Remove(sim.Get[*corev1.Pod](t, w, "pod"))
			if files, err := os.ReadDir(folder); err != nil || len(files) != want {
				t.Fatalf("%d files after the pod of set %d, want %d: %v", len(files), i, want, err)
			}
		}
	})
	files, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	story, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := story.Run()
	if err != nil {
		t.Fatal(err)
	}
	if want := "node node-1: pod\nprice 0\n"; answers[0] != want {
		t.Errorf("the story ends with %q, want %q\n%s", answers[0], want, text)
	}
}
