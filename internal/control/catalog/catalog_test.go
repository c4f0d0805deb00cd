package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// provider serves kind Class, with a catalogue or an error for each pool.
type provider struct {
	errs  map[string]error
	empty map[string]bool
}

func (provider) NodeClassKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{{Group: "g", Version: "v1", Kind: "Class"}}
}

func (p provider) Catalog(_ context.Context, pool *v1.NodePool) (*cloud.Catalog, error) {
	if err := p.errs[pool.Name]; err != nil {
		return nil, err
	}
	if p.empty[pool.Name] {
		return &cloud.Catalog{}, nil
	}
	return &cloud.Catalog{Types: []*cloud.InstanceType{{Name: "t"}}}, nil
}

func pool(name, kind string, ready metav1.ConditionStatus) *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "g", Kind: kind, Name: "c"}
	p.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeReady, Status: ready}}
	return p
}

func TestPools(t *testing.T) {
	deleting := pool("deleting", "Class", metav1.ConditionTrue)
	deleting.DeletionTimestamp = &metav1.Time{}
	store := cluster.NewStore()
	foreign := pool("foreign", "Class", metav1.ConditionTrue)
	foreign.Spec.Template.Spec.NodeClassRef.Group = "other"
	store.Update(func(d *cluster.Draft) {
		for _, p := range []*v1.NodePool{
			pool("ready", "Class", metav1.ConditionTrue), pool("unready", "Class", metav1.ConditionFalse), deleting,
			pool("misspelt", "Clas", metav1.ConditionTrue), foreign, pool("failing", "Class", metav1.ConditionTrue),
			pool("empty", "Class", metav1.ConditionTrue), pool("classless", "Class", metav1.ConditionFalse),
		} {
			cluster.Pools.Put(d, p)
		}
		cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "without-reference"}})
	})
	s := catalog.New(provider{
		errs:  map[string]error{"failing": errors.New("throttled"), "classless": &cloud.ClassNotReadyError{Err: errors.New("missing")}},
		empty: map[string]bool{"empty": true},
	})
	var log bytes.Buffer
	ctx := telemetry.WithLog(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		pools, notReady := s.Pools(ctx, store.Snapshot())
		if got, want := slices.Sorted(maps.Keys(pools)), []string{"deleting", "ready", "unready"}; !slices.Equal(got, want) {
			t.Errorf("pools = %q, want %q", got, want)
		}
		if got, want := slices.Sorted(maps.Keys(notReady)), []string{"classless", "deleting", "misspelt", "unready"}; !slices.Equal(got, want) {
			t.Errorf("not ready = %q, want %q", got, want)
		}
	}
	if got := strings.Count(log.String(), "\n"); got != 3 {
		t.Errorf("%d lines were logged, want one for each of three pools that are left out:\n%s", got, log.String())
	}
}
