package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/stories"
)

// entered reads a story and returns its world in the first round.
func entered(t *testing.T, story []byte) *World {
	t.Helper()
	s, err := Parse(story)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.World()
	if err != nil {
		t.Fatalf("%v\n%s", err, story)
	}
	if err := w.Enter(s, 1); err != nil {
		t.Fatalf("%v\n%s", err, story)
	}
	return w
}

// asked reads a story and returns its question.
func asked(t *testing.T, story []byte) engine.Question {
	t.Helper()
	return entered(t, story).Input()
}

// whole is everything that a plan says.
func whole(t *testing.T, in engine.Question) string {
	t.Helper()
	return inFull(t, engine.New(zones).Plan(in))
}

func inFull(t *testing.T, p *engine.Plan) string {
	t.Helper()
	text := describe(p)
	for i := range p.Open {
		claim, err := json.Marshal(p.Open[i].Claim)
		if err != nil {
			t.Fatal(err)
		}
		o := p.Open[i]
		o.Claim, o.Pods = nil, nil
		rest, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		text += string(claim) + string(rest) + "\n"
	}
	for _, x := range p.Place {
		text += x.Pod.Namespace + "/" + x.Pod.Name + " " + x.Node + "\n"
	}
	for _, x := range p.Refused {
		text += x.Pod.Namespace + "/" + x.Pod.Name + " " + fmt.Sprint(x.Reasons) + "\n"
	}
	return text
}

// covered returns a question with a Savings Plan for each type in its catalogues, two that are alike, and a machine for each node.
func covered(in engine.Question) engine.Question {
	in.Commitments = &tariff.Book{Region: "r", Machines: map[string]tariff.Line{}}
	rates := map[string]cloud.NanoUSD{}
	name, price := "", cloud.NanoUSD(0)
	for i := range in.Pools {
		for _, it := range in.Pools[i].Catalog.Types {
			for _, o := range it.Offerings {
				rates[it.Name], name, price = o.Price/2, it.Name, o.Price
			}
		}
	}
	for _, id := range []string{"zeta", "eta", "theta"} {
		in.Commitments.Commitments = append(in.Commitments.Commitments, tariff.Commitment{ID: id, Kind: tariff.ComputeSavingsPlan, PerHour: 3_000_000_000, Rates: rates})
	}
	for n := range in.Snap.Nodes() {
		in.Commitments.Machines[n.Name] = in.Commitments.Hour(name, nil, int64(price))
	}
	return in
}

func TestASnapshotCarriesCommitments(t *testing.T) {
	used := 0
	for seed := range uint64(40) {
		in := covered(asked(t, stories.Of(seed)))
		in.Settings.Search = work.Second / 100
		plan := engine.New(zones).Plan(in)
		if slices.ContainsFunc(plan.Bill.Used, func(u engine.Use) bool { return u.After > u.Before }) {
			used++
		}
		if diff := cmp.Diff(inFull(t, plan), whole(t, asked(t, Snapshot("A snapshot.", in, false)))); diff != "" {
			t.Fatalf("world %d: the snapshot says something else\n%s", seed, diff)
		}
		nameless := Snapshot("A snapshot.", in, true)
		if again := engine.New(zones).Plan(asked(t, nameless)); again.Cost != plan.Cost || again.Bill.Adds != plan.Bill.Adds {
			t.Errorf("world %d: without names the plan adds %d to the bill, want %d", seed, again.Bill.Adds, plan.Bill.Adds)
		}
		if bytes.Contains(nameless, []byte(`eta"`)) {
			t.Errorf("world %d: the name of a commitment is in it", seed)
		}
	}
	if used < 10 {
		t.Errorf("only %d plans use a commitment", used)
	}
}

