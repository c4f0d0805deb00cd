package disruption_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/surge"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A yard is a cluster with Deployments of one pod a node, their controller, and an observer of ready pods.
type yard struct {
	t *testing.T
	*sim.World
	k    *sim.Karpenter
	kill func() // ends the leader, and another one takes over
	stop bool   // the controller of Deployments starts no pods: a rollout does not progress

	mu      sync.Mutex
	ready   map[string]map[string]bool // pods by app
	least   map[string]int
	written map[types.UID]*appsv1.Deployment // as the test made them
	changed []string                         // what else of a Deployment was changed
	scaled  map[string]int32                 // replicas by Deployment, as an autoscaler last set them
	moves   int                              // restarts that were asked for
	dirty   bool                             // something happened since the controller of Deployments looked
}

func inYard(t *testing.T, test func(*yard)) {
	t.Helper()
	y := &yard{t: t, ready: map[string]map[string]bool{}, least: map[string]int{}, written: map[types.UID]*appsv1.Deployment{},
		scaled: map[string]int32{}}
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		y.World, y.t = w, t
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}} })
		w.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
		planner := disrupt.DefaultSettings()
		planner.Surge = true
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		end := func() {}
		y.kill = func() {
			end()
			y.k = w.Karpenter(sim.KarpenterOptions{Name: "karpenter", Lag: 10 * time.Millisecond, Provision: true, Disrupt: true, Planner: planner})
			leading, stopLeading := context.WithCancel(ctx)
			done := make(chan struct{})
			wait.Go(func() { y.k.Run(leading); close(done) })
			end = func() { stopLeading(); <-done }
		}
		y.kill()
		wait.Go(func() { w.API.Watch(ctx, 0, y.see, func() {}) })
		wait.Go(func() {
			for ctx.Err() == nil {
				y.mu.Lock()
				dirty := y.dirty
				y.dirty = false
				y.mu.Unlock()
				if dirty {
					y.control()
				}
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
		defer func() { stop(); wait.Wait() }()
		test(y)
	})
}

// see counts ready pods at each event.
func (y *yard) see(e memapi.Event) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.dirty = true
	switch o := e.Object.(type) {
	case *corev1.Pod:
		app := o.Labels["app"]
		if y.ready[app] == nil {
			y.ready[app] = map[string]bool{}
		}
		delete(y.ready[app], o.Name)
		if !e.Deleted && o.DeletionTimestamp == nil && isReady(o) {
			y.ready[app][o.Name] = true
		}
		n := len(y.ready[app])
		if most, seen := y.least[app]; seen && n < most || !seen && n > 0 {
			y.least[app] = n
		}
	case *appsv1.Deployment:
		before, after := y.written[o.UID], o.DeepCopy()
		if before == nil {
			return
		}
		if at := o.Spec.Template.Annotations[surge.RestartedAt]; at != before.Spec.Template.Annotations[surge.RestartedAt] {
			y.moves++
		}
		y.written[o.UID] = o
		before = before.DeepCopy()
		for _, d := range []*appsv1.Deployment{before, after} {
			delete(d.Spec.Template.Annotations, surge.RestartedAt)
			delete(d.Annotations, applied)
		}
		if want, scaled := y.scaled[o.Name]; scaled && *after.Spec.Replicas == want {
			before.Spec.Replicas = after.Spec.Replicas
		}
		if !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) {
			y.changed = append(y.changed, o.Name)
		}
	}
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// unready returns a pod that is not ready, nil if all are.
func unready(pods []*corev1.Pod) *corev1.Pod {
	for _, p := range pods {
		if !isReady(p) {
			return p
		}
	}
	return nil
}

// control is the controller of Deployments: it keeps as many pods ready as are asked for, with one more at most.
func (y *yard) control() {
	pods := map[string][]*corev1.Pod{}
	for _, p := range memapi.All[*corev1.Pod](y.API) {
		if p.DeletionTimestamp == nil {
			pods[p.Labels["app"]] = append(pods[p.Labels["app"]], p)
		}
	}
	for _, d := range memapi.All[*appsv1.Deployment](y.API) {
		want := int(*d.Spec.Replicas)
		hash := "h" + strings.NewReplacer("-", "", ":", "").Replace(d.Spec.Template.Annotations[surge.RestartedAt])
		hash = strings.ToLower(hash)
		var current, old []*corev1.Pod
		ready := 0
		for _, p := range pods[d.Name] {
			if isReady(p) {
				ready++
			}
			if p.Labels["pod-template-hash"] == hash {
				current = append(current, p)
			} else {
				old = append(old, p)
			}
		}
		switch {
		case d.Spec.Paused:
		case unready(old) != nil:
			y.remove(unready(old))
		case len(current) < want && len(current)+len(old) <= want && !y.stop:
			y.API.Put(podOf(d, hash, len(memapi.All[*corev1.Pod](y.API))))
		case len(old) > 0 && ready > want:
			y.remove(old[0])
		case len(current) > want:
			y.remove(cmp.Or(unready(current), current[len(current)-1]))
		}
		status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: int32(len(current) + len(old)),
			UpdatedReplicas: int32(len(current)), AvailableReplicas: int32(ready)}
		if status.Replicas != d.Status.Replicas || status.UpdatedReplicas != d.Status.UpdatedReplicas ||
			status.AvailableReplicas != d.Status.AvailableReplicas || status.ObservedGeneration != d.Status.ObservedGeneration {
			memapi.Edit(y.API, d.Namespace, d.Name, func(d *appsv1.Deployment) { d.Status = status })
		}
	}
}

