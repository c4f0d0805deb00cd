package taint_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/core/taint"
)

func TestTolerated(t *testing.T) {
	dedicated := corev1.Taint{Key: "dedicated", Value: "3", Effect: corev1.TaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"everything":                          {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"the key":                             {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}, true},
		"another key":                         {corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}, false},
		"the value":                           {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "3"}, true},
		"the value, without operator":         {corev1.Toleration{Key: "dedicated", Value: "3"}, true},
		"another value":                       {corev1.Toleration{Key: "dedicated", Value: "4"}, false},
		"a value without key":                 {corev1.Toleration{Value: "3"}, false},
		"the effect":                          {corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, true},
		"another effect":                      {corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, false},
		"more than a number":                  {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpGt, Value: "2"}, true},
		"more than a number that is more":     {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpGt, Value: "3"}, false},
		"less than a number":                  {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpLt, Value: "4"}, true},
		"more than a word":                    {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpGt, Value: "many"}, false},
		"a number that is not written as one": {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpGt, Value: "02"}, false},
		"an operator that there is not":       {corev1.Toleration{Key: "dedicated", Operator: "Near", Value: "3"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := taint.Tolerated([]corev1.Toleration{tc.toleration}, &dedicated); got != tc.want {
				t.Errorf("tolerated = %v, want %v", got, tc.want)
			}
		})
	}
	if taint.Tolerated(nil, &dedicated) {
		t.Error("a pod without tolerations tolerates a taint")
	}
}
