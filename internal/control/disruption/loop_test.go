package disruption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// A stage is an API in memory, a store that watches it, and a fleet of one node that is far too large for its pods.
type stage struct {
	log bytes.Buffer // what the loop said; read it when it has stopped

	api   *memapi.Server
	store *cluster.Store
	pools map[string]engine.Pool

	refused error // what replacements are refused with

	metrics  *telemetry.Metrics // of the loop that was started last
	spoil    func(*Loop)        // what to do to a loop before it runs; may be nil
	mu       sync.Mutex
	told     []string            // events: reason, kind and name
	messages map[string][]string // of each of them
}

var classRef = v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}

func newStage(ctx context.Context) *stage {
	s := &stage{api: memapi.New(memapi.Scheme()), store: cluster.NewStore(), pools: map[string]engine.Pool{}}
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	pool.Spec.Template.Spec.NodeClassRef = &classRef
	pool.Spec.Disruption.ConsolidateAfter = v1.After(0)
	pool.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
	s.api.Put(pool)
	s.pools["p"] = engine.Pool{Pool: pool, Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{fakecloud.Kind("big", 16, 1, "z"), fakecloud.Kind("small", 4, 0.2, "z")}}}
	s.node("a", "big", true)
	for i := range 3 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprintf("web-%d", i))}}
		p.Spec.NodeName = "a"
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}}
		p.Status.Phase = corev1.PodRunning
		s.api.Put(p)
	}
	go s.api.Feed(ctx, s.store, feedLag)
	return s
}

// feedLag is how much later than the API the store hears of something.
const feedLag = time.Millisecond

// node puts a claim and, when ready, its Node.
func (s *stage) node(name, instanceType string, ready bool) {
	labels := map[string]string{v1.NodePoolLabelKey: "p", corev1.LabelInstanceTypeStable: instanceType, v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "z",
		v1.NodeInitializedLabelKey: "true", v1.NodeRegisteredLabelKey: "true", corev1.LabelHostname: name}
	var capacity corev1.ResourceList
	for _, it := range s.pools["p"].Catalog.Types {
		if it.Name == instanceType {
			capacity = it.Capacity
		}
	}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID("claim-" + name), Labels: labels, Finalizers: []string{v1.TerminationFinalizer}}}
	claim.Spec.NodeClassRef = &classRef
	claim.Status.ProviderID, claim.Status.NodeName, claim.Status.Capacity, claim.Status.Allocatable = "test:///"+name, name, capacity, capacity
	for _, c := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable} {
		condition.SetTrue(claim, c, time.Now())
	}
	s.api.Put(claim)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: labels}}
	node.Spec.ProviderID = claim.Status.ProviderID
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.api.Put(node)
}

func (s *stage) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	return s.pools, nil
}

func (s *stage) Commitments(context.Context, *cluster.Snapshot, time.Time) *commitment.Books {
	return nil
}

func (s *stage) Names(seed string, openings []engine.Opening) []string {
	names := make([]string, len(openings))
	for i, o := range openings {
		names[i] = fmt.Sprintf("%s-new%d", o.Pool, i)
	}
	return names
}

func (s *stage) Replace(ctx context.Context, seed, _ string, r engine.Replacement, annotations map[string]string) ([]*v1.NodeClaim, error) {
	if s.refused != nil {
		return make([]*v1.NodeClaim, len(r.Open)), s.refused
	}
	var out []*v1.NodeClaim
	for i, name := range s.Names(seed, r.Open) {
		claim := r.Open[i].Claim.DeepCopy()
		claim.Name, claim.GenerateName, claim.Annotations = name, "", annotations
		if err := s.api.Client("open").Create(ctx, claim); err != nil {
			return nil, err
		}
		s.store.Update(func(d *cluster.Draft) {
			d.PutClaim(claim)
			for _, p := range r.Open[i].Pods {
				d.Plan(p.PodKey, claim.Name, time.Now())
			}
		})
		out = append(out, claim)
	}
	return out, nil
}

