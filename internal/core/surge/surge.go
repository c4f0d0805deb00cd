// Package surge judges whether a rolling restart of its Deployment can move a pod off its node while the workload keeps a ready pod. It
// changes nothing and reads no clock.
//
// The restart is that of "kubectl rollout restart": the annotation kubectl.kubernetes.io/restartedAt in the pod template. Replicas are
// never changed, so a HorizontalPodAutoscaler works as before.
package surge

import (
	"math"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// RestartedAt is the annotation of a pod template by which "kubectl rollout restart" restarts a workload.
const RestartedAt = "kubectl.kubernetes.io/restartedAt"

const (
	// between is the least time between two restarts of a workload.
	between = time.Hour
	// hashLabel is a label on the pods of a Deployment. The name of their ReplicaSet ends with its value.
	hashLabel = "pod-template-hash"
	// defaultDeadline is the progress deadline, in seconds, of a Deployment that sets none.
	defaultDeadline = 600
	// slack is added to the Deployment's progress deadline before a restart is Overdue, so that the Deployment controller notices first.
	slack = time.Minute
)

// A Verdict says that a rolling restart can move a pod, or why it cannot.
type Verdict string

// The verdicts.
const (
	Possible     Verdict = "Possible"     // a restart can move the pod
	NoConsent    Verdict = "NoConsent"    // a restart could, but the owner of the workload has not agreed
	NoDeployment Verdict = "NoDeployment" // the pod belongs to no Deployment
	NoSurge      Verdict = "NoSurge"      // the strategy starts no successor first: Recreate, maxSurge 0, or too much may be unavailable
	Exclusive    Verdict = "Exclusive"    // the pod uses a volume that only one node may mount
	Paused       Verdict = "Paused"       // the Deployment is paused
	UnderWay     Verdict = "UnderWay"     // the Deployment is being rolled out
	TooSoon      Verdict = "TooSoon"      // the Deployment was restarted less than an hour ago
	Reverted     Verdict = "Reverted"     // another program changed or removed the annotation of the last restart
)

// Passes reports whether the verdict may change by itself, without the owner changing the workload.
func (v Verdict) Passes() bool { return v == Paused || v == UnderWay || v == TooSoon || v == Reverted }

// Deployment returns the name of the Deployment that a pod seems to belong to, "" if there is none.
func Deployment(p *cluster.Pod) string {
	if p.Owner == nil || p.Owner.Kind != "ReplicaSet" || p.Labels == nil {
		return ""
	}
	hash := p.Labels.Map[hashLabel]
	name, ok := strings.CutSuffix(p.Owner.Name, "-"+hash)
	if hash == "" || !ok {
		return ""
	}
	return name
}

// Judge returns whether a restart of Deployment d can move a pod off a node of the pool, or else the first reason against it. d is the
// Deployment whose name Deployment returned, nil if it does not exist. Judge never returns Reverted.
func Judge(snap *cluster.Snapshot, p *cluster.Pod, pool string, d *appsv1.Deployment, now time.Time) Verdict {
	switch {
	case d == nil || !selects(d, p):
		return NoDeployment
	case !surges(d):
		return NoSurge
	case exclusive(snap, d):
		return Exclusive
	case !consents(snap, d, pool):
		return NoConsent
	case d.Spec.Paused:
		return Paused
	case d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != d.Status.Replicas ||
		d.Status.AvailableReplicas < replicas(d) || d.Status.Replicas != replicas(d):
		return UnderWay
	}
	if last, restarted := LastRestart(d); restarted && now.Sub(last.At) < between {
		return TooSoon
	}
	return Possible
}

// selects reports whether the selector of a Deployment matches a pod.
func selects(d *appsv1.Deployment, p *cluster.Pod) bool {
	s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	return err == nil && s.Matches(labels.Set(p.Labels.Map))
}

// replicas returns the wanted number of replicas; 1 is the default.
func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// surges reports whether a rolling update of d starts at least one additional pod (maxSurge), and leaves at least one old pod until new
// ones are available (maxUnavailable is less than the replicas). With maxUnavailable above 0, single old pods may end before a new one is
// ready.
func surges(d *appsv1.Deployment) bool {
	n := replicas(d)
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || n == 0 {
		return false
	}
	quarter := intstr.FromString("25%")
	surge, unavailable := &quarter, &quarter
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		if r.MaxSurge != nil {
			surge = r.MaxSurge
		}
		if r.MaxUnavailable != nil {
			unavailable = r.MaxUnavailable
		}
	}
	more, err := intstr.GetScaledValueFromIntOrPercent(surge, int(n), true)
	if err != nil || more < 1 {
		return false
	}
	fewer, err := intstr.GetScaledValueFromIntOrPercent(unavailable, int(n), false)
	return err == nil && fewer < int(n)
}

