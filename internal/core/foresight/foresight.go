// Package foresight works out which pods are announced: objects of the cluster say that so many pods of a template come, and when.
//
// It reads CronJobs, Deployments, HorizontalPodAutoscalers and KEDA's ScaledObjects, as far as the snapshot holds them. What an object
// says unclearly announces nothing: foresight costs money, and a pod that was not announced is still provisioned for when it comes.
package foresight

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/bounded"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// late is how long after their time announced pods are waited for. Controllers create pods within seconds; KEDA looks every 30 s.
const late = time.Minute

// An Announcement is pods that an object of the cluster announces.
type Announcement struct {
	Kind, Namespace, Name string    // of the object
	At                    time.Time // when the pods come, in the time zone of the object; zero for at once
	Pods                  int       // that have not come yet
	Template              *corev1.PodTemplateSpec
	Created               metav1.Time // of the object
	UID                   types.UID   // of the object
	Deployment            string      // whose pods they are, "" for those of Jobs
}

// versions are the API versions of the kinds that announce pods.
var versions = map[string]string{"CronJob": "batch/v1", "Deployment": "apps/v1", "HorizontalPodAutoscaler": "autoscaling/v2",
	"ScaledObject": "keda.sh/v1alpha1"}

// Object refers to the object, for events.
func (a *Announcement) Object() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: versions[a.Kind], Kind: a.Kind, Namespace: a.Namespace, Name: a.Name, UID: a.UID}
}

// Source names the object in its namespace. A space makes it no name of a CapacityBuffer.
func (a *Announcement) Source() string { return a.Kind + " " + a.Name }

// All returns the announcements whose pods come within ahead or should have come by now, by namespace and source.
func All(snap *cluster.Snapshot, now time.Time, ahead time.Duration) []Announcement {
	var out []Announcement
	var came map[cluster.PodKey]int
	for c := range cluster.CronJobs.All(snap) {
		for _, at := range runs(c, now, ahead) {
			n := 0
			if !at.After(now) {
				if came == nil {
					came = podsOfJobs(snap)
				}
				n = came[cluster.PodKey{Namespace: c.Namespace, Name: jobName(c.Name, at)}]
			}
			if left := parallel(&c.Spec.JobTemplate.Spec) - n; left > 0 {
				out = append(out, Announcement{Kind: "CronJob", Namespace: c.Namespace, Name: c.Name, At: at, Pods: left,
					Template: &c.Spec.JobTemplate.Spec.Template, Created: c.CreationTimestamp, UID: c.UID})
				break // of several runs the first that lacks pods
			}
		}
	}
	out = append(out, ofDeployments(snap, now, ahead)...)
	slices.SortFunc(out, func(a, b Announcement) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Source(), b.Source()))
	})
	return out
}

// runs lists the runs of a CronJob between a little before now and ahead of now, none where it will not run.
func runs(c *batchv1.CronJob, now time.Time, ahead time.Duration) []time.Time {
	if c.Spec.Suspend != nil && *c.Spec.Suspend || c.Spec.JobTemplate.Spec.Suspend != nil && *c.Spec.JobTemplate.Spec.Suspend ||
		c.DeletionTimestamp != nil {
		return nil
	}
	zone := ""
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	schedule := parse(c.Spec.Schedule, zone)
	if schedule == nil {
		return nil
	}
	var out []time.Time
	from := ztime.Later(now.Add(-late), c.CreationTimestamp.Time)
	for at := schedule.Next(from); !at.IsZero() && !at.After(now.Add(ahead)); at = schedule.Next(at) {
		switch {
		// While a Job is active, Forbid skips the run, and Replace gives the room of the old pods to the new ones.
		case c.Spec.ConcurrencyPolicy != batchv1.AllowConcurrent && c.Spec.ConcurrencyPolicy != "" && active(c, at):
		default:
			out = append(out, at)
		}
	}
	return out
}

// active reports whether a Job of a CronJob runs that is of another run than at.
func active(c *batchv1.CronJob, at time.Time) bool {
	return slices.ContainsFunc(c.Status.Active, func(r corev1.ObjectReference) bool { return r.Name != jobName(c.Name, at) })
}

// parse reads a schedule in a time zone, UTC if that is empty; nil if it cannot be read. "@every" is left out: it counts from a time
// that only the controller of the object knows.
func parse(schedule, zone string) cron.Schedule {
	if zone == "" {
		zone = "UTC"
	}
	if strings.HasPrefix(strings.TrimSpace(schedule), "@every") {
		return nil
	}
	s, err := bounded.ParseSchedule(schedule, zone)
	if err != nil {
		return nil
	}
	return inZone{s}
}

// inZone gives times in the zone of the schedule, for sentences.
type inZone struct{ cron.Schedule }

// Next returns the first time after t.
func (s inZone) Next(t time.Time) time.Time {
	if spec, ok := s.Schedule.(*cron.SpecSchedule); ok {
		t = t.In(spec.Location)
	}
	return s.Schedule.Next(t)
}