// run starts a loop of its own, as a process would, and returns how to stop it. The loop sees all that was put before, as one does that waits for
// its caches; in a bubble the sleep ends when the feed has nothing left to do.
func (s *stage) run(t *testing.T) (stop func()) {
	time.Sleep(2 * feedLag)
	s.metrics = telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
	events := telemetry.NewEvents(s.hear, s.metrics)
	l := New(s.store, s.api.Client("disruption"), s, s, Telling{Metrics: s.metrics, Events: events}, Settings{Planner: disrupt.DefaultSettings()})
	if s.spoil != nil {
		s.spoil(l)
	}
	ctx, cancel := context.WithCancel(telemetry.WithLog(t.Context(), slog.New(telemetry.NewHandler(&s.log, slog.LevelDebug))))
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) })
	running.Go(func() { _ = events.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

func (s *stage) hear(_ context.Context, e *corev1.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := fmt.Sprintf("%s %s %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name)
	s.told = append(s.told, what)
	if s.messages == nil {
		s.messages = map[string][]string{}
	}
	s.messages[what] = append(s.messages[what], e.Message)
	return nil
}

// said returns the messages of an event.
func (s *stage) said(event string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages[event])
}

// heard tells whether an event was published.
func (s *stage) heard(event string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.told, event)
}

func (s *stage) claim(name string) *v1.NodeClaim {
	for _, c := range memapi.All[*v1.NodeClaim](s.api) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (s *stage) tainted(name string) bool {
	for _, n := range memapi.All[*corev1.Node](s.api) {
		if n.Name == name {
			return slices.ContainsFunc(n.Spec.Taints, isDisrupted)
		}
	}
	return false
}

// initialise makes the replacement usable.
func (s *stage) initialise(name string) {
	memapi.Edit(s.api, "", name, func(c *v1.NodeClaim) {
		for _, t := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized} {
			condition.SetTrue(c, t, time.Now())
		}
	})
}

const replacementName = "p-new0"

func TestAReplacementIsReadyBeforeItsNodeGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		defer s.run(t)()
		time.Sleep(disrupt.SecondLook - time.Second)
		if s.tainted("a") || s.claim(replacementName) != nil {
			t.Fatal("something was done before the validation delay was over")
		}
		time.Sleep(5 * time.Second)
		if !s.tainted("a") || s.claim(replacementName) == nil {
			t.Fatalf("tainted %v, replacement %v; want both", s.tainted("a"), s.claim(replacementName) != nil)
		}
		if got := condition.Get(s.claim("claim-a"), v1.ConditionTypeDisruptionReason); got == nil || got.Reason != "Underutilized" {
			t.Errorf("condition DisruptionReason = %v, want Underutilized", got)
		}
		time.Sleep(time.Minute)
		if s.claim("claim-a").DeletionTimestamp != nil {
			t.Fatal("the node went before its replacement was ready")
		}
		s.initialise(replacementName)
		time.Sleep(5 * time.Second)
		if c := s.claim("claim-a"); c != nil && c.DeletionTimestamp == nil {
			t.Error("the node stays although its replacement is ready")
		}
		if _, ok := s.claim(replacementName).Annotations[v1.DisruptionCommandAnnotationKey]; ok {
			t.Error("the replacement still carries the record of the command that is done")
		}
	})
}

func TestACommandIsTakenBack(t *testing.T) {
	for name, spoil := range map[string]func(*stage){
		"when the replacement is gone": func(s *stage) {
			memapi.Edit(s.api, "", replacementName, func(c *v1.NodeClaim) { c.Finalizers = nil })
			s.api.Remove(s.claim(replacementName))
		},
		"when the replacement is not ready in time": func(*stage) { time.Sleep(leastTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				defer s.run(t)()
				time.Sleep(disrupt.SecondLook + 5*time.Second)
				if !s.tainted("a") {
					t.Fatal("the command did not start")
				}
				spoil(s)
				time.Sleep(5 * time.Second)
				c := s.claim("claim-a")
				_, recorded := c.Annotations[v1.DisruptionCommandAnnotationKey]
				if s.tainted("a") || recorded || condition.Get(c, v1.ConditionTypeDisruptionReason) != nil {
					t.Errorf("left behind: taint %v, record %v, condition %v", s.tainted("a"), recorded, condition.Get(c, v1.ConditionTypeDisruptionReason))
				}
				if n := s.store.Snapshot().Node("a"); n.MarkedForRemoval {
					t.Error("the node is still marked for removal")
				}
				if r := s.claim(replacementName); r != nil && r.DeletionTimestamp == nil {
					t.Error("the replacement that nobody needs stays")
				}
			})
		})
	}
}