var serial int

func podOf(d *appsv1.Deployment, hash string, _ int) *corev1.Pod {
	serial++
	set := d.Name + "-" + hash
	return sim.Pod(fmt.Sprintf("%s-%d", set, serial), "1500m", sim.OwnedBy(set), func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": d.Name, "pod-template-hash": hash}
	})
}

// remove deletes a pod that its ReplicaSet does not want any more.
func (y *yard) remove(p *corev1.Pod) {
	memapi.Edit(y.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
	_ = y.API.Client("deployments").Delete(context.Background(), p)
}

// deploy makes a Deployment, and a budget that allows no disruption if held.
func (y *yard) deploy(name string, replicas int32, held bool, edits ...func(*appsv1.Deployment)) {
	zero, one := intstr.FromInt32(0), intstr.FromInt32(1)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("deployment-" + name)}}
	d.Spec.Replicas, d.Spec.Selector = &replicas, selector
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &zero}}
	d.Spec.Template.Labels = selector.MatchLabels
	d.Spec.Template.Annotations = map[string]string{v1.SurgeAnnotationKey: v1.SurgeRestart}
	for _, edit := range edits {
		edit(d)
	}
	y.mu.Lock()
	y.written[d.UID] = d
	y.mu.Unlock()
	y.API.Put(d)
	if held {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		b.Spec.Selector, b.Spec.MaxUnavailable = selector, &zero
		y.API.Put(b)
	}
}

// roll changes the template of the pool, so that all nodes drift.
func (y *yard) roll() {
	memapi.Edit(y.API, "", "default", func(p *v1.NodePool) {
		p.Generation++
		p.Spec.Template.Labels = map[string]string{"image": fmt.Sprint(time.Now().Unix())}
	})
}

// drifted counts the nodes that are not of the newest template.
func (y *yard) drifted() (n int) {
	image := sim.Get[*v1.NodePool](y.t, y.World, "default").Spec.Template.Labels["image"]
	for _, node := range memapi.All[*corev1.Node](y.API) {
		if node.Labels["image"] != image {
			n++
		}
	}
	return n
}

func (y *yard) events() (text string) {
	for _, e := range y.k.Events() {
		if e.Reason == "DisruptionFailed" || e.Reason == "SurgeRestart" || e.Reason == "DisruptionBlocked" {
			text += e.Reason + " " + e.InvolvedObject.Name + ": " + e.Message + "\n"
		}
	}
	return text
}

// applied is an annotation that "kubectl apply" changes in these tests.
const applied = "kubectl.kubernetes.io/last-applied-configuration"

// trouble does what happens to workloads and the controller in a large cluster, in random order, until ctx ends. An autoscaler changes the
// replicas of Deployments with a budget, users apply Deployments again, another process takes over, and the cloud has no machines for a
// while.
func (y *yard) trouble(ctx context.Context, random *rand.Rand, apps int) {
	for {
		select {
		case <-ctx.Done():
			y.Cloud.SetStock(fakecloud.Where{}, -1)
			return
		case <-time.After(time.Duration(20+random.IntN(160)) * time.Second):
		}
		name := fmt.Sprintf("app-%d", random.IntN(apps))
		switch kind := random.IntN(20); {
		case kind < 9: // these have an even number, and a budget
			name = fmt.Sprintf("app-%d", 2*random.IntN((apps+1)/2))
			n := int32(1 + random.IntN(3))
			y.mu.Lock()
			y.scaled[name] = n
			y.mu.Unlock()
			memapi.Edit(y.API, "default", name, func(d *appsv1.Deployment) { d.Spec.Replicas = &n; d.Generation++ })
		case kind < 17:
			memapi.Edit(y.API, "default", name, func(d *appsv1.Deployment) {
				d.Annotations = map[string]string{applied: strconv.Itoa(random.IntN(1000))}
			})
		case kind < 19:
			y.kill()
		default:
			y.Cloud.SetStock(fakecloud.Where{}, random.IntN(3))
			time.Sleep(time.Duration(1+random.IntN(6)) * time.Minute)
			y.Cloud.SetStock(fakecloud.Where{}, -1)
		}
	}
}

