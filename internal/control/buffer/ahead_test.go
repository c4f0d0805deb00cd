package buffer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// report is a CronJob with so many pods of one CPU at nine.
func report(n int32) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report"}}
	c.Spec.Schedule, c.Spec.JobTemplate.Spec.Parallelism = "0 9 * * *", &n
	c.Spec.JobTemplate.Spec.Template.Spec.Containers = sim.Pod("report", "1").Spec.Containers
	return c
}

// atNine plays a day until nine, when the pods of the CronJob come, and measures how long it takes until all of them run.
func atNine(t *testing.T, n int, foresight bool, before, after func(t *testing.T, w *sim.World, k *sim.Karpenter)) (took time.Duration) {
	t.Helper()
	o := sim.Options{ReadyAfter: 40 * time.Second}
	ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Foresight: foresight}
	sim.Bubble(t, o, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		now := time.Now().UTC()
		nine := time.Date(now.Year(), now.Month(), now.Day(), 9, 0, 0, 0, time.UTC)
		if nine.Before(now) {
			nine = nine.AddDate(0, 0, 1)
		}
		time.Sleep(time.Until(nine.Add(-10 * time.Minute)))
		sim.Create(t, w, report(int32(n)))
		time.Sleep(time.Until(nine.Add(-4 * time.Minute)))
		if have := len(claims(w)); have != 0 {
			t.Errorf("four minutes before the time there are %d claims", have)
		}
		time.Sleep(time.Until(nine))
		before(t, w, k)
		job := fmt.Sprintf("report-%d", nine.Unix()/60)
		for i := range n {
			sim.Create(t, w, sim.Pod(fmt.Sprintf("%s-%d", job, i), "1", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: "job", Controller: new(true)}}
			}))
		}
		for running := 0; running < n; {
			time.Sleep(100 * time.Millisecond)
			running = 0
			for _, p := range memapi.All[*corev1.Pod](w.API) {
				if p.Status.Phase == corev1.PodRunning {
					running++
				}
			}
		}
		took = time.Since(nine)
		after(t, w, k)
	})
	return took
}

func nothing(*testing.T, *sim.World, *sim.Karpenter) {}

func TestFiveHundredPodsAtNineRunWithinFiveSeconds(t *testing.T) {
	with := atNine(t, 500, true, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		for _, c := range claims(w) {
			if early := time.Since(c.CreationTimestamp.Time); early < time.Minute || early > 2*time.Minute {
				t.Errorf("a claim was opened %v before the time; machines that were never measured are given 90 s and a little", early)
			}
		}
	}, nothing)
	without := atNine(t, 500, false, nothing, nothing)
	t.Logf("all 500 pods run %v after nine, and %v without foresight", with, without)
	if with > 5*time.Second || without < 30*time.Second {
		t.Errorf("all pods run after %v, without foresight after %v", with, without)
	}
}

func TestAMachineSaysWhatItWasOpenedFor(t *testing.T) {
	atNine(t, 8, true, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		text := claims(w)[0].Annotations[v1.OpenedAheadAnnotationKey]
		if !strings.HasPrefix(text, "opened at 08:58 for CronJob report in default at 09:00 UTC, 8 pods") {
			t.Errorf("the claim says %q", text)
		}
		sim.WantEvent(t, k, "OpenedAhead", claims(w)[0].Name)
		if records := k.Journal.Select(journal.Query{}); !strings.Contains(fmt.Sprint(records), text) {
			t.Errorf("the journal does not say %q", text)
		}
	}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		time.Sleep(2 * time.Minute)
		if have := cpus(w); have != 8 {
			t.Errorf("for 8 pods of one CPU there are %d CPUs", have)
		}
	})
}

func TestNothingIsKeptForPodsThatDoNotCome(t *testing.T) {
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true, Disrupt: true, Foresight: true}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		c := report(8)
		at := time.Now().UTC().Add(5 * time.Minute)
		c.Spec.Schedule = fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour())
		sim.Create(t, w, c)
		time.Sleep(time.Until(at.Truncate(time.Minute).Add(50 * time.Second)))
		if cpus(w) != 8 {
			t.Errorf("%d CPUs are kept while the pods may still come", cpus(w))
		}
		time.Sleep(time.Minute)
		if cpus(w) != 0 {
			t.Errorf("%d CPUs are kept afterwards", cpus(w))
		}
	})
}

// To stop a machine and open another takes twice the time that machines take: 90 s and a little, where none took longer.
func TestAMachineThatIsEmptyShortlyBeforeStays(t *testing.T) {
	for before, stays := range map[time.Duration]bool{3 * time.Minute: true, 5 * time.Minute: false} {
		sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true, Disrupt: true, Foresight: true}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			nine := time.Now().UTC().Truncate(24 * time.Hour).Add(9 * time.Hour) // it is midnight
			time.Sleep(time.Until(nine.Add(-before - 5*time.Minute)))
			sim.Create(t, w, report(8))
			sim.Create(t, w, sim.Pod("other", "7"))
			time.Sleep(time.Until(nine.Add(-before)))
			first := claims(w)[0].Name
			sim.Delete(t, w, sim.Get[*corev1.Pod](t, w, "other"))
			time.Sleep(time.Until(nine))
			if have := claims(w); len(have) != 1 || (have[0].Name == first) != stays {
				t.Errorf("the machine that is empty %v before the time is kept: %v, want %v", before, !stays, stays)
			}
		})
	}
}

