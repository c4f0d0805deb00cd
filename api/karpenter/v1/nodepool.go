package v1

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodePool says what kind of nodes Karpenter may launch, how many, and when it may take them away again.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodepools,singular=nodepool,scope=Cluster,categories=karpenter
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.nodes
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.template.spec.nodeClassRef.name",description="Node class that new nodes are built from"
// +kubebuilder:printcolumn:name="Nodes",type="string",JSONPath=".status.nodes",description="Number of nodes in the pool"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the pool may launch nodes"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Weight",type="integer",JSONPath=".spec.weight",priority=1,description="Pools of higher weight are used first"
// +kubebuilder:printcolumn:name="CPU",type="string",JSONPath=".status.resources.cpu",priority=1,description="CPU of all nodes of the pool"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.resources.memory",priority=1,description="Memory of all nodes of the pool"
type NodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +required
	Spec NodePoolSpec `json:"spec"`
	// Status is what Karpenter observed.
	// +kubebuilder:default={}
	// +optional
	Status NodePoolStatus `json:"status,omitempty"`
}

// NodePoolList is a list of NodePools.
//
// +kubebuilder:object:root=true
type NodePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePool `json:"items"`
}

// NodePoolSpec is what the user asks of a pool.
//
// +kubebuilder:validation:XValidation:rule="has(self.replicas) == has(oldSelf.replicas)",message="a static pool cannot become dynamic, nor a dynamic pool static: replicas cannot be added or removed"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.limits) || self.limits.size() == 0 || (self.limits.size() == 1 && 'nodes' in self.limits)",message="only limits.nodes may be set together with replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.weight)",message="weight may not be set together with replicas"
type NodePoolSpec struct {
	// Template describes the nodes of the pool. A change to it, other than to its requirements, drifts the nodes
	// that were launched before.
	// +required
	Template NodeClaimTemplate `json:"template"`
	// Disruption says when Karpenter may remove or replace nodes on its own account.
	// +kubebuilder:default={consolidateAfter: "0s"}
	// +optional
	Disruption Disruption `json:"disruption,omitempty"`
	// Limits is the most that all nodes of the pool together may have of each resource, "nodes" counting the nodes
	// themselves. No node is launched that would exceed a limit. Resources that are not named are not limited.
	// +optional
	Limits Limits `json:"limits,omitempty"`
	// Weight is the pool's rank: pools of higher weight are used first. A missing weight ranks lowest.
	// It may not be set together with replicas.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Weight *int32 `json:"weight,omitempty"`
	// Replicas makes the pool static: Karpenter keeps this many nodes whether or not pods need them. Consolidation
	// leaves the nodes of a static pool alone. Replicas cannot be added to, or removed from, an existing pool.
	// This field is alpha and needs the feature gate StaticCapacity.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int64 `json:"replicas,omitempty"`
}

// NodeClaimTemplate describes the nodes of a pool.
type NodeClaimTemplate struct {
	// Metadata is copied to the NodeClaims of the pool and from there to their Nodes.
	// +optional
	ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec describes the nodes.
	// +required
	Spec NodeClaimTemplateSpec `json:"spec"`
}

