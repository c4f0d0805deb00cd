package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/history/replay"
	"karpenter.sh/karpenter/internal/kit/parallel"
)

const replayHelp = `usage: karpenter replay --pods FILE {-f FILE_OR_DIR… | --snapshot FILE} [--variant NAME=FILE[,FILE…]]…
       [--with NAME:SETTING=VALUE]… [-o table|json]

Runs recorded pods through Karpenter's decisions in simulated time, once for each set of NodePools and settings, and puts side by side
what that costs, how far it is from the least that it could cost, how often pods are moved and how long they wait. It changes nothing and
asks no cloud.

--pods is a CSV of pods with the times of their creation and deletion, what "kubectl get pods -w -o json" wrote, what kubereplay
captured, or the folder that a controller writes with --record-dir. The files of -f hold NodePools, EC2NodeClasses,
DaemonSets, PodDisruptionBudgets and so on; workloads and pods in them are there
from beginning to end, and Nodes, with their NodeClaims, are the fleet that is there when the recording begins. A
--snapshot holds all of that,
and what machines cost. That is the variant "base", where there is a NodePool in them. A --variant has the same, but its own NodePools,
EC2NodeClasses and NodeOverlays. --with changes a setting of a variant: preference-policy, min-values-policy, spot-to-spot,
batch-idle-duration, batch-max-duration, boot. An --edit changes the NodePools and EC2NodeClasses of a variant while
the recording runs: what
drifts is replaced. --market says what the cloud takes back and has not.

Exit code: 0 every pod had a place, 1 some had none in some variant, 2 the input is wrong.

`

// baseVariant is what the files of -f are by themselves.
const baseVariant = "base"

// enoughSearch gives plans nearly as good as those of a controller, in less time.
const enoughSearch = work.Second / 10

// replayFlags are the flags of "karpenter replay".
type replayFlags struct {
	planFlags
	pods     string
	from, to time.Time
	output   string
	variants []namedFiles
	edits    []timedFiles
	changes  []change
	set      replay.Settings
}

// namedFiles are the files of a variant.
type namedFiles struct {
	name  string
	files []string
}

// A change sets one setting of one variant (--with).
type change struct{ variant, setting, value string }

// parseReplay reads the flags and arguments of replay.
func parseReplay(env Env, args []string) (replayFlags, error) {
	f := replayFlags{}
	fs := flag.NewFlagSet("replay", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, replayHelp); fs.PrintDefaults() }
	f.worldFlags(fs)
	fs.StringVar(&f.pods, "pods", "", "file with the recorded pods, or folder that a controller writes with --record-dir")
	fs.StringVar(&f.output, "o", "table", "table or json")
	fs.Func("variant", "NAME=FILE, several files with commas between them: run the pods with these NodePools too; may "+
		"be given several times", f.addVariant)
	fs.Func("with", "NAME:SETTING=VALUE, a setting of a variant; may be given several times", f.addChange)
	fs.Func("edit", "NAME:TIME=FILE, several files with commas between them: the variant has these NodePools and "+
		"EC2NodeClasses from then on; may be given several times", f.addEdit)
	fs.Func("market", "CSV of how often spot machines are taken back, and how often nothing is to be had: "+
		"type,zone,interrupted,sold_out", f.addMarket)
	fs.Func("from", "leave out what was before this time (2026-06-01T12:00:00Z); pods that are there then begin with it", moment(&f.from))
	fs.Func("to", "leave out what was after this time", moment(&f.to))
	fs.DurationVar(&f.set.Boot, "boot", defaultBoot, "how long a machine takes from its launch until pods run on it")
	fs.DurationVar(&f.set.Stop, "stop", defaultStop, "how long a machine costs something after its pods have left")
	fs.DurationVar(&f.set.Pace, "pace", 0, "how long there is at least between two searches for a cheaper fleet; 0: a "+
		"six hundredth of the recording, at least ten seconds")
	fs.IntVar(&f.set.Samples, "samples", 48, "at how many moments the least possible price is proven")
	words, err := parseMixed(fs, args)
	f.files = append(f.files, words...)
	if err != nil {
		return f, err
	}
	return f, f.check()
}