// Whichever request fails while a command begins or is taken back, soon either all of its marks are there or none.
func TestNoMarkStaysAloneWhicheverRequestFails(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration
		spoil func(*stage)
		most  int // marks afterwards
	}{
		"when it begins": {disrupt.SecondLook - time.Second, func(*stage) {}, 4}, // the replacement has the record too
		"when it is taken back": {disrupt.SecondLook + 5*time.Second, func(s *stage) {
			memapi.Edit(s.api, "", replacementName, func(c *v1.NodeClaim) { c.Finalizers = nil })
			s.api.Remove(s.claim(replacementName))
		}, 0},
	} {
		for nth := range 17 {
			t.Run(fmt.Sprint(name, ", request ", nth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t.Context())
					defer s.run(t)()
					time.Sleep(tc.after)
					asked := 0
					s.api.SetFault(func(memapi.Request) error {
						if asked++; asked == nth {
							return errors.New("etcdserver: request timed out")
						}
						return nil
					})
					tc.spoil(s)
					time.Sleep(10 * time.Second)
					if left := s.leftovers(); len(left) > 0 && len(left) != tc.most {
						t.Errorf("there are left %q, want nothing or all of %d", left, tc.most)
					}
				})
			})
		}
	}
}

func TestARestartResumesACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook + 5*time.Second)
		stop()
		s.store = cluster.NewStore()
		go s.api.Feed(t.Context(), s.store, feedLag)
		defer s.run(t)()
		time.Sleep(5 * time.Second)
		if !s.tainted("a") || !s.store.Snapshot().Node("a").MarkedForRemoval {
			t.Fatal("the restart gave the command up")
		}
		s.initialise(replacementName)
		time.Sleep(5 * time.Second)
		if c := s.claim("claim-a"); c != nil && c.DeletionTimestamp == nil {
			t.Error("the command was not finished after the restart")
		}
		if got := len(memapi.All[*v1.NodeClaim](s.api)); got > 2 {
			t.Errorf("%d claims, want no second replacement", got)
		}
	})
}

func TestARestartBeforeTheReplacementWasCreatedRollsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		r := steprecord.Record{ID: "underutilized-1", Reason: v1.DisruptionReasonUnderutilized, Candidates: []steprecord.Member{{Name: "claim-a", UID: "claim-a"}}, Replacements: []string{"p-never"}, Created: time.Now(), Deadline: time.Now().Add(time.Hour)}
		memapi.Edit(s.api, "", "claim-a", func(c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.DisruptionCommandAnnotationKey: r.As(steprecord.Candidate)}
			condition.Set(c, reasonCondition(v1.DisruptionReasonUnderutilized), time.Now())
		})
		memapi.Edit(s.api, "", "a", func(n *corev1.Node) { addTaint(n) })
		defer s.run(t)()
		time.Sleep(5 * time.Second)
		if s.tainted("a") || s.claim("claim-a").Annotations[v1.DisruptionCommandAnnotationKey] != "" {
			t.Error("the half-started command was not taken back")
		}
	})
}

func TestLeftoversAreSweptAndForeignTaintsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.pools["p"].Pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
		s.node("b", "small", true)
		memapi.Edit(s.api, "", "a", func(n *corev1.Node) { addTaint(n) })
		memapi.Edit(s.api, "", "b", func(n *corev1.Node) { addTaint(n) })
		memapi.Edit(s.api, "", "claim-a", func(c *v1.NodeClaim) { condition.Set(c, reasonCondition(v1.DisruptionReasonEmpty), time.Now()) })
		defer s.run(t)()
		time.Sleep(5 * time.Second)
		if s.tainted("a") || condition.Get(s.claim("claim-a"), v1.ConditionTypeDisruptionReason) != nil {
			t.Error("a leftover of a lost command stays")
		}
		if !s.tainted("b") {
			t.Error("a taint that somebody else set was removed")
		}
	})
}

func (s *stage) clear() {
	for i := range 3 {
		s.api.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", i)}})
	}
}

// bind puts a pod on the node a.
func (s *stage) bind(edits ...func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late", UID: "late"}}
	p.Spec.NodeName, p.Status.Phase = "a", corev1.PodRunning
	for _, edit := range edits {
		edit(p)
	}
	s.api.Put(p)
}

func (s *stage) gone(name string) bool {
	c := s.claim(name)
	return c == nil || c.DeletionTimestamp != nil
}

func TestAnEmptyNodeIsTaintedAfterFifteenSecondsAndGoesThreeSecondsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		defer s.run(t)()
		time.Sleep(5 * time.Second)
		s.clear()
		time.Sleep(14 * time.Second)
		if s.tainted("a") {
			t.Error("the node was to go within 15 s of its last pod")
		}
		time.Sleep(3 * time.Second)
		if !s.tainted("a") || s.gone("claim-a") {
			t.Fatalf("tainted %v, gone %v; want the taint alone", s.tainted("a"), s.gone("claim-a"))
		}
		time.Sleep(5 * time.Second)
		if !s.gone("claim-a") {
			t.Error("the empty node is still there")
		}
	})
}

func TestStepsOfOneMomentAreCommandsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
		for _, name := range []string{"b", "c", "d"} {
			s.node(name, "small", true)
		}
		time.Sleep(10 * time.Millisecond)
		stop := s.run(t)
		time.Sleep(30 * time.Second)
		stop()
		if got := s.deleted(); !slices.Equal(got, []string{"claim-b", "claim-c", "claim-d"}) {
			t.Errorf("deleted %q, want the three empty ones", got)
		}
		if text := s.log.String(); strings.Contains(text, "resuming") || strings.Contains(text, "taken off") {
			t.Errorf("they were taken for strangers:\n%s", text)
		}
	})
}

// TestAPodThatWasBoundBeforeTheTaintWasSeenKeepsItsNode has an empty node that has been tainted when a pod arrives, which kube-scheduler had
// sent to it before.
func TestAPodThatWasBoundBeforeTheTaintWasSeenKeepsItsNode(t *testing.T) {
	for name, tc := range map[string]struct {
		restart bool
		pod     func(*corev1.Pod)
		stays   bool
	}{
		"a pod":                              {stays: true},
		"a pod, and Karpenter was restarted": {restart: true, stays: true},
		"a pod of a DaemonSet does not": {pod: func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true)}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.clear()
				stop := s.run(t)
				for !s.tainted("a") {
					time.Sleep(100 * time.Millisecond)
				}
				if tc.restart {
					stop()
					s.store = cluster.NewStore()
					go s.api.Feed(t.Context(), s.store, feedLag)
				}
				if tc.pod == nil {
					tc.pod = func(*corev1.Pod) {}
				}
				s.bind(tc.pod)
				if tc.restart {
					stop = s.run(t)
				}
				time.Sleep(10 * time.Second)
				if s.gone("claim-a") == tc.stays {
					t.Fatalf("gone = %v", !tc.stays)
				}
				if c := s.claim("claim-a"); tc.stays && (s.tainted("a") || recorded(c) || condition.Get(c, v1.ConditionTypeDisruptionReason) != nil || s.store.Snapshot().Node("a").MarkedForRemoval) {
					t.Errorf("left behind: taint %v, record %v, condition %v", s.tainted("a"), recorded(c), condition.Get(c, v1.ConditionTypeDisruptionReason))
				}
				stop()
			})
		})
	}
}

func recorded(c *v1.NodeClaim) bool { return c.Annotations[v1.DisruptionCommandAnnotationKey] != "" }

// TestARestartForgetsWhichNodesWerePromised has a node that has just become ready for pods which nobody remembers sending there: an empty node
// gets as much time as if it had just become empty.
func TestARestartForgetsWhichNodesWerePromised(t *testing.T) {
	for name, drifted := range map[string]bool{"an empty node": false, "one that has drifted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.clear()
				if drifted {
					memapi.Edit(s.api, "", "claim-a", func(c *v1.NodeClaim) { condition.SetTrue(c, v1.ConditionTypeDrifted, time.Now()) })
				}
				defer s.run(t)()
				time.Sleep(14 * time.Second)
				if s.tainted("a") || s.gone("claim-a") {
					t.Error("the node was to go as soon as Karpenter had started")
				}
				time.Sleep(12 * time.Second)
				if !s.gone("claim-a") {
					t.Error("the empty node stays")
				}
			})
		})
	}
}

