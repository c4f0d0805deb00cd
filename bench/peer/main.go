// Peer measures Karpenter and this project side by side, on this machine: the same pods, instance types, prices and
// pools. What it measures are the parts of one page.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"karpenter.sh/karpenter/bench/peer/day"
	"karpenter.sh/karpenter/bench/peer/endtoend"
	"karpenter.sh/karpenter/bench/peer/sold"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/history/replay"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// A wish is a measurement that was asked for.
type wish struct {
	full bool
	runs int
	only string // rows whose name contains this
	bin  string // where the other programs are
	day  string // a file with what pods did, "" for pods by chance
}

func (w *wish) wants(name string, large bool) bool {
	return (w.full || !large) && strings.Contains(name, w.only)
}

func main() {
	var w wish
	flag.BoolVar(&w.full, "full", os.Getenv("FULL") != "", "measure the large rows too")
	flag.IntVar(&w.runs, "runs", 3, "how often each row of the engine is measured; the median counts")
	flag.StringVar(&w.only, "rows", "", "only rows whose name contains this")
	flag.StringVar(&w.bin, "bin", "bin", "the folder with karpenter, karpenter-local and karpenter-peer")
	flag.StringVar(&w.day, "trace", "", "a recording of pods for the part day, instead of pods by chance: a CSV, or "+
		"what else karpenter replay reads")
	chosen := flag.String("parts", strings.Join(partNames(), ","), "what to measure")
	where := flag.String("page", "", "the file that has what was measured, and gets it")
	note := flag.String("note", "", "what else ran on the machine, as a sentence for the page")
	child := flag.String("measure", "", "measure one row of one side, by their names with a slash between, and print "+
		"it as JSON (for this program itself)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := func() error {
		if *child != "" {
			return printMeasured(*child)
		}
		return run(ctx, &w, strings.Split(*chosen, ","), page{path: *where, note: *note})
	}()
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench-peer:", err)
		os.Exit(1)
	}
}

func printMeasured(name string) error {
	side, row, _ := strings.Cut(name, "/")
	m, err := measure(side, row)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// A part is one section of the page. It returns no text when nothing of it is wanted.
type part struct {
	name    string
	measure func(ctx context.Context, w *wish, tell func(string)) (string, error)
}

func parts() []part {
	return []part{{"engine", engines}, {"cluster", clusters}, {"busy", minutes}, {"day", days}, {"fleets", fleets},
		{"interruptions", interruptions}}
}

func partNames() []string {
	var out []string
	for _, p := range parts() {
		out = append(out, p.name)
	}
	return out
}

func run(ctx context.Context, w *wish, chosen []string, to page) error {
	begun := time.Now()
	tell := func(text string) { fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(begun).Seconds(), text) }
	for _, name := range chosen {
		at := slices.IndexFunc(parts(), func(p part) bool { return p.name == name })
		if at < 0 {
			return fmt.Errorf("there is no part %q; there are %s", name, strings.Join(partNames(), ", "))
		}
		begin := time.Now()
		text, err := parts()[at].measure(ctx, w, tell)
		if err != nil {
			return err
		}
		if text == "" {
			continue
		}
		text = fmt.Sprintf("%s\n%s", provenance(name, time.Since(begin), to.note), text)
		fmt.Println(text)
		if err := to.put(name, text); err != nil {
			return err
		}
	}
	tell("done")
	return nil
}

// engines measures both planners, each row and side in a process of its own, so that neither heats the other's heap.
func engines(ctx context.Context, w *wish, tell func(string)) (string, error) {
	var done []compared
	chosen := slices.DeleteFunc(rows(), func(r row) bool { return !w.wants(r.name, r.large) })
	for i, r := range chosen {
		tell(fmt.Sprintf("row %d of %d: %s", i+1, len(chosen), r.name))
		c := compared{row: r}
		for _, side := range []struct {
			name string
			to   *measured
		}{{ours, &c.ours}, {theirs, &c.theirs}} {
			m, err := median(ctx, side.name, r.name, w.runs)
			if err != nil {
				return "", err
			}
			*side.to = m
		}
		done = append(done, c)
	}
	if len(done) == 0 {
		return "", nil
	}
	return report(done, w.runs), nil
}

// clusters has both controllers play the scenarios on local clusters.
func clusters(ctx context.Context, w *wish, tell func(string)) (string, error) {
	return played(ctx, w, endtoend.Scenarios(), tell)
}

// minutes has both controllers live through busy minutes.
func minutes(ctx context.Context, w *wish, tell func(string)) (string, error) {
	return played(ctx, w, endtoend.Busy(), tell)
}

func played(ctx context.Context, w *wish, scenarios []endtoend.Scenario, tell func(string)) (string, error) {
	chosen := slices.DeleteFunc(scenarios, func(s endtoend.Scenario) bool { return !w.wants(s.Name, s.Large) })
	if len(chosen) == 0 {
		return "", nil
	}
	catalog, err := sold.Machines()
	if err != nil {
		return "", err
	}
	var all []endtoend.Result
	for _, side := range endtoend.Sides() {
		played, err := endtoend.Play(ctx, w.bin, side, catalog, chosen, tell)
		if err != nil {
			return "", err
		}
		all = append(all, played...)
	}
	return endtoend.Report(all), nil
}

// long is how long a run may take to be measured more than once.
const long = 10 * time.Second

// median measures one side of a row some times, each in a process of its own, and returns the run with the median time. A long run is
// measured once.
func median(ctx context.Context, side, name string, runs int) (measured, error) {
	var all []measured
	for len(all) < runs {
		m, err := alone(ctx, side, name)
		if err != nil {
			return m, fmt.Errorf("%s of %s: %w", name, side, err)
		}
		all = append(all, m)
		if m.Took > long {
			break
		}
	}
	slices.SortFunc(all, func(a, b measured) int { return cmp.Compare(a.Took, b.Took) })
	return all[len(all)/2], nil
}

// alone measures in a process of its own.
func alone(ctx context.Context, side, name string) (measured, error) {
	var m measured
	cmd := exec.CommandContext(ctx, os.Args[0], "-measure", side+"/"+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(out, &m)
}

// days plays a day through our decisions, more and less calm.
func days(ctx context.Context, w *wish, tell func(string)) (string, error) {
	catalog, err := offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
	if err != nil {
		return "", err
	}
	trace, err := w.trace()
	if err != nil {
		return "", err
	}
	var all []*replay.Result
	for _, calm := range day.Calms() {
		if !w.wants("day "+calm.Name, calm.Large && w.day == "") {
			continue
		}
		tell("a day with consolidateAfter " + calm.Name)
		r, err := day.Play(ctx, trace, catalog, calm, false)
		if err != nil {
			return "", err
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d pods in %.0f hours.\n\n%s", len(trace.Lives), trace.End.Sub(trace.Begin).Hours(), day.Report(all)), nil
}

// fleets plays the day with our fleet, Karpenter's and fixed node groups.
func fleets(ctx context.Context, w *wish, tell func(string)) (string, error) {
	if !w.wants("fleets", true) {
		return "", nil
	}
	catalog, err := offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
	if err != nil {
		return "", err
	}
	trace, err := day.Generated(1)
	if err != nil {
		return "", err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(replay.GCPercent))
	return day.Compare(ctx, trace, catalog, tell)
}

// trace is the day that is wished for.
func (w *wish) trace() (*day.Trace, error) {
	if w.day == "" {
		return day.Generated(1)
	}
	return day.Read(w.day)
}
