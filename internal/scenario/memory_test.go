package scenario

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/stories"
)

// A life is a world in which one engine is asked again and again.
type life struct {
	*World
	*rand.Rand
	came int
}

// roomy is a world of which a fleet is remembered once there are many pods.
const roomy = `Plain.

-- shapes --
large   cpu=16 mem=64Gi zones=a,b od=0.77 spot=0.31
medium  cpu=8 mem=16Gi zones=a,b od=0.34
small   cpu=4 mem=16Gi zones=a,b,c od=0.19 spot=0.08
-- pools --
default need=team:In:x|y
-- nodes --
node-1 cpu=8 mem=30Gi zone=a
`

// crowded is one whose pods may not meet, so that a cheap fleet is searched for.
const crowded = `Crowded.

-- shapes --
large   cpu=16 mem=64Gi zones=a,b od=0.77
medium  cpu=8 mem=16Gi zones=a,b od=0.34
small   cpu=4 mem=16Gi zones=a,b,c od=0.19
-- pods --
web x9 cpu=1700m mem=3Gi labels=app:web apart=host:app:web
api x7 cpu=2300m mem=2Gi labels=app:api apart=host:app:api
db x8 cpu=3100m mem=9Gi labels=app:db apart=host:app:web
one x30 cpu=1300m mem=1Gi labels=app:one
two x20 cpu=700m mem=5Gi labels=app:two
`

func lifeOf(t *testing.T, seed uint64) *life {
	l := &life{Rand: rand.New(rand.NewPCG(seed, 17))}
	switch seed % 8 {
	case 0:
		l.World = entered(t, []byte(roomy))
		for i := range 300 {
			l.come("many", int64(50+3*i))
		}
		l.Settings.Search = work.Second / 20
	case 1:
		l.World = entered(t, []byte(crowded))
		l.Settings.Search = work.Second / 20
	default:
		l.World = entered(t, stories.Of(seed))
		l.Settings.Search = work.Second / 100
	}
	return l
}

// come adds a pod that waits.
func (l *life) come(app string, cpu int64) {
	l.came++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", app, l.came), Labels: map[string]string{"app": app}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(cpu<<20, resource.BinarySI)}}}}
	switch l.IntN(8) {
	case 0: // a value of a label that is chosen for each node
		p.Spec.NodeSelector = map[string]string{"team": []string{"x", "y", "z"}[l.IntN(3)]}
	case 1: // what no machine has, or few
		p.Spec.Containers[0].Resources.Requests["gpu.example/gpu"] = resource.MustParse("1")
	}
	l.Store.Update(func(d *cluster.Draft) { l.putPod(d, p) })
}

// next lets something happen.
func (l *life) next(plan *engine.Plan) {
	waiting := l.Store.Snapshot().Provisionable()
	switch l.IntN(4) {
	case 0:
		l.come("new", int64(100+l.IntN(2000)))
	case 1:
		if len(waiting) > 1 {
			l.Store.Update(func(d *cluster.Draft) { d.DeletePod(waiting[l.IntN(len(waiting))].PodKey) })
		}
	case 2: // places are promised
		l.Store.Update(func(d *cluster.Draft) {
			for _, at := range plan.Place {
				if l.IntN(2) == 0 {
					d.Plan(at.Pod.PodKey, at.Node, l.Now)
				}
			}
		})
	case 3: // nothing
	}
}

// ask is the question of now: some pods that have a place are not asked about, and some were left out before.
func (l *life) ask() engine.Question {
	in := l.Input()
	var pods []*cluster.Pod
	in.LeftOut = map[cluster.PodKey]int{}
	for _, p := range in.Pods {
		_, planned := in.Snap.Planned(p.PodKey)
		if p.Spare != nil || planned && l.IntN(2) == 0 {
			continue
		}
		if pods = append(pods, p); l.IntN(9) == 0 {
			in.LeftOut[p.PodKey] = 1 + l.IntN(3)
		}
	}
	in.Pods = pods
	return in
}

// everything is all that a plan says.
func everything(t *testing.T, e *engine.Engine, in engine.Question) string {
	p := e.Plan(in)
	return inFull(t, p) + fmt.Sprint(p.Price, p.Floor, p.Cost, p.VolumeBound, p.ConfigBound, p.Partial, p.CutAt)
}

// TestARecollectionGivesThePlanThatWasGiven lets 200 engines live in random worlds. Their last answer is that of a new engine that has only read what
// was written down before it: all of it, byte for byte.
func TestARecollectionGivesThePlanThatWasGiven(t *testing.T) {
	bounds, asked := 0, 0
	for seed := range uint64(200) {
		l := lifeOf(t, seed)
		for range 1 + seed%3 {
			l.next(l.Engine.Plan(l.ask()))
		}
		in := l.ask()
		if seed%5 == 0 {
			in.Settings.CutAt = work.Second / 500
		}
		m := l.Engine.Memory()
		story, err := Recollection("Remembered.", in, m)
		if err != nil {
			t.Fatal(err)
		}
		want := everything(t, l.Engine, in)
		there := entered(t, story)
		if diff := cmp.Diff(want, everything(t, there.Engine, there.Input())); diff != "" {
			t.Fatalf("world %d: the recollection says something else\n%s", seed, diff)
		}
		if m.Answer.Bound != nil {
			bounds++
		}
		asked += len(m.Rows.Asked)
	}
	if bounds == 0 || asked == 0 {
		t.Errorf("%d bounds and %d labels were remembered: nothing was tried", bounds, asked)
	}
}

