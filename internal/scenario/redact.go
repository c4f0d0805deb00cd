package scenario

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A redactor replaces names that users chose: "shop/cart-7f" becomes "pod-12" everywhere. Names of Kubernetes,
// providers and drivers stay, and so do numbers, because the story is about them.
type redactor struct {
	keep  bool // every name stays unchanged
	width int  // digits of the numbers in new names; 0 in a story that is cut to some bytes, above 0 in a whole story
	names map[redacted]string
	count map[string]int
}

// A redacted is a name of a kind that has a new one.
type redacted struct{ kind, old string }

func newRedactor() *redactor { return &redactor{names: map[redacted]string{}, count: map[string]int{}} }

// name returns the new name of something of a kind.
func (r *redactor) name(kind, old string) string {
	if old == "" || r.keep {
		return old
	}
	if _, known := r.names[redacted{kind, old}]; !known {
		r.count[kind]++
		r.names[redacted{kind, old}] = fmt.Sprintf("%s-%0*d", kind, r.width, r.count[kind])
	}
	return r.names[redacted{kind, old}]
}

// public are the domains of keys that everybody uses.
var public = []string{"kubernetes.io", "k8s.io", v1.Group, "k8s.aws", "aws.amazon.com", "nvidia.com", "amd.com",
	"habana.ai", "csi.aws.com"}

// key returns the new name of a key of a label or taint, or of a resource.
func (r *redactor) key(key string) string {
	domain, _, found := strings.Cut(key, "/")
	if !found && (key == "cpu" || key == "memory" || key == "pods" || key == "nodes" || key == "storage" ||
		key == "ephemeral-storage" || strings.HasPrefix(key, "hugepages-")) {
		return key
	}
	for _, p := range public {
		if found && (domain == p || strings.HasSuffix(domain, "."+p)) {
			return key
		}
	}
	return r.name("key", key)
}

// machineKeys are the ends of public keys whose values say what a machine is.
var machineKeys = []string{"/zone", "/zone-id", "/region", "/arch", "/os", "/instance-type", "/capacity-type"}

// value returns the new value of a label with a key. Values that say what a machine is stay.
func (r *redactor) value(key, value string) string {
	_, notNumber := strconv.ParseFloat(value, 64)
	switch {
	case value == "" || value == "true" || value == "false" || notNumber == nil:
		return value
	case key == corev1.LabelHostname:
		return r.name("node", value)
	case key == v1.NodePoolLabelKey:
		return r.name("pool", value)
	case key == corev1.LabelMetadataName:
		return r.name("ns", value)
	case r.key(key) != key:
		return r.name("value", value)
	case strings.Contains(key, "/instance-"): // of a cloud's own domain
		return value
	}
	for _, end := range machineKeys {
		if strings.HasSuffix(key, end) {
			return value
		}
	}
	return r.name("value", value)
}

// plainFields are the fields whose texts are words of the API or amounts.
var plainFields = map[string]bool{
	"operator": true, "effect": true, "whenUnsatisfiable": true, "nodeAffinityPolicy": true, "nodeTaintsPolicy": true,
	"protocol": true, "hostIP": true,
	"restartPolicy": true, "preemptionPolicy": true, "apiVersion": true, "kind": true, "phase": true,
	"declaredFeatures": true, "action": true, "provisioner": true, "driver": true, "storage": true,
	"volumeBindingMode": true, "status": true, "type": true, "reason": true, "group": true,
	"lastTransitionTime": true, "deletionTimestamp": true,
	"creationTimestamp": true, "accessModes": true, "volumeMode": true, "expireAfter": true, "consolidateAfter": true,
}

// nameFields are the fields that hold names, by the kind of what they name.
var nameFields = map[string]string{
	"nodeName": "node", "claimName": "disk", "volumeName": "volume", "storageClassName": "class",
	"schedulerName": "scheduler", "priorityClassName": "priority",
	"namespaces": "ns", "namespace": "ns", "name": "name",
}

// walk returns the redacted form of a part of an object that stands in a field of this name.
func (r *redactor) walk(field string, part any) any {
	switch part := part.(type) {
	case map[string]any:
		return r.object(field, part)
	case []any:
		out := make([]any, len(part))
		for i, x := range part {
			out[i] = r.walk(field, x)
		}
		return out
	case string:
		return r.text(field, part)
	}
	return part
}

// object returns the redacted form of an object in a field of this name. Labels and resources have names as keys;
// elsewhere a field "key" says what "value" and "values" beside it belong to.
func (r *redactor) object(field string, in map[string]any) map[string]any {
	out := make(map[string]any, len(in))
	switch field {
	case "labels", "matchLabels", "nodeSelector", "selector":
		if _, structured := in["matchLabels"]; structured || in["matchExpressions"] != nil {
			break
		}
		for k, v := range in {
			out[r.key(k)] = r.value(k, fmt.Sprint(v))
		}
		return out
	case "requests", "limits", "allocatable", "capacity", "overhead":
		for k, v := range in {
			out[r.key(k)] = v
		}
		return out
	}
	key, keyed := in["key"].(string)
	for k, v := range in {
		switch text, isText := v.(string); {
		case k == "key":
			out[k] = r.key(key)
		case keyed && k == "value" && isText:
			out[k] = r.value(key, text)
		case keyed && k == "values":
			out[k] = r.values(key, v)
		default:
			out[k] = r.walk(k, v)
		}
	}
	return out
}

// values returns the new values of a key.
func (r *redactor) values(key string, list any) []any {
	var out []any
	many, _ := list.([]any)
	for _, v := range many {
		out = append(out, r.value(key, fmt.Sprint(v)))
	}
	return out
}

// text returns the redacted form of a text in a field of this name.
func (r *redactor) text(field, text string) string {
	switch kind := nameFields[field]; {
	case plainFields[field], text == "default-scheduler":
		return text
	case field == "topologyKey", field == "matchLabelKeys", field == "mismatchLabelKeys":
		return r.key(text)
	case kind != "":
		return r.name(kind, text)
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text
	}
	return r.name("text", text)
}
