package cli

import (
	"strings"
	"testing"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// "why node" says what a machine was opened for, and nothing of it for other machines.
func TestWhyNodeSaysWhatAMachineWasOpenedFor(t *testing.T) {
	w := twoNodes(t, "")
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		for n := range w.Snap.Nodes() {
			claim := n.Claim.DeepCopy()
			if n.Name == "dear" {
				claim.Annotations = map[string]string{v1.OpenedAheadAnnotationKey: "opened at 08:58 for CronJob report in shop at 09:00 UTC, 40 pods"}
			}
			d.PutClaim(claim)
			d.PutNode(n.Node)
		}
	})
	for name, ahead := range map[string]bool{"dear": true, "cheap": false} {
		var out strings.Builder
		if err := newNodeAnswer(w, s.Snapshot().Node(name)).write(&out, ""); err != nil {
			t.Fatal(err)
		}
		said := strings.Contains(out.String(), "\nIt was opened at 08:58 for CronJob report in shop at 09:00 UTC, 40 pods.\n")
		if said != ahead || strings.Contains(out.String(), "It was") != ahead {
			t.Errorf("node %s, opened ahead of time %v: %s", name, ahead, out.String())
		}
	}
}

// "why node" says that a machine was made from the state that passed last.
func TestWhyNodeSaysThatAMachineWentBack(t *testing.T) {
	w := twoNodes(t, "")
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		for n := range w.Snap.Nodes() {
			claim := n.Claim.DeepCopy()
			if n.Name == "dear" {
				claim.Annotations = map[string]string{v1.LastGoodImagesAnnotationKey: "ami-1,ami-2"}
			}
			d.PutClaim(claim)
			d.PutNode(n.Node)
		}
	})
	const want = "\nIt started with the template that passed last, as its RolloutPolicy had stopped its NodePool; so had images ami-1, ami-2.\n"
	for name, back := range map[string]bool{"dear": true, "cheap": false} {
		var out strings.Builder
		if err := newNodeAnswer(w, s.Snapshot().Node(name)).write(&out, ""); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), want) != back || strings.Contains(out.String(), "It started") != back {
			t.Errorf("node %s: %s", name, out.String())
		}
	}
}
