package foresight

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

var now = time.Date(2026, 7, 15, 8, 58, 0, 0, time.UTC) // Berlin has 10:58

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
}

func cronJob(schedule string, edits ...func(*batchv1.CronJob)) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: meta("report")}
	c.Spec.Schedule, c.Spec.JobTemplate.Spec.Parallelism = schedule, new(int32(40))
	for _, edit := range edits {
		edit(c)
	}
	return c
}

// deployment has so many replicas wanted, there, and of the newest template.
func deployment(replicas, there, updated int32, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: meta("web")}
	d.Spec.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas = &replicas, there, updated
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("25%"))}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

func autoscaler(have, want int32) *autoscalingv2.HorizontalPodAutoscaler {
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta("web")}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}
	h.Status.CurrentReplicas, h.Status.DesiredReplicas = have, want
	return h
}

func scaled(trigger, start, zone, replicas string, edits ...func(*cluster.ScaledObject)) *cluster.ScaledObject {
	s := &cluster.ScaledObject{ObjectMeta: meta("office")}
	s.Spec.ScaleTargetRef.Name = "web"
	s.Spec.Triggers = []cluster.ScaleTrigger{{Type: trigger, Metadata: map[string]string{
		"start": start, "end": "0 18 * * *", "timezone": zone, "desiredReplicas": replicas}}}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func podsOf(job string, n int) (out []any) {
	for i := range n {
		out = append(out, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("%s-%d", job, i),
			UID: types.UID(fmt.Sprint(i)), OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: "j", Controller: new(true)}}}})
	}
	return out
}

func picture(objects ...any) *cluster.Snapshot {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for _, o := range objects {
			switch o := o.(type) {
			case *batchv1.CronJob:
				cluster.CronJobs.Put(d, o)
			case *appsv1.Deployment:
				cluster.Deployments.Put(d, o)
			case *autoscalingv2.HorizontalPodAutoscaler:
				cluster.Autoscalers.Put(d, o)
			case *cluster.ScaledObject:
				cluster.ScaledObjects.Put(d, o)
			case *corev1.Pod:
				d.PutPod(o)
			case *v1.NodeClaim:
				d.PutClaim(o)
			}
		}
	})
	return store.Snapshot()
}

