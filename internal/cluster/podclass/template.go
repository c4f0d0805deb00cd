package podclass

import corev1 "k8s.io/api/core/v1"

// RequestLimits makes containers of a template request what they are limited to where they say nothing else. The
// API server does so for pods, and not for templates.
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
