package looptest

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestAGPUFaultIsRebootedAway has a machine of EC2 with a fault that a reboot may mend: its pod leaves, EC2 reboots it, its node is not
// ready
// meanwhile, and comes back under its name. A fault that no reboot mends has the machine replaced.
func TestAGPUFaultIsRebootedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 3, Types: []string{"m5.xlarge"}})
		w.reboots = true
		defer w.start()()
		w.deploy(1, "3", "4Gi")
		w.eventually("the pod runs", 2*time.Minute, w.allRun(1))
		before := memapi.All[*v1.NodeClaim](w.API)[0]
		fault := func(reason string) {
			memapi.Edit(w.API, "", before.Status.NodeName, func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "AcceleratedHardwareReady",
					Status: corev1.ConditionFalse,
					Reason: reason, LastTransitionTime: metav1.Now()})
			})
		}
		node := func() *corev1.Node { return sim.Get[*corev1.Node](t, w.World, before.Status.NodeName) }
		rebooting := func() bool {
			return condition.IsTrue(sim.Get[*v1.NodeClaim](t, w.World, before.Name), v1.ConditionTypeRebooting)
		}
		boot := node().Status.NodeInfo.BootID
		fault("NvidiaXID48Error")
		time.Sleep(9 * time.Minute)
		w.until("the reboot begins", rebooting)
		w.until("the node is not ready", func() bool { return node().Status.Conditions[0].Status != corev1.ConditionTrue })
		w.until("the reboot ends", func() bool { return !rebooting() })
		w.eventually("the pod runs again", 2*time.Minute, w.allRun(1))
		if n := node(); n.Status.NodeInfo.BootID == boot || len(n.Spec.Taints) > 0 ||
			w.aws.Calls()["ec2:RebootInstances"] != 2 || len(w.aws.Alive()) != 1 {
			t.Errorf("boot id %s, before %s; taints %v; %d calls; %d machines", n.Status.NodeInfo.BootID, boot, n.Spec.Taints,
				w.aws.Calls()["ec2:RebootInstances"], len(w.aws.Alive()))
		}
		fault("NvidiaXID79Error")
		time.Sleep(15 * time.Minute)
		w.eventually("the machine is replaced", 5*time.Minute, func() string {
			if _, there := sim.Find[*v1.NodeClaim](w.World, before.Name); there {
				return "its claim is there"
			}
			return w.allRun(1)()
		})
		if got := w.aws.Calls()["ec2:RebootInstances"]; got != 2 {
			t.Errorf("%d calls of RebootInstances, want a dry run and a reboot", got)
		}
	})
}
