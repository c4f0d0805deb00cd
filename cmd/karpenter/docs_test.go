package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/budget"
)

const root = "../../"

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fence   = regexp.MustCompile("(?ms)^\\s*```(\\w*)\n(.*?)^\\s*```$")
	quoted  = regexp.MustCompile("`([^`\n]+)`")
)

// pages are the documents that the index leads to, by path, with their texts.
func pages(t *testing.T) map[string]string {
	t.Helper()
	index := filepath.Join(root, "docs", "README.md")
	all := map[string]string{index: read(t, index)}
	for _, m := range link.FindAllStringSubmatch(all[index], -1) {
		if path := filepath.Join(root, "docs", m[1]); strings.HasSuffix(path, ".md") {
			all[path] = read(t, path)
		}
	}
	if len(all) < 20 {
		t.Fatalf("the index leads to %d pages", len(all))
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// anchor is what a heading is called in links.
func anchor(title string) string {
	title = strings.ToLower(strings.NewReplacer("`", "", " ", "-").Replace(title))
	return regexp.MustCompile(`[^\w\-]`).ReplaceAllString(title, "")
}

func TestLinksLeadSomewhere(t *testing.T) {
	for path, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, part, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			there, err := os.ReadFile(target)
			if err != nil {
				if info, gone := os.Stat(target); gone != nil || !info.IsDir() {
					t.Errorf("%s: %s leads nowhere", path, m[1])
				}
				continue
			}
			known := slices.ContainsFunc(heading.FindAllStringSubmatch(string(there), -1), func(h []string) bool { return anchor(h[1]) == part })
			if part != "" && !known {
				t.Errorf("%s: there is no heading for %s", path, m[1])
			}
		}
	}
}

// What stands in pages as YAML is valid, and its pods get machines.
func TestManifestsOfPages(t *testing.T) {
	found := 0
	for path, text := range pages(t) {
		var manifests strings.Builder
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			if m[1] == "yaml" {
				manifests.WriteString("---\n" + m[2])
				found++
			}
		}
		if manifests.Len() == 0 {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "page.yaml")
			if err := os.WriteFile(file, []byte(manifests.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			// Pods that need none of the page's pools are for the pool of most things.
			planned(t, "ec2nodeclass.yaml", "nodepool.yaml", file)
		})
	}
	if found < 7 {
		t.Errorf("%d manifests were found in pages", found)
	}
}

// A claim is what is read here of what `karpenter plan -o json` says.
type claim struct {
	Pool, Type, Zone, CapacityType string
	Types, Pods                    []string
}

// planned plans manifests, of the examples or by their own path, all of whose pods must get machines.
func planned(t *testing.T, files ...string) []claim {
	t.Helper()
	args := []string{"plan", "--time", "500ms", "-o", "json"}
	for _, f := range files {
		if !filepath.IsAbs(f) {
			f = filepath.Join(root, "docs", "examples", f)
		}
		args = append(args, "-f", f)
	}
	var out, trouble strings.Builder
	if code := run(t.Context(), args, &out, &trouble); code != 0 || strings.Contains(trouble.String(), "left out") || strings.Contains(trouble.String(), "is in no file") {
		t.Fatalf("code %d: %s%s", code, out.String(), trouble.String())
	}
	var plan struct{ Claims []claim }
	if err := json.Unmarshal([]byte(out.String()), &plan); err != nil {
		t.Fatal(err)
	}
	return plan.Claims
}

