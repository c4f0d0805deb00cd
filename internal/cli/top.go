package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/halt"
	"karpenter.sh/karpenter/internal/fleet"
	wait "karpenter.sh/karpenter/internal/pause"
	"karpenter.sh/karpenter/internal/sentence"
	"karpenter.sh/karpenter/internal/steprecord"
	shown "karpenter.sh/karpenter/internal/verdict"
)

const topHelp = `usage: karpenter top [--once] [--sort price|cpu|memory|pods|name] [--kubeconfig FILE]

Shows the nodes of Karpenter: what they hold, what they cost, which boot or are on their way out, how many pods wait, which
pools are paused, which steps are under way or wait for approval, and who holds back which nodes. It reads the cluster and needs no access to the controller. Prices are those of the catalogue; Savings Plans, reserved
instances and discounts are left out.

`

// topEvery is how often the cluster is read again: whole, which is some work for its API server.
const topEvery = 5 * time.Second

type topFlags struct {
	planFlags
	once bool
	sort string
}

func parseTop(env Env, args []string) (topFlags, error) {
	f := topFlags{}
	fs := flag.NewFlagSet("top", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, topHelp); fs.PrintDefaults() }
	f.worldFlags(fs)
	fs.BoolVar(&f.once, "once", false, "print once and exit")
	fs.StringVar(&f.sort, "sort", "price", "price, cpu, memory or pods, the most first; or name")
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	switch {
	case fs.NArg() > 0:
		return f, fmt.Errorf("what is %q?", fs.Arg(0))
	case topOrders[f.sort] == nil:
		return f, fmt.Errorf("--sort %s: use %s", f.sort, strings.Join(sortedKeys(topOrders), ", "))
	case f.snapshot != "":
		return f, errors.New("a snapshot holds no pods that run well; give --kubeconfig or -f")
	}
	return f, f.someWorld()
}

// top shows the fleet, once or until it is interrupted.
func top(ctx context.Context, env Env, args []string) (int, error) {
	f, err := parseTop(env, args)
	if err != nil {
		return exitBadInput, err
	}
	f.static = true
	for {
		var screen strings.Builder
		size := unbounded
		if !f.once {
			size = sizeOf(env.Out)
		}
		if err := f.show(ctx, env, &screen, size); err != nil {
			return exitBadInput, err
		}
		if f.once {
			_, err := io.WriteString(env.Out, screen.String())
			return exitFine, err
		}
		fmt.Fprint(env.Out, "\x1b[H\x1b[2J", screen.String()) // from the upper left corner, on an empty screen
		if !wait.For(ctx, topEvery) {
			return exitFine, nil
		}
	}
}

// A window is how many lines and columns there are to show something, 0 for as many as it takes.
type window struct{ lines, columns int }

var unbounded = window{}

// sizeOf returns the window that out is shown in, unbounded where it is none.
func sizeOf(out io.Writer) window {
	if file, ok := out.(*os.File); ok {
		if columns, lines, err := term.GetSize(int(file.Fd())); err == nil {
			return window{lines, columns}
		}
	}
	return unbounded
}

// leastRows is how many nodes are shown however much stands above them.
const leastRows = 3

// rows is how many of n nodes fit under what stands above them: lines that are too long take several, and the head of the table, the line below it
// and that of the cursor have to go somewhere.
func (w window) rows(n int, above string) int {
	if w == unbounded {
		return n
	}
	left := w.lines - 3
	for line := range strings.Lines(above) {
		left -= 1 + (utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))-1)/max(1, w.columns)
	}
	return min(n, max(leastRows, left))
}

// cut makes a line of the table as long as the window is wide, so that it takes one line there. What stands above is not cut: it says what to do.
func (w window) cut(line string) string {
	if runes := []rune(line); w.columns > 0 && len(runes) > w.columns+1 {
		return string(runes[:w.columns]) + "\n"
	}
	return line
}

func (f *topFlags) show(ctx context.Context, env Env, out *strings.Builder, size window) error {
	o, err := f.read(ctx, env)
	if err != nil {
		return err
	}
	in, err := f.input(env, o)
	if err != nil {
		return err
	}
	w := disruptionWorld(in)
	w.Ended = func() bool { return ctx.Err() != nil }
	return writeTop(out, w, f.sort, size)
}

// barWidth is how many characters are all of a node.
const barWidth = 10

