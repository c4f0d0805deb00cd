package buffer

import (
	"k8s.io/apimachinery/pkg/api/resource"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
)

// A Code says what is wrong with a buffer, or why it has fewer pods than its owner may expect.
type Code uint8

// The codes of flaws.
const (
	NothingNamed     Code = iota + 1 // neither a template nor a workload
	BothNamed                        // a template and a workload
	NoNumber                         // a template, and nothing that says how many
	Negative                         // Name: the field, Value: what it says
	NoContainers                     // the pod template has none
	NoTemplate                       // Name: the workload that has none, Value: what is wrong with it, if anything
	EveryNode                        // it names a DaemonSet
	ByTheClock                       // it names a CronJob
	TemplateNotFound                 // Name: the PodTemplate, Value: its namespace
	WorkloadNotFound                 // Value: the error
	BadSchedule                      // the schedule in its annotations is wrong
	Unreadable                       // Value: the error
)

// The codes of notes.
const (
	OtherLimits   Code = iota + 100 // no limit is about what a pod requests, and nothing else says how many
	PartOfNothing                   // a percentage of a workload without replicas
	NothingAsked                    // no field gives a number
	BelowOne                        // Limit, Resource, Request: the limit is less than one pod requests
	Limited                         // Limit, Resource, Fit, Wanted
	NoPods                          // none are asked for
	TooMany                         // Fit, Wanted
	OffSchedule                     // it keeps no room at this time
	TooManyOfAll                    // Fit, Wanted: other buffers have the rest of MostOfAll
)

// A Flaw says why it is not known what a buffer asks for, and what its owner has to change.
type Flaw struct {
	Code        Code
	Name, Value string
}

// Reason returns the reason for the condition ReadyForProvisioning.
func (f *Flaw) Reason() string {
	switch f.Code {
	case TemplateNotFound:
		return autoscalingv1beta1.ReasonPodTemplateNotFound
	case WorkloadNotFound:
		return autoscalingv1beta1.ReasonScalableRefNotFound
	}
	return autoscalingv1beta1.ReasonResolutionFailed
}

// A Note is why a buffer has fewer pods than its owner may expect. The zero value: it has not.
type Note struct {
	Code           Code
	Limit, Request resource.Quantity
	Resource       string
	Fit, Wanted    int64 // pods
}
