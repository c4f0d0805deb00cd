package top

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"karpenter.sh/karpenter/internal/explain/sentence"
)

// Plain replaces every rune that cannot be printed by "?". Names and annotations come from others, and must not
// control the terminal.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// align returns a table as lines with aligned columns, the titles first. Cells are made plain.
func align(titles []string, rows [][]string) []string {
	widths := make([]int, len(titles))
	all := make([][]string, 0, len(rows)+1)
	for _, row := range append([][]string{titles}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = Plain(cell)
			widths[i] = max(widths[i], ansi.StringWidth(cells[i]))
		}
		all = append(all, cells)
	}
	const gap = 2
	out := make([]string, len(all))
	for at, cells := range all {
		var line strings.Builder
		for i, cell := range cells {
			line.WriteString(cell)
			if i < len(cells)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+gap))
			}
		}
		out[at] = strings.TrimRight(line.String(), " ")
	}
	return out
}

// mostHeld is how many lines about nodes that are held back are printed above the nodes.
const mostHeld = 10

// Text returns a picture as text, for output that is no terminal. Nodes are sorted by one of Orders.
func (p *Picture) Text(order string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n", p.bill(), p.paid())
	for _, paused := range p.Paused {
		fmt.Fprintln(&out, Plain(paused))
	}
	table := func(titles []string, rows [][]string) {
		fmt.Fprintln(&out)
		for _, line := range align(titles, rows) {
			fmt.Fprintln(&out, line)
		}
	}
	if len(p.Steps) > 0 {
		table(stepTitles, stepTable(p.Steps))
	}
	if n := len(p.Held); n > 0 {
		table(heldTitles, heldTable(p.Held[:min(mostHeld, n)]))
		if more := n - mostHeld; more > 0 {
			fmt.Fprintf(&out, "and %s; karpenter why nodepool NAME names them\n", sentence.Count(more, "more line"))
		}
	}
	table(nodeTitles(), nodeTable(sorted(p.Nodes, columnOf(order), false)))
	return out.String()
}
