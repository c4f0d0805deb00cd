package looptest

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// TestMachinesOfAMergedLaunchDoNotOutliveACrash lets Karpenter die after EC2 has launched machines for many claims in one call and
// before it has said so: nothing on such a machine tells which claim it is for. Within a minute of the restart each has a
// claim or is stopped, and until then it has run no pod. They are all machines that there are, and old if nobody led for long; that is no
// mistake of somebody all the same.
func TestMachinesOfAMergedLaunchDoNotOutliveACrash(t *testing.T) {
	for name, down := range map[string]time.Duration{"that is short": 0, "that is long": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
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
				time.Sleep(down)
				w.faults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{} })
				defer w.start()()
				w.eventually("every machine has a claim", time.Minute, func() string { return w.unclaimed(orphans) })
				w.eventually("all pods run", 2*time.Minute, w.allRun(pods))
				w.eventually("machines, claims and nodes are the same", time.Minute, w.unequal)
			})
		})
	}
}

// TestMachinesOfLaunchesThatAreNeverAnsweredAreStopped loses EC2's answers for so long that launches are given up and begun again. What they have
// launched is most of all machines by then, and nobody's.
func TestMachinesOfLaunchesThatAreNeverAnsweredAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 10
		w := newWorld(t, awsmodel.Config{Seed: 9, Types: []string{"m5.4xlarge"}})
		defer w.start()()
		time.Sleep(10 * time.Second)
		w.faults(func(f *awsmodel.Faults) { f.LostAnswers, f.LostAnswersOf = 1, []string{"ec2:CreateFleet"} })
		w.deploy(pods, "13", "20Gi") // one to a machine
		w.until("a second launch is begun", func() bool { return len(w.aws.Alive()) > 2*pods })
		w.faults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{} })
		w.eventually("all pods run", 5*time.Minute, w.allRun(pods))
		w.eventually("machines, claims and nodes are the same", 5*time.Minute, w.unequal)
		if len(w.cut) > 0 {
			t.Errorf("pods were cut: %v", w.cut)
		}
	})
}

// TestMachinesOfALaunchWithoutAnswerAreWaitedFor loses EC2's answers about a launch for many claims for longer than a machine without claim is left
// alone, and for longer than a single call is repeated: the launch is asked for again until it is answered, and meanwhile nobody stops its machines, or
// buys others.
func TestMachinesOfALaunchWithoutAnswerAreWaitedFor(t *testing.T) {
	for _, silence := range []time.Duration{40 * time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute} {
		for seed := range uint64(2) {
			synctest.Test(t, func(t *testing.T) { loseAnswers(t, seed, silence) })
		}
	}
}

func loseAnswers(t *testing.T, seed uint64, silence time.Duration) {
	const pods = 10
	w := newWorld(t, awsmodel.Config{Seed: seed, Types: []string{"m5.4xlarge"}})
	memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { // so that it is one call
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements,
			v1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"us-east-1a"}})
	})
	defer w.start()()
	time.Sleep(10 * time.Second)
	w.faults(func(f *awsmodel.Faults) { f.LostAnswers, f.LostAnswersOf = 1, []string{"ec2:CreateFleet"} })
	w.deploy(pods, "13", "20Gi") // one to a machine
	w.until("machines run", func() bool { return len(w.aws.Alive()) > 0 })
	launched := w.ids()
	time.Sleep(silence)
	if n := w.lost(); n < 5 {
		t.Errorf("seed %d: only %d answers were lost in %s", seed, n, silence)
	}
	w.faults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{} })
	w.eventually("all pods run", 2*time.Minute, w.allRun(pods))
	time.Sleep(5 * time.Minute)
	if got := w.ids(); !slices.Equal(got, launched) || len(got) != pods {
		t.Errorf("seed %d, %s of silence: machines = %v, want those of the launch and no others: %v", seed, silence, got, launched)
	}
	if len(w.cut) > 0 {
		t.Errorf("seed %d, %s of silence: pods were cut: %v", seed, silence, w.cut)
	}
}

// TestALaunchForOneClaimIsFoundWhateverEC2Says loses all answers about launches: the machine says whose it is.
func TestALaunchForOneClaimIsFoundWhateverEC2Says(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 3})
		defer w.start()()
		time.Sleep(10 * time.Second)
		w.faults(func(f *awsmodel.Faults) { f.LostAnswers, f.LostAnswersOf = 1, []string{"ec2:CreateFleet"} })
		w.deploy(1, "1", "1Gi")
		w.eventually("the pod runs", 3*time.Minute, w.allRun(1))
		if n := len(w.aws.Alive()); n != 1 {
			t.Errorf("%d machines, want 1", n)
		}
	})
}

// lost counts the answers that were thrown away.
func (w *world) lost() (n int) {
	for _, call := range w.aws.Log() {
		if call.Lost {
			n++
		}
	}
	return n
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