// Each example alone does what its first line says.
func TestEachExample(t *testing.T) {
	family := func(c claim) string { before, _, _ := strings.Cut(c.Type, "."); return before }
	pods := func(c claim) string { return strings.Join(c.Pods, " ") }
	for file, tc := range map[string]struct {
		with  string // another example that it needs
		nodes int
		wrong func(c claim) bool
	}{
		"test-pod.yaml":   {"nodepool.yaml", 1, func(c claim) bool { return c.Pool != "default" }},
		"spot-first.yaml": {"test-pod.yaml", 1, func(c claim) bool { return c.Pool != "spot-first" || c.CapacityType != "spot" || len(c.Types) < 15 }},
		"arm64.yaml": {"", 2, func(c claim) bool {
			arm := strings.HasSuffix(family(c), "g") || strings.HasSuffix(family(c), "gd") || strings.HasSuffix(family(c), "gn")
			return c.Pool != "any-arch" || arm == strings.Contains(pods(c), "amd64-only")
		}},
		"gpu.yaml": {"", 1, func(c claim) bool {
			return c.Pool != "gpu" || !slices.Contains([]string{"g4dn", "g5", "g6"}, family(c))
		}},
		"devices.yaml":           {"", 2, func(c claim) bool { return c.Pool != "devices" || len(c.Pods) != 1 }},
		"critical.yaml":          {"", 3, func(c claim) bool { return c.Pool != "critical" || c.CapacityType != "on-demand" || len(c.Pods) != 1 }},
		"windows.yaml":           {"", 1, func(c claim) bool { return c.Pool != "windows" || !strings.Contains(pods(c), "iis") }},
		"large-volumes.yaml":     {"", 1, func(c claim) bool { return c.Pool != "large-volumes" }},
		"buffer.yaml":            {"nodepool.yaml", 1, func(c claim) bool { return !strings.Contains(pods(c), "capacity-buffer:web-") }},
		"headroom.yaml":          {"nodepool.yaml", 1, func(c claim) bool { return !strings.Contains(pods(c), "headroom") }},
		"multi-team.yaml":        {"", 1, func(c claim) bool { return c.Pool != "team-red" }},
		"test-environments.yaml": {"", 1, func(c claim) bool { return c.Pool != "test-environments" || c.CapacityType != "spot" }},
		"batch.yaml":             {"", 0, nil},
		"nodepool.yaml":          {"", 0, nil},
		"regulated.yaml":         {"", 0, nil},
		"reserved.yaml":          {"", 0, nil},
		"ec2nodeclass.yaml":      {"nodepool.yaml", 0, nil},
	} {
		t.Run(file, func(t *testing.T) {
			files := []string{file}
			if file != "ec2nodeclass.yaml" {
				files = append(files, "ec2nodeclass.yaml")
			}
			if tc.with != "" {
				files = append(files, tc.with)
			}
			claims := planned(t, files...)
			if len(claims) < tc.nodes || tc.nodes == 0 && len(claims) > 0 {
				t.Errorf("%d nodes, want %d at least", len(claims), tc.nodes)
			}
			zones := map[string]bool{}
			for _, c := range claims {
				zones[c.Zone] = true
				if tc.wrong(c) {
					t.Errorf("this is not what the example is for: %s, %s, %s for %v", c.Pool, c.Type, c.CapacityType, c.Pods)
				}
			}
			if file == "critical.yaml" && len(zones) != 3 {
				t.Errorf("zones %v, want three", zones)
			}
		})
	}
	files, err := filepath.Glob(root + "docs/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 17 {
		t.Errorf("%d examples, of which 17 are looked at here", len(files))
	}
}

// Without the volume of the class the pod of this example has no place.
// The example for what is regulated buys what was approved and nothing else, for those alone who tolerate it, and lets a node go on Sunday nights.
func TestTheRegulatedExample(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pods.yaml")
	text := `apiVersion: apps/v1
kind: Deployment
metadata: {name: ledger}
spec:
  replicas: 3
  selector: {matchLabels: {app: ledger}}
  template:
    metadata: {labels: {app: ledger}}
    spec:
      tolerations: [{key: workload-type, value: regulated}]
      containers: [{name: main, image: ledger, resources: {requests: {cpu: "3"}}}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	claims := planned(t, "regulated.yaml", "ec2nodeclass.yaml", file)
	if len(claims) == 0 {
		t.Error("nothing is opened for pods that tolerate it")
	}
	for _, c := range claims {
		if c.Pool != "regulated" || c.CapacityType != "on-demand" || len(c.Types) == 0 || slices.ContainsFunc(c.Types, func(name string) bool { return name != "m6i.xlarge" && name != "m6i.2xlarge" }) {
			t.Errorf("%s of types %v is opened in pool %s", c.CapacityType, c.Types, c.Pool)
		}
	}
	var pool v1.NodePool
	if err := yaml.Unmarshal([]byte(read(t, root+"docs/examples/regulated.yaml")), &pool); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]int{
		"2026-11-22T21:59:00Z": 0, "2026-11-22T22:00:00Z": 1, "2026-11-23T03:59:00Z": 1, "2026-11-23T04:00:00Z": 0, "2026-11-25T12:00:00Z": 0, // the 22nd is a Sunday
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := budget.Allowed(pool.Spec.Disruption.Budgets, v1.DisruptionReasonEmpty, 20, now); got != want || err != nil {
			t.Errorf("%s: %d nodes may go, %v; want %d", at, got, err, want)
		}
	}
}

func TestTheLargeVolumeIsNeeded(t *testing.T) {
	text := strings.Replace(read(t, root+"docs/examples/large-volumes.yaml"), "volumeSize: 500Gi", "volumeSize: 200Gi", 1)
	file := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if code := run(t.Context(), []string{"plan", "--time", "500ms", "-f", file}, &out, &out); code != 1 || !strings.Contains(out.String(), "ephemeral-storage") {
		t.Errorf("code %d: %s", code, out.String())
	}
}

// Commands that pages show exist: words and flags of karpenter, targets of make, values of the chart.
func TestCommandsOfPages(t *testing.T) {
	makefile := read(t, root+"Makefile")
	metrics := read(t, root+"docs/reference/metrics.md")
	values := chartValues(t)
	flag := regexp.MustCompile(`\s(--?[a-z][a-z-]*)`)
	set := regexp.MustCompile(`--set(?:-string)?[ =]"?'?([A-Za-z][\w.]*)`)
	valueish := regexp.MustCompile(`^(?:settings|controller|serviceAccount|serviceMonitor|prometheusRule|dashboards|networkPolicy|admissionPolicies)(?:\.\w+)+`)
	metric := regexp.MustCompile(`^karpenter_[a-z_]+`)
	help := map[string]string{}
	for path, text := range pages(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(m[2]) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
				for _, m := range set.FindAllStringSubmatch(line, -1) {
					if !values(m[1]) {
						t.Errorf("%s: the chart has no value %s", path, m[1])
					}
				}
				words := strings.Fields(line[strings.LastIndex(line, "|")+1:])
				if len(words) < 2 {
					continue
				}
				switch filepath.Base(words[0]) {
				case "make":
					if !strings.Contains(makefile, "\n"+words[1]+":") {
						t.Errorf("%s: there is nothing to make called %s", path, words[1])
					}
				case "karpenter":
					for _, f := range flag.FindAllStringSubmatch(" "+strings.Join(words[2:], " "), -1) {
						if help[words[1]] == "" {
							var said strings.Builder
							run(t.Context(), []string{words[1], "--help"}, &said, &said)
							help[words[1]] = said.String()
						}
						if name := strings.TrimLeft(f[1], "-"); !regexp.MustCompile(`-` + name + `\b`).MatchString(help[words[1]]) {
							t.Errorf("%s: karpenter %s has no flag %s:\n%s", path, words[1], f[1], help[words[1]])
						}
					}
				}
			}
		}
		if strings.Contains(path, "reference") || strings.HasSuffix(path, "moving.md") {
			continue // names of older charts stand there too
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			if name := metric.FindString(m[1]); name != "" && !strings.Contains(metrics, "`"+name+"`") {
				t.Errorf("%s: there is no metric %s", path, name)
			}
			if name := valueish.FindString(m[1]); name != "" && !values(name) {
				t.Errorf("%s: the chart has no value %s", path, name)
			}
		}
	}
}

