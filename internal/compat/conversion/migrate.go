package conversion

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// settled is how long v1 must have been stored before objects are rewritten: every API server knows of it by then.
	settled = 15 * time.Second
	// writers is how many objects are rewritten at the same time. The client's rate is what limits it.
	writers = 8
	// page is how many objects are listed at a time.
	page = 500
)

// A Migration rewrites what is stored in older versions as v1, and then says in the definition that nothing else is stored. It is
// done whenever a definition names another version as stored.
type Migration struct {
	service *Service
	client  client.Client
	metrics *telemetry.Metrics
	seen    map[generation]time.Time // since when v1 is stored
}

// Migration returns the loop for the replica that leads. Its client has a rate of its own, so that no other loop waits for it.
func (s *Service) Migration(c client.Client) *Migration {
	return &Migration{service: s, client: c, metrics: s.metrics, seen: map[generation]time.Time{}}
}

// Run works until ctx ends.
func (m *Migration) Run(ctx context.Context) error {
	m.metrics.Repeat(ctx, telemetry.Chore{Name: "conversion.migration", What: "rewriting what is stored as v1beta1",
		Failed: "not everything that is stored as v1beta1 was rewritten", Every: every, Turn: m.turn})
	return nil
}

// A generation is a definition as it was written once.
type generation struct {
	definition string
	number     int64
}

func (m *Migration) turn(ctx context.Context, now time.Time) error {
	defs, err := m.service.definitions(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, crd := range defs {
		if crd == nil || !stale(crd) || !storesV1(crd) {
			continue
		}
		id := generation{crd.Name, crd.Generation}
		if m.seen[id].IsZero() {
			m.seen[id] = now
		}
		if now.Sub(m.seen[id]) >= settled {
			errs = append(errs, m.rewrite(ctx, crd))
		}
	}
	return errors.Join(errs...)
}

// rewrite patches every object of a kind with nothing, which stores it as v1, and then says so.
func (m *Migration) rewrite(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	began, count := time.Now(), 0
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: hub, Kind: crd.Spec.Names.ListKind})
	for next, more := "", true; more; more = next != "" {
		if err := m.client.List(ctx, list, client.Limit(page), client.Continue(next)); err != nil {
			return fmt.Errorf("list %s: %w", crd.Spec.Names.Plural, err)
		}
		if err := m.rewriteAll(ctx, list.Items); err != nil {
			return err
		}
		count += len(list.Items)
		next = list.GetContinue()
	}
	crd = crd.DeepCopy()
	crd.Status.StoredVersions = []string{hub}
	if err := m.client.Status().Update(ctx, crd); err != nil { // not if the definition was changed since it was read
		return fmt.Errorf("trim the stored versions of %s: %w", crd.Name, err)
	}
	telemetry.Log(ctx).Info("everything is stored as v1", "kind", crd.Spec.Names.Kind, "count", count, "took",
		time.Since(began).Round(time.Millisecond).String())
	return nil
}

func (m *Migration) rewriteAll(ctx context.Context, objects []unstructured.Unstructured) error {
	rewriting := func(o unstructured.Unstructured) string { return "rewriting " + o.GetKind() + " " + o.GetName() }
	return errors.Join(parallel.Of(objects, writers, rewriting, func(o unstructured.Unstructured) error {
		err := m.client.Patch(ctx, &o, client.RawPatch(types.MergePatchType, []byte("{}")))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("rewrite %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		return nil
	})...)
}
