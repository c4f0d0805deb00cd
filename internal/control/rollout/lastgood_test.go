package rollout_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

func lastGood(p *v1alpha1.RolloutPolicy) { p.Spec.OnFailure = v1alpha1.RolloutLastGood }

// rollImage lets the node class find a new image. No object of Karpenter's API changes.
func (b *bench) rollImage(i image) {
	b.image, b.opened = i, map[string]bool{}
	b.ami.Add(1)
}

// pass waits until the rollout under way has come to its end.
func (b *bench) pass() {
	b.t.Helper()
	if _, over := b.wait(8*time.Hour, func() bool { return b.entry().Since != nil }); !over {
		b.t.Fatalf("no rollout begins: %+v", b.entry())
	}
	if _, over := b.wait(8*time.Hour, func() bool { return b.entry().Since == nil }); !over || b.entry().Tripped != nil {
		b.t.Fatalf("the rollout does not end: %+v", b.entry())
	}
}

// trip waits until a gate trips, and a minute for what follows.
func (b *bench) trip() {
	b.t.Helper()
	if _, tripped := b.wait(8*time.Hour, func() bool { return b.entry().Tripped != nil }); !tripped {
		b.t.Fatal("nothing tripped")
	}
	time.Sleep(time.Minute)
}

// resume does what "karpenter resume" does.
func (b *bench) resume() {
	memapi.Edit(b.API, "", "default", func(p *v1.NodePool) { delete(p.Annotations, v1.PausedAnnotationKey) })
}

// open returns the claim that is opened for a new pod.
func (b *bench) open(pod string) *v1.NodeClaim {
	b.t.Helper()
	opened := b.openAll(pod)
	if len(opened) != 1 {
		b.t.Fatalf("%d claims are opened for %s", len(opened), pod)
	}
	return opened[0]
}

// openAll returns the claims that are opened while there is a new pod.
func (b *bench) openAll(pod string) (opened []*v1.NodeClaim) {
	before := map[string]bool{}
	for _, c := range memapi.All[*v1.NodeClaim](b.API) {
		before[c.Name] = true
	}
	b.API.Put(sim.Pod(pod, "3", sim.OwnedBy(pod)))
	time.Sleep(3 * time.Minute)
	for _, c := range memapi.All[*v1.NodeClaim](b.API) {
		if !before[c.Name] {
			opened = append(opened, c)
		}
	}
	return opened
}

// wantFrom checks what a claim was made from. images is its annotation, "-" for none.
func (b *bench) wantFrom(c *v1.NodeClaim, template int, runs, images string) {
	b.t.Helper()
	got, ok := c.Annotations[v1.LastGoodImagesAnnotationKey]
	if !ok {
		got = "-"
	}
	if c.Labels["image"] != strconv.Itoa(template) || c.Status.ImageID != runs || got != images {
		b.t.Errorf("%s has template %s, runs %s, goes back to %s; want %d, %s, %s", c.Name, c.Labels["image"], c.Status.ImageID, got, template,
			runs, images)
	}
}

// wantStands checks that a claim is ready and has not drifted.
func (b *bench) wantStands(name string) {
	b.t.Helper()
	c := sim.Get[*v1.NodeClaim](b.t, b.World, name)
	if !condition.IsTrue(c, condition.Ready) || condition.IsTrue(c, v1.ConditionTypeDrifted) || c.DeletionTimestamp != nil {
		b.t.Errorf("%s: %v", name, c.Status.Conditions)
	}
}

// wantSaid checks what the policy and its pool say about new machines.
func (b *bench) wantSaid(text string) {
	b.t.Helper()
	said := condition.Get(b.policy(), v1alpha1.ConditionTypeGatesPassed).Message
	why := sim.Get[*v1.NodePool](b.t, b.World, "default").Annotations[v1.PausedReasonAnnotationKey]
	if !strings.Contains(said, text) || !strings.Contains(why, text) {
		b.t.Errorf("the policy says %q, the pool %q; want %q", said, why, text)
	}
}

// all reports whether all claims are made from a template and an image.
func (b *bench) all(template int, runs string) bool {
	return !slices.ContainsFunc(memapi.All[*v1.NodeClaim](b.API), func(c *v1.NodeClaim) bool {
		return c.Labels["image"] != strconv.Itoa(template) || c.Status.ImageID != runs
	})
}