func TestWhatIsAnnounced(t *testing.T) {
	const nine = "0 9 * * *"
	forbid := func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent }
	running := func(c *batchv1.CronJob) { c.Status.Active = []corev1.ObjectReference{{Name: "report-1"}} }
	zone := func(z string) func(*batchv1.CronJob) { return func(c *batchv1.CronJob) { c.Spec.TimeZone = &z } }
	// two minutes to nine, and half a minute past
	const before, after = 0, 150 * time.Second
	job := fmt.Sprintf("report-%d", now.Add(2*time.Minute).Unix()/60)
	for name, tc := range map[string]struct {
		objects []any
		later   time.Duration
		want    string
	}{
		"a CronJob":                                        {[]any{cronJob(nine)}, before, "CronJob report 09:00 UTC 40"},
		"one in a time zone":                               {[]any{cronJob("0 11 * * *", zone("Europe/Berlin"))}, before, "CronJob report 11:00 CEST 40"},
		"one in a time zone that there is not":             {[]any{cronJob(nine, zone("Europe/Atlantis"))}, before, ""},
		"one that is later":                                {[]any{cronJob("2 9 * * *")}, before, ""},
		"one that cannot be read":                          {[]any{cronJob("at nine")}, before, ""},
		"one that counts from a time that is not known":    {[]any{cronJob("@every 1m")}, before, ""},
		"one that is suspended":                            {[]any{cronJob(nine, func(c *batchv1.CronJob) { c.Spec.Suspend = new(true) })}, before, ""},
		"one whose Jobs are suspended":                     {[]any{cronJob(nine, func(c *batchv1.CronJob) { c.Spec.JobTemplate.Spec.Suspend = new(true) })}, before, ""},
		"fewer completions than pods at once":              {[]any{cronJob(nine, func(c *batchv1.CronJob) { c.Spec.JobTemplate.Spec.Completions = new(int32(3)) })}, before, "CronJob report 09:00 UTC 3"},
		"no number of pods":                                {[]any{cronJob(nine, func(c *batchv1.CronJob) { c.Spec.JobTemplate.Spec.Parallelism = nil })}, before, "CronJob report 09:00 UTC 1"},
		"a run that is forbidden beside another":           {[]any{cronJob(nine, forbid, running)}, before, ""},
		"a run that would be, with no other":               {[]any{cronJob(nine, forbid)}, before, "CronJob report 09:00 UTC 40"},
		"a run beside another":                             {[]any{cronJob(nine, running)}, before, "CronJob report 09:00 UTC 40"},
		"pods that are late":                               {[]any{cronJob(nine)}, after, "CronJob report 09:00 UTC 40"},
		"pods of which some came":                          {append(podsOf(job, 30), cronJob(nine)), after, "CronJob report 09:00 UTC 10"},
		"a run that is active and forbids others":          {append(podsOf(job, 30), cronJob(nine, forbid, func(c *batchv1.CronJob) { c.Status.Active = []corev1.ObjectReference{{Name: job}} })), after, "CronJob report 09:00 UTC 10"},
		"pods that came":                                   {append(podsOf(job, 40), cronJob(nine)), after, ""},
		"pods that came, and the next run":                 {append(podsOf(job, 40), cronJob("*/2 9 * * *")), after, "CronJob report 09:02 UTC 40"},
		"of two runs the one that lacks pods":              {append(podsOf(job, 30), cronJob("*/2 9 * * *")), after, "CronJob report 09:00 UTC 10"},
		"pods that did not come":                           {[]any{cronJob(nine)}, 4 * time.Minute, ""},
		"a run before the CronJob":                         {[]any{cronJob(nine, func(c *batchv1.CronJob) { c.CreationTimestamp = metav1.NewTime(now.Add(after)) })}, after, ""},
		"a rollout":                                        {[]any{deployment(8, 10, 2)}, before, "Deployment web at once 2"},
		"the end of a rollout":                             {[]any{deployment(8, 9, 7)}, before, "Deployment web at once 1"},
		"no rollout":                                       {[]any{deployment(8, 8, 8)}, before, ""},
		"a rollout that is paused":                         {[]any{deployment(8, 10, 2, func(d *appsv1.Deployment) { d.Spec.Paused = true })}, before, ""},
		"a rollout whose status is of an older Deployment": {[]any{deployment(8, 10, 2, func(d *appsv1.Deployment) { d.Generation = 2; d.Status.ObservedGeneration = 1 })}, before, ""},
		"a rollout that is stuck": {[]any{deployment(8, 10, 2, func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse}}
		})}, before, ""},
		"an autoscaler that wants more":                 {[]any{deployment(8, 8, 8), autoscaler(8, 20)}, before, "HorizontalPodAutoscaler web at once 12"},
		"an autoscaler that has what it wants":          {[]any{deployment(8, 20, 20), autoscaler(8, 20)}, before, ""},
		"an autoscaler of something else":               {[]any{autoscaler(8, 20)}, before, ""},
		"KEDA":                                          {[]any{deployment(8, 8, 8), scaled("cron", nine, "UTC", "30")}, before, "ScaledObject office 09:00 UTC 22"},
		"KEDA and the autoscaler that it works through": {[]any{deployment(8, 8, 8), autoscaler(8, 20), scaled("cron", nine, "UTC", "30")}, after, "ScaledObject office 09:00 UTC 22"},
		"KEDA in a time zone":                           {[]any{deployment(8, 8, 8), scaled("cron", "0 11 * * *", "Europe/Berlin", "30")}, before, "ScaledObject office 11:00 CEST 22"},
		"KEDA that is paused": {[]any{deployment(8, 8, 8), scaled("cron", nine, "UTC", "30", func(s *cluster.ScaledObject) {
			s.Annotations = map[string]string{"autoscaling.keda.sh/paused-replicas": "8"}
		})}, before, ""},
		"KEDA with a limit":                               {[]any{deployment(8, 8, 8), scaled("cron", nine, "UTC", "30", func(s *cluster.ScaledObject) { s.Spec.MaxReplicaCount = new(int32(10)) })}, before, "ScaledObject office 09:00 UTC 2"},
		"a trigger of KEDA that is no schedule":           {[]any{deployment(8, 8, 8), scaled("prometheus", nine, "UTC", "30")}, before, ""},
		"a trigger of KEDA that wants no number":          {[]any{deployment(8, 8, 8), scaled("cron", nine, "UTC", "some")}, before, ""},
		"a trigger of KEDA without an hour that is known": {[]any{deployment(8, 8, 8), scaled("cron", "soon", "UTC", "30")}, before, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, a := range All(picture(tc.objects...), now.Add(tc.later), 3*time.Minute) {
				at := "at once"
				if !a.At.IsZero() {
					at = a.At.Format("15:04 MST")
				}
				got += fmt.Sprintf("%s %s %d", a.Source(), at, a.Pods)
			}
			if got != tc.want {
				t.Errorf("announced is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAnAnnouncementRefersToItsObject(t *testing.T) {
	c, h, s := cronJob("0 9 * * *"), autoscaler(8, 20), scaled("cron", "0 9 * * *", "UTC", "30")
	rollout, web := deployment(8, 10, 2), deployment(8, 8, 8)
	c.UID, h.UID, s.UID, rollout.UID, web.UID = "c", "h", "s", "r", "w"
	for want, objects := range map[string][]any{
		"batch/v1 CronJob shop/report c":                    {c},
		"apps/v1 Deployment shop/web r":                     {rollout},
		"autoscaling/v2 HorizontalPodAutoscaler shop/web h": {web, h},
		"keda.sh/v1alpha1 ScaledObject shop/office s":       {web, s},
	} {
		all := All(picture(objects...), now, 3*time.Minute)
		if len(all) != 1 {
			t.Fatalf("%s: there are %d announcements", want, len(all))
		}
		if o := all[0].Object(); fmt.Sprintf("%s %s %s/%s %s", o.APIVersion, o.Kind, o.Namespace, o.Name, o.UID) != want {
			t.Errorf("the object is %v, want %s", o, want)
		}
	}
}

// ready is a claim whose machine took so long.
func ready(n int, pool, instanceType string, took time.Duration) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(pool, instanceType, n), UID: types.UID(fmt.Sprint(pool, instanceType, n)),
		CreationTimestamp: metav1.NewTime(now), Labels: map[string]string{v1.NodePoolLabelKey: pool, corev1.LabelInstanceTypeStable: instanceType}}}
	c.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeInitialized, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(took))}}
	return c
}

