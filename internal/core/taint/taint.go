// Package taint reports whether a pod tolerates a taint.
package taint

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/core/label"
)

// Tolerated reports whether any of the tolerations tolerates the taint.
func Tolerated(list []corev1.Toleration, t *corev1.Taint) bool {
	return slices.ContainsFunc(list, func(x corev1.Toleration) bool { return tolerates(&x, t) })
}

// canonical reports whether a text is an integer as Kubernetes writes it. kube-scheduler compares no other numbers, such as 05.
func canonical(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == text
}

// tolerates is Kubernetes' rule for one toleration, with the operators Gt and Lt, which compare numbers.
func tolerates(x *corev1.Toleration, t *corev1.Taint) bool {
	if x.Effect != "" && x.Effect != t.Effect || x.Key != "" && x.Key != t.Key {
		return false
	}
	switch x.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return x.Value == t.Value && x.Key != ""
	case corev1.TolerationOpGt, corev1.TolerationOpLt:
		s, ok := label.New(label.Op(x.Operator), []string{x.Value})
		return ok && canonical(x.Value) && canonical(t.Value) && s.Has(t.Value)
	default:
		return false
	}
}
