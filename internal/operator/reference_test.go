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
	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/observe/telemetry"
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
	b.WriteString("Besides these, `/metrics` has those of the Go runtime and the process.\n\n" + boundsSection + "| Name | Kind | Labels | Stability | Meaning |\n|---|---|---|---|---|\n")
	kinds := telemetry.ConditionKinds(awsv1.LabelNodeClass)
	m := telemetry.NewMetrics(prometheus.NewRegistry(), kinds)
	for _, r := range slices.Concat(m.Rows(), telemetry.GaugeRows(), telemetry.ConditionGaugeRows(kinds)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Name, r.Kind, code(r.Labels...), r.Stability, cell(r.Help))
	}
	b.WriteString(historicSection())
	return b.String()
}

const boundsSection = "**How much there is.** Six nodes of a local cluster have less than 500 kB without compression, which a test holds. Names and labels " +
	"are those of Karpenter 1.15. What is bounded:\n\n" +
	"- **Prices and availability of offerings** (`karpenter_cloudprovider_instance_type_offering_*`): only of instance types that the fleet has, and of " +
	"offerings\n  that are sold out. The value `settings.allOfferingMetrics: true` brings all of them back, 4 MB and more.\n" +
	"- **Histograms for each loop, kind of object or action of AWS** (`controller_runtime_reconcile_time_seconds`, `workqueue_*_duration_seconds`,\n" +
	"  `client_go_request_duration_seconds`, `aws_sdk_go_*`, `karpenter_voluntary_disruption_decision_evaluation_duration_seconds`): six to ten buckets, with\n" +
	"  some of the bounds that they have in Karpenter. A loop has its histograms from its first turn on.\n" +
	"- **Labels without a value** are not written, which is the same to Prometheus. Most labels of a node have none.\n\n"

func historicSection() string {
	var b, gone strings.Builder
	b.WriteString("\n## Historic names\n\n")
	b.WriteString("Dashboards and alerts that were written for releases before find their metrics where `--historic-metrics` (value `settings.historicMetrics`) is set. ")
	b.WriteString("Each name then says what its successor says, with that one's words for reasons, decisions and kinds of consolidation; ")
	b.WriteString("labels that the successor has and the historic name has not are added up. The setting costs nothing while it is off, and is meant for the time of a move.\n\n")
	b.WriteString("| Name | Releases | Labels | Successor |\n|---|---|---|---|\n")
	for _, h := range telemetry.HistoricNames() {
		if h.Of == "" {
			fmt.Fprintf(&gone, "| `%s` | %s | %s |\n", h.Name, h.Releases, h.Instead)
			continue
		}
		successor := code(h.Of)
		if h.Only != "" {
			successor += " of " + code(strings.Fields(h.Only)...)
		}
		if h.Least {
			successor += ", the least"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", h.Name, h.Releases, code(h.LabelNames()...), successor)
	}
	b.WriteString("\nNot available, because what they measured is no more or is read off others:\n\n| Name | Releases | In its place |\n|---|---|---|\n")
	b.WriteString(gone.String())
	b.WriteString("\n`karpenter_nodeclaims_created_total` and `karpenter_pods_state` keep their names; their labels are those of release 1.14: ")
	b.WriteString("the first has no `capacity_type`, which it had to release 1.3, the second has `nodepool` where releases to 0.32 had `provisioner`.\n")
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
