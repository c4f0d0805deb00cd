package engine_test

import (
	"fmt"
	"os"
	"testing"
	"strconv"
	"time"
	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

func TestZZDiverse(t *testing.T) {
	pods, _ := benchload.Pods("diverse5000")
	ns := []int{100, 500, 5000}
	if v := os.Getenv("N"); v != "" { n, _ := strconv.Atoi(v); ns = []int{n} }
	for _, n := range ns {
		ps := benchload.Resize(pods, n)
		pools := []engine.Pool{{Pool: benchload.Pool(false, false), Catalog: catalogue(t)}}
		snap := snapshotOf(ps)
		e := engine.New()
		begin := time.Now()
		p := e.Plan(engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now})
		fmt.Printf("n=%d open=%d refused=%d cost=%.4f price=%.4f volume=%.4f config=%.4f work=%.0fms took=%s\n", n, len(p.Open), len(p.Refused), p.Cost.Dollars(), p.Price.Dollars(), p.VolumeBound.Dollars(), p.ConfigBound.Dollars(), 1000*p.Work.Seconds(), time.Since(begin))
	}
}

func TestZZDump(t *testing.T) {
	pods, _ := benchload.Pods("diverse5000")
	n, _ := strconv.Atoi(os.Getenv("N"))
	ps := benchload.Resize(pods, n)
	pools := []engine.Pool{{Pool: benchload.Pool(false, false), Catalog: catalogue(t)}}
	by := map[string]*corev1.Pod{}
	for _, x := range ps { by[x.Name] = x }
	snap := snapshotOf(ps)
	p := engine.New().Plan(engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now})
	for i := range p.Open {
		o := &p.Open[i]
		fmt.Printf("%s %s price %.4f:", o.Type, o.Zone, o.Price.Dollars())
		for _, cp := range o.Pods {
			pod := by[cp.Name]
			s := pod.Spec
			k := "generic"
			if len(s.TopologySpreadConstraints) > 0 { k = "spread:" + s.TopologySpreadConstraints[0].TopologyKey[:8] +":"+ s.TopologySpreadConstraints[0].LabelSelector.MatchLabels["my-label"] }
			if s.Affinity != nil && s.Affinity.PodAffinity != nil { x := s.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]; k = "aff:" + x.TopologyKey[:8] + ":"+x.LabelSelector.MatchLabels["my-affinity"] }
			if s.Affinity != nil && s.Affinity.PodAntiAffinity != nil { k = "anti:" + s.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey[:8] }
			r := s.Containers[0].Resources.Requests
			fmt.Printf(" %s[%s %s %s]", k, r.Cpu(), r.Memory(), pod.Labels["my-label"])
		}
		fmt.Println()
	}
}
