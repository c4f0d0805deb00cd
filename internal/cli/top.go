package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/halt"
	wait "karpenter.sh/karpenter/internal/pause"
	"karpenter.sh/karpenter/internal/sentence"
)

const topHelp = `usage: karpenter top [--once] [--sort price|cpu|memory|pods|name] [--kubeconfig FILE]

Shows the nodes of Karpenter: what they hold, what they cost, which boot or are on their way out, how many pods wait, which
pools are paused. It reads the cluster and needs no access to the controller. Prices are those of the catalogue; Savings Plans, reserved
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
		if err := f.show(ctx, env, &screen); err != nil {
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

func (f *topFlags) show(ctx context.Context, env Env, out io.Writer) error {
	o, err := f.read(ctx, env)
	if err != nil {
		return err
	}
	in, err := f.input(env, o)
	if err != nil {
		return err
	}
	return writeTop(out, disruptionWorld(in), f.sort)
}

// A topNode is one line.
type topNode struct {
	name, pool, kind string
	price            float64
	cpu, memory      share
	pods             int
	state            string
}

// A share is how much of something is asked for.
type share struct{ used, all float64 }

func (s share) part() float64 {
	if s.all == 0 {
		return 0
	}
	return s.used / s.all
}

// barWidth is how many characters are all of a node.
const barWidth = 10

func (s share) String() string {
	full := min(barWidth, int(s.part()*barWidth+0.5))
	return fmt.Sprintf("%s%s %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*s.part())
}

// topOrders compare two lines.
var topOrders = map[string]func(a, b *topNode) int{
	"price":  func(a, b *topNode) int { return cmp.Compare(b.price, a.price) },
	"cpu":    func(a, b *topNode) int { return cmp.Compare(b.cpu.part(), a.cpu.part()) },
	"memory": func(a, b *topNode) int { return cmp.Compare(b.memory.part(), a.memory.part()) },
	"pods":   func(a, b *topNode) int { return cmp.Compare(b.pods, a.pods) },
	"name":   func(*topNode, *topNode) int { return 0 },
}

func newTopNode(w *disrupt.World, row *cluster.Node) *topNode {
	labels := row.Labels()
	n := &topNode{
		name: row.Name, pool: row.Pool(), kind: labels[corev1.LabelInstanceTypeStable] + " " + labels[v1.CapacityTypeLabelKey],
		price: priceOf(w, row).Dollars(), pods: len(row.Pods), state: stateOfNode(w, row),
	}
	room := row.Allocatable()
	n.cpu.all, n.memory.all = room.Cpu().AsApproximateFloat64(), room.Memory().AsApproximateFloat64()
	for _, p := range row.Pods {
		asked := resource.PodRequests(&corev1.Pod{Spec: *p.Class.Spec}, resource.PodResourcesOptions{})
		n.cpu.used += asked.Cpu().AsApproximateFloat64()
		n.memory.used += asked.Memory().AsApproximateFloat64()
	}
	return n
}

func stateOfNode(w *disrupt.World, row *cluster.Node) string {
	switch {
	case row.Claim.DeletionTimestamp != nil:
		return "goes"
	case row.Claim.Annotations[v1.DisruptionCommandAnnotationKey] != "":
		return "in a step"
	case row.Node == nil:
		return "boots"
	}
	if _, halted := halt.Node(w.Snap, row, w.Now); halted {
		return "paused"
	}
	return ""
}

// writeTop shows the fleet.
func writeTop(out io.Writer, w *disrupt.World, order string) error {
	var nodes []*topNode
	bill := map[string]float64{}
	for row := range w.Snap.Nodes() {
		if row.Claim != nil {
			n := newTopNode(w, row)
			nodes = append(nodes, n)
			bill[n.pool] += n.price
		}
	}
	slices.SortFunc(nodes, func(a, b *topNode) int { return cmp.Or(topOrders[order](a, b), cmp.Compare(a.name, b.name)) })
	total := 0.0
	for _, pool := range sortedKeys(bill) {
		total += bill[pool]
	}
	fmt.Fprintf(out, "%d nodes, $%.4f an hour; %d pods wait for a node. Savings Plans, reserved instances and discounts are left out.\n", len(nodes), total, len(w.Snap.Provisionable()))
	for _, name := range slices.Sorted(maps.Keys(w.Pools)) {
		if h, halted := halt.Of(w.Snap, name, w.Now); halted {
			fmt.Fprintf(out, "NodePool %s: %s\n", name, sentence.Halt(h))
		}
	}
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tPOOL\tTYPE\t$/H\tCPU\tMEMORY\tPODS\tSTATE")
	for _, n := range nodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.4f\t%s\t%s\t%d\t%s\n", n.name, n.pool, n.kind, n.price, n.cpu, n.memory, n.pods, n.state)
	}
	return t.Flush()
}
