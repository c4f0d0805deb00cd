package drift_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/drift"
)

func ptr[T any](v T) *T { return &v }

func samplePool() *v1.NodePool {
	p := &v1.NodePool{}
	t := &p.Spec.Template
	t.Labels = map[string]string{"team": "a", "tier": "b"}
	t.Annotations = map[string]string{"note": "x"}
	t.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "l", Effect: "NoExecute"}}
	t.Spec.StartupTaints = []corev1.Taint{{Key: "s", Effect: "NoSchedule"}}
	t.Spec.NodeClassRef = &v1.NodeClassReference{Group: "g", Kind: "k", Name: "n"}
	t.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	t.Spec.ExpireAfter = v1.MustParseNillableDuration("720h")
	return p
}

// TestPoolHashIsFrozen holds the version to its word: this value may only change together with the version.
func TestPoolHashIsFrozen(t *testing.T) {
	want := drift.Stamp{Hash: "9491818938609329228", Version: "go1"}
	if got := drift.PoolStamp(samplePool()); got != want {
		t.Errorf("PoolStamp = %v, want %v", got, want)
	}
}

func TestPoolStamp(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(*v1.NodePool)
		changes bool
	}{
		"label value":               {func(p *v1.NodePool) { p.Spec.Template.Labels["team"] = "z" }, true},
		"one more label":            {func(p *v1.NodePool) { p.Spec.Template.Labels["new"] = "z" }, true},
		"annotation":                {func(p *v1.NodePool) { p.Spec.Template.Annotations["note"] = "z" }, true},
		"taint value":               {func(p *v1.NodePool) { p.Spec.Template.Spec.Taints[0].Value = "z" }, true},
		"taint effect":              {func(p *v1.NodePool) { p.Spec.Template.Spec.Taints[0].Effect = "NoExecute" }, true},
		"startup taint":             {func(p *v1.NodePool) { p.Spec.Template.Spec.StartupTaints[0].Key = "z" }, true},
		"no startup taints":         {func(p *v1.NodePool) { p.Spec.Template.Spec.StartupTaints = nil }, true},
		"node class name":           {func(p *v1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "z" }, true},
		"terminationGracePeriod":    {func(p *v1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod.Duration = time.Minute }, true},
		"no terminationGracePeriod": {func(p *v1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod = nil }, true},
		"terminationGracePeriod of zero is not the same as none": {func(p *v1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod.Duration = 0 }, true},
		"expireAfter":                          {func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.After(time.Hour) }, true},
		"expireAfter Never":                    {func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.MustParseNillableDuration("Never") }, true},
		"another text of the same expireAfter": {func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.MustParseNillableDuration("43200m") }, false},
		"order of taints":                      {func(p *v1.NodePool) { s := p.Spec.Template.Spec.Taints; s[0], s[1] = s[1], s[0] }, false},
		"empty instead of missing lists":       {func(p *v1.NodePool) { p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{} }, false},
		"when a taint was added":               {func(p *v1.NodePool) { p.Spec.Template.Spec.Taints[0].TimeAdded = &metav1.Time{Time: time.Unix(1, 0)} }, false},
		"requirements": {func(p *v1.NodePool) {
			p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: "a", Operator: "Exists"}}
		}, false},
		"disruption": {func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.After(time.Hour) }, false},
		"limits":     {func(p *v1.NodePool) { p.Spec.Limits = v1.Limits{"cpu": resource.MustParse("1")} }, false},
		"weight":     {func(p *v1.NodePool) { p.Spec.Weight = ptr(int32(3)) }, false},
		"the kubelet of v1beta1": {func(p *v1.NodePool) {
			p.Annotations = map[string]string{v1.KubeletCompatibilityAnnotationKey: `{"maxPods":9}`}
		}, true},
		"replicas": {func(p *v1.NodePool) { p.Spec.Replicas = ptr(int64(3)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := samplePool()
			tc.edit(p)
			if changed := drift.PoolStamp(p) != drift.PoolStamp(samplePool()); changed != tc.changes {
				t.Errorf("hash changed: %t, want %t", changed, tc.changes)
			}
		})
	}
}
