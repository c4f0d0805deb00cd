// Package foresight finds announced pods: objects of the cluster say that a number of pods of a template will come, and when.
//
//	foresight.go  [All] reads announcements from CronJobs, Deployments, HorizontalPodAutoscalers and KEDA's ScaledObjects
//	trust.go      [Trust] remembers which objects announced pods that did not come, and drops their announcements
//	times.go      [Times] learns how long machines take to get ready: so long before their time machines have to be launched
//	window.go     [WindowOf] reads the schedule of a CapacityBuffer
//
// If an object is not clear, it announces nothing: machines that are launched early cost money, and a pod that was not announced still gets
// a machine when it comes.
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

// late is how long after their time announced pods may still come. Controllers create pods within seconds; KEDA looks every 30 s.
const late = time.Minute

// An Announcement is some pods that an object of the cluster announces.
type Announcement struct {
	Kind, Namespace, Name string    // of the object
	At                    time.Time // when the pods come, in the time zone of the object; zero means at once
	Pods                  int       // pods that have not come yet
	Template              *corev1.PodTemplateSpec
	Created               metav1.Time // of the object; for pods of a Deployment, of that
	UID                   types.UID   // of the object
	Deployment            string      // the Deployment of the pods, "" for pods of Jobs
}

// versions are the API versions of the kinds that announce pods.
var versions = map[string]string{"CronJob": "batch/v1", "Deployment": "apps/v1", "HorizontalPodAutoscaler": "autoscaling/v2",
	"ScaledObject": "keda.sh/v1alpha1"}

// Object returns a reference to the object, for events.
func (a *Announcement) Object() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: versions[a.Kind], Kind: a.Kind, Namespace: a.Namespace, Name: a.Name, UID: a.UID}
}

// Source returns a name of the object in its namespace. It has a space, so that it is never the name of a CapacityBuffer.
func (a *Announcement) Source() string { return a.Kind + " " + a.Name }

// All returns the announcements of pods that come within ahead of now, or that should have come since late before now. It sorts them by
// namespace and source.
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
				break // one announcement for each CronJob: the first run that lacks pods
			}
		}
	}
	out = append(out, ofDeployments(snap, now, ahead)...)
	slices.SortFunc(out, func(a, b Announcement) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Source(), b.Source()))
	})
	return out
}

// runs returns the times of the runs of a CronJob from late before now until ahead of now; none if it will not run. If runs must not
// overlap, it leaves out runs while another Job is active.
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

// active reports whether a Job of another run than that of at is active.
func active(c *batchv1.CronJob, at time.Time) bool {
	return slices.ContainsFunc(c.Status.Active, func(r corev1.ObjectReference) bool { return r.Name != jobName(c.Name, at) })
}

// parse returns a schedule in a time zone, UTC if zone is ""; nil if it cannot be read. It refuses "@every", which counts from a time that
// only the controller of the object knows.
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

// inZone is a schedule whose times are in its own time zone, because texts show them.
type inZone struct{ cron.Schedule }

// Next returns the first time after t.
func (s inZone) Next(t time.Time) time.Time {
	if spec, ok := s.Schedule.(*cron.SpecSchedule); ok {
		t = t.In(spec.Location)
	}
	return s.Schedule.Next(t)
}

// jobName returns the name that Kubernetes gives the Job of a run.
func jobName(cronJob string, at time.Time) string {
	return cronJob + "-" + strconv.FormatInt(at.Unix()/60, 10)
}

// parallel returns how many pods a Job starts at once.
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

// ofDeployments returns what rollouts, autoscalers and KEDA announce for Deployments. If there are several announcements for one
// Deployment, it keeps the one with the most pods, because KEDA also makes a HorizontalPodAutoscaler for the same pods.
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

// surge returns how many pods the next wave of a rollout adds, 0 if there is no rollout. They need additional room, because pods of the old
// template end only when the new ones are ready.
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

// paused reports whether KEDA does not scale: it is paused by an annotation, or the ScaledObject is being deleted.
func paused(s *cluster.ScaledObject) bool {
	for key := range s.Annotations {
		if strings.HasPrefix(key, "autoscaling.keda.sh/paused") {
			return true
		}
	}
	return s.DeletionTimestamp != nil
}

// triggered returns the next time at which a cron trigger of KEDA wants at least n replicas, or the last such time if that is at most late
// ago. n is 0 if there is no such time within ahead, or if it is another kind of trigger.
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
