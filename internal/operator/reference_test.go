package operator

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws"
	"karpenter.sh/karpenter/internal/setting"
	"karpenter.sh/karpenter/internal/telemetry"
)

var update = flag.Bool("update", false, "rewrite the reference pages")

// The reference pages say what the tables say. With -update they are written anew.
func TestReference(t *testing.T) {
	for name, page := range map[string]string{
		"settings.md": settingsPage(), "metrics.md": metricsPage(), "events.md": eventsPage(),
	} {
		file := filepath.Join("..", "..", "docs", "reference", name)
		if *update {
			if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != page {
			t.Errorf("docs/reference/%s is not what the table says; run go test ./internal/operator -update", name)
		}
	}
}

const generated = "<!-- Written by go test ./internal/operator -update; the tables in the code are the source. -->\n\n"

func settingsPage() string {
	var b strings.Builder
	b.WriteString("# Settings\n\n" + generated)
	b.WriteString("A flag goes before its environment variable, that before the default.\n")
	core, provider := DefaultSettings(), aws.DefaultSettings()
	for _, part := range []struct {
		title string
		list  []setting.Setting
	}{{"Karpenter", core.List()}, {"AWS", provider.List()}} {
		fmt.Fprintf(&b, "\n## %s\n\n| Flag | Environment | Default | Meaning |\n|---|---|---|---|\n", part.title)
		for _, s := range part.list {
			fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", s.Flag, s.Env(), code(s.Default), cell(s.Usage))
		}
	}
	return b.String()
}

func metricsPage() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\n" + generated)
	b.WriteString("Besides these, `/metrics` has those of the Go runtime and the process.\n\n| Name | Kind | Labels | Stability | Meaning |\n|---|---|---|---|---|\n")
	kinds := telemetry.ConditionKinds(awsv1.LabelNodeClass)
	m := telemetry.NewMetrics(prometheus.NewRegistry(), kinds)
	for _, r := range slices.Concat(m.Rows(), telemetry.GaugeRows(), telemetry.ConditionGaugeRows(kinds)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Name, r.Kind, code(r.Labels...), r.Stability, cell(r.Help))
	}
	return b.String()
}

func eventsPage() string {
	var b strings.Builder
	b.WriteString("# Events\n\n" + generated)
	b.WriteString("An event that equals one of a moment ago is held back for the time given. A change of a condition is an event whose reason is the condition's type.\n\n")
	b.WriteString("| Reason | Type | Held back | Meaning |\n|---|---|---|---|\n")
	for _, r := range telemetry.EventRows() {
		again := "–"
		if r.Again > 0 {
			again = strings.TrimSuffix(r.Again.Round(time.Minute).String(), "0s")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Reason, r.Type, again, cell(r.When))
	}
	return b.String()
}

func code(words ...string) string {
	var out []string
	for _, w := range words {
		if w != "" {
			out = append(out, "`"+strings.ReplaceAll(w, "|", `\|`)+"`")
		}
	}
	return strings.Join(out, " ")
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
