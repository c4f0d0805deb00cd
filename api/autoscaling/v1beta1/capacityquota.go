package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
)

// ResourceDollars is the resource by which a quota limits what its nodes cost: millionths of a dollar an hour.
const ResourceDollars ResourceName = "karpenter.sh/usd-micros-per-hour"

// QuotaWeightAnnotationKey is the weight of a namespace where a quota leaves no room for all of its pods, 1 to 1000; 1 if it is missing.
const QuotaWeightAnnotationKey = "karpenter.sh/quota-weight"

// CapacityQuota limits what the nodes that match a selector may have together.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=capacityquotas,singular=capacityquota,scope=Cluster,shortName=cq,categories=autoscaling
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Enforced",type="string",JSONPath=".status.conditions[?(@.type=='karpenter.sh/enforced')].status",description="Whether Karpenter keeps to it"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type CapacityQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the limits, and which nodes count against them.
	// +required
	Spec CapacityQuotaSpec `json:"spec"`
	// Status is how much is used.
	// +optional
	Status CapacityQuotaStatus `json:"status,omitempty"`
}

// CapacityQuotaList is a list of CapacityQuotas.
//
// +kubebuilder:object:root=true
type CapacityQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CapacityQuota `json:"items"`
}

// CapacityQuotaSpec is the limits of some nodes.
type CapacityQuotaSpec struct {
	// Selector chooses the nodes by their labels. Without one, or with an empty one, all nodes count.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Limits are what these nodes may have together.
	// +required
	Limits CapacityQuotaLimits `json:"limits"`
}

// CapacityQuotaLimits are the most that some nodes may have.
type CapacityQuotaLimits struct {
	// Resources are whole amounts: cpu in cores, memory in bytes, nodes, extended resources, and
	// karpenter.sh/usd-micros-per-hour in millionths of a dollar an hour.
	// +required
	Resources QuotaAmounts `json:"resources"`
}

// QuotaAmounts is an amount of each of several resources.
//
// +kubebuilder:validation:MaxProperties=20
type QuotaAmounts map[ResourceName]resource.Quantity

// CapacityQuotaStatus is what was observed last.
type CapacityQuotaStatus struct {
	// Used is what the nodes have now, of each resource that is limited.
	// +optional
	Used *CapacityQuotaLimits `json:"used,omitempty"`
	// ObservedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions say whether the quota could be read, and who enforces it.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GetConditions returns the quota's conditions.
func (q *CapacityQuota) GetConditions() []metav1.Condition { return q.Status.Conditions }

// SetConditions replaces the quota's conditions.
func (q *CapacityQuota) SetConditions(c []metav1.Condition) { q.Status.Conditions = c }

// ConditionRules says that a quota's conditions stand on their own.
func (q *CapacityQuota) ConditionRules() condition.Rules { return condition.Rules{} }
