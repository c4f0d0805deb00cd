package daysim

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// realistic are the times of EC2: a machine joins two seconds after its launch here and is ready after boot.
func realistic(t *testing.T, boot time.Duration) sim.Options {
	t.Helper()
	types, err := offline.Catalog(offline.Options{Zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}})
	if err != nil {
		t.Fatal(err)
	}
	return sim.Options{ReadyAfter: boot, Cloud: fakecloud.Options{Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return types, nil }}}
}

func wantsGPU(p *corev1.Pod) {
	one := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	p.Spec.Containers[0].Resources.Limits, p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = one, one["nvidia.com/gpu"]
}

// run makes pods and waits until all run. It returns the most memory that was in use meanwhile.
func run(t *testing.T, w *sim.World, pods int, edit func(*corev1.Pod)) (most uint64) {
	t.Helper()
	for i := range pods {
		sim.Create(t, w, sim.Pod(fmt.Sprintf("pod-%03d", i), "1", func(p *corev1.Pod) { p.Labels["app"] = "web" }, edit))
	}
	for second := 0; ; second++ {
		running := 0
		for i := range pods {
			if sim.Get[*corev1.Pod](t, w, fmt.Sprintf("pod-%03d", i)).Status.Phase == corev1.PodRunning {
				running++
			}
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
		if running == pods {
			return most
		}
		if second > 600 {
			t.Fatalf("%d of %d pods run after ten minutes", running, pods)
		}
		time.Sleep(time.Second)
	}
}

// Between the pods that find no place and the last one that runs nearly all the time is the machines' boot, for machines with GPUs
// as well. One CPU and a gigabyte are enough for it, with the API server that is in this process too.
func TestAlmostAllTheTimeIsTheBoot(t *testing.T) {
	const boot, most = 45 * time.Second, 60 * time.Second
	for name, tc := range map[string]struct {
		pods  int
		edit  func(*corev1.Pod)
		nodes int // at least
	}{
		"eight pods want GPUs": {8, wantsGPU, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Bubble(t, realistic(t, boot), sim.KarpenterOptions{Provision: true, Search: search}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				began, before := time.Now(), soFar()
				memory := run(t, w, tc.pods, tc.edit)
				took, processor := time.Since(began), soFar().processor-before.processor
				t.Logf("%v, of which %v are the boot; %v of processor time, %d MB", took, boot, processor, memory>>20)
				if took > most {
					t.Errorf("the last pod runs after %v, want %v at most", took, most)
				}
				if processor > took || memory > 1<<30 {
					t.Errorf("it took %v of processor time in %v and %d MB, want one CPU and a gigabyte at most", processor, took, memory>>20)
				}
				if n := len(w.Cloud.Machines()); n < tc.nodes {
					t.Errorf("%d machines run", n)
				}
			})
		})
	}
}

// A burst of ten minutes an hour pays for less than 30 % of the hours that machines with GPUs would cost which are always there.
func TestABurstPaysForItsMinutes(t *testing.T) {
	sim.Bubble(t, realistic(t, 45*time.Second), sim.KarpenterOptions{Provision: true, Disrupt: true, Search: search}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		began := time.Now()
		run(t, w, 8, wantsGPU)
		time.Sleep(10 * time.Minute)
		for i := range 8 {
			sim.Delete(t, w, sim.Get[*corev1.Pod](t, w, fmt.Sprintf("pod-%03d", i)))
		}
		for len(w.Cloud.Machines()) > 0 && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		if share := time.Since(began).Minutes() / 60; share > .3 {
			t.Errorf("machines are paid for during %.0f %% of the hour", 100*share)
		}
	})
}
