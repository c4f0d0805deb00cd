package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CommitmentDiscount is one Reserved Instance or Savings Plan: machines or dollars an hour that are paid for, used or not.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=commitmentdiscounts,singular=commitmentdiscount,scope=Cluster,shortName=cd,categories=karpenter
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether plans count on it"
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.type",description="What was bought"
// +kubebuilder:printcolumn:name="Quantity",type="string",JSONPath=".spec.quantity",description="Dollars an hour, or machines"
// +kubebuilder:printcolumn:name="Share",type="string",JSONPath=".spec.share",description="The part that this cluster counts on"
// +kubebuilder:printcolumn:name="End",type="string",JSONPath=".spec.end",description="When it ends"
type CommitmentDiscount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what was bought.
	// +required
	Spec CommitmentDiscountSpec `json:"spec"`
	// Status is what Karpenter observed.
	// +optional
	Status CommitmentDiscountStatus `json:"status,omitempty"`
}

// CommitmentDiscountStatus is what Karpenter observed of a commitment.
type CommitmentDiscountStatus struct {
	// Conditions say whether plans count on the commitment, and if not, why.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CommitmentDiscountList is a list of CommitmentDiscounts.
//
// +kubebuilder:object:root=true
type CommitmentDiscountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CommitmentDiscount `json:"items"`
}

// A CommitmentCategory is what a commitment is counted in.
type CommitmentCategory string

// The categories.
const (
	CommitmentSpend CommitmentCategory = "Spend" // dollars an hour
	CommitmentUsage CommitmentCategory = "Usage" // machines
)

// A CommitmentType is a kind of commitment that AWS sells.
type CommitmentType string

// The types.
const (
	ComputeSavingsPlan     CommitmentType = "ComputeSavingsPlan"
	EC2InstanceSavingsPlan CommitmentType = "EC2InstanceSavingsPlan"
	ReservedInstance       CommitmentType = "ReservedInstance"
)

// CommitmentDiscountSpec is what was bought. Amounts are decimal numbers in text.
//
// +kubebuilder:validation:XValidation:rule="(self.category == 'Usage') == (self.type == 'ReservedInstance')",message="category is Usage for a ReservedInstance and Spend for Savings Plans"
// +kubebuilder:validation:XValidation:rule="(self.type == 'ComputeSavingsPlan') != (has(self.scope) && has(self.scope.region))",message="scope.region is required, but a ComputeSavingsPlan has none"
// +kubebuilder:validation:XValidation:rule="(self.type == 'EC2InstanceSavingsPlan') == (has(self.scope) && has(self.scope.family))",message="scope.family is required for an EC2InstanceSavingsPlan, and for no other"
// +kubebuilder:validation:XValidation:rule="(self.type == 'ReservedInstance') == (has(self.scope) && has(self.scope.instanceType))",message="scope.instanceType is required for a ReservedInstance, and for no other"
// +kubebuilder:validation:XValidation:rule="self.type == 'ReservedInstance' || !has(self.scope) || !(has(self.scope.zone) || has(self.scope.operatingSystem) || has(self.scope.tenancy))",message="scope.zone, operatingSystem and tenancy are of a ReservedInstance"
// +kubebuilder:validation:XValidation:rule="self.type != 'ReservedInstance' || !has(self.rates)",message="rates are of Savings Plans"
// +kubebuilder:validation:XValidation:rule="self.type == 'ReservedInstance' || !has(self.hourlyCost)",message="hourlyCost is of a ReservedInstance"
// +kubebuilder:validation:XValidation:rule="self.type != 'ReservedInstance' || !self.quantity.contains('.')",message="quantity is a whole number of machines for a ReservedInstance"
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !has(self.end) || self.start < self.end",message="end must be after start"
type CommitmentDiscountSpec struct {
	// Category is Spend for dollars an hour, Usage for machines.
	// +kubebuilder:validation:Enum=Spend;Usage
	// +required
	Category CommitmentCategory `json:"category"`
	// Type is what was bought.
	// +kubebuilder:validation:Enum=ComputeSavingsPlan;EC2InstanceSavingsPlan;ReservedInstance
	// +required
	Type CommitmentType `json:"type"`
	// ID is the cloud's id; by default the name of the object. Of two objects with one id an object of a person
	// counts before an imported one, then the older object.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	ID string `json:"id,omitempty"`
	// Scope is where it applies.
	// +optional
	Scope CommitmentScope `json:"scope,omitzero"`
	// Quantity is the dollars an hour of a Savings Plan ("12.50"), the machines of a Reserved Instance ("3").
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}(\.[0-9]{1,10})?$`
	// +required
	Quantity string `json:"quantity"`
	// Rates are what a Savings Plan charges. A type without a rate is not covered by it.
	// +kubebuilder:validation:MaxItems=2000
	// +listType=atomic
	// +optional
	Rates []CommitmentRate `json:"rates,omitempty"`
	// HourlyCost is what one machine of a Reserved Instance costs an hour, with upfront payments spread over the term. It is
	// in bills only: it is spent, so that no decision depends on it.
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}(\.[0-9]{1,10})?$`
	// +optional
	HourlyCost string `json:"hourlyCost,omitempty"`
	// Share is how much of the quantity this cluster may count on: a percentage ("50%") or a part of one ("0.5"). Without it
	// plans do not count on the commitment, because machines outside of the cluster may use it.
	// +kubebuilder:validation:Pattern=`^((100(\.0{1,6})?|[0-9]{1,2}(\.[0-9]{1,6})?)%|1(\.0{1,6})?|0(\.[0-9]{1,8})?)$`
	// +optional
	Share string `json:"share,omitempty"`
	// Start is when it begins.
	// +optional
	Start *metav1.Time `json:"start,omitempty"`
	// End is when it ends. It is active in each clock hour that begins before.
	// +optional
	End *metav1.Time `json:"end,omitempty"`
}

