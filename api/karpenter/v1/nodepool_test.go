package v1_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

func TestOrderByWeight(t *testing.T) {
	pool := func(name string, weight int32) *v1.NodePool {
		p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if weight > 0 {
			p.Spec.Weight = &weight
		}
		return p
	}
	pools := []*v1.NodePool{pool("a", 0), pool("b", 10), pool("c", 0), pool("d", 10), pool("e", 100)}
	v1.OrderByWeight(pools)
	got := ""
	for _, p := range pools {
		got += p.Name
	}
	if want := "edbca"; got != want {
		t.Errorf("order = %s, want %s: heaviest first, then the later name", got, want)
	}
}

func TestLimitsExceeded(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return out
	}
	for name, tc := range map[string]struct {
		limits v1.Limits
		used   corev1.ResourceList
		want   corev1.ResourceName
	}{
		"no limits":                    {nil, list("cpu", "1000"), ""},
		"exactly at the limit":         {v1.Limits(list("cpu", "10")), list("cpu", "10"), ""},
		"above the limit":              {v1.Limits(list("cpu", "10")), list("cpu", "10001m"), "cpu"},
		"a resource without limit":     {v1.Limits(list("cpu", "10")), list("memory", "1Ti"), ""},
		"nodes":                        {v1.Limits(list("nodes", "2")), list("nodes", "3"), v1.ResourceNodes},
		"of several the first by name": {v1.Limits(list("memory", "1", "cpu", "1")), list("cpu", "2", "memory", "2"), "cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.limits.Exceeded(tc.used); got != tc.want {
				t.Errorf("Exceeded = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestKnownEphemeralTaint(t *testing.T) {
	for _, tc := range []struct {
		taint corev1.Taint
		want  bool
	}{
		{corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: "NoSchedule"}, true},
		{corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: "NoExecute"}, true},
		{corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: "PreferNoSchedule"}, false},
		{corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: "NoSchedule"}, true},
		{corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: "NoExecute"}, false},
		{corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: "NoSchedule"}, true},
		{v1.UnregisteredTaint(), true},
		{corev1.Taint{Key: v1.UnregisteredTaintKey, Effect: "NoSchedule"}, false},
		{corev1.Taint{Key: "readiness.k8s.io/network", Effect: "PreferNoSchedule"}, true},
		{v1.DisruptedTaint(), false},
		{corev1.Taint{Key: "example.com/special", Effect: "NoSchedule"}, false},
	} {
		if got := v1.KnownEphemeralTaint(&tc.taint); got != tc.want {
			t.Errorf("KnownEphemeralTaint(%s:%s) = %t", tc.taint.Key, tc.taint.Effect, got)
		}
	}
}

func TestNodeClassLabelKey(t *testing.T) {
	if got := v1.NodeClassLabelKey(schema.GroupKind{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass"}); got != "karpenter.k8s.aws/ec2nodeclass" {
		t.Errorf("NodeClassLabelKey = %s", got)
	}
}
