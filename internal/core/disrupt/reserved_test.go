package disrupt

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

const reservationLabel = "example.com/reservation"

// reserving adds offerings of a reservation in zone a to a type. Where none of its machines is left it is full.
func reserving(it *cloud.InstanceType, id string, left int) *cloud.InstanceType {
	it.Labels[v1.CapacityTypeLabelKey] = append(it.Labels[v1.CapacityTypeLabelKey], v1.CapacityTypeReserved)
	it.Labels[reservationLabel] = append(it.Labels[reservationLabel], id)
	it.Offerings = append(it.Offerings, cloud.Offering{
		Labels: map[string]string{corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: v1.CapacityTypeReserved, reservationLabel: id},
		Price:  1, Reservation: id, Reserved: left, Available: left > 0, Full: left <= 0,
	})
	return it
}

// ofReservation makes a node and its claim machines of a reservation.
func ofReservation(id string) func(*corev1.Node, *v1.NodeClaim) {
	return func(n *corev1.Node, c *v1.NodeClaim) { n.Labels[reservationLabel], c.Labels[reservationLabel] = id, id }
}

// buying lets a pool have machines of some capacity types.
func buying(capacityTypes ...string) func(*v1.NodePool) {
	return func(p *v1.NodePool) {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
			Key: v1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: capacityTypes})
	}
}

const reserved = v1.CapacityTypeReserved

// reservedFixture has a pool of reserved machines only, one of which has drifted and is used. All of the reservation are in use.
func reservedFixture(edits ...func(*v1.NodePool)) *fixture {
	f := newFixture(reserving(shape("mid", 4, 16, 0.2, 0), "cr-1", 0)).pool("p", append(edits, buying(reserved))...).
		node("a", "p", "mid", reserved, drift(-time.Hour), ofReservation("cr-1")).pods("a", "web", 1, "3", "1Gi").
		node("b", "p", "mid", reserved, ofReservation("cr-1")).pods("b", "web", 1, "3", "1Gi")
	f.set.TerminateFirstDrift, f.terms.ReservedCapacity = true, true
	return f
}

// decisionOf proposes and confirms the one step that a world has for a reason, and returns its decision with why the node goes first.
func (f *fixture) decisionOf(t *testing.T, reason v1.DisruptionReason) string {
	t.Helper()
	planner := newPlanner(realEngine())
	var of []*Step
	for _, step := range planner.Propose(f.world()).Steps {
		if step.Reason == reason {
			of = append(of, step)
		}
	}
	if len(of) == 0 {
		return ""
	}
	step, refusal := planner.Confirm(f.world(), of[0])
	if step == nil || len(of) != 1 || len(step.Remove) != 1 {
		t.Fatalf("%d steps, of which the first is refused with %q", len(of), refusal.Code)
	}
	if (step.Decision() == "replace") != (len(step.Open) > 0) {
		t.Errorf("decision %q with %d openings", step.Decision(), len(step.Open))
	}
	return fmt.Sprintf("%s %s %s", step.Remove[0].Name(), step.Decision(), step.First)
}

func TestNodesOfAFullReservationGoFirstWithTheirGate(t *testing.T) {
	const first = "a terminate-first no-reserved-capacity"
	catalog := func(f *fixture) []cloud.Offering { return f.types[0].Offerings }
	for name, tc := range map[string]struct {
		change func(*fixture)
		want   string
	}{
		"gate on":                     {func(*fixture) {}, first},
		"gate off":                    {func(f *fixture) { f.set.TerminateFirstDrift = false }, ""},
		"the gate is that of repair":  {func(f *fixture) { f.set.TerminateFirstDrift, f.set.TerminateFirstRepair = false, true }, ""},
		"a machine of it is left":     {func(f *fixture) { o := &catalog(f)[2]; o.Reserved, o.Available, o.Full = 1, true, false }, "a replace "},
		"nothing is launched into it": {func(f *fixture) { catalog(f)[2].Full = false }, ""},
		"on demand may be bought":     {func(f *fixture) { f.pool("p", buying(reserved, onDemand)) }, "a replace "},
		"on demand is sold out": {func(f *fixture) {
			f.pool("p", buying(reserved, onDemand))
			catalog(f)[0].Available, catalog(f)[1].Available = false, false
		}, first},
		"another node has room": {func(f *fixture) {
			f.node("c", "p", "mid", reserved, ofReservation("cr-1")).pods("c", "web", 1, "1", "1Gi")
		}, "a delete "},
		"another node of it goes": {func(f *fixture) { f.store.Update(func(d *cluster.Draft) { d.MarkForRemoval("claim-b") }) }, ""},
		"another node of it ends": {func(f *fixture) {
			f.node("b", "p", "mid", reserved, ofReservation("cr-1"), func(_ *corev1.Node, c *v1.NodeClaim) { c.DeletionTimestamp = new(metav1.NewTime(noon)) })
		}, ""},
		"another node goes": {func(f *fixture) {
			f.node("c", "p", "mid", onDemand)
			f.store.Update(func(d *cluster.Draft) { d.MarkForRemoval("claim-c") })
		}, first},
		"two have drifted":               {func(f *fixture) { f.node("b", "p", "mid", reserved, drift(-time.Minute), ofReservation("cr-1")) }, first},
		"a protected pod":                {func(f *fixture) { f.pods("a", "new", 1, "1m", "1Mi", protect) }, ""},
		"a budget of 0":                  {func(f *fixture) { f.pool("p", buying(reserved), allowing("0")) }, ""},
		"its place is too small now":     {func(f *fixture) { f.types[0].Capacity = shape("mid", 2, 16, 0.2, 0).Capacity }, ""},
		"its pool cannot launch":         {func(f *fixture) { f.notReady = map[string]bool{"p": true} }, ""},
		"it is of no reservation":        {func(f *fixture) { f.node("a", "p", "mid", onDemand, drift(-time.Hour)) }, ""},
		"it is of another reservation":   {func(f *fixture) { f.node("a", "p", "mid", reserved, drift(-time.Hour), ofReservation("cr-2")) }, ""},
		"its type is sold no more":       {func(f *fixture) { f.types[0].Name = "other" }, ""},
		"a sibling of it has a machine":  {func(f *fixture) { reserving(f.types[0], "cr-2", 1) }, "a replace "},
		"a sibling of it is full, other": {func(f *fixture) { reserving(f.types[0], "cr-2", 0) }, first},
	} {
		t.Run(name, func(t *testing.T) {
			f := reservedFixture()
			tc.change(f)
			if got := f.decisionOf(t, v1.DisruptionReasonDrifted); got != tc.want {
				t.Errorf("decision %q, want %q", got, tc.want)
			}
		})
	}
}

