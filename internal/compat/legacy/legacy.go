// Package legacy looks after Provisioners and AWSNodeTemplates that users apply. Nothing is launched for them:
// each hears, by a condition and an event, which NodePool and EC2NodeClass "karpenter convert" writes for it.
// Where it is asked to, it keeps those objects in step with the old ones, as their property: they go when the old
// ones go. An object of the name without an owner is not touched.
package legacy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/compat/generations"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// lookInterval is how often the old objects are looked at.
	lookInterval = 10 * time.Second
	// writer is who the API server takes the new objects to be of.
	writer = "karpenter-legacy"
)

// Loop looks after old objects.
type Loop struct {
	client  client.Client
	keep    bool
	events  *telemetry.Events
	metrics *telemetry.Metrics
}

// New returns a loop that has not started. The client must ask the API server, not a cache. keep reports whether new
// objects are kept in step.
func New(c client.Client, keep bool, events *telemetry.Events, m *telemetry.Metrics) *Loop {
	return &Loop{client: c, keep: keep, events: events, metrics: m}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	l.metrics.Repeat(ctx, telemetry.Chore{Name: "legacy", What: "looking after Provisioners",
		Failed: "looking after Provisioners failed", Every: lookInterval, Turn: l.turn})
	return nil
}

// An answer is the report to an old object.
type answer struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

// turn converts everything that there is and tells every old object what came of it.
func (l *Loop) turn(ctx context.Context, now time.Time) error {
	olds, err := l.read(ctx)
	if err != nil || len(olds) == 0 {
		return err
	}
	made, refused := convert(olds)
	var errs []error
	for i := range olds {
		if olds[i].GetDeletionTimestamp() != nil {
			continue
		}
		say := refused[i]
		if say == nil {
			mine := slices.DeleteFunc(slices.Clone(made), func(c *generations.Converted) bool { return c.Doc != i })
			if say, err = l.settle(ctx, &olds[i], mine); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, l.tell(ctx, &olds[i], *say, now))
	}
	return errors.Join(errs...)
}

// read lists the old objects. A cluster that does not have their kinds has none.
func (l *Loop) read(ctx context.Context) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for _, kind := range generations.AlphaKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := l.client.List(ctx, list)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		out = append(out, list.Items...)
	}
	return out, nil
}

// convert converts all objects together. An object that cannot be converted is left out, and the others are converted without it.
func convert(olds []unstructured.Unstructured) ([]*generations.Converted, map[int]*answer) {
	refused := map[int]*answer{}
	for {
		var objects []map[string]any
		var place []int
		for i := range olds {
			if refused[i] == nil {
				objects, place = append(objects, olds[i].Object), append(place, i)
			}
		}
		made, err := generations.Offline(objects, generations.Options{TakeOver: true})
		if wrong, ok := errors.AsType[*generations.OfflineError](err); ok {
			refused[place[wrong.Doc]] = &answer{metav1.ConditionFalse, v1.ReasonNotConvertible, wrong.Text}
			continue
		}
		for _, c := range made {
			c.Doc = place[c.Doc]
		}
		return made, refused
	}
}

// settle writes the new objects of an old one, where that is asked for, and returns the report to it.
func (l *Loop) settle(ctx context.Context, old *unstructured.Unstructured, made []*generations.Converted) (*answer, error) {
	var names, lost []string
	for _, c := range made {
		o := &unstructured.Unstructured{Object: c.Object}
		names = append(names, o.GetKind()+" "+o.GetName())
		for _, n := range c.Notes {
			if n.Lost {
				lost = append(lost, n.Text)
			}
		}
	}
	what := strings.Join(names, " and ")
	switch {
	case len(lost) > 0:
		return &answer{metav1.ConditionFalse, v1.ReasonNotConvertible,
			fmt.Sprintf("as %s it would lose something: %s; \"karpenter convert\" writes what is left", what,
				strings.Join(lost, "; "))}, nil
	case !l.keep:
		return &answer{metav1.ConditionFalse, v1.ReasonOlderKind,
			fmt.Sprintf("nothing is launched for this kind: apply %s, which \"karpenter convert\" writes", what)}, nil
	}
	for _, c := range made {
		if taken, err := l.write(ctx, old, &unstructured.Unstructured{Object: c.Object}); err != nil || taken != nil {
			return taken, err
		}
	}
	return &answer{metav1.ConditionTrue, v1.ReasonKeptInStep, what + " is kept in step with this object"}, nil
}

// write makes a new object like the old one. Fields that are not set are the API server's, so an object
// that is in step is not changed.
func (l *Loop) write(ctx context.Context, old, o *unstructured.Unstructured) (*answer, error) {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(o.GroupVersionKind())
	err := l.client.Get(ctx, client.ObjectKeyFromObject(o), have)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	owned := slices.ContainsFunc(have.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == old.GetUID() })
	if err == nil && !owned {
		return &answer{metav1.ConditionFalse, v1.ReasonNameTaken,
			fmt.Sprintf("%s %s exists and is not this object's: it is left as it is", o.GetKind(), o.GetName())}, nil
	}
	yes := true
	o.SetFinalizers(nil)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: old.GetAPIVersion(), Kind: old.GetKind(),
		Name: old.GetName(), UID: old.GetUID(), Controller: &yes}})
	err = l.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(writer), client.ForceOwnership)
	if apierrors.IsInvalid(err) {
		return &answer{metav1.ConditionFalse, v1.ReasonNotConvertible, err.Error()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil, nil
}

// tell writes the condition, and an event when it has changed.
func (l *Loop) tell(ctx context.Context, old *unstructured.Unstructured, say answer, now time.Time) error {
	conditions, _, _ := unstructured.NestedSlice(old.Object, "status", "conditions")
	i := slices.IndexFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == v1.ConditionTypeConverted
	})
	if i >= 0 {
		have := conditions[i].(map[string]any)
		if have["status"] == string(say.status) && have["reason"] == say.reason && have["message"] == say.message {
			return nil
		}
		conditions = slices.Delete(conditions, i, i+1)
	}
	conditions = append(conditions, map[string]any{
		"type": v1.ConditionTypeConverted, "status": string(say.status), "reason": say.reason, "message": say.message,
		"lastTransitionTime": now.UTC().Format(time.RFC3339),
	})
	changed := old.DeepCopy()
	if err := unstructured.SetNestedSlice(changed.Object, conditions, "status", "conditions"); err != nil {
		return err
	}
	if err := l.client.Status().Patch(ctx, changed, client.MergeFrom(old)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("tell %s %s: %w", old.GetKind(), old.GetName(), err)
	}
	l.events.Publish(telemetry.Event{
		Object: corev1.ObjectReference{APIVersion: old.GetAPIVersion(), Kind: old.GetKind(), Name: old.GetName(), UID: old.GetUID()},
		Reason: telemetry.OlderKind, Key: []string{string(old.GetUID()), say.reason}, Message: say.message,
	})
	return nil
}
