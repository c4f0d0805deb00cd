package commitment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// importInterval is how often the cloud is asked, also after a failure.
const importInterval = time.Hour

// An Importer keeps a CommitmentDiscount for each commitment that the cloud names. It changes and deletes no others, and keeps a share
// that a person wrote.
type Importer struct {
	store   *cluster.Store
	client  client.Client
	source  cloud.CommitmentSource
	share   string
	metrics *telemetry.Metrics
	next    time.Time
}

// NewImporter returns an importer that has not started. share is a fraction or a decimal; commitments get it for which no person wrote
// another share. It is kept as a decimal without zeros at its end.
func NewImporter(store *cluster.Store, c client.Client, source cloud.CommitmentSource, share string,
	m *telemetry.Metrics) (*Importer, error) {
	part, err := v1alpha1.Fraction(share)
	if err != nil {
		return nil, fmt.Errorf("import-commitments: %w", err)
	}
	share = strings.TrimRight(strings.TrimRight(part.FloatString(8), "0"), ".")
	return &Importer{store: store, client: c, source: source, share: share, metrics: m}, nil
}

// Run works until ctx ends.
func (i *Importer) Run(ctx context.Context) error {
	i.metrics.Repeat(ctx, telemetry.Chore{Name: "commitmentdiscount.import", What: "importing commitments",
		Failed: "not all commitments could be imported; those that are not named for a day no longer count",
		Every:  lookInterval, Turn: i.turn})
	return nil
}

// turn asks the cloud for commitments every importInterval, and writes an object for each. If the cloud also returned an error, the
// commitments that it did return are written, but no object is deleted: only a complete answer shows that a commitment has ended.
func (i *Importer) turn(ctx context.Context, now time.Time) error {
	snap := i.store.Snapshot()
	if !snap.Synced() || now.Before(i.next) {
		return nil
	}
	i.next = now.Add(importInterval)
	found, err := i.source.Commitments(ctx)
	named := map[string]bool{}
	errs := []error{err}
	for k := range found {
		named[found[k].ID] = true
		errs = append(errs, i.keep(ctx, snap, found[k], now))
	}
	if err == nil {
		for d := range cluster.Commitments.All(snap) {
			if _, imported := d.ImportedAt(); imported && d.Name == nameOf(&d.Spec) && !named[d.Spec.ID] {
				errs = append(errs, i.remove(ctx, d))
			}
		}
	}
	err = errors.Join(errs...)
	if err != nil {
		i.metrics.CommitmentImportFailures.Inc()
	}
	return err
}

// nameOf returns the name of the object of an imported commitment.
func nameOf(s *v1alpha1.CommitmentDiscountSpec) string {
	prefix := "sp-"
	if s.Category == v1alpha1.CommitmentUsage {
		prefix = "ri-"
	}
	return prefix + strings.ToLower(s.ID)
}

// keep creates the object of a commitment, or brings it up to date. It leaves an object with that name alone that was not imported. If
// the share on the object differs from what the importer wrote last, a person wrote it, and it stays.
func (i *Importer) keep(ctx context.Context, snap *cluster.Snapshot, s v1alpha1.CommitmentDiscountSpec, now time.Time) error {
	name := nameOf(&s)
	have := cluster.Commitments.Get(snap, name)
	next := &v1alpha1.CommitmentDiscount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{},
		Labels: map[string]string{v1.ImportedLabelKey: "true"}}}
	s.Share = i.share
	if have != nil {
		if _, imported := have.ImportedAt(); !imported {
			return nil
		}
		next = have.DeepCopy()
		if given := have.Annotations[v1.ImportedShareAnnotationKey]; have.Spec.Share != given {
			s.Share = have.Spec.Share
		}
	}
	next.Annotations[v1.ImportedAtAnnotationKey] = now.UTC().Format(time.RFC3339)
	next.Annotations[v1.ImportedShareAnnotationKey] = i.share
	if !equality.Semantic.DeepEqual(next.Spec, s) {
		next.Spec = s
	}
	var err error
	if have == nil {
		err = i.client.Create(ctx, next)
	} else {
		err = i.client.Patch(ctx, next, patch.Over(have))
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		i.next = now // another program was faster; the next snapshot has what it wrote
		return nil
	}
	if err != nil {
		return fmt.Errorf("write CommitmentDiscount %s: %w", name, err)
	}
	return nil
}

// remove deletes the object of a commitment that has ended, unless it was written meanwhile.
func (i *Importer) remove(ctx context.Context, d *v1alpha1.CommitmentDiscount) error {
	err := i.client.Delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete CommitmentDiscount %s: %w", d.Name, err)
	}
	return nil
}
