package condition_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
)

// thing is an object with two dependents, A and B.
type thing struct {
	metav1.ObjectMeta
	conditions []metav1.Condition
}

func (t *thing) GetConditions() []metav1.Condition  { return t.conditions }
func (t *thing) SetConditions(c []metav1.Condition) { t.conditions = c }
func (t *thing) ConditionRules() condition.Rules {
	return condition.Rules{Root: condition.Ready, Dependents: []string{"A", "B"}}
}

func at(minute int) time.Time { return time.Date(2025, 1, 2, 3, minute, 0, 0, time.UTC) }

func newThing() *thing {
	return &thing{ObjectMeta: metav1.ObjectMeta{Generation: 1, CreationTimestamp: metav1.NewTime(at(0))}}
}

// show writes conditions as one line each.
func show(o *thing) []string {
	var out []string
	for _, c := range o.conditions {
		out = append(out, fmt.Sprintf("%s=%s %s %q gen %d since :%02d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration, c.LastTransitionTime.Minute()))
	}
	return out
}

func TestConditions(t *testing.T) {
	const awaiting = `AwaitingReconciliation "object is awaiting reconciliation"`
	for name, tc := range map[string]struct {
		edit func(*thing)
		want []string
	}{
		"a new object has its dependents, unknown since its creation, and the root last": {
			func(o *thing) { condition.Init(o) },
			[]string{"A=Unknown " + awaiting + " gen 1 since :00", "B=Unknown " + awaiting + " gen 1 since :00", `Ready=Unknown ReconcilingDependents "B=Unknown, A=Unknown" gen 1 since :00`},
		},
		"the root is unknown while a dependent is": {
			func(o *thing) { condition.SetTrue(o, "A", at(1)) },
			[]string{`A=True A "" gen 1 since :01`, "B=Unknown " + awaiting + " gen 1 since :00", `Ready=Unknown ReconcilingDependents "B=Unknown" gen 1 since :01`},
		},
		"the root is true when all dependents are": {
			func(o *thing) { condition.SetTrue(o, "A", at(1)); condition.SetTrue(o, "B", at(2)) },
			[]string{`A=True A "" gen 1 since :01`, `B=True B "" gen 1 since :02`, `Ready=True Ready "" gen 1 since :02`},
		},
		"the root is false when a dependent is": {
			func(o *thing) { condition.SetTrue(o, "A", at(1)); condition.SetFalse(o, "B", "Broken", "why", at(2)) },
			[]string{`A=True A "" gen 1 since :01`, `B=False Broken "why" gen 1 since :02`, `Ready=False UnhealthyDependents "B=False" gen 1 since :02`},
		},
		"the root names the most recent change first": {
			func(o *thing) { condition.SetFalse(o, "A", "X", "", at(1)); condition.SetFalse(o, "B", "Y", "", at(2)) },
			[]string{`A=False X "" gen 1 since :01`, `B=False Y "" gen 1 since :02`, `Ready=False UnhealthyDependents "B=False, A=False" gen 1 since :01`},
		},
		"a dependent that was true for an older generation does not count": {
			func(o *thing) {
				condition.SetTrue(o, "A", at(1))
				condition.SetTrue(o, "B", at(2))
				o.Generation = 2
				condition.SetTrue(o, "A", at(3))
			},
			[]string{`A=True A "" gen 2 since :01`, `B=True B "" gen 1 since :02`, `Ready=Unknown ReconcilingDependents "B=True" gen 2 since :03`},
		},
		"a dependent that was false for an older generation does not make the root false": {
			func(o *thing) {
				condition.SetFalse(o, "B", "Broken", "", at(2))
				o.Generation = 2
				condition.SetTrue(o, "A", at(3))
			},
			[]string{`A=True A "" gen 2 since :03`, `B=False Broken "" gen 1 since :02`, `Ready=Unknown ReconcilingDependents "B=False" gen 2 since :03`},
		},
		"independent conditions stand between, by name, and do not count": {
			func(o *thing) {
				condition.SetFalse(o, "Zebra", "No", "", at(1))
				condition.SetTrue(o, "Ape", at(1))
				condition.SetTrue(o, "A", at(2))
				condition.SetTrue(o, "B", at(2))
			},
			[]string{`A=True A "" gen 1 since :02`, `B=True B "" gen 1 since :02`, `Ape=True Ape "" gen 1 since :01`, `Zebra=False No "" gen 1 since :01`, `Ready=True Ready "" gen 1 since :02`},
		},
		"clearing takes an independent condition away": {
			func(o *thing) { condition.SetTrue(o, "Ape", at(1)); condition.Clear(o, "Ape", at(2)) },
			[]string{"A=Unknown " + awaiting + " gen 1 since :00", "B=Unknown " + awaiting + " gen 1 since :00", `Ready=Unknown ReconcilingDependents "B=Unknown, A=Unknown" gen 1 since :01`},
		},
		"clearing makes a dependent unknown": {
			func(o *thing) {
				condition.SetTrue(o, "A", at(1))
				condition.SetTrue(o, "B", at(1))
				condition.Clear(o, "A", at(2))
			},
			[]string{"A=Unknown " + awaiting + " gen 1 since :02", `B=True B "" gen 1 since :01`, `Ready=Unknown ReconcilingDependents "A=Unknown" gen 1 since :02`},
		},
		"another reason keeps the transition time": {
			func(o *thing) {
				condition.SetFalse(o, "A", "X", "x", at(1))
				condition.SetFalse(o, "A", "Y", "y", at(2))
			},
			[]string{`A=False Y "y" gen 1 since :01`, "B=Unknown " + awaiting + " gen 1 since :00", `Ready=False UnhealthyDependents "A=False, B=Unknown" gen 1 since :01`},
		},
		"on a deleted object every change lifts the generation of all": {
			func(o *thing) {
				condition.SetTrue(o, "A", at(1))
				condition.SetTrue(o, "B", at(1))
				o.Generation, o.DeletionTimestamp = 2, &metav1.Time{Time: at(2)}
				condition.SetTrue(o, "Going", at(3))
			},
			[]string{`A=True A "" gen 2 since :01`, `B=True B "" gen 2 since :01`, `Going=True Going "" gen 2 since :03`, `Ready=True Ready "" gen 2 since :01`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newThing()
			tc.edit(o)
			if diff := cmp.Diff(tc.want, show(o)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChangesAreReported(t *testing.T) {
	o := newThing()
	for _, step := range []struct {
		what string
		do   func() bool
		want bool
	}{
		{"the first Init", func() bool { return condition.Init(o) }, true},
		{"a second Init", func() bool { return condition.Init(o) }, false},
		{"a new status", func() bool { return condition.SetTrue(o, "A", at(1)) }, true},
		{"the same status later", func() bool { return condition.SetTrue(o, "A", at(9)) }, false},
		{"another message", func() bool { return condition.SetFalse(o, "B", "X", "x", at(2)) }, true},
		{"clearing what is there", func() bool { condition.SetTrue(o, "C", at(3)); return condition.Clear(o, "C", at(4)) }, true},
		{"clearing what is not there", func() bool { return condition.Clear(o, "C", at(5)) }, false},
		{"clearing the root", func() bool { return condition.Clear(o, condition.Ready, at(5)) }, false},
	} {
		if got := step.do(); got != step.want {
			t.Errorf("%s reported %t, want %t", step.what, got, step.want)
		}
	}
}

func TestSetDoesNotTouchTheOldSlice(t *testing.T) {
	o := newThing()
	condition.SetTrue(o, "A", at(1))
	before := o.conditions
	kept := append([]metav1.Condition(nil), before...)
	condition.SetFalse(o, "A", "X", "", at(2))
	if diff := cmp.Diff(kept, before); diff != "" {
		t.Errorf("a shared slice changed (-before +after):\n%s", diff)
	}
}

func TestObjectsWithoutRoot(t *testing.T) {
	o := &rootless{}
	condition.SetTrue(o, "Z", at(1))
	condition.SetTrue(o, "Y", at(1))
	if got := o.conditions; len(got) != 2 || got[0].Type != "Y" {
		t.Errorf("conditions = %v", got)
	}
	if !condition.IsTrue(o, "Z") || condition.IsFalse(o, "Z") || condition.IsUnknown(o, "Z") || condition.Get(o, "X") != nil {
		t.Error("the status of Z is read wrongly")
	}
}

type rootless struct{ thing }

func (*rootless) ConditionRules() condition.Rules { return condition.Rules{} }