// check refuses values of flags that are out of range or do not go together.
func (f *replayFlags) check() error {
	for name, d := range map[string]time.Duration{"--boot": f.set.Boot, "--stop": f.set.Stop, "--pace": f.set.Pace} {
		if d < 0 || d%time.Second != 0 {
			return fmt.Errorf("%s %s: give whole seconds", name, d)
		}
	}
	switch {
	case f.pods == "":
		return errors.New("give the recorded pods with --pods FILE")
	case f.snapshot != "" && (len(f.files) > 0 || f.kubeconfig != ""):
		return errors.New("--snapshot holds the whole world; give it without -f and --kubeconfig")
	case !slices.Contains([]string{"table", "json"}, f.output):
		return fmt.Errorf("-o %s: use table or json", f.output)
	case len(f.files) == 0 && len(f.variants) == 0 && f.kubeconfig == "" && f.snapshot == "":
		return errors.New("give NodePools with -f, or with --variant NAME=FILE")
	case f.set.Samples < 1 || f.set.Samples > 10_000:
		return fmt.Errorf("--samples %d: use a number from 1 to 10000", f.set.Samples)
	}
	return nil
}

// moment returns the function of a flag that reads a time into to.
func moment(to *time.Time) func(string) error {
	return func(text string) error {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("write a time as 2026-06-01T12:00:00Z")
		}
		*to = t.UTC().Truncate(time.Second)
		return nil
	}
}

// addVariant reads one --variant.
func (f *replayFlags) addVariant(text string) error {
	name, files, ok := strings.Cut(text, "=")
	if !ok || name == "" || files == "" {
		return errors.New("write NAME=FILE")
	}
	if name == baseVariant || slices.ContainsFunc(f.variants, func(v namedFiles) bool { return v.name == name }) {
		return fmt.Errorf("there is a variant %q already; give this one another name", name)
	}
	f.variants = append(f.variants, namedFiles{name, strings.Split(files, ",")})
	return nil
}

// addChange reads one --with.
func (f *replayFlags) addChange(text string) error {
	variant, rest, named := strings.Cut(text, ":")
	setting, value, given := strings.Cut(rest, "=")
	if !named || !given {
		return errors.New("write NAME:SETTING=VALUE")
	}
	f.changes = append(f.changes, change{variant, setting, value})
	return nil
}

// timedFiles are manifests that a variant has from a time on (--edit).
type timedFiles struct {
	variant string
	at      time.Time
	files   []string
}

// addEdit reads one --edit.
func (f *replayFlags) addEdit(text string) error {
	variant, rest, named := strings.Cut(text, ":")
	when, files, given := strings.Cut(rest, "=")
	if !named || !given || variant == "" || files == "" {
		return errors.New("write NAME:TIME=FILE, such as base:2026-06-01T12:00:00Z=pools.yaml")
	}
	e := timedFiles{variant: variant, files: strings.Split(files, ",")}
	if err := moment(&e.at)(when); err != nil {
		return err
	}
	f.edits = append(f.edits, e)
	return nil
}

// addMarket reads the file of --market.
func (f *replayFlags) addMarket(file string) (err error) {
	f.set.Market, err = readMarket(file)
	return err
}

// A plannedRun is a variant that is ready to be replayed.
type plannedRun struct {
	replay.Variant
	set    replay.Settings
	always []recording.Life // pods that the files say are there all the time
}

// runReplay runs "karpenter replay": it reads the recording, prepares a run for each variant, plays all and prints
// the comparison.
func runReplay(ctx context.Context, env Env, args []string) (int, error) {
	f, err := parseReplay(env, args)
	if err != nil {
		return exitBadInput, err
	}
	rec, err := f.recorded(env)
	if err != nil {
		return exitBadInput, err
	}
	if f.set.Pace == 0 {
		f.set.Pace = max(10*time.Second, (rec.End.Sub(rec.Begin) / 600).Truncate(time.Second))
	}
	runs, rec, err := f.runs(ctx, env, rec)
	if err != nil {
		return exitBadInput, err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(replay.GCPercent))
	results, err := playAll(ctx, env, rec, runs)
	if err != nil {
		return exitBadInput, err
	}
	if err := writeReplay(env.Out, f.output, results); err != nil {
		return exitBadInput, err
	}
	if slices.ContainsFunc(results, func(r *replay.Result) bool { return r.Unplaced > 0 }) {
		return exitUnschedulable, nil
	}
	return exitFine, nil
}

