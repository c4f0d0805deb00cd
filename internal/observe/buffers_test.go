package observe_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/internal/cluster"
)

// A buffer has numbers and conditions of its own; its pods are in no series of pods.
func TestBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		pods := make([]*corev1.Pod, 3)
		for i := range pods {
			pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "capacity-buffer:spare-" + string(rune('1'+i))}}
		}
		b := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "spare", UID: "u"}}
		w.store.Update(func(d *cluster.Draft) {
			d.Synced(true)
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			cluster.Buffers.Put(d, b)
			d.PutSpares("shop", "spare", pods)
			d.PlaceSpares("shop", "spare", []string{"n", "n", ""})
		})
		time.Sleep(time.Minute)
		told := b.DeepCopy()
		condition.SetTrue(told, autoscalingv1beta1.ConditionTypeProvisioning, time.Now())
		w.store.Update(func(d *cluster.Draft) { cluster.Buffers.Put(d, told) })
		time.Sleep(time.Minute)
		w.check(t, []string{"karpenter_capacitybuffers_pods", "karpenter_pods_state"}, `
			capacitybuffers_pods{name=spare namespace=shop room=coming} 0
			capacitybuffers_pods{name=spare namespace=shop room=none} 1
			capacitybuffers_pods{name=spare namespace=shop room=ready} 2`)
		w.check(t, []string{"operator_capacitybuffer_status_condition_count"}, `
			operator_capacitybuffer_status_condition_count{name=spare namespace=shop reason=Provisioning status=True type=Provisioning} 1`)
	})
}
