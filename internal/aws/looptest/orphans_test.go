package looptest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/awsmodel"
	"karpenter.sh/karpenter/internal/memapi"
)

// TestMachinesOfAMergedLaunchDoNotOutliveACrash lets Karpenter die after EC2 has launched machines for many claims in one call and
// before it has said so: nothing on such a machine tells which claim it is for. Within a minute of the restart each has a
// claim or is stopped, and until then it has run no pod.
func TestMachinesOfAMergedLaunchDoNotOutliveACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 10
		w := newWorld(t, awsmodel.Config{Seed: 8, Types: []string{"m5.4xlarge"}})
		end := w.start()
		time.Sleep(10 * time.Second)
		w.faults(func(f *awsmodel.Faults) { f.LostAnswers, f.LostAnswersOf = 1, []string{"ec2:CreateFleet"} })
		w.deploy(pods, "13", "20Gi") // one to a machine
		for len(w.aws.Alive()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		end()
		orphans := map[string]bool{}
		for _, m := range w.aws.Alive() {
			orphans["aws:///"+m.Zone+"/"+m.ID] = true
			if m.Tags[awsv1.TagNodeClaim] != "" {
				t.Fatalf("machine %s carries its claim's name: the launch was not merged", m.ID)
			}
		}
		if len(orphans) < 2 {
			t.Fatalf("%d machines were launched, want several by one call", len(orphans))
		}
		w.faults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{} })
		defer w.start()()
		w.eventually("every machine has a claim", time.Minute, func() string { return w.unclaimed(orphans) })
		w.eventually("all pods run", 2*time.Minute, w.allRun(pods))
		w.eventually("machines, claims and nodes are the same", time.Minute, w.unequal)
	})
}

// unclaimed says which of these machines live without a claim, and fails if a pod is on one.
func (w *world) unclaimed(ids map[string]bool) string {
	claimed, node := map[string]bool{}, map[string]string{}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		claimed[c.Status.ProviderID] = true
	}
	alone := 0
	for _, m := range w.aws.Alive() {
		if id := "aws:///" + m.Zone + "/" + m.ID; ids[id] && !claimed[id] {
			alone++
			node[m.NodeName] = m.ID
		}
	}
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if id := node[p.Spec.NodeName]; p.Spec.NodeName != "" && id != "" {
			w.t.Errorf("pod %s runs on machine %s, which has no claim", p.Name, id)
		}
	}
	if alone > 0 {
		return fmt.Sprintf("%d machines have no claim", alone)
	}
	return ""
}
