package surge

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The deadline of a restart counts from its last progress, as that of the Deployment does.
func TestProgress(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	restart := Restart{Value: noon.Format(time.RFC3339), At: noon}
	for name, tc := range map[string]struct {
		value    string
		status   corev1.ConditionStatus // of Progressing
		reason   string
		progress time.Duration // when Progressing was updated
		now      time.Duration
		want     State
	}{
		"it has just begun":                     {restart.Value, corev1.ConditionTrue, "ReplicaSetUpdated", -time.Hour, time.Minute, Goes},
		"another program changed it":            {"x", corev1.ConditionTrue, "ReplicaSetUpdated", 0, time.Minute, Undone},
		"nothing happened until the deadline":   {restart.Value, corev1.ConditionTrue, "ReplicaSetUpdated", -time.Hour, 12 * time.Minute, Overdue},
		"its many pods go one after the other":  {restart.Value, corev1.ConditionTrue, "ReplicaSetUpdated", 10 * time.Minute, 12 * time.Minute, Goes},
		"it went on and then stood still":       {restart.Value, corev1.ConditionTrue, "ReplicaSetUpdated", 10 * time.Minute, 22 * time.Minute, Overdue},
		"its controller has noticed":            {restart.Value, corev1.ConditionFalse, "ProgressDeadlineExceeded", 2 * time.Minute, 3 * time.Minute, Overdue},
		"what its controller noticed is before": {restart.Value, corev1.ConditionFalse, "ProgressDeadlineExceeded", -time.Minute, 3 * time.Minute, Goes},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{}
			d.Spec.Template.Annotations = map[string]string{RestartedAt: tc.value}
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: tc.status, Reason: tc.reason,
				LastUpdateTime: metav1.NewTime(noon.Add(tc.progress))}}
			if got := Progress(d, restart, noon.Add(tc.now)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