func TestHowLongMachinesTake(t *testing.T) {
	times := &Times{}
	if lead := times.Lead("any", []string{"m5.large"}); lead != 90*time.Second || times.Lead("", nil) != lead {
		t.Errorf("machines that were never measured are given %v", lead)
	}
	claims := []any{}
	for n := range 10 { // the last is an outlier
		claims = append(claims, ready(n, "web", "m5.large", time.Duration(30+n/9*300)*time.Second), ready(n, "web", "g5.xlarge", 4*time.Minute))
	}
	claims = append(claims, ready(1, "slow", "m5.large", time.Hour))
	snap := picture(claims...)
	times.Learn(snap)
	for range 20 { // what was learned is not learned again
		times.Learn(snap)
	}
	for name, tc := range map[string]struct {
		pool  string
		types []string
		want  time.Duration
	}{
		"a family":                        {"web", []string{"m5.24xlarge"}, 30 * time.Second},
		"the slower of two families":      {"web", []string{"m5.large", "g5.12xlarge"}, 4 * time.Minute},
		"a family that was never seen":    {"web", []string{"c6.large"}, 4 * time.Minute},
		"a pool that was never seen":      {"new", []string{"m5.large"}, 4 * time.Minute},
		"one machine teaches no more":     {"slow", []string{"m5.large"}, 10 * time.Minute},
		"the longest of all is the limit": {"", nil, 10 * time.Minute},
	} {
		if got := times.Lead(tc.pool, tc.types); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if n := len(times.took[kind{"web", "m5"}]); n != 10 {
		t.Errorf("ten machines are remembered as %d", n)
	}
}
