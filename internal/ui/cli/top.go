package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/paused"
	shown "karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/explain/view"
	"karpenter.sh/karpenter/internal/ui/top"
)

const topHelp = `usage: karpenter top [--once] [--sort ORDER] [--kubeconfig FILE] [-f FILE_OR_DIR…]

Shows the nodes of Karpenter: what they hold, what they cost, which boot or are on their way out, which pods wait, which pools
are paused, which steps are under way or wait for approval, and who holds back which nodes. In a terminal keys move, sort, find
and open; ? names them. Where there is no terminal, or a dumb one, and with --once it prints once and exits.

It reads the cluster, changes nothing, and needs no access to the controller. Prices are those of the catalogue. Where there are
CommitmentDiscounts, one line says how much of them is used, what the rest costs, and why it is not used.

`

// topEvery is how long the cluster is left alone before it is read again: whole, which is some work for its API server.
const topEvery = 5 * time.Second

// topFlags are the flags of "karpenter top".
type topFlags struct {
	planFlags
	once bool
	sort string
}

// parseTop reads the flags and arguments of top.
func parseTop(env Env, args []string) (topFlags, error) {
	f := topFlags{}
	fs := flag.NewFlagSet("top", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, topHelp); fs.PrintDefaults() }
	f.worldFlags(fs)
	fs.BoolVar(&f.once, "once", false, "print once and exit")
	fs.StringVar(&f.sort, "sort", "price", "by which column nodes are sorted: "+strings.Join(top.Orders(), ", "))
	words, err := parseMixed(fs, args)
	f.files = append(f.files, words...)
	switch {
	case err != nil:
		return f, err
	case !slices.Contains(top.Orders(), f.sort):
		return f, fmt.Errorf("--sort %s: use %s", f.sort, strings.Join(top.Orders(), ", "))
	case f.snapshot != "":
		return f, errors.New("a snapshot holds no pods that run well; give --kubeconfig or -f")
	}
	return f, f.checkWorld()
}

// showTop runs "karpenter top": it prints the fleet once, or shows it in the terminal until the user quits.
func showTop(ctx context.Context, env Env, args []string) (int, error) {
	f, err := parseTop(env, args)
	if err != nil {
		return exitBadInput, err
	}
	f.static = true
	first, err := f.picture(ctx, env)
	if err != nil {
		return exitBadInput, err
	}
	terminal := top.Terminal{In: env.In, Out: env.Out, Name: os.Getenv("TERM")}
	if f.once || !terminal.Draws() {
		_, err := io.WriteString(env.Out, first.Text(f.sort))
		return exitFine, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()               // of a reading that is not waited for any more
	klog.SetOutput(io.Discard) // what the client logs would be written across the screen
	klog.LogToStderr(false)
	env.Err = io.Discard // it is on the screen
	source := top.Source{Every: topEvery, Read: func() (*top.Picture, error) { return f.picture(ctx, env) }}
	return exitFine, top.New(first, f.sort, source).Show(ctx, terminal)
}

// picture reads the cluster and returns what is to be shown. Messages that were printed while it was read become
// remarks, except those of progress, which end in "…".
func (f *topFlags) picture(ctx context.Context, env Env) (*top.Picture, error) {
	var said bytes.Buffer
	env.Err = io.MultiWriter(env.Err, &said)
	o, err := f.read(ctx, env)
	if err != nil {
		return nil, err
	}
	in, err := f.input(env, o)
	if err != nil {
		return nil, err
	}
	w := disruptionWorld(in, f.books)
	w.Ended = func() bool { return ctx.Err() != nil }
	p := pictureOf(w)
	p.Commitments = sentence.Commitments(f.books)
	for line := range strings.Lines(said.String()) {
		if line = strings.TrimSpace(line); !strings.HasSuffix(line, "…") { // a line of progress ends in it
			p.Remarks = append(p.Remarks, line)
		}
	}
	return p, nil
}

// pictureOf returns what is to be shown of a cluster. One pass of the disruption planner finds what holds nodes back.
func pictureOf(w *disrupt.World) *top.Picture {
	rows := new(view.Reader).Read(w.Snap, w.Pools)
	found, _ := disrupt.Propose(w, disrupt.Memory{})
	var begun []shown.Step
	for _, r := range steprecord.UnderWay(w.Snap) {
		begun = append(begun, shown.Begun(r))
	}
	p := &top.Picture{
		At: w.Now, Steps: view.Steps(w.Snap, begun), Held: view.HeldBack(w.Snap, rows, shown.Found(found)),
		Waiting: shownPods(w.Snap.Provisionable()),
		Open:    func(node string) top.Detail { return detailOf(w, node) },
	}
	for _, r := range rows {
		n := top.Node{Machine: r.Machine}
		if marks := view.Marks(w.Snap, r.Node, w.Now); len(marks) > 0 {
			n.Mark = marks[0]
		}
		p.Nodes = append(p.Nodes, n)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Pools)) {
		if h, halted := paused.Of(w.Snap, name, w.Now); halted {
			p.Paused = append(p.Paused, fmt.Sprintf("NodePool %s: %s", name, sentence.Halt(h)))
		}
	}
	return p
}

// detailOf returns the pods of a node, and what keeps it or the step in which it goes, as karpenter why does.
func detailOf(w *disrupt.World, node string) top.Detail {
	row := w.Snap.Node(node)
	if row == nil {
		return top.Detail{}
	}
	d := top.Detail{Pods: shownPods(row.Pods)}
	for _, r := range disrupt.WhyStays(w, disrupt.Memory{}, node) {
		d.Holds = append(d.Holds, sentence.Refusal(r))
	}
	if len(d.Holds) == 0 {
		if step := stepOf(w, row); step != nil {
			d.Step = fmt.Sprintf("%s; %s, %s", step.Text, strings.ToLower(step.Reason), sentence.Saves(step.SavesPerHour))
		}
	}
	return d
}

// shownPods returns pods as the screen shows them, sorted by namespace and name.
func shownPods(pods []*cluster.Pod) []top.Pod {
	var out []top.Pod
	for _, p := range pods {
		asks := podclass.Requests(p.Class.Spec)
		out = append(out, top.Pod{Namespace: p.Namespace, Name: p.Name, Owner: view.Owner(p), Created: p.Created,
			CPU: asks.Cpu().AsApproximateFloat64(), Memory: asks.Memory().AsApproximateFloat64()})
	}
	slices.SortFunc(out, func(a, b top.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return out
}
