package release

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// What the pages have people type at helm is what the charts take: an upgrade that keeps the values of before, which are the least that the
// chart wants, or an installation.
func TestHelmCommandsOfPages(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*(?:bin/karpenter-local )?helm (?:upgrade|install) [^#\n]*`)
	word := regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range line.FindAllString(strings.ReplaceAll(string(text), "\\\n", " "), -1) {
			found++
			chart, keeps, v := "karpenter", false, values{}
			words := word.FindAllString(command, -1)
			for i, w := range words {
				switch {
				case w == "karpenter-crd":
					chart = w
				case w == "--reuse-values" || w == "--reset-then-reuse-values":
					keeps = true
				case w == "-f" || w == "--values":
					keeps = true // in the reader's own file
				case w == "--set":
					if err := strvals.ParseInto(strings.Trim(words[i+1], `"'`), v); err != nil {
						t.Errorf("%s: %s: %v", file, words[i+1], err)
					}
				}
			}
			if chart == "karpenter" && (keeps || strings.Contains(command, "…") || strings.Contains(command, "dist/")) { // a release's chart knows its image
				v = named(v)
			}
			if _, err := render(t, chart, v, policies); err != nil {
				t.Errorf("%s: %s: %v", file, strings.TrimSpace(command), err)
			}
		}
	}
	if found < 8 {
		t.Errorf("the pages have %d such commands", found)
	}
}

// The page lists what the chart renders, by default and with everything.
func TestThePageListsWhatIsInstalled(t *testing.T) {
	page, err := os.ReadFile("../../docs/getting-started-eks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## What was installed\n")
	table, after, _ := strings.Cut(table, "\nThe chart `karpenter-crd`")
	entry := regexp.MustCompile("(\\w+) `(karpenter[\\w-]*)`")
	var always, everything []string
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) != 5 {
			continue
		}
		for _, m := range entry.FindAllStringSubmatch(cells[1], -1) {
			everything = append(everything, m[1]+" "+m[2])
			if strings.TrimSpace(cells[3]) == "" {
				always = append(always, m[1]+" "+m[2])
			}
		}
	}
	made := func(v values, apis ...string) (all []string) {
		for _, o := range rendered(t, v, apis...) {
			all = append(all, o["kind"].(string)+" "+nameOf(o))
		}
		slices.Sort(all)
		return all
	}
	full := valuesFile(t, "policies")
	for _, section := range []string{"serviceMonitor", "prometheusRule", "dashboards"} {
		full[section] = values{"enabled": true}
	}
	slices.Sort(always)
	slices.Sort(everything)
	if diff := cmp.Diff(made(named()), always); diff != "" {
		t.Errorf("what is always installed, and what the page says is:\n%s", diff)
	}
	if diff := cmp.Diff(made(full, policies, "monitoring.coreos.com/v1"), everything); diff != "" {
		t.Errorf("what is installed with all values, and what the page says is:\n%s", diff)
	}
	after, _, _ = strings.Cut(after, "\n\n")
	var told []string
	for _, m := range regexp.MustCompile("`([a-z0-9]+)`").FindAllStringSubmatch(after, -1) {
		told = append(told, m[1])
	}
	files, err := render(t, "karpenter-crd", values{})
	if err != nil {
		t.Fatal(err)
	}
	var defined []string
	for _, text := range files {
		for _, document := range documents([]byte(text)) {
			var d struct {
				Spec struct{ Names struct{ Plural string } }
			}
			if err := yaml.Unmarshal(document, &d); err != nil {
				t.Fatal(err)
			}
			defined = append(defined, d.Spec.Names.Plural)
		}
	}
	slices.Sort(told)
	slices.Sort(defined)
	if diff := cmp.Diff(defined, told); diff != "" {
		t.Errorf("the definitions, and what the page says of them:\n%s", diff)
	}
}
