package looptest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// TestCapacityBlock fills a capacity block, no further than it reaches, and has its pods elsewhere before EC2 stops its machines.
func TestCapacityBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 6, Types: []string{"m5.*", "c5.*"}})
		end := time.Now().Add(2 * time.Hour)
		id := w.aws.Reserve(awsmodel.Reservation{InstanceType: "m5.xlarge", Zone: "us-east-1a", Count: 2, Block: true, End: end, Tags: map[string]string{"for": "karpenter"}})
		w.useReservations()
		defer w.start()()
		w.deploy(3, "3", "4Gi")
		w.eventually("all pods run", 2*time.Minute, w.allRun(3))
		w.wantReserved(id, 2)
		w.wantKind(id, "capacity-block", "false")

		time.Sleep(time.Until(end.Add(-41 * time.Minute)))
		w.wantReserved(id, 2)
		time.Sleep(time.Until(end.Add(-31 * time.Minute)))
		w.wantReserved(id, 0)
		if n := w.running(); n != 3 {
			t.Errorf("%d of 3 pods run a minute before EC2 stops the machines of the block", n)
		}
		time.Sleep(time.Until(end.Add(time.Hour)))
		w.wantReserved(id, 0)
		w.eventually("all pods run", time.Minute, w.allRun(3))
		w.eventually("machines, claims and nodes are the same", time.Minute, w.unequal)
	})
}

// TestInterruptibleReservation uses capacity that its owner takes back: two minutes are enough to have the pods elsewhere.
func TestInterruptibleReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 7, Types: []string{"m5.*", "c5.*"}})
		id := w.aws.Reserve(awsmodel.Reservation{InstanceType: "m5.xlarge", Zone: "us-east-1a", Count: 2, Interruptible: true, Tags: map[string]string{"for": "karpenter"}})
		w.useReservations()
		defer w.start()()
		w.deploy(2, "3", "4Gi")
		w.eventually("all pods run", 2*time.Minute, w.allRun(2))
		w.wantReserved(id, 2)
		w.wantKind(id, "default", "true")
		if err := w.aws.Reclaim(id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(110 * time.Second)
		if n := w.running(); n != 2 {
			t.Errorf("%d of 2 pods run shortly before the machines are taken back", n)
		}
		w.wantReserved(id, 0)
		time.Sleep(10 * time.Minute)
		w.eventually("all pods run", time.Minute, w.allRun(2))
		w.eventually("machines, claims and nodes are the same", time.Minute, w.unequal)
	})
}

// wantKind fails unless the labels of the claims and nodes in a reservation say of what kind it is.
func (w *world) wantKind(id, kind, interruptible string) {
	w.t.Helper()
	see := func(what string, labels map[string]string) {
		got := fmt.Sprint(labels[awsv1.LabelCapacityReservationType], labels[awsv1.LabelCapacityReservationInterruptible])
		if labels[awsv1.LabelCapacityReservationID] == id && got != kind+interruptible {
			w.t.Errorf("%s has labels %v, want type %s, interruptible %s", what, labels, kind, interruptible)
		}
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		see("claim "+c.Name, c.Labels)
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		see("node "+n.Name, n.Labels)
	}
}
