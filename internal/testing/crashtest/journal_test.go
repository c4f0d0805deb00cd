package crashtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// What all loops decided in a small life of a cluster stands in the journal, each once, and nothing that is secret.
func TestTheJournalTellsALife(t *testing.T) {
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true, Disrupt: true, LegacyRepair: true}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		for _, p := range memapi.All[*v1.NodePool](w.API) {
			p.Annotations = map[string]string{"vault.example.com/token": "topsecret"}
			p.Spec.Template.Annotations = map[string]string{"vault.example.com/token": "topsecret"}
			w.API.Put(p)
		}
		for _, c := range memapi.All[*awsv1.EC2NodeClass](w.API) {
			c.Annotations, c.Spec.UserData = map[string]string{"vault.example.com/token": "topsecret"}, new("#!/bin/sh topsecret")
			c.Spec.Tags = map[string]string{"token": "topsecret"}
			w.API.Put(c)
		}
		secret := func(p *corev1.Pod) {
			p.Annotations = map[string]string{"vault.example.com/token": "topsecret"}
			c := &p.Spec.Containers[0]
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "topsecret"}}}}
			c.Env, c.Args, c.Command, c.Image = []corev1.EnvVar{{Name: "PASSWORD", Value: "topsecret"}}, []string{"--key=topsecret"}, []string{"topsecret"}, "topsecret"
		}
		for i := range 3 {
			w.API.Put(sim.Pod(fmt.Sprintf("p-%d", i), "2500m", secret))
		}
		w.API.Put(sim.Pod("giant", "900", secret))
		time.Sleep(2 * time.Second)
		w.API.Put(sim.Pod("late", "50m", secret)) // there is room on the machine that boots
		time.Sleep(time.Minute)
		if _, ok := sim.Find[*corev1.Pod](w, "p-0"); !ok || running(w) != 4 {
			t.Fatalf("%d pods run", running(w))
		}
		about := func(kind, name string) []journal.Record {
			return k.Journal.Select(journal.Query{Object: &journal.Object{Kind: kind, Name: name}})
		}
		if got := about("Pod", "p-0"); !slices.Equal(acts(got), []journal.Act{journal.Opened}) {
			t.Errorf("a pod that got a node: %v", acts(got))
		} else if r := got[0]; r.Snapshot == 0 || r.Reason != "provisioned" || len(r.Chosen) != 1 || r.Chosen[0].PricePerHour <= 0 || r.PricePerHour != r.Chosen[0].PricePerHour {
			t.Errorf("opened %+v", r)
		}
		if got := about("Pod", "giant"); !slices.Equal(acts(got), []journal.Act{journal.Refused}) || got[0].Reason == "" || got[0].Text == "" || got[0].Digest == "" {
			t.Errorf("a pod without place, which waits for a minute, is told of once: %+v", got)
		}
		claims := memapi.All[*v1.NodeClaim](w.API)
		// Two loops write at once here, where a machine takes no time to launch.
		if got := acts(about("NodeClaim", claims[0].Name)); len(got) < 2 || !slices.Contains(got[:2], journal.Opened) || !slices.Contains(got[:2], journal.Launched) {
			t.Errorf("a claim: %v", got)
		}
		for _, r := range k.Journal.Select(journal.Query{Act: journal.Launched}) {
			bought := r.Chosen[0]
			want := fmt.Sprintf("bought %s in %s as %s at $%.4f an hour: ", bought.Type, bought.Zone, bought.CapacityType, r.PricePerHour)
			if !strings.HasPrefix(r.Text, want) || r.PricePerHour <= 0 || r.PricePerHour != bought.PricePerHour {
				t.Errorf("launched %+v, want a text that begins with %q", r, want)
			}
		}
		if got := k.Journal.Select(journal.Query{Act: journal.Planned}); len(got) == 0 || got[0].CostPerHour < got[0].BoundPerHour || got[0].BoundPerHour <= 0 {
			t.Errorf("plans: %+v", got)
		}
		if got := about("Pod", "late"); !slices.Equal(acts(got), []journal.Act{journal.Placed}) || got[0].About[0].Kind != "NodeClaim" {
			t.Errorf("a pod that finds room: %v", acts(got))
		}
		for _, p := range memapi.All[*corev1.Pod](w.API) {
			if p.Name != "late" {
				sim.Delete(t, w, p)
			}
		}
		time.Sleep(10 * time.Minute)
		stepped := k.Journal.Select(journal.Query{Act: journal.Stepped})
		if len(stepped) == 0 || stepped[0].SavingPerHour <= 0 || stepped[0].Text == "" || stepped[0].About[0].Kind != "NodeClaim" {
			t.Errorf("steps: %+v", stepped)
		}
		if got := about("Pod", "late"); !slices.Contains(acts(got), journal.Evicted) {
			t.Errorf("a pod that moved to a cheaper node: %v", acts(got))
		}
		if got := k.Journal.Select(journal.Query{Act: journal.HeldBack}); len(got) > 20 {
			t.Errorf("%d records of nodes that stay, which is told when it is news", len(got))
		}
		folder := t.TempDir()
		keeper := journal.NewKeeper(folder)
		if err := keeper.Keep(k.Journal); err != nil {
			t.Fatal(err)
		}
		keeper.Close()
		files, err := os.ReadDir(folder)
		if err != nil || len(files) == 0 {
			t.Fatalf("%v: %d files", err, len(files))
		}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(folder, f.Name()))
			if err != nil || !strings.Contains(string(text), `"stepped"`) || strings.Contains(string(text), "secret") || strings.Contains(string(text), "vault") {
				t.Errorf("%v, or a file says too little or a secret:\n%s", err, text)
			}
		}
		var all bytes.Buffer
		if err := journal.Write(&all, k.Journal.Select(journal.Query{})); err != nil || strings.Contains(all.String(), "topsecret") || strings.Contains(all.String(), "PASSWORD") {
			t.Errorf("%v, or the journal tells a secret:\n%s", err, &all)
		}
	})
}

// A cloud that has nothing is written down with what it said.
func TestTheJournalTellsOfACloudWithoutMachines(t *testing.T) {
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
			if c.Method != fakecloud.Launch {
				return fakecloud.Fault{}
			}
			return fakecloud.Fault{Err: &cloud.NoCapacityError{Err: errors.New("none is left")}}
		})
		w.API.Put(sim.Pod("p", "900m"))
		time.Sleep(time.Minute)
		got := k.Journal.Select(journal.Query{Act: journal.FellBack})
		if len(got) == 0 || got[0].Reason != "InsufficientCapacityError" || got[0].About[0].Kind != "NodeClaim" {
			t.Errorf("%+v", got)
		}
	})
}

func acts(records []journal.Record) []journal.Act {
	var out []journal.Act
	for _, r := range records {
		out = append(out, r.Act)
	}
	return out
}