// tooMany returns the Deployments that have another number of pods than they ask for.
func (y *yard) tooMany() (out []string) {
	have := map[string]int{}
	for _, p := range memapi.All[*corev1.Pod](y.API) {
		have[p.Labels["app"]]++
	}
	for _, d := range memapi.All[*appsv1.Deployment](y.API) {
		if want := int(*d.Spec.Replicas); have[d.Name] != want {
			out = append(out, fmt.Sprintf("%s has %d pods, wants %d", d.Name, have[d.Name], want))
		}
	}
	return out
}

// TestSurges moves pods by restarts of their Deployments amid trouble. Each workload always has a ready pod, nothing of a Deployment
// changes but one annotation, and a minute after the moves there is no pod too many. SURGES is how many moves.
func TestSurges(t *testing.T) {
	moves, apps, seed := 60, 12, uint64(1)
	if text := os.Getenv("SURGES"); text != "" {
		moves, _ = strconv.Atoi(text)
		apps = 40
	}
	if text := os.Getenv("SURGES_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	done, rolls := 0, 0
	for ; done < moves; seed++ { // a world has at most 25 changes of the pool's template
		inYard(t, func(y *yard) {
			random := rand.New(rand.NewPCG(seed, 2))
			for i := range apps {
				y.deploy(fmt.Sprintf("app-%d", i), int32(1+i%3/2*(1-i%2)), i%2 == 0)
			}
			time.Sleep(10 * time.Minute)
			for range 25 {
				rolls++
				y.roll()
				ctx, stop := context.WithCancel(y.t.Context())
				quiet := make(chan struct{})
				go func() { y.trouble(ctx, random, apps); close(quiet) }()
				time.Sleep(50 * time.Minute)
				stop()
				<-quiet
				// What was held back by the trouble goes now. A workload is restarted once an hour, and may get to another drifted node each time.
				for range 8 * 60 {
					if time.Sleep(time.Minute); y.drifted() == 0 {
						break
					}
				}
				time.Sleep(time.Minute)
				if n := y.drifted(); n > 0 {
					told := strings.Split(y.events(), "\n")
					y.t.Fatalf("seed %d: %d drifted nodes are left\n%s", seed, n, strings.Join(told[max(0, len(told)-20):], "\n"))
				}
				if many := y.tooMany(); len(many) > 0 {
					y.t.Errorf("seed %d: %q", seed, many)
				}
				if done+y.restarts() >= moves {
					break
				}
				time.Sleep(time.Hour)
			}
			y.mu.Lock()
			defer y.mu.Unlock()
			done += y.moves
			for app, n := range y.least {
				if n < 1 {
					y.t.Errorf("seed %d: %s had a moment without a ready pod", seed, app)
				}
			}
			if len(y.changed) > 0 {
				y.t.Errorf("seed %d: changed besides the annotation: %q", seed, y.changed)
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d restarts of %d workloads in %d changes of the pool", done, apps, rolls)
}

// restarts returns how many restarts were asked for.
func (y *yard) restarts() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.moves
}

func TestWhatCannotMoveByRestart(t *testing.T) {
	one := func(edit func(*appsv1.Deployment)) func(*yard) {
		return func(y *yard) { y.deploy("web", 1, true, edit) }
	}
	for name, tc := range map[string]struct {
		deploy func(*yard)
		told   string
	}{
		"without consent the node stays, and the owner learns how": {one(func(d *appsv1.Deployment) { d.Spec.Template.Annotations = nil }),
			"it can move by restart: add the annotation karpenter.sh/surge: restart"},
		"consent that was taken back in the template": {func(y *yard) {
			memapi.Edit(y.API, "", "default", func(n *corev1.Namespace) { n.Annotations = map[string]string{v1.SurgeAnnotationKey: v1.SurgeRestart} })
			one(func(d *appsv1.Deployment) { d.Spec.Template.Annotations[v1.SurgeAnnotationKey] = "never" })(y)
		}, "it can move by restart: add the annotation"},
		"maxSurge 0": {one(func(d *appsv1.Deployment) {
			no, yes := intstr.FromInt32(0), intstr.FromInt32(1)
			d.Spec.Strategy.RollingUpdate.MaxSurge, d.Spec.Strategy.RollingUpdate.MaxUnavailable = &no, &yes
		}), "starts no successor first"},
		"all pods may be unavailable": {one(func(d *appsv1.Deployment) {
			yes := intstr.FromInt32(1)
			d.Spec.Strategy.RollingUpdate.MaxUnavailable = &yes
		}), "starts no successor first"},
		"Recreate": {one(func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }), "starts no successor first"},
		"a volume that is not known to be shared": {one(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}), "a volume that only one node may mount"},
		"a restart a moment ago": {one(func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations[surge.RestartedAt] = time.Now().Add(20 * time.Minute).Format(time.RFC3339)
		}), "restarted less than an hour ago"},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				tc.deploy(y)
				time.Sleep(10 * time.Minute)
				y.roll()
				time.Sleep(15 * time.Minute)
				if y.moves > 0 || y.drifted() == 0 {
					y.t.Errorf("%d restarts, %d drifted nodes are left", y.moves, y.drifted())
				}
				if got := y.events(); !strings.Contains(got, tc.told) {
					y.t.Errorf("told\n%swant %q", got, tc.told)
				}
			})
		})
	}
}

