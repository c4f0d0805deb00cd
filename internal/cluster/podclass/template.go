package podclass

import corev1 "k8s.io/api/core/v1"

// RequestLimits sets the missing requests of containers to their limits, in place. The API server does so for pods, but not for
// templates.
func RequestLimits(list []corev1.Container) {
	for i := range list {
		r := &list[i].Resources
		for name, q := range r.Limits {
			if _, ok := r.Requests[name]; !ok {
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = q
			}
		}
	}
}
