package runtime

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// images are those that a process stands for, whatever the registry: karpenter, karpenter/controller, and the controllers over other
// providers, such as karpenter/kwok.
const images = `(^|/)karpenter(/controller|/kwok|/aws-upstream)?([:@]|$)`

var known = regexp.MustCompile(images)

// plays reports whether a process stands for the container.
func plays(c *corev1.Container) bool { return known.MatchString(c.Image) }

// executable returns the name of the executable of an image, which is beside this one; "" for this one.
func executable(image string) string {
	if parts := known.FindStringSubmatch(image); parts != nil && parts[2] != "" && parts[2] != "/controller" {
		return "karpenter-" + strings.TrimPrefix(parts[2], "/")
	}
	return ""
}

// runs reports whether processes stand for some of the pod.
func runs(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return plays(&c) })
}

// Query finds, in jq, what makes a pod one of those that run as processes on the given nodes.
func Query(nodes []string) string {
	var on []string
	for _, n := range nodes {
		on = append(on, fmt.Sprintf(".spec.nodeName == %q", n))
	}
	return fmt.Sprintf("select(%s) | .spec.containers[].image | select(test(%q))", strings.Join(on, " or "), images)
}
