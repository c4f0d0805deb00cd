package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// KubeletConfiguration is a kubelet configuration as the user wrote it. Any field is kept, also those that Karpenter does not
// know; Managed gives the fields that it does know their types.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type KubeletConfiguration struct {
	// Raw is the JSON text of the object.
	Raw []byte `json:"-"`
}

// UnmarshalJSON keeps the text of a JSON object.
func (k *KubeletConfiguration) UnmarshalJSON(b []byte) error {
	if trimmed := bytes.TrimSpace(b); len(trimmed) == 0 || trimmed[0] != '{' {
		return fmt.Errorf("kubelet must be an object, got %s", trimmed)
	}
	k.Raw = slices.Clone(b)
	return nil
}

// MarshalJSON writes the text that was read.
func (k KubeletConfiguration) MarshalJSON() ([]byte, error) {
	if len(k.Raw) == 0 {
		return []byte("{}"), nil
	}
	return slices.Clone(k.Raw), nil
}

// NewKubeletConfiguration makes a kubelet configuration of fields.
func NewKubeletConfiguration(fields map[string]any) (*KubeletConfiguration, error) {
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return &KubeletConfiguration{Raw: raw}, nil
}

// ManagedKubelet holds the kubelet fields that Karpenter takes into account when it plans and boots nodes.
type ManagedKubelet struct {
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// MaxPods is a number, or text in a language that needs the feature gate NodeClassCEL.
	MaxPods                     *intstr.IntOrString `json:"maxPods,omitempty"`
	PodsPerCore                 *int32              `json:"podsPerCore,omitempty"`
	SystemReserved              map[string]string   `json:"systemReserved,omitempty"`
	KubeReserved                map[string]string   `json:"kubeReserved,omitempty"`
	EvictionHard                map[string]string   `json:"evictionHard,omitempty"`
	EvictionSoft                map[string]string   `json:"evictionSoft,omitempty"`
	EvictionSoftGracePeriod     map[string]string   `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMaxPodGracePeriod   *int32              `json:"evictionMaxPodGracePeriod,omitempty"`
	ImageGCHighThresholdPercent *int32              `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int32              `json:"imageGCLowThresholdPercent,omitempty"`
	CPUCFSQuota                 *bool               `json:"cpuCFSQuota,omitempty"`
}

// ParseManagedKubelet reads a configuration that may have the fields of ManagedKubelet only, each with a value and
// no expression. It is the form in which v1beta1 let authors of NodePools configure kubelets.
func ParseManagedKubelet(text string) (*KubeletConfiguration, error) {
	var managed ManagedKubelet
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&managed); err != nil {
		return nil, err
	}
	if managed.MaxPods != nil && managed.MaxPods.Type == intstr.String {
		return nil, fmt.Errorf("maxPods: %q is not a number", managed.MaxPods.StrVal)
	}
	for _, amounts := range []map[string]string{managed.SystemReserved, managed.KubeReserved} {
		for name, amount := range amounts {
			if _, err := resource.ParseQuantity(amount); err != nil {
				return nil, fmt.Errorf("%s: %q is not a quantity", name, amount)
			}
		}
	}
	raw, err := json.Marshal(managed)
	if err != nil {
		return nil, err
	}
	return &KubeletConfiguration{Raw: raw}, nil
}

// ManagedKubeletFields lists the JSON names of the fields of ManagedKubelet, sorted.
func ManagedKubeletFields() []string {
	return []string{
		"clusterDNS", "cpuCFSQuota", "evictionHard", "evictionMaxPodGracePeriod", "evictionSoft", "evictionSoftGracePeriod",
		"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "kubeReserved", "maxPods", "podsPerCore", "systemReserved",
	}
}

// Fields decodes the configuration; a nil or empty one gives an empty map. Numbers are json.Number.
func (k *KubeletConfiguration) Fields() (map[string]any, error) {
	fields := map[string]any{}
	if k == nil || len(k.Raw) == 0 {
		return fields, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(k.Raw))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("decode kubelet: %w", err)
	}
	return fields, nil
}

// Managed decodes the fields that Karpenter takes into account. A nil configuration gives an empty struct.
func (k *KubeletConfiguration) Managed() (*ManagedKubelet, error) {
	managed := &ManagedKubelet{}
	if k == nil || len(k.Raw) == 0 {
		return managed, nil
	}
	if err := json.Unmarshal(k.Raw, managed); err != nil {
		return nil, fmt.Errorf("decode kubelet: %w", err)
	}
	return managed, nil
}

// Passthrough lists the fields that Karpenter hands on without looking at them, sorted; nil if there are none.
func (k *KubeletConfiguration) Passthrough() ([]string, error) {
	fields, err := k.Fields()
	if err != nil {
		return nil, err
	}
	for _, name := range ManagedKubeletFields() {
		delete(fields, name)
	}
	if len(fields) == 0 {
		return nil, nil
	}
	return slices.Sorted(maps.Keys(fields)), nil
}

// Canonical returns the configuration as JSON with sorted keys, "null" if it is missing or empty.
func (k *KubeletConfiguration) Canonical() (string, error) {
	fields, err := k.Fields()
	if err != nil {
		return "", err
	}
	if len(fields) == 0 {
		return "null", nil
	}
	text, err := json.Marshal(fields)
	return string(text), err
}