// Pods of a node of a static pool do not matter: it is a place for the pool's next node that is missing.
func TestStaticNodesOfAFullReservationGoFirstWithTheirGate(t *testing.T) {
	const first = "a terminate-first no-reserved-capacity"
	for name, tc := range map[string]struct {
		change func(*fixture)
		want   string
	}{
		"gate on":                 {func(*fixture) {}, first},
		"gate off":                {func(f *fixture) { f.set.TerminateFirstDrift = false }, ""},
		"a machine of it is left": {func(f *fixture) { o := &f.types[0].Offerings[2]; o.Reserved, o.Available, o.Full = 1, true, false }, "a replace "},
		"at the limit as well":    {func(f *fixture) { f.pool("p", buying(reserved), keeping(2, "2")) }, first},
		"on demand may be bought": {func(f *fixture) { f.pool("p", buying(reserved, onDemand), keeping(2, "9")) }, "a replace "},
		"on demand, at the limit": {func(f *fixture) { f.pool("p", buying(reserved, onDemand), keeping(2, "2")) }, "a terminate-first static-at-limit"},
		"it is of no reservation": {func(f *fixture) { f.node("a", "p", "mid", onDemand, drift(-time.Hour)) }, ""},
		"nothing is launched":     {func(f *fixture) { f.types[0].Offerings[2].Full = false }, ""},
		"one that must stay first": {func(f *fixture) {
			f.pool("p", buying(reserved), keeping(3, "9"), allowing("1")).node("0", "p", "mid", onDemand, drift(-2*time.Hour))
		}, first},
	} {
		t.Run(name, func(t *testing.T) {
			f := reservedFixture()
			f.pool("p", buying(reserved), keeping(2, "9"))
			tc.change(f)
			if got := f.decisionOf(t, v1.DisruptionReasonDrifted); got != tc.want {
				t.Errorf("decision %q, want %q", got, tc.want)
			}
		})
	}
}

func keeping(replicas int64, limit string) func(*v1.NodePool) {
	return func(p *v1.NodePool) {
		p.Spec.Replicas, p.Spec.Limits = &replicas, v1.Limits{v1.ResourceNodes: resource.MustParse(limit)}
	}
}

// A broken node of a full reservation goes first by the gate of repair.
func TestBrokenNodesOfAFullReservationGoFirstWithTheirGate(t *testing.T) {
	for gate, want := range map[bool]string{false: "", true: "a terminate-first no-reserved-capacity"} {
		f := reservedFixture()
		f.node("a", "p", "mid", reserved, ofReservation("cr-1"), func(n *corev1.Node, _ *v1.NodeClaim) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime.Time = corev1.ConditionFalse, noon.Add(-time.Hour)
		})
		f.set.TerminateFirstRepair = gate
		f.repairs = lifecycle.NewRepairs([]cloud.RepairPolicy{{ConditionType: corev1.NodeReady, Status: corev1.ConditionFalse}})
		if got := f.decisionOf(t, v1.DisruptionReasonUnhealthy); got != want {
			t.Errorf("with the gate %v the decision is %q, want %q", gate, got, want)
		}
	}
}
