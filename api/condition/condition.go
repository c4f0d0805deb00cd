// Package condition keeps the conditions of an object's status: one root that sums up its dependents, and any number of
// independent ones.
//
// A condition says at which generation of the object it was observed, so a root is only True when every dependent is
// True for the object as it stands now. Dependents exist from the start, as Unknown; independent conditions that
// no longer apply are removed. The transition time moves only when the status does. Time is always an argument.
package condition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ready is the type of the root condition of most kinds.
const Ready = "Ready"

// Reasons of any kind's Ready condition, and of conditions that have not been set yet.
const (
	ReasonAwaitingReconciliation = "AwaitingReconciliation" // Not looked at yet.
	// The condition Ready is Unknown: the message lists the conditions that are not True, or not for the object as it stands now.
	ReasonReconcilingDependents = "ReconcilingDependents"
	ReasonUnhealthyDependents   = "UnhealthyDependents" // Ready is False: the message lists the conditions that are not True.
)

// Rules say which conditions an object's root is made of.
type Rules struct {
	Root       string   // "" for objects without a root
	Dependents []string // in the order in which they are looked at and shown
}

// An Object has conditions in its status.
type Object interface {
	metav1.Object
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
	ConditionRules() Rules
}

// Get returns the object's condition of a type, nil if there is none. It is a copy.
func Get(o Object, conditionType string) *metav1.Condition {
	for _, c := range o.GetConditions() {
		if c.Type == conditionType {
			return &c
		}
	}
	return nil
}

// IsTrue reports whether the object has the condition and it is True.
func IsTrue(o Object, conditionType string) bool { return is(o, conditionType, metav1.ConditionTrue) }

// IsFalse reports whether the object has the condition and it is False.
func IsFalse(o Object, conditionType string) bool { return is(o, conditionType, metav1.ConditionFalse) }

// IsUnknown reports whether the object has the condition and it is Unknown.
func IsUnknown(o Object, conditionType string) bool {
	return is(o, conditionType, metav1.ConditionUnknown)
}

func is(o Object, conditionType string, status metav1.ConditionStatus) bool {
	c := Get(o, conditionType)
	return c != nil && c.Status == status
}

// Init gives the object its root and all dependents, as Unknown, where they are missing. It reports whether it changed
// anything.
func Init(o Object) bool {
	return edit(o, o.GetCreationTimestamp().Time, func(conditions []metav1.Condition) []metav1.Condition { return conditions })
}

// SetTrue sets a condition to True, with its type as the reason.
func SetTrue(o Object, conditionType string, now time.Time) bool {
	return Set(o, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue}, now)
}

// SetFalse sets a condition to False.
func SetFalse(o Object, conditionType, reason, message string, now time.Time) bool {
	return Set(o, metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message}, now)
}

// SetUnknown sets a condition to Unknown.
func SetUnknown(o Object, conditionType, reason, message string, now time.Time) bool {
	return Set(o, metav1.Condition{Type: conditionType, Status: metav1.ConditionUnknown, Reason: reason, Message: message}, now)
}

// Set sets one condition as observed at the object's present generation and sums up the root again. A condition without a
// reason gets its type as the reason. Set reports whether anything changed.
func Set(o Object, c metav1.Condition, now time.Time) bool {
	if c.Reason == "" {
		c.Reason = c.Type
	}
	c.ObservedGeneration = o.GetGeneration()
	return edit(o, now, func(conditions []metav1.Condition) []metav1.Condition { return put(conditions, c, now) })
}

// Clear takes an independent condition away. Clearing a dependent makes it Unknown again, because a root needs
// all of its dependents. Clear reports whether anything changed.
func Clear(o Object, conditionType string, now time.Time) bool {
	if Get(o, conditionType) == nil {
		return false
	}
	rules := o.ConditionRules()
	if conditionType == rules.Root {
		return false
	}
	if slices.Contains(rules.Dependents, conditionType) {
		return SetUnknown(o, conditionType, ReasonAwaitingReconciliation, awaiting, now)
	}
	return edit(o, now, func(conditions []metav1.Condition) []metav1.Condition {
		return slices.DeleteFunc(conditions, func(c metav1.Condition) bool { return c.Type == conditionType })
	})
}

