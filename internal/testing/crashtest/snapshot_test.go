package crashtest

import (
	"fmt"
	"testing"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/scenario"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// What a controller tells of its last question gives the plan that its journal has, after several plans and on nodes that boot.
func TestAControllersSnapshotGivesItsPlan(t *testing.T) {
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		for round := range 3 {
			for i := range 25 {
				w.API.Put(sim.Pod(fmt.Sprintf("p-%d-%02d", round, i), fmt.Sprintf("%dm", 700+100*((i+round)%5))))
			}
			time.Sleep(2 * time.Second)
		}
		var last journal.Record
		for _, r := range k.Journal.Select(journal.Query{}) {
			if r.Act == journal.Planned {
				last = r
			}
		}
		text, err := k.Desk.Story(false)
		if err != nil || text == nil {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
		story, err := scenario.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		there, err := story.World()
		if err == nil {
			err = there.Enter(story, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		plan := engine.Recall(*there.Memory, awsv1.Labels()).Plan(there.Input())
		pods := 0
		for i := range plan.Open {
			pods += len(plan.Open[i].Pods)
		}
		got := fmt.Sprintf("%s for %s; %d placed on what is there, %d refused", sentence.Count(len(plan.Open), "new node"), sentence.Count(pods, "pod"), len(plan.Place), len(plan.Refused))
		if got != last.Text || plan.Price.Dollars() != last.PricePerHour || plan.Cost.Dollars() != last.CostPerHour || len(plan.Open) == 0 {
			t.Errorf("%s, $%g; the controller's: %s, $%g", got, plan.Price.Dollars(), last.Text, last.PricePerHour)
		}
	})
}
