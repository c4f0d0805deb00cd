package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// page is a document for people.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns the blocks of commands below a heading of a page, or those before its first heading.
func section(t *testing.T, name, heading string) []string {
	t.Helper()
	text := page(t, name)
	if heading != "" {
		_, after, found := strings.Cut(text, "\n## "+heading+"\n")
		if !found {
			t.Fatalf("%s has no section %q", name, heading)
		}
		text = after
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var blocks []string
	for i, part := range strings.Split("\n"+text, "\n```\n") {
		if i%2 == 1 {
			blocks = append(blocks, part)
		}
	}
	return blocks
}

// typed runs a block of commands in a shell in which kubectl, helm, karpenter and make are this cluster's, and returns what they print.
func (c *cluster) typed(t *testing.T, block string) string {
	t.Helper()
	const ours = `kubectl() { karpenter-local kubectl "$@"; }; helm() { karpenter-local helm "$@"; }; make() { target=$1; shift; eval "karpenter-local $target $(test $target != up || echo ${KUBERNETES:+--kubernetes $KUBERNETES}) ${1#ARGS=}"; }`
	sh := exec.Command("sh", "-e", "-c", ours+"\n"+block)
	sh.Env = append(os.Environ(), "KARPENTER_LOCAL_DIR="+c.dir, "KUBECONFIG="+filepath.Join(c.dir, "kubeconfig"), "PATH="+filepath.Dir(c.path)+":"+os.Getenv("PATH"))
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, block, out)
	}
	return string(out)
}

// inText are the commands that stand in the text of a page.
var inText = regexp.MustCompile("`(kubectl (?:get|describe|logs|rollout status|create token) [^`]+)`")

// looks are the commands by which people look at a cluster in which a Deployment has just got its nodes: those of the pages, with the names that there
// are, and those that guides of others have them type. Those that read files, wait for something or decide about a plan are tested where these are.
// The first ones want a pod or its node to be there, or hold disruption up.
func looks(t *testing.T, pod, claim, node string) (first, rest []string) {
	t.Helper()
	text, _, _ := strings.Cut(page(t, "troubleshooting.md"), "\n## A node is ready")
	var all []string
	for _, m := range inText.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(m[1], `\|`, "|"))
	}
	for name, heading := range map[string]string{"history.md": "", "lint.md": "", "top.md": "", "why.md": "", "steering.md": "Pause", "getting-started.md": "The controller is installed like everywhere"} {
		for _, block := range section(t, name, heading) {
			for line := range strings.Lines(block) {
				command, _, _ := strings.Cut(line, " #")
				command = strings.TrimSpace(command)
				if theirs := strings.HasPrefix(command, "karpenter ") || strings.HasPrefix(command, "kubectl "); theirs && !elsewhere.MatchString(command) {
					all = append(all, command)
				}
			}
		}
	}
	if len(all) < 20 {
		t.Errorf("the pages have %d commands", len(all))
	}
	all = append(all,
		"kubectl get pods -n NAMESPACE", "kubectl get crd | grep karpenter", `kubectl logs -n NAMESPACE -l app.kubernetes.io/name=karpenter | grep -i "error\|failed"`,
		"kubectl get nodes -L karpenter.sh/capacity-type,node.kubernetes.io/instance-type", "kubectl logs -n NAMESPACE deploy/karpenter",
		"kubectl apply --dry-run=server -f ../../docs/examples/")
	names := namesHere(pod, claim, node)
	for _, command := range all {
		command = names.Replace(command)
		if strings.Contains(command, "| grep") || strings.HasPrefix(command, "karpenter ") {
			command += " || [ $? = 1 ]" // nothing was found, or something; 2 is what is wrong
		}
		if named := strings.Contains(command, pod) || strings.Contains(command, claim) || strings.Contains(command, node); named || holdsUp.MatchString(command) {
			first = append(first, command)
		} else {
			rest = append(rest, command)
		}
	}
	return first, rest
}

// namesHere puts the names that there are in the place of those that pages use.
func namesHere(pod, claim, node string) *strings.Replacer {
	return strings.NewReplacer(
		"pod NAME", "pod "+pod, "nodepool NAME", "nodepool default", "ec2nodeclass NAME", "ec2nodeclass default", "nodeclaim NAME", "nodeclaim "+claim,
		"node NAME", "node "+node, "token NAME", "token karpenter",
		"--pool batch", "--pool default", "NAMESPACE", "kube-system", "web-5d4f-x2x7k -n shop", pod+" -n default", "shop/web-5d4f-x2x7k", "default/"+pod, "shop/web-0", "default/"+pod,
		"ip-10-0-0-1", node, "default-7x2fk", claim, "~/.kube/config", "$KUBECONFIG", "FILE", "$KUBECONFIG")
}

// isReadHere types what pages have read about a cluster and its controller: snapshots and what is asked about them, runbooks.
func isReadHere(t *testing.T, i installed) {
	pods, err := i.pods(t.Context(), client.MatchingLabels{"app": "inflate"})
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	claims, err := i.claims(t.Context())
	if err != nil || len(claims) == 0 {
		t.Fatalf("%d claims, %v", len(claims), err)
	}
	var all []string
	for name, want := range map[string]*regexp.Regexp{
		"snapshot.md": regexp.MustCompile("^karpenter (?:snapshot (?:--controller )?-o [cn]|plan --snapshot|why)"), "plan.md": regexp.MustCompile("--kubeconfig"), "lint.md": regexp.MustCompile("--kubeconfig"),
	} {
		for _, block := range strings.Split(page(t, name), "```") {
			for line := range strings.Lines(block) {
				if command, _, _ := strings.Cut(strings.TrimSpace(line), " #"); strings.HasPrefix(command, "karpenter ") && want.MatchString(command) && !strings.Contains(command, "-f world") {
					all = append(all, command+" || [ $? = 1 ]")
				}
			}
		}
	}
	if len(all) < 8 {
		t.Errorf("the pages have only %q", all)
	}
	for _, m := range inText.FindAllStringSubmatch(page(t, "runbooks.md")+page(t, "page.md"), -1) {
		if command := strings.ReplaceAll(m[1], `\|`, "|"); !slices.Contains(all, command) {
			all = append(all, command)
		}
	}
	first, err := filepath.Abs(filepath.Join("..", "release", "objects", "first.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	folder := "cd " + t.TempDir() + "\n"
	names := namesHere(pods[0].Name, claims[0].Name, claims[0].Status.NodeName)
	for _, command := range all {
		said := i.typed(t, folder+strings.ReplaceAll(names.Replace(command), "new.yaml", first))
		if strings.HasPrefix(command, "karpenter ") && !strings.Contains(command, " -o ") && said == "" {
			t.Errorf("%s says nothing", command)
		}
	}
}

var holdsUp = regexp.MustCompile(`pause|resume|annotate`)

// elsewhere finds commands that other tests type, or that end when somebody presses a key.
var elsewhere = regexp.MustCompile(` -f |--journal|^karpenter top$|rollout restart|port-forward`)