// A bad template stops the rollout, and new machines start with the last template that passed: under the same leader, after a restart, and
// under another one. When a user resumes the pool, they become old machines, and the rollout goes on where it was.
func TestNewMachinesStartWithTheLastGoodTemplate(t *testing.T) {
	var first, second string
	var since *metav1.Time
	inBench(t, 1, lastGood, func(b *bench) {
		b.roll(good)
		b.pass()
		state := b.entry().LastGood
		var template v1.NodeClaimTemplate
		if err := json.Unmarshal([]byte(state.Template), &template); err != nil || template.Labels["image"] != "1" ||
			!slices.Equal(state.Images, []string{"ami-0"}) || time.Since(state.Passed.Time) > time.Minute {
			t.Fatalf("%+v, %v", state, err)
		}
		b.roll(neverJoins)
		b.trip()
		if got := b.entry().LastGood; got == nil || got.Template != state.Template {
			t.Errorf("the last good state is %+v", got)
		}
		b.wantSaid("new machines of NodePool default start with template " + b.hashOf(1) + " and images ami-0, which passed at " +
			state.Passed.UTC().Format(time.RFC3339))
		if !slices.ContainsFunc(b.k.Events(), func(e *corev1.Event) bool {
			return e.Reason == "RolloutStopped" && strings.Contains(e.Message, "start with template "+b.hashOf(1))
		}) {
			t.Error("no event says with what new machines start")
		}
		c := b.open("more-1")
		first = c.Name
		b.wantFrom(c, 1, "ami-0", "ami-0")
		b.wantStands(first)
		since = b.entry().Since
	}, func(b *bench) {
		time.Sleep(time.Hour)
		b.wantStands(first)
		c := b.open("more-2")
		second = c.Name
		b.wantFrom(c, 1, "ami-0", "ami-0")
		if fresh, _ := b.machines(); fresh > canary {
			t.Errorf("%d machines of the bad template", fresh)
		}
	}, func(b *bench) {
		b.wantStands(second)
		b.image = good
		b.resume()
		time.Sleep(2 * time.Minute)
		for _, name := range []string{first, second} {
			if c := sim.Get[*v1.NodeClaim](t, b.World, name); !condition.IsTrue(c, v1.ConditionTypeDrifted) {
				t.Errorf("%s has not drifted after the resume", name)
			}
		}
		if got := b.entry(); got.Tripped != nil || !got.Since.Equal(since) {
			t.Errorf("after the resume %+v, the rollout began at %v", got, since)
		}
		b.wantFrom(b.open("more-3"), 2, "ami-0", "-")
		b.finish()
		if !b.all(2, "ami-0") {
			t.Error("an old machine is left")
		}
		if got := b.entry().LastGood; !strings.Contains(got.Template, `"image":"2"`) {
			t.Errorf("the last good state is %+v", got)
		}
	})
}

// finish waits until the rollout that was resumed has come to its end.
func (b *bench) finish() {
	b.t.Helper()
	if _, over := b.wait(8*time.Hour, func() bool { return b.entry().Since == nil }); !over {
		b.t.Errorf("the rollout does not end: %+v", b.entry())
	}
}

// hashOf returns the hash of a template that machines were made from.
func (b *bench) hashOf(template int) string {
	for _, c := range memapi.All[*v1.NodeClaim](b.API) {
		if c.Labels["image"] == strconv.Itoa(template) {
			return c.Annotations[v1.NodePoolHashAnnotationKey]
		}
	}
	return "none"
}

// An image that moves behind an alias changes no object: the images that passed are read from the machines.
func TestNewMachinesStartWithTheLastGoodImage(t *testing.T) {
	inBench(t, 1, lastGood, func(b *bench) {
		b.rollImage(good)
		b.pass()
		if got := b.entry().LastGood; got == nil || !slices.Equal(got.Images, []string{"ami-1"}) || !strings.Contains(got.Template, `"image":"0"`) {
			t.Fatalf("%+v", got)
		}
		b.rollImage(neverJoins)
		b.trip()
		c := b.open("more-1")
		b.wantFrom(c, 0, "ami-1", "ami-1")
		b.rollImage(good) // a correction is no new spec: a user lets it go on
		time.Sleep(time.Hour)
		b.wantStands(c.Name)
		b.wantFrom(b.open("more-2"), 0, "ami-1", "ami-1")
		b.resume()
		b.finish()
		if !b.all(0, "ami-3") {
			t.Error("an old machine is left")
		}
		if got := b.entry().LastGood; got == nil || !slices.Equal(got.Images, []string{"ami-3"}) {
			t.Errorf("the last good state is %+v", got)
		}
	})
}

// A new spec ends the stop: new machines start with it at once. What passed before is remembered until it has passed too.
func TestANewSpecIsStartedWithAtOnce(t *testing.T) {
	inBench(t, 1, lastGood, func(b *bench) {
		b.roll(good)
		b.pass()
		state := b.entry().LastGood
		b.roll(neverJoins)
		b.trip()
		b.roll(good)
		for _, c := range b.openAll("more-1") { // and for the canary
			b.wantFrom(c, 3, "ami-0", "-")
		}
		if got := b.entry(); got.Tripped != nil || got.LastGood == nil || got.LastGood.Template != state.Template {
			t.Errorf("%+v", got)
		}
		b.finish()
		if got := b.entry().LastGood; !strings.Contains(got.Template, `"image":"3"`) || !b.all(3, "ami-0") {
			t.Errorf("the last good state is %+v", got)
		}
	})
}