// jobName is the name that Kubernetes gives the Job of a run.
func jobName(cronJob string, at time.Time) string {
	return cronJob + "-" + strconv.FormatInt(at.Unix()/60, 10)
}

// parallel is how many pods a Job starts with.
func parallel(j *batchv1.JobSpec) int {
	n := 1
	if j.Parallelism != nil {
		n = int(*j.Parallelism)
	}
	if j.Completions != nil {
		n = min(n, int(*j.Completions))
	}
	return n
}

// podsOfJobs counts the pods of each Job, also those that have ended.
func podsOfJobs(snap *cluster.Snapshot) map[cluster.PodKey]int {
	out := map[cluster.PodKey]int{}
	for p := range snap.Pods() {
		if p.Owner != nil && p.Owner.Kind == "Job" {
			out[cluster.PodKey{Namespace: p.Namespace, Name: p.Owner.Name}]++
		}
	}
	return out
}

// ofDeployments returns what autoscalers and rollouts announce. Of several announcements for one Deployment the largest counts: KEDA works
// through a HorizontalPodAutoscaler.
func ofDeployments(snap *cluster.Snapshot, now time.Time, ahead time.Duration) []Announcement {
	most := map[cluster.PodKey]Announcement{}
	add := func(a Announcement, d *appsv1.Deployment) {
		key := cluster.PodKey{Namespace: d.Namespace, Name: d.Name}
		if a.Pods > most[key].Pods {
			a.Namespace, a.Deployment, a.Template, a.Created = d.Namespace, d.Name, &d.Spec.Template, d.CreationTimestamp
			most[key] = a
		}
	}
	for d := range cluster.Deployments.All(snap) {
		add(Announcement{Kind: "Deployment", Name: d.Name, UID: d.UID, Pods: surge(d)}, d)
	}
	for h := range cluster.Autoscalers.All(snap) {
		ref := h.Spec.ScaleTargetRef
		if d := cluster.Deployments.Get(snap, h.Namespace, ref.Name); d != nil && ref.Kind == "Deployment" {
			have := max(h.Status.CurrentReplicas, d.Status.Replicas)
			add(Announcement{Kind: "HorizontalPodAutoscaler", Name: h.Name, UID: h.UID, Pods: int(h.Status.DesiredReplicas - have)}, d)
		}
	}
	for s := range cluster.ScaledObjects.All(snap) {
		ref := s.Spec.ScaleTargetRef
		d := cluster.Deployments.Get(snap, s.Namespace, ref.Name)
		if d == nil || ref.Kind != "" && ref.Kind != "Deployment" || paused(s) {
			continue
		}
		for _, t := range s.Spec.Triggers {
			if at, n := triggered(t, now, ahead); n > 0 {
				if s.Spec.MaxReplicaCount != nil {
					n = min(n, int(*s.Spec.MaxReplicaCount))
				}
				add(Announcement{Kind: "ScaledObject", Name: s.Name, UID: s.UID, At: at, Pods: n - int(d.Status.Replicas)}, d)
			}
		}
	}
	var out []Announcement
	for _, a := range most {
		out = append(out, a)
	}
	return out
}

// surge is how many pods a rollout adds when its next wave begins: pods of the old template end only when the new ones are ready.
func surge(d *appsv1.Deployment) int {
	s, r := &d.Status, d.Spec.Strategy.RollingUpdate
	underWay := s.UpdatedReplicas < s.Replicas && s.ObservedGeneration >= d.Generation
	stuck := slices.ContainsFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
	})
	if !underWay || stuck || d.Spec.Paused || d.DeletionTimestamp != nil || r == nil || r.MaxSurge == nil {
		return 0
	}
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	wave, err := intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, int(replicas), true)
	if err != nil {
		return 0
	}
	return min(wave, int(replicas-s.UpdatedReplicas))
}

// paused reports whether KEDA leaves the replicas alone.
func paused(s *cluster.ScaledObject) bool {
	for key := range s.Annotations {
		if strings.HasPrefix(key, "autoscaling.keda.sh/paused") {
			return true
		}
	}
	return s.DeletionTimestamp != nil
}

// triggered reads a cron trigger of KEDA: the next time at which it wants at least n replicas, or the last if that is not long ago.
func triggered(t cluster.ScaleTrigger, now time.Time, ahead time.Duration) (at time.Time, n int) {
	if t.Type != "cron" {
		return time.Time{}, 0
	}
	schedule := parse(t.Metadata["start"], t.Metadata["timezone"])
	n, err := strconv.Atoi(t.Metadata["desiredReplicas"])
	if schedule == nil || err != nil {
		return time.Time{}, 0
	}
	at = schedule.Next(now.Add(-late))
	if at.IsZero() || at.After(now.Add(ahead)) {
		return time.Time{}, 0
	}
	return at, n
}
