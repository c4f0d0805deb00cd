package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutPolicy says in which steps the drifted nodes of some NodePools are replaced, and what stops that.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rolloutpolicies,singular=rolloutpolicy,scope=Cluster,shortName=rop,categories=karpenter
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="False when a gate tripped or does not answer, or the policy cannot be read"
// +kubebuilder:printcolumn:name="Pools",type="string",JSONPath=".status.pools[*].name",description="The NodePools that it is about"
// +kubebuilder:printcolumn:name="Steps",type="string",JSONPath=".status.pools[*].step",description="How many steps of a rollout have passed, by NodePool"
// +kubebuilder:printcolumn:name="Tripped",type="string",JSONPath=".status.conditions[?(@.type==\"GatesPassed\")].message",description="What stopped the rollout"
type RolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	// +required
	Spec RolloutPolicySpec `json:"spec"`
	// Status is how far rollouts are.
	// +optional
	Status RolloutPolicyStatus `json:"status,omitempty"`
}

// RolloutPolicyList is a list of RolloutPolicies.
//
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RolloutPolicy `json:"items"`
}

// RolloutPolicySpec says in which steps nodes are replaced.
type RolloutPolicySpec struct {
	// NodePoolSelector selects NodePools by their labels. An empty selector selects all. Of two policies that select a NodePool the older
	// one holds.
	// +required
	NodePoolSelector metav1.LabelSelector `json:"nodePoolSelector"`
	// Steps are gone through in each NodePool, one after the other. What is left after the last one follows without a bound of its own.
	// Budgets hold always.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Steps []RolloutStep `json:"steps,omitempty"`
	// Gates say what stops a rollout.
	// +kubebuilder:default={}
	// +optional
	Gates RolloutGates `json:"gates,omitempty"`
	// OnFailure is what happens when a gate trips. Pause stops all voluntary disruption of the NodePools until it is resumed, or until
	// NodePool or node class get a new spec. LastGood does that too, and lets new machines start with the template and the images of the
	// last rollout that came to its end; where there was none it is like Pause.
	// +kubebuilder:validation:Enum=Pause;LastGood
	// +kubebuilder:default=Pause
	// +optional
	OnFailure RolloutFailure `json:"onFailure,omitempty"`
	// Windows are when drifted and expired nodes may be replaced. Without windows that is always.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Windows []RolloutWindow `json:"windows,omitempty"`
	// Expiry changes what happens to nodes at the age of expireAfter.
	// +optional
	Expiry *RolloutExpiry `json:"expiry,omitempty"`
}

// RolloutStep is so many new machines.
type RolloutStep struct {
	// Nodes is how many new machines the step adds: a number, or a percentage of the nodes of the NodePool, rounded up.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?%|100%|[1-9][0-9]{0,4})$`
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= 1 && self <= 99999",message="nodes is a number from 1 on, or a percentage such as 10%"
	// +required
	Nodes intstr.IntOrString `json:"nodes"`
	// Bake is how long the machines of the step are watched, from when all of them are ready, before the next step begins.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:default="10m0s"
	// +optional
	Bake metav1.Duration `json:"bake,omitempty"`
}

// RolloutFailure is what happens when a gate trips.
type RolloutFailure string

// The kinds of RolloutFailure.
const (
	RolloutPause    RolloutFailure = "Pause"    // stops all voluntary disruption of the NodePools
	RolloutLastGood RolloutFailure = "LastGood" // does so, and new machines start with the state that passed last
)

// RolloutGates say what stops a rollout. They are looked at from its beginning to its end.
type RolloutGates struct {
	// ReadyWithin is how long a new machine may take to get ready after its launch, and a pod on it after it was bound.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:default="5m0s"
	// +optional
	ReadyWithin *metav1.Duration `json:"readyWithin,omitempty"`
	// NodesReady trips when more than one in ten new machines did not get ready in time, or are so no longer.
	// +kubebuilder:default=true
	// +optional
	NodesReady *bool `json:"nodesReady,omitempty"`
	// MovedPodsReady trips when more than one in ten pods on new machines do not get ready in time, are so no longer, or restart, while
	// pods of the same owner and template do well elsewhere, or did well before they moved.
	// +kubebuilder:default=true
	// +optional
	MovedPodsReady *bool `json:"movedPodsReady,omitempty"`
	// DeploymentsAvailable trips when a Deployment with such a pod is not available.
	// +optional
	DeploymentsAvailable bool `json:"deploymentsAvailable,omitempty"`
	// PromQL are queries that must be true.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	PromQL []PromQLGate `json:"promQL,omitempty"`
	// Webhook is asked whether the rollout may go on.
	// +optional
	Webhook *WebhookGate `json:"webhook,omitempty"`
}