// Where no rollout has come to its end, new machines start with the present state, and the condition says why.
func TestWithoutALastGoodStateItIsLikePause(t *testing.T) {
	inBench(t, 1, lastGood, func(b *bench) {
		b.roll(neverJoins)
		b.trip()
		b.wantSaid("new machines of NodePool default start with its present template and images: no rollout of it that came to its end is " +
			"remembered")
		b.image = good
		b.wantFrom(b.open("more-1"), 1, "ami-0", "-")
	})
}

// With Pause new machines start with the present state, whatever is remembered.
func TestPauseGoesBackToNothing(t *testing.T) {
	inBench(t, 1, nil, func(b *bench) {
		b.roll(good)
		b.pass()
		b.roll(neverJoins)
		b.trip()
		if got := condition.Get(b.policy(), v1alpha1.ConditionTypeGatesPassed).Message; strings.Contains(got, "new machines of NodePool") {
			t.Errorf("the policy says %q", got)
		}
		b.image = good
		b.wantFrom(b.open("more-1"), 2, "ami-0", "-")
	})
}

// A state that was forged chooses neither a node class nor an image, and no label that pools may not have.
func TestAForgedStateChoosesNothing(t *testing.T) {
	inBench(t, 1, lastGood, func(b *bench) {
		b.roll(good)
		b.pass()
		b.roll(neverJoins)
		b.trip()
		b.image = good
		genuine := *b.entry().LastGood
		for i, tc := range []struct {
			forge func(*v1alpha1.RolloutState)
			said  string
			from  int
			runs  string
		}{
			{func(s *v1alpha1.RolloutState) {
				s.Template = strings.Replace(s.Template, `"name":"default"`, `"name":"root"`, 1)
			},
				"the state that passed last names a node class that is gone, or that no machine made from it has", 2, "ami-0"},
			{func(s *v1alpha1.RolloutState) {
				s.Template = strings.Replace(s.Template, `"image":"1"`, `"image":"1","karpenter.sh/nodepool":"other"`, 1)
			}, `check the template that passed last: spec.template.metadata.labels: label "karpenter.sh/nodepool" is set by Karpenter`, 2, "ami-0"},
			{func(s *v1alpha1.RolloutState) { s.Template = "{" }, "read the template that passed last: unexpected end of JSON input", 2, "ami-0"},
			{func(s *v1alpha1.RolloutState) { s.Images = []string{"ami-evil"} }, "images ami-evil", 1, "ami-0"},
		} {
			memapi.Edit(b.API, "", "careful", func(p *v1alpha1.RolloutPolicy) {
				state := genuine
				tc.forge(&state)
				p.Status.Pools[0].LastGood = &state
			})
			time.Sleep(time.Minute)
			if got := condition.Get(b.policy(), v1alpha1.ConditionTypeGatesPassed).Message; !strings.Contains(got, tc.said) {
				t.Errorf("the policy says %q, want %q", got, tc.said)
			}
			c := b.open(fmt.Sprintf("more-%d", i))
			if c.Labels["image"] != strconv.Itoa(tc.from) || c.Status.ImageID != tc.runs || c.Spec.NodeClassRef.Name != "default" {
				t.Errorf("%d: template %s, image %s, class %s", i, c.Labels["image"], c.Status.ImageID, c.Spec.NodeClassRef.Name)
			}
		}
	})
}

// Leaders that last some minutes each, through a good and a bad rollout, never remember the bad state.
func TestLeadersThatCrashRememberNoBadState(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	bad, later := 0, 0
	leaders := []func(*bench){func(b *bench) { b.roll(good) }}
	for range 150 {
		leaders = append(leaders, func(b *bench) {
			b.wait(time.Duration(60+random.IntN(400))*time.Second, func() bool { return false })
			got := b.entry()
			if s := got.LastGood; s != nil && !strings.Contains(s.Template, `"image":"1"`) {
				t.Errorf("template %d is remembered while machines of template %d run: %s", b.serial, b.serial, s.Template)
			}
			switch _, old := b.machines(); {
			case b.serial == 1 && got.Since == nil && old == 0 && got.LastGood != nil:
				b.roll(podsCrash)
			case b.serial == 2:
				bad++
				if got.Tripped != nil {
					later++
				}
			}
		})
	}
	inBench(t, 1, lastGood, leaders...)
	if bad < 20 || later < 10 {
		t.Errorf("%d leaders saw the bad rollout, %d of them its stop", bad, later)
	}
}