// ObjectMeta is the part of the metadata that a template may set.
type ObjectMeta struct {
	// Labels of the NodeClaims and Nodes of the pool. Keys of Karpenter's own domains are restricted.
	// +kubebuilder:validation:MaxProperties=100
	// +karpenter:mapValues:maxLength=63,pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	// +karpenter:labelKeys:tables=core;aws
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != 'karpenter.sh/nodepool')",message="label karpenter.sh/nodepool is set by Karpenter and may not be given"
	// +mapType=atomic
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the NodeClaims and Nodes of the pool.
	// +mapType=granular
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NodeClaimTemplateSpec is the spec of the NodeClaims of a pool, without what depends on the pods.
type NodeClaimTemplateSpec struct {
	// Taints of the nodes. Pods must tolerate them for a node to be launched for them.
	// +karpenter:taints
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints are on the nodes when they join and are expected to be taken off by something else, a network plugin
	// for instance. Pods need not tolerate them; the node is not initialized before they are gone.
	// +karpenter:taints
	// +listType=atomic
	// +optional
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// Requirements restrict the machines that may be launched, and what labels they get. They are ANDed with each
	// other and with what the pods ask for.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(r, r.key != 'karpenter.sh/nodepool')",message="key karpenter.sh/nodepool is set by Karpenter and may not be required"
	// +listType=atomic
	// +required
	Requirements []NodeSelectorRequirementWithMinValues `json:"requirements"`
	// NodeClassRef names the cloud provider's object that new nodes are built from. Group and kind cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self.group == oldSelf.group",message="nodeClassRef.group is immutable"
	// +kubebuilder:validation:XValidation:rule="self.kind == oldSelf.kind",message="nodeClassRef.kind is immutable"
	// +required
	NodeClassRef *NodeClassReference `json:"nodeClassRef"`
	// TerminationGracePeriod is how long a node may drain before the pods that are left are deleted and the machine is
	// stopped, whatever PodDisruptionBudgets and do-not-disrupt annotations say. Without it, draining takes as long
	// as it takes.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +optional
	TerminationGracePeriod *metav1.Duration `json:"terminationGracePeriod,omitempty"`
	// ExpireAfter is the age at which a node is removed. "Never" keeps nodes of any age.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:default="720h"
	// +optional
	ExpireAfter NillableDuration `json:"expireAfter,omitempty"`
}

// NodeClassReference names an object of the cloud provider's API that nodes are built from.
type NodeClassReference struct {
	// Group is the API group of the node class, without version.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[^/]*$`
	// +required
	Group string `json:"group"`
	// Kind of the node class.
	// +kubebuilder:validation:MinLength=1
	// +required
	Kind string `json:"kind"`
	// Name of the node class.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
}

// GroupKind returns the group and kind of the reference.
func (r *NodeClassReference) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// ConsolidationPolicy says which nodes consolidation may touch.
//
// +kubebuilder:validation:Enum=WhenEmpty;WhenEmptyOrUnderutilized;Balanced
type ConsolidationPolicy string

// The consolidation policies.
const (
	ConsolidationPolicyWhenEmpty                ConsolidationPolicy = "WhenEmpty"
	ConsolidationPolicyWhenEmptyOrUnderutilized ConsolidationPolicy = "WhenEmptyOrUnderutilized"
	ConsolidationPolicyBalanced                 ConsolidationPolicy = "Balanced"
)

// Disruption says when Karpenter may remove or replace nodes of a pool.
type Disruption struct {
	// ConsolidateAfter is how long a node must have had no pod come or go before consolidation considers it.
	// "Never" switches consolidation off. It is ignored when replicas is set.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:default="0s"
	// +optional
	ConsolidateAfter NillableDuration `json:"consolidateAfter,omitempty"`
	// ConsolidationPolicy says which nodes consolidation considers: only empty ones (WhenEmpty), every node whose pods
	// can be run for less (WhenEmptyOrUnderutilized), or those of them whose savings are worth the disruption
	// (Balanced). It is ignored when replicas is set.
	// +kubebuilder:default=WhenEmptyOrUnderutilized
	// +optional
	ConsolidationPolicy ConsolidationPolicy `json:"consolidationPolicy,omitempty"`
	// Budgets limit how many nodes of the pool may be disrupted at a time. The strictest active budget counts.
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:default={{nodes: "10%"}}
	// +listType=atomic
	// +optional
	Budgets []Budget `json:"budgets,omitempty"`
}

// DisruptionReason says why a node is disrupted.
//
// +kubebuilder:validation:Enum=Underutilized;Empty;Drifted;Unhealthy
type DisruptionReason string

