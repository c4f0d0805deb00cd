package crashtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// change edits the template of a pool.
func change(w *sim.World, name string) {
	memapi.Edit(w.API, "", name, func(p *v1.NodePool) {
		p.Spec.Template.Labels = map[string]string{"release": fmt.Sprint(p.Generation)}
		p.Generation++
	})
}

// machines counts what was launched.
func machines(launched *int) sim.Options {
	return sim.Options{Cloud: fakecloud.Options{Boot: func(cloud.Machine) time.Duration { *launched++; return 2 * time.Second }}}
}

// TestATemplateWhoseMachinesNeverJoinCostsTwoMachinesAnHour has six pods that each need a machine, a template that is broken, and a day of time.
func TestATemplateWhoseMachinesNeverJoinCostsTwoMachinesAnHour(t *testing.T) {
	launched, joins := 0, false
	options := machines(&launched)
	options.Joins = func(cloud.Machine) bool { return joins }
	sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		for i := range 6 {
			w.API.Put(sim.Pod(fmt.Sprintf("p-%d", i), "7"))
		}
		time.Sleep(16 * time.Minute)
		first := launched
		for hour := 1; hour <= 8; hour++ {
			time.Sleep(time.Hour)
			if more := launched - first; more > 2*hour || more < hour {
				t.Errorf("after %d hours %d machines more, want at most two an hour, but some", hour, more)
			}
		}
		c := condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeMachinesGetReady)
		if c == nil || c.Status != "False" || c.Reason != v1.ReasonRegistrationTimeout || !strings.Contains(c.Message, "did not join") {
			t.Errorf("the pool's condition is %+v", c)
		}
		sim.WantEvent(t, k, "MachinesNeverReady", "default")

		before := launched
		joins = true
		change(w, "default")
		time.Sleep(time.Minute)
		if launched-before != 5 || running(w) != 5 {
			t.Errorf("a minute after the template was mended %d machines came and %d pods run; want all but the one that has a machine on trial", launched-before, running(w))
		}
		time.Sleep(16 * time.Minute)
		if running(w) != 6 {
			t.Errorf("%d pods run when the trial is over", running(w))
		}
		if c := condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeMachinesGetReady); c != nil {
			t.Errorf("the condition stays: %+v", c)
		}
	})
}

// TestOneReadyMachineEndsTheTrials has a network that comes back.
func TestOneReadyMachineEndsTheTrials(t *testing.T) {
	launched, joins := 0, false
	options := machines(&launched)
	options.Joins = func(cloud.Machine) bool { return joins }
	sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		for i := range 3 {
			w.API.Put(sim.Pod(fmt.Sprintf("p-%d", i), "7"))
		}
		time.Sleep(16 * time.Minute)
		joins = true
		time.Sleep(22 * time.Minute)
		if running(w) != 3 {
			t.Errorf("%d pods run, want all soon after the first trial", running(w))
		}
	})
}

// TestMachinesThatDoNotJoinAmongOthersThatDoAreReplacedAtOnce has a burst of which half the machines never join: the template works, so nobody waits for
// trials when they are given up, fifteen minutes later.
func TestMachinesThatDoNotJoinAmongOthersThatDoAreReplacedAtOnce(t *testing.T) {
	number := map[string]int{}
	options := sim.Options{Joins: func(m cloud.Machine) bool {
		if number[m.ProviderID] == 0 {
			number[m.ProviderID] = len(number) + 1
		}
		return number[m.ProviderID] > 6 || number[m.ProviderID]%2 == 0
	}}
	sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		for i := range 6 {
			w.API.Put(sim.Pod(fmt.Sprintf("p-%d", i), "7"))
		}
		time.Sleep(10 * time.Minute)
		if n := running(w); n != 3 {
			t.Fatalf("%d pods run while the first machines boot, want half", n)
		}
		time.Sleep(6 * time.Minute)
		if n := running(w); n != 6 {
			t.Errorf("%d pods run a minute after the others' machines were given up, want all", n)
		}
		if c := condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeMachinesGetReady); c != nil {
			t.Errorf("the pool's condition is %+v", c)
		}
	})
}

// TestPodsGoToOtherPoolsWhileATemplateIsTried has a heavier pool whose machines never join.
func TestPodsGoToOtherPoolsWhileATemplateIsTried(t *testing.T) {
	launched := 0
	options := machines(&launched)
	options.Joins = func(m cloud.Machine) bool { return m.Zone != "a" }
	sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		for _, zone := range []string{"a", "b"} {
			p := sim.Pool("pool-" + zone)
			p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{zone}}}
			if zone == "a" {
				p.Spec.Weight = new(int32(100))
			}
			w.API.Put(p)
		}
		w.API.Remove(sim.Pool("default"))
		for i := range 2 {
			w.API.Put(sim.Pod(fmt.Sprintf("p-%d", i), "7"))
		}
		time.Sleep(17 * time.Minute)
		if running(w) != 2 {
			t.Errorf("%d pods run, want both on the other pool", running(w))
		}
	})
}

// TestATemplateThatNeverGetsReadyReplacesNothing has working nodes that have drifted, and replacements that join and are never ready; it survives
// a restart.
func TestATemplateThatNeverGetsReadyReplacesNothing(t *testing.T) {
	launched, broken := 0, false
	options := machines(&launched)
	options.NeverReady = func(cloud.Machine) bool { return broken }
	sim.BubbleAlone(t, options, func(t *testing.T, w *sim.World) {
		w.With(t, everything, func(*sim.Karpenter) {
			time.Sleep(time.Second)
			for i := range 4 {
				w.API.Put(sim.Pod(fmt.Sprintf("p-%d", i), "7", sim.OwnedBy("web")))
			}
			time.Sleep(time.Minute)
			broken = true
			change(w, "default")
			time.Sleep(2 * time.Hour)
		})
		first := launched
		w.With(t, everything, func(*sim.Karpenter) { time.Sleep(4 * time.Hour) })
		if running(w) != 4 {
			t.Errorf("%d pods run, want all on their old nodes", running(w))
		}
		if more := launched - first; more > 5 || more < 2 {
			t.Errorf("%d machines were bought in four hours, want about one an hour", more)
		}
		if first > 4+4+3 {
			t.Errorf("%d machines were bought for replacements in the first two hours", first-4)
		}
	})
}