// TestNewPodsAreSteeredAwayFromNodesThatShouldGetEmpty has a large node that could be replaced, but for another that is not ready and uses up the
// budget. A restart keeps the taint, it goes when the node must stay or its pool is frozen, and taints of others are left alone.
func TestNewPodsAreSteeredAwayFromNodesThatShouldGetEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "1"}}
		s.node("b", "small", true)
		s.node("c", "small", true)
		memapi.Edit(s.api, "", "c", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		foreign := corev1.Taint{Key: "team", Effect: corev1.TaintEffectPreferNoSchedule}
		memapi.Edit(s.api, "", "a", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, foreign) })
		memapi.Edit(s.api, "", "b", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, foreign) })
		p := memapi.All[*corev1.Pod](s.api)[0].DeepCopy()
		p.Name, p.UID, p.Spec.NodeName, p.ResourceVersion = "other", "other", "b", ""
		s.api.Put(p)
		time.Sleep(time.Second) // for the picture, in which the budget is still free otherwise

		stop := s.run(t)
		time.Sleep(15 * time.Second)
		if got := s.taints("a"); !slices.Equal(got, []string{"team", v1.UnderusedTaintKey}) {
			t.Errorf("taints of the nearly empty node: %q", got)
		}
		if got := s.taints("b"); !slices.Equal(got, []string{"team"}) {
			t.Errorf("taints of the other node: %q", got)
		}
		stop()

		stop = s.run(t)
		time.Sleep(15 * time.Second)
		if got := s.taints("a"); !slices.Equal(got, []string{"team", v1.UnderusedTaintKey}) {
			t.Errorf("after a restart taints of the nearly empty node: %q", got)
		}
		memapi.Edit(s.api, "", "a", func(n *corev1.Node) { n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} })
		time.Sleep(15 * time.Second)
		if got := s.taints("a"); !slices.Equal(got, []string{"team"}) {
			t.Errorf("taints of a node that must not go: %q", got)
		}
		memapi.Edit(s.api, "", "a", func(n *corev1.Node) { n.Annotations = nil })
		time.Sleep(15 * time.Second)
		if got := s.taints("a"); !slices.Equal(got, []string{"team", v1.UnderusedTaintKey}) {
			t.Errorf("taints of a node that may go again: %q", got)
		}
		stop()

		s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}}
		stop = s.run(t)
		time.Sleep(15 * time.Second)
		if got := s.taints("a"); !slices.Equal(got, []string{"team"}) {
			t.Errorf("taints in a pool that is frozen: %q", got)
		}
		stop()
	})
}

func (s *stage) taints(name string) (keys []string) {
	for _, n := range memapi.All[*corev1.Node](s.api) {
		if n.Name == name {
			for _, t := range n.Spec.Taints {
				keys = append(keys, t.Key)
			}
		}
	}
	return keys
}

func TestRest(t *testing.T) {
	for name, tc := range map[string]struct {
		took time.Duration
		calm bool
		want time.Duration
	}{
		"a small fleet is looked at every second":                   {time.Millisecond, true, time.Second},
		"a large one in which nothing is to be done less often":     {30 * time.Millisecond, true, 3 * time.Second},
		"but never much later":                                      {time.Second, true, 5 * time.Second},
		"while something is to be done no time is lost":             {30 * time.Millisecond, false, time.Second},
		"but the rest of the process gets as much as a turn itself": {7 * time.Second, false, 7 * time.Second},
		"in any case": {7 * time.Second, true, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rest(tc.took, tc.calm); got != tc.want {
				t.Errorf("rest = %v, want %v", got, tc.want)
			}
		})
	}
}

// The room of a replacement is promised to the pods that it is bought for: nobody buys a second machine for them, and none of them is planned again.
func TestPodsHaveSeatsOnTheReplacementOfTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		defer s.run(t)()
		time.Sleep(disrupt.SecondLook + 4*time.Second)
		for i := range 3 {
			key := cluster.PodKey{Namespace: "default", Name: fmt.Sprintf("web-%d", i)}
			if seat, ok := s.store.Snapshot().Planned(key); !ok || seat.Target != replacementName {
				t.Errorf("%s has the seat %+v, want one on %s", key.Name, seat, replacementName)
			}
		}
	})
}

// Whoever wonders why nothing is removed finds in the log that nobody looked.
func TestALongTimeWithoutALookIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		gap  time.Duration
		told bool
	}{
		"a quarter of an hour": {15 * time.Minute, false},
		"longer than that":     {15*time.Minute + time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				var l *Loop
				s.spoil = func(made *Loop) { l = made }
				s.run(t)()
				var log strings.Builder
				ctx := telemetry.WithLog(t.Context(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
				time.Sleep(time.Second)
				for range 2 {
					if _, _ = l.turn(ctx, s.store.Snapshot()); l.looked != time.Now() {
						t.Fatal("the fleet was not looked at")
					}
					time.Sleep(tc.gap)
				}
				l.turn(ctx, s.store.Snapshot())
				if told := strings.Count(log.String(), "abnormal time between runs"); told > 0 != tc.told || tc.told && !strings.Contains(log.String(), "time_since=15m1s") {
					t.Errorf("told %d times, want %v:\n%s", told, tc.told, log.String())
				}
			})
		})
	}
}
