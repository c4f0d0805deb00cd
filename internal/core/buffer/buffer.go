// Package buffer works out the pods for which a CapacityBuffer keeps room, and the codes of the report to its owner.
//
// The pods are placeholders that exist in plans only. They are placed after all pods of users, in the room that is left,
// and lose their room as soon as a pod of a user needs it. buffer.go counts and makes the pods, workload.go reads the
// workload that a buffer names, flaw.go has the codes.
package buffer

import (
	"math"
	"math/big"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// Most is how many pods one buffer keeps room for at most. Without this limit a mistyped number would fill the memory.
const Most = 10_000

// MostOfAll is how many pods all buffers together keep room for at most. Without this limit a user could fill the memory with many buffers.
const MostOfAll = 100_000

// A Source is where the shape of a buffer's pods comes from.
type Source struct {
	Template *corev1.PodTemplateSpec
	Replicas int32 // of the workload; 0 for a PodTemplate
	// Generation is that of a PodTemplate; 0 for a workload.
	Generation int64
}

// An Ask is the pods for which a buffer keeps room, and why there are fewer than its owner may expect.
type Ask struct {
	Pods []*corev1.Pod
	Note Note
}

// Check returns what is wrong with the spec of a buffer, nil for nothing. It does not look up the objects that the buffer names.
func Check(b *autoscalingv1beta1.CapacityBuffer) *Flaw {
	s := &b.Spec
	switch {
	case s.PodTemplateRef == nil && s.ScalableRef == nil:
		return &Flaw{Code: NothingNamed}
	case s.PodTemplateRef != nil && s.ScalableRef != nil:
		return &Flaw{Code: BothNamed}
	case s.PodTemplateRef != nil && s.Replicas == nil && len(s.Limits) == 0:
		return &Flaw{Code: NoNumber}
	case s.Replicas != nil && *s.Replicas < 0:
		return negative("spec.replicas", strconv.Itoa(int(*s.Replicas)))
	case s.Percentage != nil && *s.Percentage < 0:
		return negative("spec.percentage", strconv.Itoa(int(*s.Percentage)))
	}
	for _, name := range sortedNames(s.Limits) {
		if q := s.Limits[name]; q.Sign() < 0 {
			return negative("spec.limits."+string(name), q.String())
		}
	}
	return nil
}

// Beside cuts the pods of a buffer so that with others, the number of pods of other buffers, there are at most MostOfAll.
func (a Ask) Beside(others int) Ask {
	left, wanted := max(0, MostOfAll-others), len(a.Pods)
	if wanted <= left {
		return a
	}
	return Ask{Pods: a.Pods[:left:left], Note: Note{Code: TooManyOfAll, Fit: int64(left), Wanted: int64(wanted)}}
}

func negative(field, value string) *Flaw { return &Flaw{Code: Negative, Name: field, Value: value} }

// Resolve works out the pods of a buffer, or returns what is wrong with it.
func Resolve(b *autoscalingv1beta1.CapacityBuffer, from Source) (Ask, *Flaw) {
	if flaw := Check(b); flaw != nil {
		return Ask{}, flaw
	}
	if len(from.Template.Spec.Containers) == 0 {
		return Ask{}, &Flaw{Code: NoContainers}
	}
	pod := shapeOf(metav1.ObjectMeta{Namespace: b.Namespace, CreationTimestamp: b.CreationTimestamp, Annotations: map[string]string{
		v1.CapacityBufferFakePodAnnotationKey: "true", v1.CapacityBufferNameAnnotationKey: b.Name,
		v1.CapacityBufferNamespaceAnnotationKey: b.Namespace,
	}}, from.Template)
	n, note := count(&b.Spec, from, podclass.Requests(&pod.Spec))
	return Ask{Note: note, Pods: copies(pod, "capacity-buffer:"+b.Name, string(b.UID), n)}, nil
}

// Announced makes n placeholder pods, at most Most, of a template that an object of the cluster announces. source names the object in the
// namespace.
func Announced(namespace, source string, created metav1.Time, t *corev1.PodTemplateSpec, n int) []*corev1.Pod {
	pod := shapeOf(metav1.ObjectMeta{Namespace: namespace, CreationTimestamp: created,
		Annotations: map[string]string{v1.CapacityBufferFakePodAnnotationKey: "true"}}, t)
	return copies(pod, "announced:"+source, namespace+"/"+source, min(n, Most))
}

// copies makes n copies of a pod with their own names and UIDs. They share everything else, so it must not be changed.
func copies(pod *corev1.Pod, name, uid string, n int) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		one := *pod
		one.Name, one.UID = name+"-"+strconv.Itoa(i+1), types.UID(uid+"-"+strconv.Itoa(i+1))
		out[i] = &one
	}
	return out
}