// Consent in the namespace or in the NodePool counts as well.
func TestWhoMayConsent(t *testing.T) {
	yes := map[string]string{v1.SurgeAnnotationKey: v1.SurgeRestart}
	for name, agree := range map[string]func(*yard){
		"the namespace": func(y *yard) { memapi.Edit(y.API, "", "default", func(n *corev1.Namespace) { n.Annotations = yes }) },
		"the pool": func(y *yard) {
			memapi.Edit(y.API, "", "default", func(p *v1.NodePool) { p.Annotations = yes })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				agree(y)
				y.deploy("web", 1, true, func(d *appsv1.Deployment) { d.Spec.Template.Annotations = nil })
				time.Sleep(10 * time.Minute)
				y.roll()
				time.Sleep(15 * time.Minute)
				if y.moves != 1 || y.drifted() > 0 || y.least["web"] < 1 {
					y.t.Errorf("%d restarts, %d drifted nodes, %d ready at the least\n%s", y.moves, y.drifted(), y.least["web"], y.events())
				}
			})
		})
	}
}

// What happens while a Deployment is restarted: its replicas change, it is paused, it does not progress, another program undoes it.
func TestRestartsMeetOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		meet  func(*yard)
		moved bool
		most  int // restarts
		told  string
	}{
		"an autoscaler raises the replicas": {func(y *yard) {
			memapi.Edit(y.API, "default", "web", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) })
		}, true, 1, ""},
		"the Deployment is paused before": {func(y *yard) {
			memapi.Edit(y.API, "default", "web", func(d *appsv1.Deployment) { d.Spec.Paused = true })
		}, false, 0, "its Deployment is paused"},
		"a rollout of the owner is under way, and ends": {func(y *yard) {
			y.stop = true
			memapi.Edit(y.API, "default", "web", func(d *appsv1.Deployment) { d.Spec.Template.Annotations[surge.RestartedAt] = "by the owner" })
			time.AfterFunc(5*time.Minute, func() {
				y.stop = false
				memapi.Edit(y.API, "default", "web", func(d *appsv1.Deployment) { d.Labels = map[string]string{"touched": "true"} })
			})
		}, true, 2, ""},
		"the restart does not progress": {func(y *yard) { y.stop = true }, false, 1, "did not progress within its deadline"},
		"another program takes the annotation back": {func(y *yard) {
			time.AfterFunc(time.Minute, func() { y.stop = true })
			go func() {
				for range 6000 {
					time.Sleep(100 * time.Millisecond)
					if d, ok := sim.Find[*appsv1.Deployment](y.World, "web"); ok && d.Spec.Template.Annotations[surge.RestartedAt] != "" {
						memapi.Edit(y.API, "default", "web", func(d *appsv1.Deployment) { delete(d.Spec.Template.Annotations, surge.RestartedAt) })
					}
				}
			}()
		}, false, 2, "took the restart of Deployment default/web back"},
		"disruption is paused": {func(y *yard) {
			memapi.Edit(y.API, "", "default", func(p *v1.NodePool) { p.Annotations = map[string]string{v1.PausedAnnotationKey: "true"} })
		}, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.deploy("web", 1, true)
				time.Sleep(10 * time.Minute)
				tc.meet(y)
				y.roll()
				time.Sleep(40 * time.Minute)
				if (y.drifted() == 0) != tc.moved || y.moves > tc.most || y.least["web"] < 1 {
					y.t.Errorf("%d drifted nodes, %d restarts, %d ready at the least; want moved %t, %d restarts", y.drifted(), y.moves, y.least["web"],
						tc.moved, tc.most)
				}
				if got := y.events(); !strings.Contains(got, tc.told) {
					y.t.Errorf("told\n%swant %q", got, tc.told)
				}
				for _, n := range memapi.All[*corev1.Node](y.API) {
					for _, taint := range n.Spec.Taints {
						if taint.Key == v1.DisruptedTaintKey && n.DeletionTimestamp == nil {
							y.t.Errorf("node %s is left with the taint", n.Name)
						}
					}
				}
			})
		})
	}
}