// CommitmentScope is where a commitment applies.
type CommitmentScope struct {
	// Region is its region; a ComputeSavingsPlan has none.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}$`
	// +optional
	Region string `json:"region,omitempty"`
	// Zone makes a Reserved Instance zonal.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}$`
	// +optional
	Zone string `json:"zone,omitempty"`
	// Family is the instance family of an EC2InstanceSavingsPlan, such as m7i.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}$`
	// +optional
	Family string `json:"family,omitempty"`
	// InstanceType is the type of a Reserved Instance.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}\.[a-z0-9-]{1,32}$`
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// OperatingSystem of a Reserved Instance, Linux by default.
	// +kubebuilder:validation:Enum=Linux;Windows;RHEL;SUSE
	// +optional
	OperatingSystem string `json:"operatingSystem,omitempty"`
	// Tenancy of a Reserved Instance.
	// +kubebuilder:validation:Enum=default;dedicated
	// +optional
	Tenancy string `json:"tenancy,omitempty"`
}

// CommitmentRate is what a Savings Plan charges for a type or a family. A rate of a type goes before that of its family.
//
// +kubebuilder:validation:XValidation:rule="has(self.instanceType) != has(self.family)",message="give instanceType or family"
// +kubebuilder:validation:XValidation:rule="has(self.price) != has(self.discount)",message="give price or discount"
type CommitmentRate struct {
	// InstanceType is the type that it is for.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}\.[a-z0-9-]{1,32}$`
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// Family is the family that it is for.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}$`
	// +optional
	Family string `json:"family,omitempty"`
	// Price is dollars an hour.
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}(\.[0-9]{1,10})?$`
	// +optional
	Price string `json:"price,omitempty"`
	// Discount is a percentage off the on-demand price after NodeOverlays ("27%").
	// +kubebuilder:validation:Pattern=`^(100(\.0{1,6})?|[0-9]{1,2}(\.[0-9]{1,6})?)%$`
	// +optional
	Discount string `json:"discount,omitempty"`
}