// recorded reads the pods from a file or from the folder of a controller, and cuts them to --from and --to.
func (f *replayFlags) recorded(env Env) (*recording.Recording, error) {
	info, err := os.Stat(f.pods)
	if err != nil {
		return nil, fmt.Errorf("--pods: %w", err)
	}
	var rec *recording.Recording
	if info.IsDir() {
		torn := 0
		if rec, torn, err = recording.ReadFolder(f.pods); torn > 0 {
			fmt.Fprintf(env.Err, "%d line(s) of the recording were torn and are left out\n", torn)
		}
	} else {
		var text []byte
		if text, err = os.ReadFile(f.pods); err == nil {
			rec, err = recording.Read(f.pods, text)
		}
	}
	if err != nil {
		return nil, err
	}
	return rec.Cut(f.from, f.to)
}

// applySetting changes a setting of one variant. Settings have the names of the controller's flags.
func applySetting(runs []plannedRun, c change) error {
	i := slices.IndexFunc(runs, func(r plannedRun) bool { return r.Name == c.variant })
	if i < 0 {
		return fmt.Errorf("there is no variant %q", c.variant)
	}
	r := &runs[i]
	oneOf := func(to *bool, yes, no string) error {
		if c.value != yes && c.value != no {
			return fmt.Errorf("use %s or %s", yes, no)
		}
		*to = c.value == yes
		return nil
	}
	lasts := func(to *time.Duration) (err error) {
		if *to, err = time.ParseDuration(c.value); err != nil || *to < 0 || *to%time.Second != 0 {
			return errors.New("give whole seconds, such as 10s")
		}
		return nil
	}
	switch c.setting {
	case "preference-policy":
		return oneOf(&r.Engine.IgnorePreferences, "Ignore", "Respect")
	case "min-values-policy":
		return oneOf(&r.Engine.MinValuesBestEffort, "BestEffort", "Strict")
	case "spot-to-spot":
		return oneOf(&r.Planner.SpotToSpot, "true", "false")
	case "batch-idle-duration":
		return lasts(&r.set.BatchIdle)
	case "batch-max-duration":
		return lasts(&r.set.BatchMax)
	case "boot":
		return lasts(&r.set.Boot)
	}
	return errors.New("there is no such setting; see karpenter replay --help")
}

// playAll plays the variants, mostAtOnce of them at a time, and shows the progress on a terminal.
func playAll(ctx context.Context, env Env, rec *recording.Recording, runs []plannedRun) ([]*replay.Result, error) {
	bar := newProgress(env.Err, len(runs))
	defer bar.clear()
	results, order := make([]*replay.Result, len(runs)), make([]int, len(runs))
	for i := range order {
		order[i] = i
	}
	errs := parallel.Of(order, mostAtOnce, func(i int) string { return "playing " + runs[i].Name }, func(i int) (err error) {
		results[i], err = replay.Run(ctx, rec, runs[i].Variant, runs[i].set, func(part float64) { bar.tell(i, part) })
		return err
	})
	return results, errors.Join(errs...)
}

// mostAtOnce is how many variants are played at the same time: each needs the memory of a cluster.
const mostAtOnce = 2

// A progress shows on a terminal how much of several runs is done in total.
type progress struct {
	out io.Writer // nil without a viewer

	mu    sync.Mutex
	parts []float64
	shown int // tenths of percents
}

// newProgress returns a progress that prints nothing unless out is a terminal.
func newProgress(out io.Writer, runs int) *progress {
	p := &progress{parts: make([]float64, runs), shown: -1}
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.out = out
		}
	}
	return p
}

// progressWidth is how many characters are the whole.
const progressWidth = 40

// tell notes which part of a run is done, from 0 to 1, and draws the bar again if it changed.
func (p *progress) tell(run int, part float64) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts[run] = part
	sum := 0.0
	for _, x := range p.parts {
		sum += x
	}
	if now := int(1000 * sum / float64(len(p.parts))); now != p.shown {
		p.shown = now
		full := now * progressWidth / 1000
		fmt.Fprintf(p.out, "\r[%s%s] %5.1f %%", strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), float64(now)/10)
	}
}

// clear removes the bar from the terminal.
func (p *progress) clear() {
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
