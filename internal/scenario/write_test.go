package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/core/engine"
)

// TestAStoryToldAgainEndsAsItDid writes the world of every story down, without its names, and plays what was written.
func TestAStoryToldAgainEndsAsItDid(t *testing.T) {
	files, err := filepath.Glob("../../scenarios/solve/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			in := questionOf(t, file)
			in.Settings.Selects = nil // what pods ask of devices is in no story without names
			want := sumUp(engine.New(zones).Plan(in))
			again := Write("Told again.", in, nil, 1<<20)
			if got := sumUp(entered(t, again).Plan()); got != want {
				t.Errorf("told again: %s\nwant:       %s\n%s", got, want, again)
			}
		})
	}
}

// questionOf returns the question of a story's first round.
func questionOf(t *testing.T, file string) engine.Question {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return asked(t, data)
}

func sumUp(p *engine.Plan) string {
	return fmt.Sprintf("%d claims for $%g, %d pods placed, %d refused", len(p.Open), p.Price.Dollars(), len(p.Place), len(p.Refused))
}

const secretWorld = `A world full of secrets.

-- shapes --
default cpu=4 mem=4Gi pods=5 zones=a,b,c od=0.4 label=secret.example/rack:secretrack
-- pools --
secretpool labels=secretkey:secretvalue taint=secrettaint:secrettaintvalue:NoSchedule limits=secret.example/gpu:1
-- objects --
{"kind": "DaemonSet", "metadata": {"name": "secretagent"}, "spec": {"template": {"spec": {"containers": [{"name": "secretname", "image": "secret/image", "env": [{"name": "SECRET", "value": "secret"}], "command": ["secret"]}]}}}}
{"kind": "StorageClass", "metadata": {"name": "secretclass"}, "provisioner": "ebs.csi.aws.com", "parameters": {"secret": "secret"}, "volumeBindingMode": "WaitForFirstConsumer"}
{"kind": "PersistentVolumeClaim", "metadata": {"name": "secretdisk", "namespace": "secretns", "annotations": {"secret": "secret"}}, "spec": {"storageClassName": "secretclass"}}
{"kind": "Namespace", "metadata": {"name": "secretns", "labels": {"secretteam": "secretteam"}}}
{"kind": "Service", "metadata": {"name": "secretservice", "namespace": "secretns"}, "spec": {"selector": {"secretapp": "secretvalue"}}}
-- nodes --
secretnode pool=secretpool labels=secretlabel:secretvalue taint=secrettaint:secrettaintvalue:NoSchedule
secretforeign
-- pods --
secretpod ns=secretns on=secretnode labels=secretapp:secretvalue owner=secretset
secretwaits ns=secretns pvc=secretdisk select=secretkey:secretvalue tolerate=secrettaint:secrettaintvalue:NoSchedule spread=secretlabel:1 near=secretlabel:secretapp:secretvalue need=secretkey:In:secretvalue labels=secretapp:secretvalue apart=host:secretapp:x:ns=secretns
`

func TestAStoryKeepsNoName(t *testing.T) {
	text := string(Write("Told again.", asked(t, []byte(secretWorld)), nil, 1<<20))
	for _, found := range regexp.MustCompile(`(?i).{0,40}secret.{0,40}`).FindAllString(text, -1) {
		t.Errorf("it says %q", found)
	}
	if n := strings.Count(text, `"kind":"Pod"`); n != 2 {
		t.Errorf("%d pods are in it, want 2\n%s", n, text)
	}
}

func TestAStoryThatIsTooLongLeavesNodesOut(t *testing.T) {
	world := "Many nodes.\n\n-- nodes --\n"
	for i := range 200 {
		world += fmt.Sprintf("node-%03d pool=default\n", i)
	}
	world += "-- pods --\n"
	for i := range 200 {
		world += fmt.Sprintf("pod-%03d on=node-%03d\n", i, i)
	}
	const most = 64 << 10
	text := Write("Told again.", asked(t, []byte(world+"waits\n")), []string{"node-150"}, most)
	if len(text) > most {
		t.Errorf("it has %d bytes, want at most %d", len(text), most)
	}
	again, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`\d+ nodes and their pods are left out`).MatchString(again.Story) {
		t.Errorf("it does not say what it left out: %s", again.Story)
	}
	snap := entered(t, text).Store.Snapshot()
	if n := snap.Node("node-1"); n == nil || len(n.Pods) != 1 || snap.NodeCount() < 30 {
		t.Errorf("%d nodes are in it, the first with its pod: %v", snap.NodeCount(), n)
	}
}
