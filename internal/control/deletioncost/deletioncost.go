// Package deletioncost writes the annotation controller.kubernetes.io/pod-deletion-cost of pods, as core/deletioncost decides it. A
// second annotation holds the same value: where they differ, the user wrote the first. The loop runs only with the feature gate
// PodDeletionCostManagement.
package deletioncost

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/deletioncost"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	lookInterval = 10 * time.Second
	// writesPerLook bounds the load on the API server; the rest follows at the next looks.
	writesPerLook = 200
)

// Loop writes the annotations.
type Loop struct {
	store   *cluster.Store
	client  client.Client
	metrics *telemetry.Metrics
}

// New returns a loop that has not started.
func New(store *cluster.Store, c client.Client, m *telemetry.Metrics) *Loop {
	return &Loop{store: store, client: c, metrics: m}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	l.metrics.Repeat(ctx, telemetry.Chore{Name: "pod.deletioncost", What: "writing which pods ReplicaSets give up first",
		Failed: "cannot write which pods ReplicaSets give up first", Every: lookInterval, Turn: l.turn})
	return nil
}

// turn writes up to writesPerLook annotations that are not as they should be. An error ends the turn: the next look goes on.
func (l *Loop) turn(ctx context.Context, _ time.Time) error {
	snap := l.store.Snapshot()
	if !snap.Synced() || !snap.Fed() {
		return nil
	}
	edits := deletioncost.Edits(snap)
	l.showPending(edits)
	for _, e := range edits[:min(len(edits), writesPerLook)] {
		result, err := l.write(ctx, e)
		l.metrics.DeletionCostWrites.WithLabelValues(result).Inc()
		if err != nil {
			return err
		}
	}
	return nil
}

// showPending sets the metric of nodes with pods whose annotation has to change, by pool.
func (l *Loop) showPending(edits []deletioncost.Edit) {
	l.metrics.DeletionCostPending.Reset()
	seen := map[*cluster.Node]bool{}
	for _, e := range edits {
		if !seen[e.Node] {
			seen[e.Node] = true
			l.metrics.DeletionCostPending.WithLabelValues(e.Node.Pool()).Inc()
		}
	}
}

// write sets or removes (null) the two annotations of one pod, unless the pod has changed since the snapshot: then the next look decides.
// result is the label of the metric.
func (l *Loop) write(ctx context.Context, e deletioncost.Edit) (result string, err error) {
	var value any
	if !e.Remove {
		value = strconv.Itoa(int(e.Value))
	}
	meta := map[string]any{
		"uid":         e.Pod.UID,
		"annotations": map[string]any{corev1.PodDeletionCost: value, v1.PodDeletionCostAnnotationKey: value},
	}
	if e.Pod.Version != 0 {
		meta["resourceVersion"] = strconv.FormatUint(e.Pod.Version, 10)
	}
	body, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return "error", err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.Pod.Namespace, Name: e.Pod.Name}}
	switch err := l.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, body)); {
	case apierrors.IsNotFound(err):
		return "skipped_notfound", nil
	case apierrors.IsConflict(err):
		return "skipped_conflict", nil
	case err != nil:
		return "error", fmt.Errorf("pod %s/%s: %w", e.Pod.Namespace, e.Pod.Name, err)
	}
	return "updated", nil
}