func bar(s fleet.Share) string {
	full := min(barWidth, int(s.Part()*barWidth+0.5))
	return fmt.Sprintf("%s%s %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*s.Part())
}

// topOrders compare two machines.
var topOrders = map[string]func(a, b *fleet.Machine) int{
	"price":  func(a, b *fleet.Machine) int { return cmp.Compare(b.Price, a.Price) },
	"cpu":    func(a, b *fleet.Machine) int { return cmp.Compare(b.CPU.Part(), a.CPU.Part()) },
	"memory": func(a, b *fleet.Machine) int { return cmp.Compare(b.Memory.Part(), a.Memory.Part()) },
	"pods":   func(a, b *fleet.Machine) int { return cmp.Compare(b.Pods, a.Pods) },
	"name":   func(*fleet.Machine, *fleet.Machine) int { return 0 },
}

// podsWait says how many pods wait.
func podsWait(pods int) string {
	if pods == 1 {
		return "1 pod waits for a node"
	}
	return fmt.Sprintf("%d pods wait for a node", pods)
}

// writeTop shows the fleet, and of its nodes those that fit.
func writeTop(out *strings.Builder, w *disrupt.World, order string, size window) error {
	rows := new(fleet.Reader).Read(w.Snap, w.Pools)
	bill := map[string]float64{}
	for _, r := range rows {
		bill[r.Machine.Pool] += r.Machine.Price.Dollars()
	}
	slices.SortFunc(rows, func(a, b fleet.Row) int {
		return cmp.Or(topOrders[order](&a.Machine, &b.Machine), cmp.Compare(a.Machine.Name, b.Machine.Name))
	})
	total := 0.0
	for _, pool := range sortedKeys(bill) {
		total += bill[pool]
	}
	fmt.Fprintf(out, "%s, $%.4f an hour; %s. Savings Plans, reserved instances and discounts are left out.\n", sentence.Count(len(rows), "node"), total, podsWait(len(w.Snap.Provisionable())))
	for _, name := range slices.Sorted(maps.Keys(w.Pools)) {
		if h, halted := halt.Of(w.Snap, name, w.Now); halted {
			fmt.Fprintf(out, "NodePool %s: %s\n", name, plain(sentence.Halt(h)))
		}
	}
	if err := writeSteps(out, w, size); err != nil {
		return err
	}
	if err := writeHeldBack(out, w, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tPOOL\tTYPE\t$/H\tCPU\tMEMORY\tPODS\tSTATE")
	fit := rows[:size.rows(len(rows), out.String())]
	for _, r := range fit {
		n, state := &r.Machine, ""
		if marks := fleet.Marks(w.Snap, r.Node, w.Now); len(marks) > 0 {
			state = string(marks[0])
		}
		fmt.Fprintf(t, "%s\t%s\t%s %s\t%.4f\t%s\t%s\t%d\t%s\n", n.Name, n.Pool, n.Type, n.CapacityType, n.Price.Dollars(), bar(n.CPU), bar(n.Memory), n.Pods, state)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		out.WriteString(size.cut(line))
	}
	if more := len(rows) - len(fit); more > 0 {
		fmt.Fprintf(out, "and %s; --sort puts others first, --once shows all", sentence.Count(more, "more node"))
	}
	return nil
}

// mostSteps is how many steps a window shows.
const mostSteps = 10

// writeSteps shows the steps that the cluster knows of, nothing where there are none.
func writeSteps(out io.Writer, w *disrupt.World, size window) error {
	var begun []shown.Step
	for _, r := range steprecord.UnderWay(w.Snap) {
		begun = append(begun, shown.Begun(r))
	}
	steps := fleet.Steps(w.Snap, begun)
	if len(steps) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nSTEP\tREASON\tSTAGE\tUNTIL\t$/DAY")
	most := len(steps)
	if size != unbounded {
		most = min(mostSteps, most)
	}
	for _, s := range steps[:most] {
		saves := "-"
		if s.SavesDay != 0 {
			saves = fmt.Sprintf("saves %.2f", s.SavesDay)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", plain(s.Text), plain(s.Reason), plain(s.Stage), s.Until.UTC().Format(time.RFC3339), saves)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := len(steps) - most; more > 0 {
		fmt.Fprintf(out, "and %s\n", sentence.Count(more, "more step"))
	}
	return nil
}

// mostHeld is how many lines what is held back takes: the screen is for the nodes.
const mostHeld = 10

// writeHeldBack shows who holds back what, as one pass of the planner finds it; nothing where nobody does.
func writeHeldBack(out io.Writer, w *disrupt.World, rows []fleet.Row) error {
	found, _ := disrupt.Propose(w, disrupt.Memory{})
	held := fleet.HeldBack(w.Snap, rows, shown.Found(found))
	if len(held) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nHELD BACK BY\tNODES\t$/DAY\tWHY")
	for _, h := range held[:min(mostHeld, len(held))] {
		nodes, money := strings.Join(h.Nodes, ", "), fmt.Sprintf("cost %.2f", h.PerDay)
		if more := h.Count - len(h.Nodes); more > 0 {
			nodes += fmt.Sprintf(" and %d more", more)
		}
		if h.Saves {
			nodes, money = "-", fmt.Sprintf("would save %.2f", h.PerDay)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", plain(h.By), plain(nodes), money, plain(h.Why))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := len(held) - mostHeld; more > 0 {
		fmt.Fprintf(out, "and %d more; karpenter why nodepool NAME names them\n", more)
	}
	return nil
}

// plain is a text that moves no cursor: people who may annotate a pod do not get to draw on the screen of who looks.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
