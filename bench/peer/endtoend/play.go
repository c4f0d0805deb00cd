package endtoend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// versionLabel is a label of the pool's template: another value is drift.
const versionLabel = "bench/version"

const (
	look   = time.Second      // between two looks at the fleet
	fill   = 15 * time.Minute // until all pods have to run
	settle = 3 * time.Minute  // how long the fleet is watched after a change
)

// A Load is a Deployment.
type Load struct {
	Name        string
	Replicas    int
	CPU, Memory string
	Keep        float64 // the part that is left after the change, 0 for all
	Shape       func(*corev1.PodSpec, map[string]string)
}

// A Scenario is pods that come and, if there is a change, what happens to them then.
type Scenario struct {
	Name   string
	Loads  []Load
	Change string   // in words; empty for none
	Course []Turn   // of the change, beside what Loads say
	Drift  bool     // the change is one of the pool's template
	Dry    []string // pools of machines that have run out: patterns over capacity type, machine type and zone
	Large  bool     // played with FULL=1
}

// A Turn is a Deployment that is scaled at a moment.
type Turn struct {
	At             time.Duration
	Load, Replicas int
}

// watched is how long the fleet is watched after the change.
func (s *Scenario) watched() time.Duration {
	if len(s.Course) == 0 {
		return settle
	}
	return s.Course[len(s.Course)-1].At + time.Minute
}

// A Sample is how things stand at a moment after a change.
type Sample struct {
	At        time.Duration
	Nodes     int
	Dollars   float64 // an hour
	Evictions int
	Running   int
	Stale     int
}

// A Result is what a side made of a scenario.
type Result struct {
	Side     Side
	Scenario string
	// Until all pods ran.
	Running time.Duration
	CPU     time.Duration
	PeakMiB float64
	Nodes   int
	Dollars float64 // an hour
	Storm   bool    // machines had run out
	Failed  int     // claims that went without ever having a machine
	// After the change.
	Samples   []Sample
	ChangeCPU time.Duration
	Waits     []time.Duration // of pods that came then, sorted, until they ran
	Course    bool            // the change took its time
}

// A game is a scenario while a side plays it.
type game struct {
	*cluster
	pods    *pods
	failed  *failed
	catalog *cloud.Catalog
	prices  prices
	out     Result
	tell    func(string)
}

// Play has a side play scenarios on one cluster, with an empty fleet before each.
func Play(ctx context.Context, bin string, side Side, catalog *cloud.Catalog, scenarios []Scenario, tell func(string)) ([]Result, error) {
	tell(side.Name + ": starting a cluster")
	c, err := start(ctx, bin, side)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watched, err := follow(ctx, c)
	if err != nil {
		return nil, err
	}
	launches, err := followClaims(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []Result
	for i := range scenarios {
		g := &game{cluster: c, pods: watched, failed: launches, catalog: catalog, prices: pricesOf(catalog),
			out: Result{Side: side, Scenario: scenarios[i].Name}, tell: tell}
		if err := g.play(ctx, &scenarios[i]); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", side.Name, scenarios[i].Name, err)
		}
		all = append(all, g.out)
	}
	return all, nil
}

func (g *game) play(ctx context.Context, s *Scenario) error {
	if err := g.runOut(ctx, s.Dry); err != nil {
		return err
	}
	if err := g.come(ctx, s); err != nil {
		return err
	}
	if err := alike(ctx, g.cluster, g.catalog); err != nil {
		return err
	}
	if s.Change != "" {
		if err := g.change(ctx, s); err != nil {
			return err
		}
	}
	return g.empty(ctx, s)
}

