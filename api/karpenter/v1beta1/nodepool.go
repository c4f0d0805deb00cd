package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// NodePool says what kind of nodes Karpenter may launch, how many, and when it may take them away again.
//
// +kubebuilder:resource:path=nodepools,singular=nodepool,scope=Cluster,categories=karpenter
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="karpenter.sh/v1beta1 NodePool is kept as karpenter.sh/v1: nodes go at expireAfter whatever budgets say, and a kubelet block counts before the node class's; \"karpenter convert -f FILE\" writes the v1 manifest"
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.template.spec.nodeClassRef.name",description="Node class that new nodes are built from"
// +kubebuilder:printcolumn:name="Weight",type="integer",JSONPath=".spec.weight",priority=1,description="Pools of higher weight are used first"
type NodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +required
	Spec NodePoolSpec `json:"spec"`
	// Status is what Karpenter observed.
	// +optional
	Status v1.NodePoolStatus `json:"status,omitempty"`
}

// NodePoolSpec is what the user asks of a pool.
type NodePoolSpec struct {
	// Template describes the nodes of the pool.
	// +required
	Template NodeClaimTemplate `json:"template"`
	// Disruption says when Karpenter may remove or replace nodes on its own account.
	// +kubebuilder:default={consolidationPolicy: WhenUnderutilized, expireAfter: "720h"}
	// +kubebuilder:validation:XValidation:rule="self.consolidationPolicy != 'WhenEmpty' || has(self.consolidateAfter)",message="consolidateAfter must be specified with consolidationPolicy=WhenEmpty: write how long a node may be empty, such as 30s, or Never"
	// +optional
	Disruption Disruption `json:"disruption,omitempty"`
	// Limits is the most that all nodes of the pool together may have of each resource.
	// +optional
	Limits v1.Limits `json:"limits,omitempty"`
	// Weight is the pool's rank: pools of higher weight are used first. A missing weight ranks lowest.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Weight *int32 `json:"weight,omitempty"`
}

// NodeClaimTemplate describes the nodes of a pool.
type NodeClaimTemplate struct {
	// Metadata is copied to the NodeClaims of the pool and from there to their Nodes.
	// +optional
	v1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec describes the nodes.
	// +kubebuilder:validation:XValidation:rule="has(self.nodeClassRef)",message="nodeClassRef is missing: write nodeClassRef: {name: default}, or the name of the EC2NodeClass that the nodes are built from"
	// +kubebuilder:validation:XValidation:rule="!has(self.resources)",message="resources may not be set in a NodePool"
	// +required
	Spec NodeClaimTemplateSpec `json:"spec"`
}

// NodeClaimTemplateSpec is the spec of the NodeClaims of a pool.
type NodeClaimTemplateSpec struct {
	// Taints of the nodes. Pods must tolerate them for a node to be launched for them.
	// +karpenter:taints
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints are on the nodes when they join and are expected to be taken off by something else.
	// +karpenter:taints
	// +listType=atomic
	// +optional
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// Requirements restrict the machines that may be launched, and what labels they get.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(r, r.key != 'karpenter.sh/nodepool')",message="key karpenter.sh/nodepool is set by Karpenter and may not be required"
	// +listType=atomic
	// +required
	Requirements []v1.NodeSelectorRequirementWithMinValues `json:"requirements"`
	// Resources may not be set in a NodePool.
	// +optional
	Resources *v1.ResourceRequirements `json:"resources,omitempty"`
	// Kubelet is the kubelet's configuration. In v1 it belongs to the node class; here it counts before the class's.
	// +optional
	Kubelet *KubeletConfiguration `json:"kubelet,omitempty"`
	// NodeClassRef names the cloud provider's object that new nodes are built from.
	// +optional
	NodeClassRef *NodeClassReference `json:"nodeClassRef,omitempty"`
}

// NodeClassReference names an object of the cloud provider's API that nodes are built from.
type NodeClassReference struct {
	// Kind of the node class; EC2NodeClass if it is not given.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the node class.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
	// APIVersion of the node class, of which the group counts; karpenter.k8s.aws if it is not given.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
}