// TestAPlanFromASnapshotIsThePlan compares all that is said of 200 random worlds, and the price where names are gone.
func TestAPlanFromASnapshotIsThePlan(t *testing.T) {
	for seed := range uint64(200) {
		in := asked(t, stories.Of(seed))
		in.Settings.Search = work.Second / 100
		in.Settings.NodePrice = 1_000_000 * 3
		story := Snapshot("A snapshot.", in, false)
		want := whole(t, in)
		if diff := cmp.Diff(want, whole(t, asked(t, story))); diff != "" {
			t.Fatalf("world %d: the snapshot says something else\n%s\n%s", seed, diff, story)
		}
		plan := engine.New(zones).Plan(in)
		again := engine.New(zones).Plan(asked(t, Snapshot("A snapshot.", in, true)))
		if again.Price != plan.Price || len(again.Open) != len(plan.Open) || len(again.Refused) != len(plan.Refused) {
			t.Errorf("world %d: without names it costs %v, %d refused; want %v, %d refused", seed, again.Price, len(again.Refused), plan.Price, len(plan.Refused))
		}
	}
}

func TestAPlanFromASnapshotWithDevicesIsThePlan(t *testing.T) {
	files, err := filepath.Glob("../../scenarios/solve/devices-*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		in := questionOf(t, file)
		if diff := cmp.Diff(whole(t, in), whole(t, asked(t, Snapshot("A snapshot.", in, false)))); diff != "" {
			t.Errorf("%s: the snapshot says something else\n%s", file, diff)
		}
	}
}

// What containers are started with, parameters and annotations are in no snapshot; names are, unless it is anonymous.
func TestASnapshotKeepsNoSecret(t *testing.T) {
	const world = `Secrets.

-- objects --
{"kind": "DaemonSet", "metadata": {"name": "agent", "annotations": {"a": "topsecret"}}, "spec": {"template": {"metadata": {"annotations": {"a": "topsecret"}}, "spec": {"containers": [{"name": "c", "image": "topsecret", "env": [{"name": "TOPSECRET", "value": "topsecret"}], "command": ["topsecret"], "args": ["topsecret"]}]}}}}
{"kind": "StorageClass", "metadata": {"name": "ssd"}, "provisioner": "ebs.csi.aws.com", "parameters": {"key": "topsecret"}, "volumeBindingMode": "WaitForFirstConsumer"}
{"kind": "PersistentVolumeClaim", "metadata": {"name": "gp-x", "namespace": "default", "annotations": {"a": "topsecret"}}, "spec": {"storageClassName": "ssd"}}
{"kind": "Namespace", "metadata": {"name": "default", "annotations": {"a": "topsecret"}}}
{"kind": "Node", "metadata": {"name": "node-x", "annotations": {"a": "topsecret"}}, "spec": {"providerID": "x"}, "status": {"nodeInfo": {"machineID": "topsecret"}}}
{"kind": "NodePool", "metadata": {"name": "pool-x", "annotations": {"a": "topsecret"}}, "spec": {"template": {"metadata": {"annotations": {"a": "topsecret"}}}}}
{"kind": "Pod", "metadata": {"name": "pod-x", "annotations": {"a": "topsecret"}}, "spec": {"containers": [{"name": "c", "image": "topsecret", "env": [{"name": "TOPSECRET", "value": "topsecret"}], "args": ["topsecret"]}], "volumes": [{"name": "v", "secret": {"secretName": "topsecret"}}, {"name": "d", "persistentVolumeClaim": {"claimName": "gp-x"}}], "serviceAccountName": "topsecret", "imagePullSecrets": [{"name": "topsecret"}]}}
`
	in := asked(t, []byte(world))
	story := string(Snapshot("Told.", in, false))
	for _, found := range regexp.MustCompile(`(?i).{0,60}topsecret.{0,40}`).FindAllString(story, -1) {
		t.Errorf("it says %q", found)
	}
	for _, name := range []string{"agent", "ssd", "gp-x", "node-x", "pool-x", "pod-x"} {
		named := regexp.MustCompile(`\b` + name + `\b`)
		if !named.MatchString(story) {
			t.Errorf("the snapshot does not name %s:\n%s", name, story)
		}
		if hidden := Snapshot("Told.", in, true); named.Match(hidden) {
			t.Errorf("the anonymous snapshot names %s:\n%s", name, hidden)
		}
	}
}