// come makes the Deployments and waits until all their pods run.
func (g *game) come(ctx context.Context, s *Scenario) error {
	begin := time.Now()
	before, _, err := used(g.controller.Process.Pid)
	if err != nil {
		return err
	}
	want, failed := 0, g.failed.count()
	for i := range s.Loads {
		want += s.Loads[i].Replicas
		if err := g.Create(ctx, s.Loads[i].deployment()); err != nil {
			return err
		}
	}
	for {
		cpu, mib, err := used(g.controller.Process.Pid)
		if err != nil {
			return err
		}
		g.out.CPU, g.out.PeakMiB, g.out.Running = cpu-before, max(g.out.PeakMiB, mib), time.Since(begin)
		running, _ := g.pods.count()
		if running >= want {
			break
		}
		if err := g.alive(); err != nil {
			return err
		}
		if g.out.Running > fill {
			return fmt.Errorf("%d of %d pods run after %s: %w", running, want, fill, g.tail())
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	f, err := g.prices.fleet(ctx, g.cluster, "")
	g.out.Nodes, g.out.Dollars = f.nodes, f.dollars
	g.out.Storm, g.out.Failed = len(s.Dry) > 0, g.failed.count()-failed
	g.tell(fmt.Sprintf("%s, %s: running after %.0f s, $%.2f/h on %d nodes, %.0f s CPU", g.side.Name, s.Name,
		g.out.Running.Seconds(), f.dollars, f.nodes, g.out.CPU.Seconds()))
	return err
}

// change lets the pool move pods, changes what the scenario says, and watches.
func (g *game) change(ctx context.Context, s *Scenario) error {
	before, _, err := used(g.controller.Process.Pid)
	if err != nil {
		return err
	}
	_, evicted := g.pods.count()
	patch, version := `{"spec":{"disruption":{"consolidateAfter":"10s"}}}`, ""
	if s.Drift {
		version = "2"
		patch = `{"spec":{"template":{"metadata":{"labels":{"` + versionLabel + `":"` + version + `"}}}}}`
	}
	if err := g.patchPool(ctx, patch); err != nil {
		return err
	}
	for i := range s.Loads {
		if err := g.scale(ctx, &s.Loads[i], s.Loads[i].left()); err != nil {
			return err
		}
	}
	g.pods.forget()
	g.out.Course = len(s.Course) > 0
	course := s.Course
	begin := time.Now()
	for time.Since(begin) < s.watched() {
		for len(course) > 0 && time.Since(begin) >= course[0].At {
			if err := g.scale(ctx, &s.Loads[course[0].Load], course[0].Replicas); err != nil {
				return err
			}
			course = course[1:]
		}
		if err := errors.Join(g.alive(), pause(ctx, look)); err != nil {
			return err
		}
		f, err := g.prices.fleet(ctx, g.cluster, version)
		if err != nil {
			return err
		}
		running, all := g.pods.count()
		g.out.Samples = append(g.out.Samples, Sample{At: time.Since(begin), Nodes: f.nodes, Dollars: f.dollars,
			Evictions: all - evicted, Running: running, Stale: f.stale})
		cpu, mib, err := used(g.controller.Process.Pid)
		if err != nil {
			return err
		}
		g.out.ChangeCPU, g.out.PeakMiB = cpu-before, max(g.out.PeakMiB, mib)
	}
	g.out.Waits = g.pods.forget()
	last := g.out.Samples[len(g.out.Samples)-1]
	g.tell(fmt.Sprintf("%s, %s, %s: $%.2f/h on %d nodes, %d evictions, %.0f s CPU", g.side.Name, s.Name, s.Change,
		last.Dollars, last.Nodes, last.Evictions, g.out.ChangeCPU.Seconds()))
	return nil
}

func (g *game) patchPool(ctx context.Context, patch string) error {
	p := &unstructured.Unstructured{}
	p.SetGroupVersionKind(v1.GroupVersion.WithKind("NodePool"))
	p.SetName(poolName)
	return g.Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func (g *game) scale(ctx context.Context, l *Load, replicas int) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: usersNamespace, Name: l.Name}}
	return g.Patch(ctx, d, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))
}

// empty takes everything away, machines included, and lets the pool be as it was.
func (g *game) empty(ctx context.Context, s *Scenario) error {
	for i := range s.Loads {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: usersNamespace, Name: s.Loads[i].Name}}
		if err := g.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			return err
		}
	}
	if err := g.until(ctx, "all pods have gone", func() (bool, error) {
		var left corev1.PodList
		err := g.List(ctx, &left, client.InNamespace(usersNamespace), client.Limit(1))
		return err == nil && len(left.Items) == 0, err
	}); err != nil {
		return err
	}
	if err := g.patchPool(ctx, `{"spec":{"disruption":{"consolidateAfter":"Never"},`+
		`"template":{"metadata":{"labels":{"`+versionLabel+`":null}}}}}`); err != nil {
		return err
	}
	claim := &unstructured.Unstructured{}
	claim.SetGroupVersionKind(v1.GroupVersion.WithKind("NodeClaim"))
	if err := g.DeleteAllOf(ctx, claim); err != nil {
		return err
	}
	return g.until(ctx, "all nodes have gone", func() (bool, error) {
		f, err := g.prices.fleet(ctx, g.cluster, "")
		if err != nil || f.nodes > 0 {
			return false, err
		}
		nodes, err := g.nodes(ctx)
		return err == nil && len(nodes) == 0, err
	})
}

// left is how many replicas there are after the change.
func (l *Load) left() int {
	if l.Keep == 0 {
		return l.Replicas
	}
	return int(math.Round(float64(l.Replicas) * l.Keep))
}

func (l *Load) deployment() *appsv1.Deployment {
	labels := map[string]string{"app": l.Name}
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{{Name: "c", Image: "pause", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(l.CPU), corev1.ResourceMemory: resource.MustParse(l.Memory),
		}}}},
	}
	if l.Shape != nil {
		l.Shape(&spec, labels)
	}
	replicas := int32(l.Replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: usersNamespace, Name: l.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}