// exclusive reports whether the pods of d use a volume that pods on two nodes cannot use at the same time. A volume claim that the snapshot
// lacks counts as such a volume.
func exclusive(snap *cluster.Snapshot, d *appsv1.Deployment) bool {
	for i := range d.Spec.Template.Spec.Volumes {
		v := &d.Spec.Template.Spec.Volumes[i]
		if v.AWSElasticBlockStore != nil || v.GCEPersistentDisk != nil || v.AzureDisk != nil || v.ISCSI != nil || v.FC != nil {
			return true
		}
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := cluster.PVCs.Get(snap, d.Namespace, v.PersistentVolumeClaim.ClaimName)
		if claim == nil || !shared(claim.Spec.AccessModes) {
			return true
		}
	}
	return false
}

// shared reports whether pods on several nodes may use a volume with these access modes at the same time.
func shared(modes []corev1.PersistentVolumeAccessMode) bool {
	for _, m := range modes {
		if m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany {
			return true
		}
	}
	return false
}

// consents reports whether an annotation allows restarts. The one of the pod template decides; without it, that of the namespace; without
// both, that of the pool.
func consents(snap *cluster.Snapshot, d *appsv1.Deployment, pool string) bool {
	if own, ok := d.Spec.Template.Annotations[v1.SurgeAnnotationKey]; ok {
		return own == v1.SurgeRestart
	}
	if ns := cluster.Namespaces.Get(snap, d.Namespace); ns != nil {
		if value, ok := ns.Annotations[v1.SurgeAnnotationKey]; ok {
			return value == v1.SurgeRestart
		}
	}
	p := cluster.Pools.Get(snap, pool)
	return p != nil && p.Annotations[v1.SurgeAnnotationKey] == v1.SurgeRestart
}

// LastRestart returns the restart that the annotation RestartedAt names, false if it is missing or no time.
func LastRestart(d *appsv1.Deployment) (Restart, bool) {
	value := d.Spec.Template.Annotations[RestartedAt]
	at, err := time.Parse(time.RFC3339, value)
	return Restart{Value: value, At: at}, err == nil
}

// A Restart is a rolling restart that the controller started.
type Restart struct {
	Value string    // the annotation RestartedAt that it wrote
	At    time.Time // when
}

// A State is the progress of a restart.
type State string

// The states.
const (
	Goes    State = "Goes"    // neither undone nor overdue; it may be complete
	Undone  State = "Undone"  // another program changed the annotation
	Overdue State = "Overdue" // it has not progressed for the Deployment's deadline, or the Deployment's controller says so
)

// Progress returns the state of a restart of Deployment d. Its time begins anew with each progress that the Deployment's controller notes,
// so the restart of many pods, one after the other, is not overdue while it goes on.
func Progress(d *appsv1.Deployment, r Restart, now time.Time) State {
	if d.Spec.Template.Annotations[RestartedAt] != r.Value {
		return Undone
	}
	deadline := int32(defaultDeadline)
	if own := d.Spec.ProgressDeadlineSeconds; own != nil && *own < math.MaxInt32 {
		deadline = *own
	}
	last := r.At
	for _, c := range d.Status.Conditions {
		if c.Type != appsv1.DeploymentProgressing || c.LastUpdateTime.Time.Before(r.At) {
			continue
		}
		if c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded" {
			return Overdue
		}
		last = c.LastUpdateTime.Time
	}
	if now.Sub(last) > time.Duration(deadline)*time.Second+slack {
		return Overdue
	}
	return Goes
}

// A Standing has, by owner, the number of ready pods on nodes that are not about to be removed.
type Standing map[types.UID]int

// StandingOf returns the numbers of a snapshot.
func StandingOf(snap *cluster.Snapshot) Standing {
	out := Standing{}
	for p := range snap.Pods() {
		if p.Owner != nil && stands(snap, p) {
			out[p.Owner.UID]++
		}
	}
	return out
}

// stands reports whether a pod is ready, is not being deleted, and is on a node that is not about to be removed.
func stands(snap *cluster.Snapshot, p *cluster.Pod) bool {
	if !p.Ready || !p.Deleted.IsZero() {
		return false
	}
	n := snap.Node(p.NodeName)
	return n != nil && !n.MarkedForRemoval
}

// Sole reports whether a pod is ready, and no other pod of its ReplicaSet is ready on a node that is not about to be removed. If such a pod
// is evicted, its workload has no ready pod for a while.
func (s Standing) Sole(snap *cluster.Snapshot, p *cluster.Pod) bool {
	if !p.Ready || p.Owner == nil {
		return false
	}
	others := s[p.Owner.UID]
	if stands(snap, p) {
		others--
	}
	return others == 0
}