// Every setting that a plan rests on is in the story.
func TestSettingsAreToldAndRead(t *testing.T) {
	in := asked(t, stories.Of(1))
	in.Now = time.Date(2026, 11, 1, 2, 3, 4, 5, time.UTC)
	in.Settings = engine.Settings{
		IgnorePreferences: true, MinValuesBestEffort: true, ReservedCapacity: true, DefaultTerminationGracePeriod: new(time.Minute),
		Size: engine.SizePolicy{Large: -1, GainPermille: 7}, Search: 11, Terms: 12, CutAt: 13, NodePrice: -14,
	}
	got := asked(t, Snapshot("Settings.", in, false))
	if diff := cmp.Diff(in.Settings, got.Settings); diff != "" || !got.Now.Equal(in.Now) {
		t.Errorf("%s at %v", diff, got.Now)
	}
}

func TestAMemoryThatCannotBeReadIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":          "A story.\n\n-- memory --\n{\n",
		"no digest":        "A story.\n\n-- memory --\n{\"answer\": {\"known\": [\"zz\"]}}\n",
		"no number":        "A story.\n\n-- settings --\ncut-at=x\n",
		"no time":          "A story.\n\n-- settings --\nnow=x\n",
		"no price of room": "A story.\n\n-- memory --\n{\"answer\": {\"fleet\": {\"dims\": 2, \"cells\": [{}]}}}\n",
	} {
		s, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.World(); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}

// A snapshot of a world with places and without names tells of the same places.
func TestPlacesAreToldWithoutNames(t *testing.T) {
	const world = `Two places.

-- objects --
{"kind": "NodeClaim", "metadata": {"name": "secret-claim", "labels": {"karpenter.sh/nodepool": "default"}}, "status": {"providerID": "x", "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}}}
{"kind": "Node", "metadata": {"name": "secret-node"}, "spec": {"providerID": "y"}, "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}}}
{"kind": "Pod", "metadata": {"name": "secret-a", "annotations": {"planned": "secret-claim", "since": "2026-05-01T00:00:00Z", "left-out": "2"}}, "spec": {"containers": [{"name": "c"}]}}
{"kind": "Pod", "metadata": {"name": "secret-b", "annotations": {"planned": "secret-node", "since": "2026-05-01T00:00:00Z"}}, "spec": {"containers": [{"name": "c"}]}}
`
	in := asked(t, []byte(world))
	for name, tc := range map[string]struct {
		anonymous bool
		want      []string
	}{
		"with names":    {false, []string{"secret-a at secret-claim", "secret-b at secret-node"}},
		"without names": {true, []string{"pod-000001 at claim-node-000001", "pod-000002 at node-000002"}},
	} {
		t.Run(name, func(t *testing.T) {
			story := Snapshot("Places.", in, tc.anonymous)
			if tc.anonymous && strings.Contains(string(story), "secret") {
				t.Errorf("it tells a name:\n%s", regexp.MustCompile(`.{0,60}secret.{0,60}`).Find(story))
			}
			var got []string
			for key, plan := range entered(t, story).Store.Snapshot().Plans() {
				got = append(got, key.Name+" at "+plan.Target)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Room that is kept for a pod that has not come yet is kept in the story too, and for as long.
func TestVacantSeatsAreTold(t *testing.T) {
	const world = `A pod went, and its like is to come to the node that has room for one.

-- shapes --
only cpu=4 mem=8Gi zones=a od=0.2
-- nodes --
old cpu=4 mem=8Gi zone=a pool=default going
new cpu=4 mem=8Gi zone=a pool=default
-- pods --
web cpu=3 mem=1Gi on=old owner=set
api cpu=3 mem=1Gi
`
	for name, tc := range map[string]struct {
		later time.Duration
		open  int
	}{
		"in time":  {0, 1},
		"too late": {time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := entered(t, []byte(world))
			for p := range l.Store.Snapshot().Pods() {
				if p.NodeName != "" {
					l.Store.Update(func(d *cluster.Draft) { d.Plan(p.PodKey, "new", l.Now) })
					l.Store.Update(func(d *cluster.Draft) { d.DeletePod(p.PodKey) })
				}
			}
			for s := range l.Store.Snapshot().Seats() {
				l.Now = s.At.Add(time.Second + tc.later)
			}
			in := l.Input()
			story, err := Recollection("Vacant.", in, l.Engine.Memory())
			if err != nil {
				t.Fatal(err)
			}
			plan := l.Engine.Plan(in)
			there := entered(t, story)
			got := there.Engine.Plan(there.Input())
			if len(plan.Open) != tc.open || inFull(t, got) != inFull(t, plan) {
				t.Errorf("%d nodes, want %d; the story gives\n%swant\n%s", len(plan.Open), tc.open, inFull(t, got), inFull(t, plan))
			}
		})
	}
}