// What the page about replay shows is what comes of what stands on it.
func TestReplayOfThePage(t *testing.T) {
	text := read(t, root+"docs/replay.md")
	blocks := map[string]string{}
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] != "" {
			blocks[m[1]] = m[2]
		} else if command, answer, shown := strings.Cut(m[2], "\n"); shown && strings.HasPrefix(command, "$ ") {
			blocks["command"], blocks["answer"] = strings.TrimPrefix(command, "$ "), answer
		}
	}
	folder := t.TempDir()
	large := strings.Replace(blocks["yaml"], "values: [c, m, r]}", "values: [c, m, r]}\n      - {key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: [\"15\"]}", 1)
	for name, content := range map[string]string{"pods.csv": blocks["csv"], "pools.yaml": blocks["yaml"], "large.yaml": large} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(folder)
	var out, trouble strings.Builder
	if code := run(t.Context(), strings.Fields(blocks["command"])[1:], &out, &trouble); code != 0 {
		t.Fatalf("code %d: %s", code, trouble.String())
	}
	lines := func(text string) (out []string) { // an editor may take blanks off
		for line := range strings.Lines(text) {
			out = append(out, strings.TrimRight(line, " \n"))
		}
		return out
	}
	if diff := cmp.Diff(lines(blocks["answer"]), lines(out.String())); diff != "" {
		t.Errorf("%s\n%s", diff, out.String())
	}
}

// chartValues tells whether the chart has a value of that path.
func chartValues(t *testing.T) func(string) bool {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, root+"charts/karpenter/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	return func(path string) bool {
		at := schema
		for word := range strings.SplitSeq(path, ".") {
			properties, closed := at["properties"].(map[string]any)
			if !closed {
				return true // below, everything goes
			}
			next, ok := properties[word].(map[string]any)
			if !ok {
				return false
			}
			at = next
		}
		return true
	}
}

// The values that the GitOps example gives exist.
func TestValuesOfTheGitOpsExample(t *testing.T) {
	values := chartValues(t)
	for _, path := range []string{"serviceAccount.annotations", "controller.image.repository", "controller.resources", "settings.clusterName",
		"settings.interruptionQueue", "serviceMonitor.enabled", "prometheusRule.enabled", "dashboards.enabled"} {
		if !values(path) {
			t.Errorf("there is no value %s", path)
		}
		if text := read(t, root+"docs/gitops/argocd.yaml"); !strings.Contains(text, path[strings.LastIndex(path, ".")+1:]+":") {
			t.Errorf("the example does not give %s", path)
		}
	}
	if values("settings.clustername") || fmt.Sprint(values("dashboards.labels.anything")) != "true" {
		t.Error("values are not told apart")
	}
}