// shapeOf makes a pod of a template, with all that plans read. Volume claims are left out, because they tie a pod to a place only once it
// exists. Callers give it a name with ":", which no pod of a user can have, so that the two are never confused.
func shapeOf(meta metav1.ObjectMeta, t *corev1.PodTemplateSpec) *corev1.Pod {
	spec := t.Spec.DeepCopy()
	spec.NodeName = ""
	spec.Volumes = slices.DeleteFunc(spec.Volumes,
		func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
	podclass.RequestLimits(spec.Containers)
	podclass.RequestLimits(spec.InitContainers)
	meta.Labels = t.Labels
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec:       *spec,
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}},
	}
}

// count returns how many pods a buffer keeps room for, and why not for more. one is what a pod requests.
func count(s *autoscalingv1beta1.CapacityBufferSpec, from Source, one corev1.ResourceList) (n int, note Note) {
	wanted, asked := asksFor(s, from.Replicas)
	least, by := fitting(s.Limits, one)
	switch {
	case by == "" && !asked && len(s.Limits) > 0:
		return 0, Note{Code: OtherLimits}
	case by == "" && !asked && s.Percentage != nil:
		return 0, Note{Code: PartOfNothing}
	case by == "" && !asked:
		return 0, Note{Code: NothingAsked}
	case by != "" && (!asked || least < wanted):
		limited := Note{Limit: s.Limits[by], Resource: string(by), Request: one[corev1.ResourceName(by)], Fit: least, Wanted: wanted}
		if least == 0 {
			note, note.Code = limited, BelowOne
		} else if asked {
			note, note.Code = limited, Limited
		}
		wanted = least
	case wanted == 0:
		note = Note{Code: NoPods}
	}
	if wanted > Most {
		return Most, Note{Code: TooMany, Fit: Most, Wanted: wanted}
	}
	return int(wanted), note
}

// asksFor returns how many pods a buffer asks for before its limits are applied: the larger of replicas and percentage. It returns false if
// neither gives a number.
func asksFor(s *autoscalingv1beta1.CapacityBufferSpec, replicas int32) (n int64, ok bool) {
	if s.Replicas != nil {
		n, ok = int64(*s.Replicas), true
	}
	if s.ScalableRef != nil && s.Percentage != nil && replicas > 0 {
		n, ok = max(n, (int64(replicas)*int64(*s.Percentage)+99)/100), true
	}
	return n, ok
}

// fitting returns how many pods fit within limits, and the resource that decides; "" if no limit is about a resource that a pod requests.
func fitting(limits autoscalingv1beta1.ResourceList, one corev1.ResourceList) (least int64, by autoscalingv1beta1.ResourceName) {
	least = math.MaxInt64
	for _, name := range sortedNames(limits) {
		request, ok := one[corev1.ResourceName(name)]
		if !ok || request.Sign() <= 0 {
			continue
		}
		if n := times(limits[name], request); by == "" || n < least {
			least, by = n, name
		}
	}
	return least, by
}

// times returns how often a request fits into a limit. It computes with fractions, because a limit may have more digits than an int64.
func times(limit, request resource.Quantity) int64 {
	a, okA := new(big.Rat).SetString(limit.AsDec().String())
	b, okB := new(big.Rat).SetString(request.AsDec().String())
	if !okA || !okB || b.Sign() <= 0 {
		return 0
	}
	q := a.Quo(a, b)
	n := new(big.Int).Quo(q.Num(), q.Denom())
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func sortedNames(limits autoscalingv1beta1.ResourceList) []autoscalingv1beta1.ResourceName {
	out := make([]autoscalingv1beta1.ResourceName, 0, len(limits))
	for name := range limits {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// A Tally counts the pods of a buffer by where they have room.
type Tally struct {
	Ready  int    // on nodes that run
	Coming int    // on nodes that are on their way
	None   int    // nowhere
	Why    string // why there is no room
}

// All returns how many pods the buffer has.
func (t Tally) All() int { return t.Ready + t.Coming + t.None }

// Verdict reports whether all pods have room on nodes that run, and returns the reason for the condition Provisioning.
func (t Tally) Verdict() (fits bool, reason string) {
	switch t.All() {
	case 0:
		return false, autoscalingv1beta1.ReasonBufferEmpty
	case t.Ready:
		return true, autoscalingv1beta1.ReasonFitsExistingCapacity
	}
	return false, autoscalingv1beta1.ReasonRequiresNewCapacity
}
