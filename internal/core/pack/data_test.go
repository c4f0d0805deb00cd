package pack

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
)

const mib = 1 << 20

// large and gain are what the engine asks of large fleets: machines above 64 vCPU only for more than 1 %.
const (
	large = 64
	gain  = 10
)

// family matches the types of the bench's pool: categories c, m and r, generation 5 and later; anyFamily those of a pool that allows all.
var anyFamily = regexp.MustCompile(`.`)
var family = regexp.MustCompile(`^[cmr]([5-9])[a-z-]*\.`)

// cells makes the priced cells of the bench's pool: on-demand, or spot and on-demand, in some of the zones a, b, c.
func cells(t testing.TB, spot bool, zones string, family *regexp.Regexp) []Cell {
	catalog, err := offline.Catalog(offline.Options{Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	var out []Cell
	for _, it := range catalog.Types {
		if !family.MatchString(it.Name) {
			continue
		}
		room, size := allocatable(it)
		for j := range it.Offerings {
			o := &it.Offerings[j]
			kind := o.CapacityType()
			if kind == v1.CapacityTypeOnDemand || spot && kind == v1.CapacityTypeSpot {
				if strings.Contains(zones, strings.TrimPrefix(o.Zone(), "us-east-1")) {
					out = append(out, Cell{Room: room, Price: int64(o.Price), Over: over(size)})
				}
			}
		}
	}
	return out
}

// over is how many times a size is twice too large.
func over(size int64) (n int) {
	for ; size > large; size = (size + 1) / 2 {
		n++
	}
	return n
}

// allocatable is what a type leaves for pods: CPU in thousandths, memory in bytes, pods.
func allocatable(it *cloud.InstanceType) (room []int64, size int64) {
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		q := it.Capacity[r].DeepCopy()
		for _, kept := range []corev1.ResourceList{it.Overhead.KubeReserved, it.Overhead.SystemReserved, it.Overhead.EvictionThreshold} {
			q.Sub(kept[r])
		}
		if r == corev1.ResourceCPU {
			room = append(room, q.MilliValue())
			continue
		}
		room = append(room, q.Value())
	}
	return room, it.Capacity.Cpu().Value()
}

type podGroup struct {
	Kind, Spread, Anti string
	Pods               [][]any
}

var readWorkloads = sync.OnceValues(func() (map[string][]podGroup, error) {
	f, err := os.Open("../../testing/benchload/workloads.json.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var w map[string][]podGroup
	return w, json.NewDecoder(z).Decode(&w)
})

// problem turns a workload into classes. Of pods spread over zones only the third that goes to zone a is asked for, and the group
// that is alone on its nodes by label is left out: such classes are none of ours.
func problem(t testing.TB, name string, spot bool) *Problem { return problemIn(t, name, spot, family) }

func problemIn(t testing.TB, name string, spot bool, family *regexp.Regexp) *Problem {
	w, err := readWorkloads()
	if err != nil {
		t.Fatal(err)
	}
	p := &Problem{}
	zones := "abc"
	for _, g := range w[name] {
		if g.Kind == "anti-affinity" {
			continue
		}
		byNeed := make(map[[2]int64]int)
		for _, pod := range g.Pods {
			byNeed[[2]int64{int64(pod[0].(float64)), int64(pod[1].(float64)) * mib}]++
		}
		needs := make([][2]int64, 0, len(byNeed))
		for n := range byNeed {
			needs = append(needs, n)
		}
		slices.SortFunc(needs, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
		for _, n := range needs {
			c := Class{Need: []int64{n[0], n[1], 1}, Count: byNeed[n]}
			if g.Spread != "" {
				c.Count /= 3
				zones = "a"
			}
			if g.Anti != "" {
				c.PerNode = 1
			}
			p.Classes = append(p.Classes, c)
		}
	}
	p.Cells = cells(t, spot, zones, family)
	return p
}
