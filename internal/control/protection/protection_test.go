package protection_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/protection"
)

func TestEvent(t *testing.T) {
	begun := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		annotations map[string]string
		after       time.Duration
		ended       bool
		want        string
	}{
		"a pod without annotation":          {nil, 0, false, ""},
		"for ever needs no explanation":     {map[string]string{v1.DoNotDisruptAnnotationKey: "true"}, 0, false, ""},
		"a time that runs":                  {map[string]string{v1.DoNotDisruptAnnotationKey: "1h"}, time.Minute, false, "DoNotDisruptUntil: the pod is not disrupted before 2026-05-01T13:00:00Z"},
		"a time that is over":               {map[string]string{v1.DoNotDisruptAnnotationKey: "1h"}, time.Hour, false, "DoNotDisruptGracePeriodElapsed: the pod may be disrupted again"},
		"one that means nothing":            {map[string]string{v1.DoNotDisruptAnnotationKey: "yes"}, 0, false, `InvalidDoNotDisruptAnnotation: "yes" is neither true nor a positive duration; the annotation is ignored`},
		"the older name":                    {map[string]string{v1.DoNotEvictAnnotationKey: "true"}, 0, false, "DeprecatedAnnotation: the annotation karpenter.sh/do-not-evict is called karpenter.sh/do-not-disrupt now; it counts still"},
		"a pod that has ended is not asked": {map[string]string{v1.DoNotDisruptAnnotationKey: "yes"}, 0, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1", Annotations: tc.annotations}}
			pod.Status.StartTime = new(metav1.NewTime(begun))
			if tc.ended {
				pod.Status.Phase = corev1.PodSucceeded
			}
			store := cluster.NewStore()
			store.Update(func(d *cluster.Draft) { d.PutPod(pod) })
			row := store.Snapshot().Pod(cluster.PodKey{Namespace: "default", Name: "web"})
			e, ok := protection.Event(row, begun.Add(tc.after))
			got := ""
			if ok {
				got = string(e.Reason) + ": " + e.Message
			}
			if got != tc.want {
				t.Errorf("event = %q, want %q", got, tc.want)
			}
		})
	}
}
