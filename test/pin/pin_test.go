package pin

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/test/upstream"
)

const root = "../.."

var update = flag.Bool("update", false, "write equivalent.txt")

// TestWhatDiffersFromUpstream fails for each difference that differences.txt does not list, for a line there that is no difference any more,
// and where the list gets long: raising the pin in test/upstream shows what is new.
func TestWhatDiffersFromUpstream(t *testing.T) {
	core, aws := upstream.Core(t), upstream.AWS(t)
	tr, err := readTree(map[string]string{"sigs.k8s.io/karpenter": core, "github.com/aws/karpenter-provider-aws": aws})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	lacks := func(subject string, theirs, ours map[string]string) {
		t.Helper()
		if len(theirs) == 0 || len(ours) == 0 {
			t.Fatalf("%s: %d of theirs, %d of ours", subject, len(theirs), len(ours))
		}
		for _, name := range slices.Sorted(maps.Keys(theirs)) {
			if mine, ok := ours[name]; !ok {
				found = append(found, fmt.Sprintf("%s %s is missing", subject, strings.TrimSpace(name+" "+theirs[name])))
			} else if mine != theirs[name] && theirs[name] != unknown {
				found = append(found, fmt.Sprintf("%s %s is %s, upstream's %s", subject, name, mine, theirs[name]))
			}
		}
	}
	theirDefs, ourDefs := must(definitions(filepath.Join(aws, "pkg/apis/crds")))(t), must(definitions(filepath.Join(root, "api/crds")))(t)
	compareDefinitions(t, theirDefs, ourDefs, &found)
	settings, gates := ourSettings(t)
	lacks("setting", theirSettings(tr), settings)
	lacks("gate", theirGates(tr), gates)
	labels := quoted(t, "labels.md", 1)
	lacks("text", tr.texts(func(_, s string) bool {
		return strings.Contains(s, "karpenter.sh/") || strings.Contains(s, "karpenter.k8s.aws/") || strings.Contains(s, "k8s.aws/")
	}), labels)
	lacks("resource", tr.texts(func(name, _ string) bool { return strings.HasPrefix(name, "Resource") }), literals(t, "internal/aws", "api/aws"))
	conditions := quoted(t, "conditions.md", 1)
	lacks("condition", tr.texts(func(name, _ string) bool { return strings.HasPrefix(name, "ConditionType") }), conditions)
	lacks("reason of a condition", tr.conditionReasons(), conditions)
	lacks("metric", tr.metrics(), ourMetrics(t))
	lacks("event", tr.reasons(), quoted(t, "events.md", 1))
	theirRights, ourRights := must(rights(filepath.Join(aws, "charts/karpenter")))(t), must(rights(filepath.Join(root, "charts/karpenter")))(t)
	lacks("right", theirRights, ourRights)
	for _, right := range slices.Sorted(maps.Keys(ourRights)) {
		if _, ok := theirRights[right]; !ok {
			found = append(found, "right "+right+" is ours alone")
		}
	}
	lacks("IAM", tr.actions(), words(t, "install/aws/karpenter-cloudformation.yaml", `[a-z0-9-]+:[A-Z][A-Za-z]+`))
	lacks("value", must(values(filepath.Join(aws, "charts/karpenter")))(t), must(values(filepath.Join(root, "charts/karpenter")))(t))
	compare(t, found)
}

// compare holds the differences against the list. A line of it is a pattern, with * for any text, and a reason after a bar.
func compare(t *testing.T, found []string) {
	t.Helper()
	text, err := os.ReadFile("differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []*regexp.Regexp
	var lines []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, reason, ok := strings.Cut(line, " | ")
		if !ok || strings.TrimSpace(reason) == "" {
			t.Errorf("differences.txt: %q has no reason", line)
		}
		lines = append(lines, line)
		patterns = append(patterns, regexp.MustCompile("^"+strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")+"$"))
	}
	used := make([]bool, len(patterns))
	for _, f := range found {
		listed := false
		for i, p := range patterns {
			if p.MatchString(f) {
				used[i], listed = true, true
			}
		}
		if !listed {
			t.Errorf("differs: %s", f)
		}
	}
	for i, u := range used {
		if !u {
			t.Errorf("differences.txt: nothing differs so any more: %s", lines[i])
		}
	}
	if len(lines) >= 40 {
		t.Errorf("differences.txt has %d entries; fewer than 40 is what we promise", len(lines))
	}
}

// must fails the test for an error of what it is given.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// quoted returns what stands between backticks in a column of the tables of a page of docs/reference.
func quoted(t *testing.T, page string, column int) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, row := range rows(t, page) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[column], -1) {
			all[m[1]] = ""
		}
	}
	return all
}

// rows returns the cells of the rows of a page's tables; the first one is empty.
func rows(t *testing.T, page string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/reference", page))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

func ourSettings(t *testing.T) (settings, gates map[string]string) {
	settings, gates = map[string]string{}, map[string]string{}
	for _, row := range rows(t, "settings.md") {
		cells := strings.Split(strings.ReplaceAll(strings.Join(row[1:4], "|"), "`", ""), "|")
		if strings.HasSuffix(cells[0], "feature-gates") {
			addGates(gates, cells[2])
			cells[2] = ""
		}
		settings[cells[0]] = strings.TrimSpace(cells[1] + " " + duration(cells[2]))
	}
	return settings, gates
}

func theirSettings(tr tree) map[string]string {
	all := tr.flags()
	for flag, v := range all {
		env, value, _ := strings.Cut(v, " ")
		if strings.HasSuffix(flag, "feature-gates") {
			value = ""
		}
		all[flag] = strings.TrimSpace(env + " " + duration(value))
	}
	return all
}

// duration writes a duration in the shortest way; other text stays.
func duration(s string) string {
	if d, err := time.ParseDuration(s); err == nil {
		return d.String()
	}
	if d, err := time.ParseDuration("1" + s); err == nil { // time.Minute
		return d.String()
	}
	return s
}

func theirGates(tr tree) map[string]string {
	all := tr.gates()
	_, list, _ := strings.Cut(tr.flags()["--aws-feature-gates"], " ")
	addGates(all, list)
	return all
}

func addGates(gates map[string]string, list string) {
	for gate := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(gate, "=")
		gates[name] = value
	}
}

func ourMetrics(t *testing.T) map[string]string {
	all := map[string]string{}
	for _, row := range rows(t, "metrics.md") {
		labels := strings.Fields(strings.ReplaceAll(row[3], "`", ""))
		slices.Sort(labels)
		all[strings.Trim(row[1], "`")] = strings.Join(labels, " ")
	}
	return all
}

// words returns what a pattern matches in a file.
func words(t *testing.T, file, pattern string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, w := range regexp.MustCompile(pattern).FindAllString(string(text), -1) {
		all[w] = ""
	}
	return all
}

// literals returns the texts in the sources of our folders.
func literals(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, e os.DirEntry, err error) error {
			if err == nil && path.Ext(name) == ".go" {
				rel, _ := filepath.Rel(root, name)
				for w := range words(t, rel, `"[^"\n]+"`) {
					all[strings.Trim(w, `"`)] = ""
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
