package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// DisruptionPlan is one voluntary step that waits for approval, because a NodePool that it touches has the annotation
// karpenter.sh/disruption-approval. Karpenter makes and deletes it; people say yes or no in its spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=disruptionplans,singular=disruptionplan,scope=Cluster,shortName=dplan,categories=karpenter
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase",description="What has become of it"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.step.reason",description="Why the nodes would go"
// +kubebuilder:printcolumn:name="Nodes",type="string",JSONPath=".status.step.remove[*].node",description="What would go"
// +kubebuilder:printcolumn:name="Types",type="string",JSONPath=".status.step.open[*].instanceType",description="What would come"
// +kubebuilder:printcolumn:name="Saves",type="string",JSONPath=".status.step.saves",description="Dollars an hour"
// +kubebuilder:printcolumn:name="Pods",type="integer",JSONPath=".status.step.pods",description="How many pods would be evicted"
// +kubebuilder:printcolumn:name="Expires",type="string",JSONPath=".status.expiresAt",description="Until when it can be approved"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.message",priority=1,description="Why it is in this phase"
type DisruptionPlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what people say. Karpenter never writes it.
	// +optional
	Spec DisruptionPlanSpec `json:"spec,omitempty"`
	// Status is what Karpenter would do, and what became of it.
	// +optional
	Status DisruptionPlanStatus `json:"status,omitempty"`
}

// DisruptionPlanList is a list of DisruptionPlans.
//
// +kubebuilder:object:root=true
type DisruptionPlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DisruptionPlan `json:"items"`
}

// DisruptionPlanSpec is the approval or denial.
type DisruptionPlanSpec struct {
	// Decision is empty while it is undecided.
	// +kubebuilder:validation:Enum=Approved;Denied
	// +optional
	Decision DisruptionDecision `json:"decision,omitempty"`
	// Note says why, for its readers.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Note string `json:"note,omitempty"`
}

// A DisruptionDecision is yes or no.
type DisruptionDecision string

// The decisions.
const (
	DisruptionApproved DisruptionDecision = "Approved"
	DisruptionDenied   DisruptionDecision = "Denied"
)

// A DisruptionPhase says what has become of a plan.
type DisruptionPhase string

// The phases. All but the first are final.
const (
	DisruptionPending    DisruptionPhase = "Pending"    // undecided, or what was approved is about to be looked at again
	DisruptionCarriedOut DisruptionPhase = "CarriedOut" // it was begun
	DisruptionRefused    DisruptionPhase = "Denied"     // its nodes are left alone until it expires
	DisruptionExpired    DisruptionPhase = "Expired"    // not decided in time
	DisruptionSuperseded DisruptionPhase = "Superseded" // it no longer was what it says; the message says why
)

// DisruptionPlanStatus is what Karpenter would do, and what became of it.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.step) || has(self.step) && self.step == oldSelf.step",message="the step of a plan never changes"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.expiresAt) || has(self.expiresAt) && self.expiresAt == oldSelf.expiresAt",message="the expiry of a plan never changes"
type DisruptionPlanStatus struct {
	// Phase says what has become of it.
	// +kubebuilder:validation:Enum=Pending;CarriedOut;Denied;Expired;Superseded
	// +optional
	Phase DisruptionPhase `json:"phase,omitempty"`
	// Message says why.
	// +optional
	Message string `json:"message,omitempty"`
	// Rule is the rule of the NodePools that approves it, empty if none does.
	// +optional
	Rule string `json:"rule,omitempty"`
	// ExpiresAt is until when it can be approved.
	// +optional
	ExpiresAt metav1.Time `json:"expiresAt,omitempty"`
	// Step is what would be done.
	// +optional
	Step *DisruptionStep `json:"step,omitempty"`
}

// DisruptionStep is one change of the fleet.
type DisruptionStep struct {
	// Reason is why the nodes would go.
	Reason v1.DisruptionReason `json:"reason"`
	// Method is the kind of thinking that found it: empty, multi or single; drift has none.
	// +optional
	Method string `json:"method,omitempty"`
	// Remove is what goes.
	// +listType=atomic
	Remove []DisruptedNode `json:"remove"`
	// Open is what is opened before.
	// +listType=atomic
	// +optional
	Open []OpenedNode `json:"open,omitempty"`
	// Evictions are the pods that move, by what owns them.
	// +listType=atomic
	// +optional
	Evictions []DisruptedWorkload `json:"evictions,omitempty"`
	// Pods counts them.
	Pods int `json:"pods"`
	// Saves is what it takes off the bill, in dollars an hour.
	Saves string `json:"saves"`
}

// DisruptedNode is a node that would go.
type DisruptedNode struct {
	// NodeClaim is the name of its claim.
	NodeClaim string `json:"nodeClaim"`
	// UID is that of the claim: not a later claim of the same name.
	UID types.UID `json:"uid"`
	// Node is its name.
	Node string `json:"node"`
	// NodePool is its pool.
	NodePool string `json:"nodePool"`
	// InstanceType is what runs.
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// CapacityType is how it is paid for.
	// +optional
	CapacityType string `json:"capacityType,omitempty"`
	// Price is what it costs, in dollars an hour.
	Price string `json:"price"`
}

// OpenedNode is a node that would come.
type OpenedNode struct {
	// NodePool is its pool.
	NodePool string `json:"nodePool"`
	// InstanceType is the type that was reckoned with.
	InstanceType string `json:"instanceType"`
	// Types is from how many types the cloud may choose.
	Types int `json:"types"`
	// CapacityType is how it would be paid for.
	CapacityType string `json:"capacityType"`
	// Price is the expected cost, in dollars an hour.
	Price string `json:"price"`
}

// DisruptedWorkload is pods of one owner, or one pod without.
type DisruptedWorkload struct {
	// Namespace is where the pods are.
	Namespace string `json:"namespace"`
	// Kind is that of what controls the pods, Pod if nothing does.
	Kind string `json:"kind"`
	// Name is that of what controls the pods, or of the pod.
	Name string `json:"name"`
	// Pods is how many would be evicted.
	Pods int `json:"pods"`
}

// Open plans wait for a decision, or to be carried out. A plan that was deleted does not, though a finalizer may keep it for a while.
func (p *DisruptionPlan) Open() bool {
	return p.Status.Step != nil && p.Status.Phase == DisruptionPending && p.DeletionTimestamp == nil
}

// Approved reports whether a person or a rule has approved.
func (p *DisruptionPlan) Approved() bool {
	return p.Open() && p.Spec.Decision != DisruptionDenied && (p.Spec.Decision == DisruptionApproved || p.Status.Rule != "")
}

// Holds reports whether the nodes of the plan are left alone: a decision is waited for, or it was no.
func (p *DisruptionPlan) Holds() bool {
	return p.Open() || p.Status.Step != nil && p.Status.Phase == DisruptionRefused && p.DeletionTimestamp == nil
}