const awaiting = "object is awaiting reconciliation"

// edit applies change to a copy of the conditions, completes and orders them, and stores them if they differ.
func edit(o Object, now time.Time, change func([]metav1.Condition) []metav1.Condition) bool {
	before := o.GetConditions()
	rules := o.ConditionRules()
	after := change(slices.Clone(before))
	if o.GetDeletionTimestamp() != nil && len(after) > 0 && !equality.Semantic.DeepEqual(before, after) {
		for i := range after {
			after[i].ObservedGeneration = o.GetGeneration()
		}
	}
	after = complete(o, rules, after)
	if rules.Root != "" {
		after = put(after, sum(rules, after, o.GetGeneration()), now)
	}
	order(rules, after)
	if equality.Semantic.DeepEqual(before, after) {
		return false
	}
	o.SetConditions(after)
	return true
}

// complete adds the dependents that are missing.
func complete(o Object, rules Rules, conditions []metav1.Condition) []metav1.Condition {
	for _, dependent := range rules.Dependents {
		if slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == dependent }) {
			continue
		}
		conditions = append(conditions, metav1.Condition{
			Type: dependent, Status: metav1.ConditionUnknown, Reason: ReasonAwaitingReconciliation, Message: awaiting,
			ObservedGeneration: o.GetGeneration(), LastTransitionTime: o.GetCreationTimestamp(),
		})
	}
	return conditions
}

// put adds or replaces one condition. The transition time stays while the status does.
func put(conditions []metav1.Condition, c metav1.Condition, now time.Time) []metav1.Condition {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	for i, old := range conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		conditions[i] = c
		return conditions
	}
	return append(conditions, c)
}

// sum works out the root from its dependents.
func sum(rules Rules, conditions []metav1.Condition, generation int64) metav1.Condition {
	root := metav1.Condition{Type: rules.Root, Status: metav1.ConditionTrue, Reason: rules.Root, ObservedGeneration: generation}
	var unhealthy []metav1.Condition
	failed := false
	for _, c := range conditions {
		if !slices.Contains(rules.Dependents, c.Type) {
			continue
		}
		current := c.ObservedGeneration == generation
		if c.Status != metav1.ConditionTrue || !current {
			unhealthy = append(unhealthy, c)
		}
		failed = failed || c.Status == metav1.ConditionFalse && current
	}
	if len(unhealthy) == 0 {
		return root
	}
	slices.SortStableFunc(unhealthy, func(a, b metav1.Condition) int {
		if d := b.LastTransitionTime.Compare(a.LastTransitionTime.Time); d != 0 {
			return d
		}
		return slices.Index(rules.Dependents, b.Type) - slices.Index(rules.Dependents, a.Type) // what is looked at last has changed last
	})
	pairs := make([]string, len(unhealthy))
	for i, c := range unhealthy {
		pairs[i] = fmt.Sprintf("%s=%s", c.Type, c.Status)
	}
	root.Status, root.Reason = metav1.ConditionUnknown, ReasonReconcilingDependents
	if failed {
		root.Status, root.Reason = metav1.ConditionFalse, ReasonUnhealthyDependents
	}
	root.Message = strings.Join(pairs, ", ")
	return root
}

// order puts dependents first, then the others by name, the root last.
func order(rules Rules, conditions []metav1.Condition) {
	rank := func(c metav1.Condition) int {
		if c.Type == rules.Root && rules.Root != "" {
			return len(rules.Dependents) + 1
		}
		if i := slices.Index(rules.Dependents, c.Type); i >= 0 {
			return i
		}
		return len(rules.Dependents)
	}
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a.Type, b.Type)
	})
}