// PromQLGate is a query to Prometheus, or to what speaks its protocol. It trips when the query is not true twice, half a minute apart.
// A query without an answer trips nothing: the rollout waits.
//
// +kubebuilder:validation:XValidation:rule="self.address.startsWith('https://') || !has(self.caBundle)",message="caBundle is for https"
type PromQLGate struct {
	// Name names the gate.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +required
	Name string `json:"name"`
	// Address is the URL of the server, without /api/v1/query: https, or http to a Service of the cluster (http://NAME.NAMESPACE.svc:9090).
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(https://[a-zA-Z0-9.-]+|http://[a-z0-9-]+\.[a-z0-9-]+\.svc(\.cluster\.local)?)(:[0-9]{1,5})?(/[^?#@\s]*)?$`
	// +required
	Address string `json:"address"`
	// Query is the query. With atMost or atLeast each value of its answer must keep to that; without, no value may be zero.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +required
	Query string `json:"query"`
	// AtMost is the greatest value that is allowed, a decimal number.
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,15}(\.[0-9]{1,15})?$`
	// +optional
	AtMost string `json:"atMost,omitempty"`
	// AtLeast is the least value that is allowed, a decimal number.
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,15}(\.[0-9]{1,15})?$`
	// +optional
	AtLeast string `json:"atLeast,omitempty"`
	// CABundle are PEM certificates that the server's may be signed by, beside those of the system.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// WebhookGate is asked every half minute during a rollout. It gets {"policy": …, "pools": [{"name": …, "step": …}]} by POST and answers
// with status 200 and {"allow": true} or {"allow": false, "reason": …}. Without an answer the rollout waits.
//
// +kubebuilder:validation:XValidation:rule="self.url.startsWith('https://') || !has(self.caBundle)",message="caBundle is for https"
type WebhookGate struct {
	// URL is whom to ask: https, or http to a Service of the cluster.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(https://[a-zA-Z0-9.-]+|http://[a-z0-9-]+\.[a-z0-9-]+\.svc(\.cluster\.local)?)(:[0-9]{1,5})?(/[^#@\s]*)?$`
	// +required
	URL string `json:"url"`
	// CABundle are PEM certificates that the server's may be signed by, beside those of the system.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// RolloutWindow is a time that comes again.
type RolloutWindow struct {
	// Schedule is when the window opens: a cron expression of five fields, or @hourly, @daily, @midnight, @weekly, @monthly, @yearly,
	// @annually.
	// +kubebuilder:validation:Pattern=`^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|[^\s=]+\s[^\s=]+\s[^\s=]+\s[^\s=]+\s[^\s=]+)$`
	// +required
	Schedule string `json:"schedule"`
	// Duration is how long it stays open.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+h([0-9]+m)?|[0-9]+m)(0s)?$`
	// +required
	Duration metav1.Duration `json:"duration"`
	// TimeZone is that of the schedule, such as Europe/Berlin; UTC by default.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// RolloutExpiry changes what happens to nodes at the age of expireAfter.
type RolloutExpiry struct {
	// WithinBudgets replaces an expired node as a drifted one: within budgets and windows, its replacement first.
	// +required
	WithinBudgets bool `json:"withinBudgets"`
	// HardAfter is how long after that age a node is removed at once, as without a policy.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:default="72h0m0s"
	// +optional
	HardAfter metav1.Duration `json:"hardAfter,omitempty"`
}

// RolloutPolicyStatus is how far rollouts are.
type RolloutPolicyStatus struct {
	// Pools are the NodePools that the policy is about.
	// +listType=map
	// +listMapKey=name
	// +optional
	Pools []RolloutPool `json:"pools,omitempty"`
	// Conditions say whether the policy can be read, whether its gates answer, and what tripped.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutPool is how far the rollout of a NodePool is.
type RolloutPool struct {
	// Name is that of the NodePool.
	Name string `json:"name"`
	// Revision stands for the spec of NodePool and node class.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Since is when the rollout began; none while there is none.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Step is how many steps have passed.
	// +optional
	Step int32 `json:"step,omitempty"`
	// BakingSince is when all machines of the present step were ready.
	// +optional
	BakingSince *metav1.Time `json:"bakingSince,omitempty"`
	// JudgedSince is when the rollout was resumed: what failed before is forgotten.
	// +optional
	JudgedSince *metav1.Time `json:"judgedSince,omitempty"`
	// Tripped is when a gate stopped it.
	// +optional
	Tripped *metav1.Time `json:"tripped,omitempty"`
	// Evidence is why.
	// +optional
	Evidence string `json:"evidence,omitempty"`
	// LastGood is what the machines of the last rollout that came to its end are made from.
	// +optional
	LastGood *RolloutState `json:"lastGood,omitempty"`
}

// RolloutState is what machines are made from.
type RolloutState struct {
	// Passed is when the rollout came to its end.
	// +required
	Passed metav1.Time `json:"passed"`
	// Template is spec.template of the NodePool, as JSON. The templates of one policy have at most 256 KiB together.
	// +kubebuilder:validation:MaxLength=262144
	// +required
	Template string `json:"template"`
	// Images are the IDs of the images that machines of the rollout started from.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	Images []string `json:"images,omitempty"`
}
