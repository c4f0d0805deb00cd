package endtoend

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report writes what was measured as Markdown. A row where the peer wins stands there like any other.
func Report(all []Result) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("Until all pods run, from the moment at which their Deployments are made. Seconds depend on the whole " +
		"cluster, which is on the same processors.")
	line("")
	line("| pods | who | until all run | controller's CPU | its peak | nodes | $/h | ours ÷ this |")
	line("|---|---|---|---|---|---|---|---|")
	for i := range all {
		r := &all[i]
		line("| %s | %s | %.0f s | %.1f s | %.0f MiB | %d | %.2f | %s |", loads(r.Scenario), r.Side.Name,
			r.Running.Seconds(), r.CPU.Seconds(), r.PeakMiB, r.Nodes, r.Dollars,
			ratio(oursOf(all, r.Scenario), r, func(x *Result) float64 { return x.Dollars }))
	}
	return b.String() + reportStorms(some(all, func(r *Result) bool { return r.Storm })) +
		reportChanges(some(all, func(r *Result) bool { return len(r.Samples) > 0 && !r.Course })) +
		reportCourses(some(all, func(r *Result) bool { return r.Course }))
}

func reportStorms(all []Result) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	line("Where machines have run out. A launch that names some of them gets the cheapest that is left; one that names " +
		"nothing else fails, and its claim goes.")
	line("")
	line("| pods | who | until all run | launches that failed | nodes | $/h | ours ÷ this |")
	line("|---|---|---|---|---|---|---|")
	for i := range all {
		r := &all[i]
		line("| %s | %s | %.0f s | %d | %d | %.2f | %s |", r.Scenario, r.Side.Name, r.Running.Seconds(), r.Failed, r.Nodes, r.Dollars,
			ratio(oursOf(all, r.Scenario), r, func(x *Result) float64 { return x.Dollars }))
	}
	return b.String()
}

// some are the results that are wanted.
func some(all []Result, wanted func(*Result) bool) []Result {
	return slices.DeleteFunc(slices.Clone(all), func(r Result) bool { return !wanted(&r) })
}

func reportChanges(changed []Result) string {
	if len(changed) == 0 {
		return ""
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	line("After a change, with `consolidateAfter: 10s` and a budget of 10 %% on both sides. Dollars an hour by the " +
		"minute, and their mean over the three minutes.")
	line("")
	line("| what happens | who | at once | 1 min | 2 min | 3 min | mean | evictions | old nodes left | controller's " +
		"CPU | ours ÷ this after 3 min |")
	line("|---|---|---|---|---|---|---|---|---|---|---|")
	for i := range changed {
		r := &changed[i]
		last := r.at(settle)
		line("| %s | %s | %.2f | %.2f | %.2f | %.2f | %.2f | %d | %d | %.1f s | %s |", r.Scenario, r.Side.Name,
			r.Samples[0].Dollars, r.at(time.Minute).Dollars, r.at(2*time.Minute).Dollars,
			last.Dollars, r.mean(), last.Evictions, last.Stale, r.ChangeCPU.Seconds(),
			ratio(oursOf(changed, r.Scenario), r, func(x *Result) float64 { return x.at(settle).Dollars }))
	}
	return b.String()
}

func reportCourses(all []Result) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	line("While Deployments are scaled up and down all the time, with the same settings. A pod waits from its creation " +
		"until it runs; the clock of creation has whole seconds.")
	line("")
	line("| what happens | who | mean $/h | evictions | pods waited: middle, 95 %%, most | controller's CPU | ours ÷ this |")
	line("|---|---|---|---|---|---|---|")
	for i := range all {
		r := &all[i]
		line("| %s | %s | %.2f | %d | %.0f s, %.0f s, %.0f s | %.1f s | %s |", r.Scenario, r.Side.Name, r.mean(),
			r.Samples[len(r.Samples)-1].Evictions,
			r.waited(0.5), r.waited(0.95), r.waited(1), r.ChangeCPU.Seconds(), ratio(oursOf(all, r.Scenario), r, (*Result).mean))
	}
	return b.String()
}

// waited is how many seconds a part of the pods waited at most.
func (r *Result) waited(part float64) float64 {
	if len(r.Waits) == 0 {
		return 0
	}
	return r.Waits[min(int(part*float64(len(r.Waits))), len(r.Waits)-1)].Seconds()
}

// loads is a scenario's name without what happens after its pods run.
func loads(name string) string {
	pods, _, _ := strings.Cut(name, ": ")
	return pods
}

func oursOf(all []Result, scenario string) *Result {
	for i := range all {
		if all[i].Scenario == scenario && !all[i].Side.Peer {
			return &all[i]
		}
	}
	return nil
}

func ratio(ours, r *Result, of func(*Result) float64) string {
	if ours == nil || ours == r || of(r) == 0 {
		return "–"
	}
	return fmt.Sprintf("**%.3f**", of(ours)/of(r))
}

// at is the last sample up to a moment.
func (r *Result) at(d time.Duration) *Sample {
	out := &r.Samples[0]
	for i := range r.Samples {
		if r.Samples[i].At <= d {
			out = &r.Samples[i]
		}
	}
	return out
}

// mean is what the fleet cost an hour over all samples, each of which counts for the time since the one before.
func (r *Result) mean() float64 {
	var spent float64
	var before time.Duration
	for i := range r.Samples {
		s := &r.Samples[i]
		spent += s.Dollars * (s.At - before).Seconds()
		before = s.At
	}
	return spent / before.Seconds()
}