// KubeletConfiguration is what may be said about the kubelet of a node.
//
// +kubebuilder:validation:XValidation:rule="has(self.imageGCHighThresholdPercent) && has(self.imageGCLowThresholdPercent) ? self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent : true",message="imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.evictionSoft) || has(self.evictionSoftGracePeriod) && self.evictionSoft.all(k, k in self.evictionSoftGracePeriod)",message="each evictionSoft needs an evictionSoftGracePeriod"
// +kubebuilder:validation:XValidation:rule="!has(self.evictionSoftGracePeriod) || has(self.evictionSoft) && self.evictionSoftGracePeriod.all(k, k in self.evictionSoft)",message="each evictionSoftGracePeriod needs an evictionSoft"
type KubeletConfiguration struct {
	// ClusterDNS are the addresses of the cluster's DNS.
	// +optional
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// MaxPods is the most pods of a node.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxPods *int32 `json:"maxPods,omitempty"`
	// PodsPerCore is the most pods of each core of a node.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PodsPerCore *int32 `json:"podsPerCore,omitempty"`
	// SystemReserved is what the operating system gets.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage', 'pid'])",message="only cpu, memory, ephemeral-storage and pid can be reserved"
	// +optional
	SystemReserved corev1.ResourceList `json:"systemReserved,omitempty"`
	// KubeReserved is what Kubernetes' own processes get.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage', 'pid'])",message="only cpu, memory, ephemeral-storage and pid can be reserved"
	// +optional
	KubeReserved corev1.ResourceList `json:"kubeReserved,omitempty"`
	// EvictionHard are the amounts left of a resource at which pods are evicted at once.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['memory.available', 'nodefs.available', 'nodefs.inodesFree', 'imagefs.available', 'imagefs.inodesFree', 'pid.available'])",message="the signals are memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree and pid.available"
	// +optional
	EvictionHard map[string]string `json:"evictionHard,omitempty"`
	// EvictionSoft are the amounts at which pods are evicted after a while.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['memory.available', 'nodefs.available', 'nodefs.inodesFree', 'imagefs.available', 'imagefs.inodesFree', 'pid.available'])",message="the signals are memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree and pid.available"
	// +optional
	EvictionSoft map[string]string `json:"evictionSoft,omitempty"`
	// EvictionSoftGracePeriod is how long each of evictionSoft must last.
	// +optional
	EvictionSoftGracePeriod map[string]metav1.Duration `json:"evictionSoftGracePeriod,omitempty"`
	// EvictionMaxPodGracePeriod is the most seconds that a pod gets which is evicted after a while.
	// +optional
	EvictionMaxPodGracePeriod *int32 `json:"evictionMaxPodGracePeriod,omitempty"`
	// ImageGCHighThresholdPercent is the share of the disk at which images are removed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	ImageGCHighThresholdPercent *int32 `json:"imageGCHighThresholdPercent,omitempty"`
	// ImageGCLowThresholdPercent is the share of the disk below which no image is removed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	ImageGCLowThresholdPercent *int32 `json:"imageGCLowThresholdPercent,omitempty"`
	// CPUCFSQuota reports whether limits of CPU are enforced.
	// +optional
	CPUCFSQuota *bool `json:"cpuCFSQuota,omitempty"`
}

// Disruption says when Karpenter may remove or replace nodes of a pool.
type Disruption struct {
	// ConsolidateAfter is how long a node must have been empty, or with WhenUnderutilized have had no pod come or go, before consolidation
	// considers it. "Never" switches consolidation off.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +optional
	ConsolidateAfter *v1.NillableDuration `json:"consolidateAfter,omitempty"`
	// ConsolidationPolicy says which nodes consolidation considers.
	// +kubebuilder:validation:Enum=WhenEmpty;WhenUnderutilized
	// +kubebuilder:default=WhenUnderutilized
	// +optional
	ConsolidationPolicy string `json:"consolidationPolicy,omitempty"`
	// ExpireAfter is the age at which a node is removed. "Never" keeps nodes of any age.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:default="720h"
	// +optional
	ExpireAfter v1.NillableDuration `json:"expireAfter,omitempty"`
	// Budgets limit how many nodes of the pool may be disrupted at a time. The strictest active budget counts.
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:default={{nodes: "10%"}}
	// +listType=atomic
	// +optional
	Budgets []Budget `json:"budgets,omitempty"`
}

// Budget limits how many nodes may be disrupted at a time, always or in a recurring window of time.
//
// +kubebuilder:validation:XValidation:rule="!has(self.schedule) || has(self.duration)",message="duration is missing: a budget with a schedule also says how long it is active, such as duration: 8h"
// +kubebuilder:validation:XValidation:rule="!has(self.duration) || has(self.schedule)",message="schedule is missing: a budget with a duration also says when it begins, such as schedule: '0 9 * * mon-fri'"
type Budget struct {
	// Nodes is the most nodes that may be going at a time: a number, or a percentage of the pool's nodes, rounded up.
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	// +kubebuilder:default="10%"
	// +required
	Nodes string `json:"nodes"`
	// Schedule is when the budget becomes active: a cron expression of five fields, or a word such as @daily; always in UTC.
	// +kubebuilder:validation:Pattern=`^@(annually|yearly|monthly|weekly|daily|midnight|hourly)|.+\s.+\s.+\s.+\s.+$`
	// +optional
	Schedule *string `json:"schedule,omitempty"`
	// Duration is how long the budget stays active after each hit of the schedule, in hours and minutes.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+h([0-9]+m)?|[0-9]+m)(0s)?$`
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
}
