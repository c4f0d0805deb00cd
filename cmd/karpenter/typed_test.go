package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inShell finds the lines of pages that a shell is given.
var inShell = regexp.MustCompile(`^(?:\$ )?(?:bin/)?(?:kubectl|helm|karpenter|karpenter-local|aws|make|eksctl|cosign|go|hack/\S+|git|curl|docker|terraform|promtool)\s`)

// whereTyped tells which test types the commands of a page, the first row that fits. Those that are typed nowhere have no test, and
// docs/tested.md says so in the words that stand there instead.
var whereTyped = []struct {
	page, command string // a regular expression
	test          string // as folder.Name
	otherwise     string
}{
	{page: "clouds.md|writing-a-provider.md", command: `^go `, test: "clouds/upstream/example.TestTheDiffOfThePageBuildsInAnotherModule"},
	{page: "clouds.md", test: "local/e2e.TestPodsRunOverKarpentersKWOKProvider"},
	{page: "cost.md", command: `^karpenter cost`, test: "internal/ui/cli.TestCost"},
	{page: "cost.md", command: `^kubectl get configmaps`, otherwise: "to copy the ledger"},
	{page: "cost.md", command: `^helm upgrade`, test: "local/release.TestHelmCommandsOfPages"},
	{page: "buffers.md|page.md|foresight.md|rollouts.md|spot.md|steering.md|surge.md", command: `^helm upgrade`, test: "local/release.TestHelmCommandsOfPages"},
	{page: "foresight.md", command: `^kubectl annotate nodepool`, test: "internal/control/buffer.TestMachinesAreThereForPodsThatCameOnEarlierDays"},
	{page: "foresight.md", command: `^karpenter forecast`, test: "internal/ui/cli.TestAForecastIsShown"},
	{page: "rollouts.md", command: `^kubectl get nodepools -o wide`, test: "test/apiserver.TestColumns"},
	{page: "rollouts.md|surge.md", command: `^karpenter (resume|why node)`, test: "local/e2e.TestPodsGetNodesAndTheNodesGoWithThem"},
	{page: "rollouts.md", command: `^kubectl get rolloutpolicies`, test: "test/apiserver.TestColumns"},
	{page: "rollouts.md", command: `^kubectl describe`, otherwise: "to describe a NodePool that the breaker stopped"},
	{page: "spot.md", command: `^kubectl annotate nodepool`, test: "internal/aws.TestSpotMaxShare"},
	{page: "spot.md", command: `^karpenter why node`, test: "local/e2e.TestPodsGetNodesAndTheNodesGoWithThem"},
	{page: "quotas.md", otherwise: "[quotas.md](quotas.md)"},
	{page: "surge.md", command: `^kubectl patch`, otherwise: "to let a Deployment be restarted"},
	{page: "devices.md", test: "local/e2e.TestABufferOfTenBindsTenPodsAtOnce"},
	{page: "disruption.md", command: `^aws (eks update-cluster-config|arc-zonal-shift)`, otherwise: "for a zonal shift"},
	{page: "nodeclasses.md", command: `^aws ec2 create-placement-group`, otherwise: "for a placement group"},
	{page: "autoscalers.md", command: `^aws eks describe-nodegroup`, otherwise: "to read a node group"},
	{page: "getting-started-eks.md|upgrades.md", test: "cmd/karpenter.TestScriptsOfPages"},
	{page: "plan.md", command: `^karpenter prices fetch`, otherwise: "to fetch prices"},
	{page: "releasing.md", command: `^cosign`, otherwise: "[cosign](releasing.md#signing)"},
	{page: "top.md", command: `^karpenter top( |$)`, test: "internal/ui/cli.TestTopInATerminal"},
	{page: "history.md", command: `--journal /`, test: "internal/ui/cli.TestCommands"},
	{page: "snapshot.md", command: `--journal-token-file`, test: "internal/ui/cli.TestAControllerIsAskedForItsJournal"},
	{page: "steering.md", command: `^karpenter (approve|deny)|disruptionplan|disruption-(approval|auto-approve)`, test: "local/e2e.TestPodsGetNodesAndTheNodesGoWithThem"},
	{page: "replay.md", command: `^kubectl get `, test: "test/apiserver.TestThePictureThatReplayReads"},
	{page: "moving.md", command: `^karpenter convert`, test: "test/conversion.TestFromAnOldInstallationToOneWithoutV1Beta1"},
	{page: "moving.md", test: "local/e2e.TestTheGuidesInstallIt"},
	{page: "getting-started.md", command: `helm upgrade`, test: "local/release.TestHelmCommandsOfPages"},
	{page: "getting-started.md", command: `busy|kubectl top|kubectl get hpa`, test: "local/e2e.TestLoadMakesPodsAndPodsMakeNodes"},
	{page: "getting-started.md", command: `karpenter-local (break|mend)|rollout restart|port-forward|make up ARGS=--empty`, test: "local/e2e.TestTheGuidesInstallIt"},
	{page: "getting-started.md", command: `^make up`, test: "local/e2e.TestDownAndUp"},
	{page: "getting-started.md", test: "local/e2e.TestPodsGetNodesAndTheNodesGoWithThem"},
	{page: "page.md", command: `port-forward`, test: "local/e2e.TestTheGuidesInstallIt"},
	{page: "lint.md|plan.md|scheduling.md", command: `--kubeconfig`, test: "local/e2e.TestTheGuidesInstallIt"},
	{page: "savings.md", command: `--kubeconfig`, test: "internal/ui/cli.TestSavingsOfAClusterWithoutKarpenter"},
	{page: "snapshot.md", command: `^karpenter (snapshot (--controller )?-o [cn]|plan|why)`, test: "local/e2e.TestTheGuidesInstallIt"},
	{command: ` -f |--pods |--snapshot `, test: "cmd/karpenter.TestCommandsThatReadFiles"},
	{page: "tasks.md|node-stays.md", otherwise: "[tasks.md](tasks.md) and [node-stays.md](node-stays.md)"},
	{page: "history.md|lint.md|why.md|steering.md", test: "local/e2e.TestPodsGetNodesAndTheNodesGoWithThem"},
}

// Each command of the pages is typed by a test that there is, or is named as one that nobody typed.
func TestEveryCommandIsTypedOrListed(t *testing.T) {
	used := make([]bool, len(whereTyped))
	tested := read(t, root+"docs/tested.md")
	for path, text := range pages(t) {
		name := filepath.Base(path)
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			body := strings.ReplaceAll(m[2], "\\\n", " ")
			for line := range strings.Lines(body) {
				line = strings.TrimSpace(line)
				if !inShell.MatchString(line + " ") {
					continue
				}
				found := false
				for i, w := range whereTyped {
					if regexp.MustCompile("^(?:"+w.page+")$").MatchString(name) || w.page == "" {
						if found = regexp.MustCompile(w.command).MatchString(strings.TrimPrefix(line, "$ ")); found {
							used[i] = true
							break
						}
					}
				}
				if !found {
					t.Errorf("%s: no test types %q, and docs/tested.md does not say so", name, line)
				}
			}
		}
	}
	for i, w := range whereTyped {
		folder, test, _ := strings.Cut(w.test, ".")
		switch {
		case !used[i]:
			t.Errorf("no page has commands for the row %+v", w)
		case w.test == "" && !strings.Contains(tested, w.otherwise):
			t.Errorf("docs/tested.md does not say %q", w.otherwise)
		case w.test != "" && !hasTest(t, folder, test):
			t.Errorf("there is no test %s", w.test)
		}
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("func "+name+"(")) {
			return true
		}
	}
	return false
}
