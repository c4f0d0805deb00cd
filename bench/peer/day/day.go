// Package day plays a day of pods that come, scale and go in simulated time, through the decisions of this project:
// what calm costs. It plays the same day through Karpenter's controllers, and through a model of Cluster Autoscaler.
package day

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/history/replay"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

const (
	length   = 24 * time.Hour
	services = 40 // that follow the day
	step     = 10 * time.Minute
	jobs     = 30 // an hour
)

// enoughSearch is that of karpenter replay, and so is the pace: a controller takes more of both.
const enoughSearch = work.Second / 10

// pace is how long there is at least between two searches for a cheaper fleet.
func pace(rec *recording.Recording) time.Duration {
	return max(10*time.Second, (rec.End.Sub(rec.Begin) / 600).Truncate(time.Second))
}

// midnight is when the day begins.
var midnight = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// A Trace is what pods did, and where they can live.
type Trace struct {
	*recording.Recording
	GPUs bool // some ask for them: machines of every kind are bought
}

// Generated is a day of pods that come by chance.
func Generated(seed uint64) (*Trace, error) {
	rec, err := recording.Of("a day", Lives(seed), midnight.Add(length))
	return &Trace{Recording: rec}, err
}

// Read reads a day, or however long it took, that was recorded: a CSV with times of creation and deletion,
// the public trace of Alibaba's GPU cluster among them, or whatever else karpenter replay reads.
func Read(path string) (*Trace, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rec, err := recording.Read(path, text)
	if err != nil {
		return nil, err
	}
	t := &Trace{Recording: rec}
	for _, l := range rec.Lives {
		for _, c := range l.Pod.Spec.Containers {
			_, asks := c.Resources.Requests[gpu]
			t.GPUs = t.GPUs || asks
		}
	}
	return t, nil
}

// gpu is what pods of a trace ask for that need one.
const gpu = "nvidia.com/gpu"

// Lives are the pods of a day: services that are larger by day than by night and are scaled every ten minutes, and
// jobs that come at random and take a quarter of an hour on average.
func Lives(seed uint64) []recording.Life {
	random := rand.New(rand.NewPCG(seed, 18))
	var out []recording.Life
	for s := range services {
		out = append(out, service(random, s)...)
	}
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() * float64(time.Hour) / jobs)
		if at >= length {
			return out
		}
		cpu, mem := size(random)
		out = append(out, life("job", len(out), cpu, mem, at, at+time.Minute+time.Duration(random.ExpFloat64()*float64(15*time.Minute))))
	}
}

// service are the pods of one service. Which of them go when it shrinks is chance, as for a ReplicaSet.
func service(random *rand.Rand, number int) []recording.Life {
	cpu, mem := size(random)
	name, base, phase := fmt.Sprintf("service-%02d", number), 4+random.IntN(24), random.Float64()
	var out []recording.Life
	var alive []time.Duration // since when
	made := 0
	end := func(i int, at time.Duration) {
		out = append(out, life(name, made, cpu, mem, alive[i], at))
		made++
		alive[i] = alive[len(alive)-1]
		alive = alive[:len(alive)-1]
	}
	for at := time.Duration(0); at < length; at += step {
		wave := 1 + 0.6*math.Sin(2*math.Pi*(at.Hours()/24+0.2*phase-0.25)) + 0.1*random.NormFloat64()
		want := max(1, int(math.Round(float64(base)*wave)))
		when := at + time.Duration(random.Int64N(int64(step)))
		if at == 0 {
			when = 0
		}
		for len(alive) < want {
			alive = append(alive, when)
		}
		for len(alive) > want {
			end(random.IntN(len(alive)), when)
		}
	}
	for len(alive) > 0 {
		end(0, length)
	}
	return out
}

func size(random *rand.Rand) (cpuMilli, memMiB int64) {
	return []int64{100, 250, 500, 1000, 2000, 4000}[random.IntN(6)], []int64{256, 512, 1024, 2048, 4096, 8192}[random.IntN(6)]
}

func life(app string, number int, cpuMilli, memMiB int64, from, to time.Duration) recording.Life {
	p := benchload.Pending(fmt.Sprintf("%s-%05d", app, number), cpuMilli, memMiB)
	p.Labels = map[string]string{"app": app}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app,
		UID: types.UID(app), Controller: new(true)}}
	p.Status = corev1.PodStatus{}
	l := recording.Life{Pod: p, From: midnight.Add(from.Truncate(time.Second))}
	if to < length {
		l.To = midnight.Add(max(to.Truncate(time.Second), from.Truncate(time.Second)+time.Second))
	}
	return l
}

// A Calm is how quiet a node must have been before anything is moved.
type Calm struct {
	Name  string
	After v1.NillableDuration
	Large bool // lies between others, and is played with FULL=1
}

// Calms are the points of the curve.
func Calms() []Calm {
	return []Calm{
		{"0s", v1.After(0), false}, {"5m", v1.After(5 * time.Minute), false}, {"30m", v1.After(30 * time.Minute),
			true}, {"Never", v1.NillableDuration{}, false},
	}
}

// Play plays a day with a pool that is as calm as told, on demand or also with spot.
func Play(ctx context.Context, trace *Trace, catalog *cloud.Catalog, calm Calm, spot bool) (*replay.Result, error) {
	pool := benchload.Pool(spot, trace.GPUs)
	pool.Spec.Disruption = v1.Disruption{ConsolidateAfter: calm.After,
		ConsolidationPolicy: v1.ConsolidationPolicyWhenEmptyOrUnderutilized, Budgets: []v1.Budget{{Nodes: "10%"}}}
	variant := replay.Variant{Name: calm.Name, Store: cluster.NewStore(),
		Pools: []engine.Pool{{Pool: pool, Catalog: catalog}}, Planner: disrupt.DefaultSettings(),
		Engine: engine.Settings{Search: enoughSearch}}
	settings := replay.Settings{Boot: boot, Stop: stop, BatchIdle: batchIdle, BatchMax: batchMax,
		Pace: pace(trace.Recording), Samples: 24}
	return replay.Run(ctx, trace.Recording, variant, settings, func(float64) {})
}

// Report writes days as Markdown.
func Report(all []*replay.Result) string {
	var b strings.Builder
	b.WriteString("| `consolidateAfter` | bill | bound | bill ÷ bound | evictions | a pod and day | waited: middle, " +
		"95 %, most | machines bought |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range all {
		w := r.WaitSeconds
		fmt.Fprintf(&b, "| %s | $%.2f | $%.2f | %.3f | %d | %.2f | %d s, %d s, %d s | %d |\n", r.Variant, r.Dollars,
			r.Bound, r.Dollars/r.Bound, r.Evictions, r.EvictionsByPodDay, w.P50, w.P95, w.Max, r.Launched)
	}
	return b.String()
}