// The disruption reasons that budgets know.
const (
	DisruptionReasonUnderutilized DisruptionReason = "Underutilized"
	DisruptionReasonEmpty         DisruptionReason = "Empty"
	DisruptionReasonDrifted       DisruptionReason = "Drifted"
	DisruptionReasonUnhealthy     DisruptionReason = "Unhealthy"
)

// DisruptionReasons lists the reasons that budgets know.
var DisruptionReasons = []DisruptionReason{
	DisruptionReasonEmpty, DisruptionReasonDrifted, DisruptionReasonUnderutilized, DisruptionReasonUnhealthy,
}

// Budget limits how many nodes may be disrupted at a time, always or in a recurring window of time.
//
// +kubebuilder:validation:XValidation:rule="has(self.schedule) == has(self.duration)",message="schedule and duration must be set together"
type Budget struct {
	// Reasons that the budget is about; without it, all of them.
	// +kubebuilder:validation:MaxItems=50
	// +listType=set
	// +optional
	Reasons []DisruptionReason `json:"reasons,omitempty"`
	// Nodes is the most nodes that may be going at a time: a number, or a percentage of the pool's nodes, rounded up.
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	// +kubebuilder:default="10%"
	// +required
	Nodes string `json:"nodes"`
	// Schedule is when the budget becomes active: a cron expression of five fields, or @hourly, @daily, @midnight, @weekly,
	// @monthly, @yearly, @annually; always in UTC. Without it the budget is always active.
	// +kubebuilder:validation:Pattern=`^@(annually|yearly|monthly|weekly|daily|midnight|hourly)|.+\s.+\s.+\s.+\s.+$`
	// +optional
	Schedule *string `json:"schedule,omitempty"`
	// Duration is how long the budget stays active after each hit of the schedule, in hours and minutes.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+h([0-9]+m)?|[0-9]+m)(0s)?$`
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// Limits is the most of each resource that a pool may have.
type Limits corev1.ResourceList

// NodePoolStatus is what Karpenter observed of a pool.
type NodePoolStatus struct {
	// Resources is the capacity of all nodes of the pool together.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Nodes is the number of nodes of the pool.
	// +kubebuilder:default=0
	// +optional
	Nodes int64 `json:"nodes"`
	// NodeClassObservedGeneration is the generation of the node class when NodeRegistrationHealthy was last evaluated.
	// +optional
	NodeClassObservedGeneration int64 `json:"nodeClassObservedGeneration,omitempty"`
	// Conditions say whether the pool can be used, and if not, why.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IsStatic reports whether the pool keeps a fixed number of nodes.
func (p *NodePool) IsStatic() bool { return p.Spec.Replicas != nil }

// AsksApproval reports whether voluntary steps of the pool need a user's approval. A value that is not understood means that they do.
func (p *NodePool) AsksApproval() bool {
	value, there := p.Annotations[ApprovalAnnotationKey]
	return there && value != ApprovalAutomatic
}

// Weight returns the pool's weight, 0 if none is set.
func (p *NodePool) Weight() int32 {
	if p.Spec.Weight == nil {
		return 0
	}
	return *p.Spec.Weight
}

// ComparePools orders pools by weight, heaviest first; among equals the name that sorts later comes first.
func ComparePools(a, b *NodePool) int {
	return cmp.Or(cmp.Compare(b.Weight(), a.Weight()), strings.Compare(b.Name, a.Name))
}

// OrderByWeight sorts pools with ComparePools.
func OrderByWeight(pools []*NodePool) { slices.SortFunc(pools, ComparePools) }

// Exceeded returns the name of a resource of which used is more than the limit, "" if there is none. Among several it
// returns the one whose name sorts first.
func (l Limits) Exceeded(used corev1.ResourceList) corev1.ResourceName {
	var worst corev1.ResourceName
	for name, limit := range l {
		if amount, ok := used[name]; ok && amount.Cmp(limit) > 0 && (worst == "" || name < worst) {
			worst = name
		}
	}
	return worst
}
