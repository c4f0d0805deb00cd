package aws

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

func TestRepairPolicies(t *testing.T) {
	repairs := map[bool]*lifecycle.Repairs{} // by the gate
	for _, gate := range []bool{false, true} {
		policies := (&Provider{env: &environment{settings: Settings{Gates: GateSettings{RebootForRepair: gate}}}}).RepairPolicies()
		if err := cloud.CheckRepairPolicies(policies); err != nil {
			t.Fatal(err)
		}
		repairs[gate] = lifecycle.NewRepairs(policies)
		if repairs[gate].Reboots() != gate {
			t.Errorf("gate %t: reboots %t", gate, repairs[gate].Reboots())
		}
	}
	for name, tc := range map[string]struct {
		condition corev1.NodeCondition
		after     time.Duration // 0 for never
		grace     time.Duration
		reboot    bool
	}{
		"not ready":                  {corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, 30 * time.Minute, 10 * time.Minute, false},
		"not heard of":               {corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}, 30 * time.Minute, 10 * time.Minute, false},
		"ready":                      {corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, 0, 0, false},
		"a GPU that a reboot mends":  {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "NvidiaXID48Error"}, 10 * time.Minute, 5 * time.Minute, true},
		"with its number by itself":  {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID48"}, 10 * time.Minute, 5 * time.Minute, true},
		"in lower case":              {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "xid48"}, 10 * time.Minute, 5 * time.Minute, true},
		"a number that begins alike": {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID480"}, 30 * time.Minute, 10 * time.Minute, false},
		"a shorter number":           {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID4"}, 30 * time.Minute, 10 * time.Minute, false},
		"a broken GPU":               {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID79"}, 10 * time.Minute, 5 * time.Minute, false},
		"both":                       {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID48,XID79"}, 10 * time.Minute, 5 * time.Minute, false},
		"storage":                    {corev1.NodeCondition{Type: "StorageReady", Status: corev1.ConditionFalse}, 30 * time.Minute, 10 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			tc.condition.LastTransitionTime = metav1.NewTime(begin)
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{tc.condition}}}
			got := repairs[true].Of(node, &v1.NodeClaim{}, begin.Add(tc.after))
			if off := repairs[false].Of(node, &v1.NodeClaim{}, begin.Add(tc.after)); off != nil && (off.Reboot || !off.Due.Equal(got.Due)) {
				t.Errorf("without the gate the fault is %+v", off)
			}
			if (got == nil) != (tc.after == 0) {
				t.Fatalf("fault = %+v", got)
			}
			if got == nil {
				return
			}
			if !got.Due.Equal(begin.Add(tc.after)) || got.Grace == nil || *got.Grace != tc.grace || got.Reboot != tc.reboot {
				t.Errorf("due after %s, grace %v, reboot %t", got.Due.Sub(begin), got.Grace, got.Reboot)
			}
		})
	}
}

// EC2 reboots a machine under the policies that ship. A dry run changes nothing. A machine that is stopped or gone, or lacks the tags, is not
// rebooted.
func TestAMachineIsRebooted(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		claim, m := w.create(t, newClaim("sick"))
		claim = w.claim(t, claim.Name)
		if err := w.provider.MayReboot(t.Context(), claim); err != nil && !errors.Is(err, cloud.ErrRebootRefused) {
			t.Errorf("a machine that is being started: %v", err)
		}
		time.Sleep(time.Minute)
		boot := func() string {
			machines := w.cloud.Alive()
			i := slices.IndexFunc(machines, func(x awsmodel.Machine) bool { return x.ID == instanceID(m.ProviderID) })
			return machines[i].BootID
		}
		before := boot()
		check(t, w.provider.MayReboot(t.Context(), claim))
		time.Sleep(time.Minute)
		if boot() != before {
			t.Error("a dry run rebooted the machine")
		}
		check(t, w.provider.Reboot(t.Context(), claim, "one"))
		time.Sleep(time.Minute)
		if boot() == before {
			t.Error("the machine has not booted anew")
		}
		people := ec2.NewFromConfig(w.cloud.AWSConfig())
		ids := []string{instanceID(m.ProviderID)}
		_, err := people.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: ids})
		check(t, err)
		time.Sleep(time.Minute)
		if err := w.provider.Reboot(t.Context(), claim, "two"); !errors.Is(err, cloud.ErrRebootRefused) {
			t.Errorf("a stopped machine: %v", err)
		}
		tags := &ec2.DeleteTagsInput{Resources: ids, Tags: []ec2types.Tag{{Key: aws.String(awsv1.TagNodePool)}}}
		_, err = people.DeleteTags(t.Context(), tags)
		check(t, err)
		time.Sleep(time.Minute)
		if err := w.provider.MayReboot(t.Context(), claim); !errors.Is(err, cloud.ErrRebootRefused) {
			t.Errorf("a machine without the tags: %v", err)
		}
		check(t, w.cloud.Kill(ids...))
		time.Sleep(time.Minute)
		unlaunched := &v1.NodeClaim{}
		for _, c := range []*v1.NodeClaim{claim, unlaunched} {
			if err := w.provider.MayReboot(t.Context(), c); !errors.Is(err, cloud.ErrNotFound) {
				t.Errorf("a machine that is gone: %v", err)
			}
		}
	})
}

// The policies of Karpenter 1.15 grant no reboots: EC2 refuses, and the error names the action.
func TestAControllerThatMayNotReboot(t *testing.T) {
	identity := controllerIdentity(t)
	for i, p := range identity.Policies {
		identity.Policies[i] = []byte(strings.ReplaceAll(string(p), "ec2:RebootInstances", "ec2:Nothing"))
	}
	cfg := awsmodel.Config{Identities: map[string]awsmodel.Identity{"AKIACONTROLLER": identity}}
	inWorld(t, cfg, nil, func(t *testing.T, w *world) {
		claim, _ := w.create(t, newClaim("sick"))
		claim = w.claim(t, claim.Name)
		time.Sleep(time.Minute)
		for _, err := range []error{w.provider.MayReboot(t.Context(), claim), w.provider.Reboot(t.Context(), claim, "one")} {
			if !errors.Is(err, cloud.ErrRebootRefused) || !strings.Contains(err.Error(), "not authorized to perform ec2:RebootInstances") {
				t.Errorf("error = %v", err)
			}
		}
	})
}

// While traffic is shifted away from its zone, nothing is done about a machine.
func TestAMachineInAShiftedZoneIsNotRebooted(t *testing.T) {
	inWorld(t, awsmodel.Config{}, followShifts, func(t *testing.T, w *world) {
		claim, m := w.create(t, newClaim("sick"))
		claim = w.claim(t, claim.Name)
		w.shiftAway(t, m.Zone, time.Hour)
		for _, err := range []error{w.provider.MayReboot(t.Context(), claim), w.provider.Reboot(t.Context(), claim, "one")} {
			if !errors.Is(err, errShifted) {
				t.Errorf("error = %v", err)
			}
		}
		time.Sleep(time.Hour)
		check(t, w.provider.MayReboot(t.Context(), claim))
	})
}
