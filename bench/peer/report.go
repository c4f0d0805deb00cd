package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// compared is a row with what both sides made of it.
type compared struct {
	row
	ours, theirs measured
}

// report writes the tables as Markdown. A row where the peer wins stands there like any other.
func report(done []compared, runs int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("Medians of %d runs a side, of runs beyond ten seconds one.", runs)
	line("")
	line("Both planners get the same pods, the same EC2 types, prices and zones (us-east-1, three zones; categories c, " +
		"m and r, generations above 4) and one")
	line("pool. Time runs from pods to claims, with the catalogue built. Each measurement is a process of its own. The " +
		"peer is its published Go module: its")
	line("topology, its scheduler, its cut to 60 types, as its provisioner calls them, with as many threads as there are processors.")
	line("")
	line("### Price")
	line("")
	line("On-demand: the cheapest offering that each claim allows, which is what a launch takes. With spot beside it: " +
		"the same, which flatters who names few")
	line("types; what a spot launch really pays is a mean over many. The bound is proven for the problem (no fleet " +
		"under the rules can cost less); it reckons")
	line("with $0.002 an hour for each node, and so do the two columns that are divided by it. It has no spot rows, " +
		"because it holds for means.")
	line("")
	line("| problem | ours: nodes | $/h | ÷ bound | Karpenter: nodes | $/h | ÷ bound | ours ÷ Karpenter |")
	line("|---|---|---|---|---|---|---|---|")
	for _, c := range done {
		line("| %s | %s | %.2f | %s | %s | %.2f | %s | **%.3f** |", c.name, nodes(&c.ours),
			c.ours.Bill.Floor.Dollars(), c.above(&c.ours), nodes(&c.theirs), c.theirs.Bill.Floor.Dollars(),
			c.above(&c.theirs), float64(c.ours.Bill.Floor)/float64(c.theirs.Bill.Floor))
	}
	line("")
	line("### Time and memory")
	line("")
	line("Time of ours is with its whole search for a cheaper fleet.")
	line("")
	line("| problem | ours: time | CPU | allocated | peak | Karpenter: time | CPU | allocated | peak | times faster |")
	line("|---|---|---|---|---|---|---|---|---|---|")
	for _, c := range done {
		line("| %s | %s | %s | **%.0f** |", c.name, cells(&c.ours), cells(&c.theirs), c.theirs.Took.Seconds()/c.ours.Took.Seconds())
	}
	return b.String()
}

func cells(m *measured) string {
	return fmt.Sprintf("%s | %s | %.0f MiB | %.0f MiB", short(m.Took), short(m.CPU), m.AllocatedMiB, m.PeakMiB)
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// above says how far a side is from the bound.
func (c *compared) above(m *measured) string {
	if c.spot || c.ours.Bound == 0 {
		return "–"
	}
	return fmt.Sprintf("%.4f", float64(m.Bill.Cost)/float64(c.ours.Bound))
}

// nodes says how many nodes there are, and how many pods got none.
func nodes(m *measured) string {
	if m.Failed > 0 {
		return fmt.Sprintf("%d, %d pods without", m.Bill.Nodes, m.Failed)
	}
	return fmt.Sprint(m.Bill.Nodes)
}

// peerVersion is the version of Karpenter's module in this program.
func peerVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "sigs.k8s.io/karpenter" {
			return dep.Version
		}
	}
	return "(unknown)"
}

// machine names the processor.
func machine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d processors (%s), %s", runtime.NumCPU(), model, runtime.Version())
}
