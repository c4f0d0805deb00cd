package sentence

import (
	"testing"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/approval"
)

func TestUnread(t *testing.T) {
	for rule, want := range map[string]string{
		"cost>=1":     `"cost>=1" is none of reason=, pods<=, nodes<= and saves>=`,
		"reason=Mood": `"reason=Mood": there are the reasons [Empty Drifted Underutilized Unhealthy]`,
		"pods<=few":   `"pods<=few": "few" is no number of pods`,
		"nodes<=-1":   `"nodes<=-1": "-1" is no number of nodes`,
		"saves>=NaN":  `"saves>=NaN": "NaN" is no number of dollars an hour`,
	} {
		pool := &v1.NodePool{}
		pool.Annotations = map[string]string{v1.AutoApproveAnnotationKey: rule}
		if _, unread := approval.Rules(pool); unread == nil || Unread(unread) != want {
			t.Errorf("%s: got %+v, want %s", rule, unread, want)
		}
	}
}