// Windows may follow each other so closely that the room is kept from one to the next.
func TestTheRoomOfABufferIsForItsNewestWindow(t *testing.T) {
	sim.Bubble(t, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		first := time.Now().UTC().Truncate(10 * time.Minute).Add(10 * time.Minute)
		sim.Create(t, w, shapeOf("web", "1"))
		b := bufferOf("spare", "web", 8)
		b.Annotations = map[string]string{v1.ScheduleAnnotationKey: "*/10 * * * *", v1.ScheduleDurationAnnotationKey: "9m"}
		sim.Create(t, w, b)
		for n := range 3 {
			begins := first.Add(time.Duration(n) * 10 * time.Minute)
			time.Sleep(time.Until(begins.Add(time.Minute)))
			if s := k.Store.Snapshot().SparesOf("default", "spare"); len(s.Pods) != 8 || !s.Pods[0].Spare.Due.Equal(begins) {
				t.Errorf("in the window of %v there are %d pods, the first for %v", begins, len(s.Pods), s.Pods[0].Spare.Due)
			}
		}
	})
}

func TestABufferWithAScheduleKeepsRoomInItsTimeOnly(t *testing.T) {
	sim.Bubble(t, sim.Options{ReadyAfter: 40 * time.Second}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		nine := time.Now().UTC().Truncate(24 * time.Hour).Add(9 * time.Hour) // it is midnight
		sim.Create(t, w, shapeOf("web", "1"))
		b := bufferOf("spare", "web", 8)
		b.Annotations = map[string]string{v1.ScheduleAnnotationKey: "0 11 * * *", v1.ScheduleTimeZoneAnnotationKey: "Europe/Athens",
			v1.ScheduleDurationAnnotationKey: "30m"}
		sim.Create(t, w, b)
		time.Sleep(time.Minute)
		want(t, w, "spare", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionTrue, autoscalingv1beta1.ReasonResolved, "no room at this time")
		for at, cores := range map[time.Duration]int64{-4 * time.Minute: 0, 0: 8, 29 * time.Minute: 8, 31 * time.Minute: 0} {
			time.AfterFunc(time.Until(nine.Add(at)), func() {
				if got := cpus(w); got != cores {
					t.Errorf("%v after nine the room is %d CPUs, want %d", at, got, cores)
				}
			})
		}
		time.Sleep(time.Until(nine))
		wantFed(t, w)
		if text := claims(w)[0].Annotations[v1.OpenedAheadAnnotationKey]; text != "opened at 10:58 for CapacityBuffer spare in default at 11:00 EET, 8 pods" {
			t.Errorf("the claim says %q", text)
		}
		time.Sleep(time.Hour)
		memapi.Edit(w.API, "default", "spare", func(b *autoscalingv1beta1.CapacityBuffer) { b.Annotations[v1.ScheduleAnnotationKey] = "at nine" })
		time.Sleep(time.Minute)
		want(t, w, "spare", autoscalingv1beta1.ConditionTypeReadyForProvisioning, metav1.ConditionFalse, autoscalingv1beta1.ReasonResolutionFailed, "cannot be read")
	})
}

func TestACronJobWhosePodsNeverComeGetsNoMachinesAnyMore(t *testing.T) {
	ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Foresight: true}
	sim.Bubble(t, sim.Options{}, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		c := report(8)
		c.Spec.Schedule = "*/10 * * * *"
		sim.Create(t, w, c)
		uid := sim.Get[*batchv1.CronJob](t, w, "report").UID
		for run, cores := range []int64{8, 8, 8, 0, 0} {
			time.Sleep(time.Until(time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute)))
			if got := cpus(w); got != cores {
				t.Errorf("run %d finds %d CPUs, want %d", run+1, got, cores)
			}
		}
		time.Sleep(2 * time.Minute)
		told := 0
		for _, e := range k.Events() {
			if e.Reason == string(telemetry.AnnouncedInVain) {
				told++
				if o := e.InvolvedObject; o.UID != uid || o.APIVersion != "batch/v1" || o.Kind != "CronJob" || o.Namespace != "default" || o.Name != "report" ||
					!strings.HasPrefix(e.Message, "3 times in a row most pods that this CronJob announced did not come") {
					t.Errorf("the event is about %v: %s", o, e.Message)
				}
			}
		}
		if told != 1 {
			t.Errorf("%d events say that no machines are opened ahead of time any more, want one", told)
		}
		if n := testutil.ToFloat64(k.Metrics.PodsAnnounced.WithLabelValues("CronJob", "missed")); n != 40 {
			t.Errorf("%v pods are counted as missed, want 40", n)
		}
	})
}
