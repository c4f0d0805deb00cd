package endtoend

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/testing/benchload"
)

// Scenarios are what both sides play.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "1,000 pods of one shape", Loads: one(0)},
		{Name: "500 + 500 pods: 65 % fewer", Loads: two(0.35), Change: "65 % fewer"},
		{Name: "500 + 500 pods: 30 % fewer", Loads: two(0.7), Change: "30 % fewer", Large: true},
		{Name: "1,000 pods of one shape: 30 % fewer", Loads: one(0.7), Change: "30 % fewer", Large: true},
		{Name: "30 deployments with spread and anti-affinity", Loads: mix(), Large: true},
		{Name: "30 deployments with spread and anti-affinity: every other loses half its pods or more",
			Loads: fragments(), Change: "fragments", Large: true},
		{Name: "500 + 500 pods: all nodes drift", Loads: two(0), Change: "drift", Drift: true, Large: true},
		{Name: "300 pods, and of what is newer than the fifth generation there is nothing", Loads: three(),
			Dry: []string{"*/[cmr][6-9]*.*/*"}, Large: true},
	}
}

// Busy are minutes in which Deployments are scaled all the time.
func Busy() []Scenario {
	return []Scenario{{Name: "12 deployments: five busy minutes", Loads: mix()[:busy], Change: "busy", Course: course(), Large: true}}
}

func one(keep float64) []Load {
	return []Load{{Name: "plain", Replicas: 1000, CPU: "1", Memory: "1Gi", Keep: keep}}
}

func two(keep float64) []Load {
	return []Load{
		{Name: "thin", Replicas: 500, CPU: "900m", Memory: "3100Mi", Keep: keep},
		{Name: "fat", Replicas: 500, CPU: "3500m", Memory: "28Gi", Keep: keep},
	}
}

// three are pods of different shapes, so that first choices differ.
func three() []Load {
	return []Load{
		{Name: "even", Replicas: 100, CPU: "1", Memory: "4Gi"}, {Name: "thin", Replicas: 100, CPU: "2",
			Memory: "3Gi"}, {Name: "fat", Replicas: 100, CPU: "500m", Memory: "4Gi"},
	}
}

// deployments and each are how many there are of a mix, and of what size.
const (
	deployments = 30
	each        = 20
)

// mix has ten Deployments that are spread over zones, ten whose pods keep off each other's hosts, and ten plain ones.
func mix() []Load {
	random := rand.New(rand.NewPCG(18, 1))
	var all []Load
	for i := range deployments {
		l := Load{
			Name: fmt.Sprintf("mixed-%02d", i), Replicas: each,
			CPU: fmt.Sprintf("%dm", 100*(1+random.IntN(30))), Memory: fmt.Sprintf("%dMi", 256*(1+random.IntN(32))),
		}
		switch i % 3 {
		case 1:
			l.Shape = func(spec *corev1.PodSpec, labels map[string]string) {
				spec.TopologySpreadConstraints = benchload.Spread(corev1.LabelTopologyZone, 1, labels)
			}
		case 2:
			l.Shape = func(spec *corev1.PodSpec, labels map[string]string) {
				spec.Affinity = benchload.Apart(corev1.LabelHostname, labels)
			}
		}
		all = append(all, l)
	}
	return all
}

// busy is how many Deployments of the mix are scaled all the time.
const busy = 12

// course scales three Deployments every quarter of a minute, for five minutes.
func course() []Turn {
	random := rand.New(rand.NewPCG(18, 3))
	var out []Turn
	for at := time.Duration(0); at < 5*time.Minute; at += 15 * time.Second {
		for range 3 {
			out = append(out, Turn{At: at, Load: random.IntN(busy), Replicas: 2 + random.IntN(3*each)})
		}
	}
	return out
}

// fragments are the mix, of which every other Deployment keeps a random part, so that room is left everywhere.
func fragments() []Load {
	random := rand.New(rand.NewPCG(18, 2))
	all := mix()
	for i := range all {
		if i%2 == 0 {
			all[i].Keep = 0.1 + 0.4*random.Float64()
		}
	}
	return all
}

// Sides are those who play. People who run Karpenter with care cap its pool by hand, because it likes large machines.
func Sides() []Side {
	return []Side{
		{Name: "ours"}, {Name: "our core over Karpenter's provider", Kwok: true},
		{Name: "Karpenter", Peer: true}, {Name: "Karpenter, up to 64 vCPU", Peer: true, Capped: true},
	}
}
