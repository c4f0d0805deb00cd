package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/interrupt"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// All but the two mirrors, which are judged by what they hear, are watched over under the names that dashboards know.
func TestEveryLoopIsWatchedOver(t *testing.T) {
	queue := func(s *Settings) { s.InterruptionQueue = "demo" }
	inWorld(t, awsmodel.Config{}, queue, func(t *testing.T, w *world) {
		synctest.Wait() // until all have begun
		p := w.provider
		want := []string{
			"capacityreservation.capacitytype", "capacityreservation.expiration", "instanceprofile.garbagecollection", "interruption", "interruption.instancestatus",
			"launchtemplate", "nodeclaim.tagging", "nodeclass", "providers.dns", "providers.instancetype", "providers.instancetype.capacity", "providers.pricing", "providers.spotrisk",
			"providers.ssm.invalidation", "providers.version",
		}
		got := slices.DeleteFunc(p.env.in.Metrics.Loops(), func(name string) bool { return name == "events" || name == "events.paced" })
		if !slices.Equal(got, want) {
			t.Errorf("watched over are %q, want %q", got, want)
		}
		if loops := len(p.Always()) + len(p.Leader()) - 2; loops != len(want) {
			t.Errorf("there are %d loops, %d are watched over", loops, len(want))
		}
		if ears := p.Ears(); len(ears) != 2 {
			t.Errorf("%d mirrors are judged by what they hear, want both", len(ears))
		}
	})
}

// When a periodic task last succeeded is a metric: prices of last week look like those of today.
func TestWhenSomethingWasLastReadIsAMetric(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		age := func(task string) time.Duration {
			read := testutil.ToFloat64(w.provider.env.in.Metrics.Refreshed.WithLabelValues(task))
			return time.Since(time.Unix(int64(read), 0))
		}
		time.Sleep(5 * time.Minute)
		for _, task := range []string{"interruption.instancestatus", "providers.pricing"} {
			if got := age(task); got > 6*time.Minute {
				t.Errorf("%s was last read %s ago", task, got)
			}
		}
		w.faults(t, func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"ec2:DescribeInstanceStatus": {Code: "UnauthorizedOperation", Status: 403}}
		})
		time.Sleep(time.Hour)
		if got := age("interruption.instancestatus"); got < time.Hour {
			t.Errorf("what fails for an hour was last read %s ago", got)
		}
	})
}

// A task that has never succeeded counts from when it began, and one that another replica does now is not ours to tell of.
func TestATaskThatNeverSucceedsHasFailedSinceItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := telemetry.NewMetrics(prometheus.NewRegistry(), nil)
		p := &environment{in: Input{Metrics: metrics}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- p.every("task", time.Hour, time.Hour, func(context.Context) error { return errors.New("denied") })(ctx)
		}()
		synctest.Wait()
		began := time.Now()
		time.Sleep(3 * time.Hour)
		if got := testutil.ToFloat64(metrics.Refreshed.WithLabelValues("task")); got != float64(began.Unix()) {
			t.Errorf("after three hours of failures it last succeeded at %v, want when it began, %d", got, began.Unix())
		}
		cancel()
		<-ended
		if n := testutil.CollectAndCount(metrics.Refreshed); n != 0 {
			t.Errorf("%d tasks are told of after the end, want none", n)
		}
	})
}

// Of three machines that are interrupted at once the second cannot be deleted, and the third is one over which we panic.
func TestAMessageAboutSeveralMachinesGoesOnWithTheOthers(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	w := newWorld(t, awsmodel.Config{}, nil)
	for i := range 4 {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", i), UID: types.UID(fmt.Sprint("uid-", i)), Finalizers: []string{v1.TerminationFinalizer}}}
		c.Status.ProviderID = providerID("us-east-1a", fmt.Sprintf("i-%017d", i))
		if err := w.kube.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if n := len(w.provider.env.claims.All()); n != 4 {
			return fmt.Errorf("the provider knows of %d claims, want 4", n)
		}
		return nil
	})
	w.provider.env.in.Kube = interceptor.NewClient(w.kube, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			switch o.GetName() {
			case "claim-1":
				return errors.New("not now")
			case "claim-2":
				panic("no")
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	m := interrupt.Message{Kind: interrupt.Stopped, Time: time.Now()}
	for i := range 4 {
		m.Instances = append(m.Instances, fmt.Sprintf("i-%017d", i))
	}
	if err := w.provider.machines.interrupted(t.Context(), m); err == nil {
		t.Error("what failed is no error, so that the message would be deleted")
	}
	for i, want := range []bool{true, false, false, true} {
		var c v1.NodeClaim
		if err := w.kube.Get(t.Context(), types.NamespacedName{Name: fmt.Sprintf("claim-%d", i)}, &c); err != nil {
			t.Fatal(err)
		}
		if got := c.DeletionTimestamp != nil; got != want {
			t.Errorf("claim-%d is deleted = %v, want %v", i, got, want)
		}
	}
}

func TestALaunchThatPanicsAnswersItsCallers(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		l := newLaunches(t.Context())
		for range 2 {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			_, err := l.do(ctx, "a", "", func(context.Context) (cloud.Machine, error) { panic("no") })
			if _, ok := errors.AsType[*bug.Panic](err); !ok {
				t.Errorf("error = %v, want a panic", err)
			}
			stop()
		}
		if _, ok := l.unknown.Get("a"); !ok {
			t.Error("a machine may run of which nobody knows, and that is not remembered")
		}
		if _, err := l.do(t.Context(), "a", "", func(context.Context) (cloud.Machine, error) { return cloud.Machine{ProviderID: "x"}, nil }); err != nil {
			t.Errorf("the next try fails too: %v", err)
		}
	})
}

// EC2 refuses every attempt. The call gives up after more than a minute; what keeps the launch is told within seconds.
func TestALaunchThatIsRefusedForNowIsToldWithinSeconds(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.faults(t, func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"ec2:CreateFleet": {Code: "RequestLimitExceeded", Status: 503}}
		})
		done := make(chan error)
		claim := newClaim("a")
		go func() { _, err := w.provider.Launch(t.Context(), claim); done <- err }()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if !w.events.says(telemetry.LaunchFailed, claim.Name, "EC2 refuses CreateFleet for now (RequestLimitExceeded); it is tried again") {
			t.Errorf("events = %v, want one that says why nothing comes", w.events.list)
		}
		began := time.Now()
		if err := <-done; err == nil || time.Since(began) < 20*time.Second {
			t.Errorf("the launch ended with %v after %v, want an error after a while: the test is about the time before", err, time.Since(began))
		}
	})
}
