package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A ScaledObject is what is read of KEDA's kind of that name.
type ScaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		ScaleTargetRef struct {
			Kind string `json:"kind,omitempty"` // Deployment if it is left out
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MaxReplicaCount *int32         `json:"maxReplicaCount,omitempty"`
		Triggers        []ScaleTrigger `json:"triggers,omitempty"`
	} `json:"spec,omitempty"`
}

// A ScaleTrigger is one reason for replicas.
type ScaleTrigger struct {
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// DeepCopyObject makes a ScaledObject an object; it is never changed.
func (o *ScaledObject) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}
