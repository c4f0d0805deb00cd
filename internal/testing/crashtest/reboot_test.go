package crashtest

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestACrashAtEachWriteOfARebootLosesNothing stops the process at each write that a reboot makes, once so that the write is lost. Another
// process goes on: the machine is rebooted once, and is what it was.
func TestACrashAtEachWriteOfARebootLosesNothing(t *testing.T) {
	crashes := 0
	for at := 0; ; at++ {
		crashed := false
		sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) { crashed = rebootWithCrash(t, w, at) })
		if !crashed {
			break
		}
		crashes++
	}
	if crashes < 6 { // request, its status, taint, boot id, since when, answer, end
		t.Errorf("a reboot has %d writes, which is less than it has steps", crashes)
	}
}

// rebootWithCrash reboots a machine, and reports whether there was a write of that number at which the process crashed.
func rebootWithCrash(t *testing.T, w *sim.World, at int) (crashed bool) {
	settings := func(name string) sim.KarpenterOptions {
		return sim.KarpenterOptions{Name: name, Provision: true, Disrupt: true, Repairs: true}
	}
	dead := make(chan struct{}, 1)
	w.With(t, settings("first"), func(*sim.Karpenter) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.NillableDuration{} })
		sim.Create(t, w, sim.Claim("c0"))
		time.Sleep(2 * time.Minute)
		memapi.Edit(w.API, "", sim.Get[*v1.NodeClaim](t, w, "c0").Status.NodeName, func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: fakecloud.Mendable, Status: corev1.ConditionFalse,
				LastTransitionTime: metav1.Now()})
		})
		time.Sleep(9 * time.Minute)
		writes := 0
		w.API.SetFault(func(r memapi.Request) error {
			if r.Client != "first" || r.Verb != "patch" || r.Kind != "NodeClaim" && r.Kind != "Node" {
				return nil
			}
			if writes++; writes <= at {
				return nil
			}
			select {
			case dead <- struct{}{}:
			default:
			}
			return errors.New("the process is gone")
		})
		select {
		case <-dead:
			crashed = true
		case <-time.After(10 * time.Minute):
		}
	})
	w.API.SetFault(nil)
	if !crashed {
		return false
	}
	w.With(t, settings("second"), func(*sim.Karpenter) {
		time.Sleep(15 * time.Minute)
		c := sim.Get[*v1.NodeClaim](t, w, "c0")
		n := sim.Get[*corev1.Node](t, w, c.Status.NodeName)
		if w.Cloud.Reboots() != 1 || w.Cloud.Launches() != 1 || n.Status.NodeInfo.BootID != "boot-2" {
			t.Errorf("crash at write %d: %d reboots, %d machines launched, boot id %s", at, w.Cloud.Reboots(),
				w.Cloud.Launches(), n.Status.NodeInfo.BootID)
		}
		if len(n.Spec.Taints) > 0 || n.Labels[v1.NodeInitializedLabelKey] != "true" || !condition.IsTrue(c, v1.ConditionTypeInitialized) ||
			!condition.IsFalse(c, v1.ConditionTypeRebooting) || condition.IsTrue(c, v1.ConditionTypeDisruptionReason) ||
			c.Annotations[v1.RebootPreBootIDAnnotationKey] != "" || c.Annotations[v1.RebootGracePeriodAnnotationKey] != "" {
			t.Errorf("crash at write %d: taints %v, labels %v, conditions %v, annotations %v", at, n.Spec.Taints, n.Labels,
				c.Status.Conditions, c.Annotations)
		}
	})
	return true
}
