// Package top shows the fleet in a terminal, as karpenter top does: what is drawn, and which key does what.
//
// It shows pictures, which the caller reads, and changes nothing in the cluster. Names and annotations that others wrote are made plain, so
// that they cannot control the terminal. A Model receives keys, sizes and pictures as messages of bubbletea, and can be drawn at any time,
// so its tests need no terminal.
//
// Read model.go first. keys.go says what each key does, draw.go draws the screen, list.go is a table with a cursor, picture.go holds the
// tables and their columns, and text.go prints a picture without a terminal.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/view"
)

// A Picture is the fleet at one moment.
type Picture struct {
	At      time.Time
	Nodes   []Node
	Steps   []view.Step
	Held    []view.Held
	Waiting []Pod
	Paused  []string // sentences about paused pools
	Remarks []string // messages about the objects that were read, such as pools that are left out
	// Commitments says how much of them is used, "" where there are none.
	Commitments string
	// Open returns the details of a node. What keeps it is a search, so it runs only when the user opens the node.
	Open func(node string) Detail
}

// A Node is a Karpenter machine with the mark that matters most, "" for none.
type Node struct {
	view.Machine
	Mark view.Mark
}

// A Pod waits, or is on a node.
type Pod struct {
	Namespace, Name, Owner string
	Created                time.Time
	CPU, Memory            float64 // what it asks for, in CPUs and bytes
}

// A Detail is what the screen shows of one node that is opened.
type Detail struct {
	Holds []string // what keeps it
	Step  string   // in which it goes, "" if others go before it
	Pods  []Pod
}

// A column is one thing that the table of nodes says. Its name is what --sort takes.
type column struct {
	name, title string
	falling     bool // the most comes first
	text        func(*Node) string
	compare     func(a, b *Node) int
}

// columns are those of the table, from left to right.
var columns = []column{
	{"name", "NODE", false, func(n *Node) string { return n.Name }, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) }},
	{"pool", "POOL", false, func(n *Node) string { return n.Pool }, func(a, b *Node) int { return cmp.Compare(a.Pool, b.Pool) }},
	{"type", "TYPE", false, func(n *Node) string { return n.Type + " " + n.CapacityType }, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.CapacityType, b.CapacityType))
	}},
	{"price", "$/H", true, func(n *Node) string { return fmt.Sprintf("%.4f", n.Price.Dollars()) },
		func(a, b *Node) int { return cmp.Compare(a.Price, b.Price) }},
	{"cpu", "CPU", true, func(n *Node) string { return bar(n.CPU) },
		func(a, b *Node) int { return cmp.Compare(a.CPU.Part(), b.CPU.Part()) }},
	{"memory", "MEMORY", true, func(n *Node) string { return bar(n.Memory) },
		func(a, b *Node) int { return cmp.Compare(a.Memory.Part(), b.Memory.Part()) }},
	{"pods", "PODS", true, func(n *Node) string { return fmt.Sprint(n.Pods) },
		func(a, b *Node) int { return cmp.Compare(a.Pods, b.Pods) }},
	{"state", "STATE", true, func(n *Node) string { return string(n.Mark) },
		func(a, b *Node) int { return cmp.Compare(weight(a.Mark), weight(b.Mark)) }},
}

// weight returns a number that is higher the more a mark matters.
func weight(m view.Mark) int {
	return 1 + slices.Index([]view.Mark{view.Drifted, view.Paused, view.Boots, view.InStep, view.Goes}, m)
}

// Orders returns the names by which nodes can be sorted.
func Orders() []string {
	var out []string
	for _, c := range columns {
		out = append(out, c.name)
	}
	return out
}

// columnOf returns the index of the column with the name of an order, -1 if there is none.
func columnOf(order string) int {
	return slices.IndexFunc(columns, func(c column) bool { return c.name == order })
}

// sorted returns nodes sorted by a column, equal ones by name.
func sorted(nodes []Node, by int, reversed bool) []Node {
	c, out := columns[by], slices.Clone(nodes)
	slices.SortFunc(out, func(a, b Node) int {
		order := c.compare(&a, &b)
		if c.falling != reversed {
			order = -order
		}
		return cmp.Or(order, cmp.Compare(a.Name, b.Name))
	})
	return out
}

// leftOut is what prices do not know.
const leftOut = "Savings Plans, reserved instances and discounts are left out."

// paid returns the line about commitments.
func (p *Picture) paid() string { return cmp.Or(Plain(p.Commitments), leftOut) }

// bill returns the line about how many nodes there are, what they cost, and how many pods wait.
func (p *Picture) bill() string {
	var sum cloud.NanoUSD
	for i := range p.Nodes {
		sum += p.Nodes[i].Price
	}
	waits := sentence.Count(len(p.Waiting), "pod") + " wait for a node"
	if len(p.Waiting) == 1 {
		waits = "1 pod waits for a node"
	}
	return fmt.Sprintf("%s, $%.4f an hour; %s.", sentence.Count(len(p.Nodes), "node"), sum.Dollars(), waits)
}

// barWidth is how many characters are all of a node.
const barWidth = 10

// bar draws a share as a bar, with its percentage.
func bar(s view.Share) string {
	full := max(0, min(barWidth, int(s.Part()*barWidth+0.5)))
	return fmt.Sprintf("%s%s %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*s.Part())
}

// nodeTitles returns the titles of the node table.
func nodeTitles() []string {
	var out []string
	for _, c := range columns {
		out = append(out, c.title)
	}
	return out
}

// nodeTable returns the cells of each node.
func nodeTable(nodes []Node) [][]string {
	var out [][]string
	for i := range nodes {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.text(&nodes[i]))
		}
		out = append(out, cells)
	}
	return out
}

var stepTitles = []string{"STEP", "REASON", "STAGE", "UNTIL", "$/DAY"}

// stepTable returns the cells of each step.
func stepTable(steps []view.Step) [][]string {
	var out [][]string
	for _, s := range steps {
		saves := "-"
		if s.SavesDay != 0 {
			saves = fmt.Sprintf("saves %.2f", s.SavesDay)
		}
		out = append(out, []string{s.Text, s.Reason, s.Stage, s.Until.UTC().Format(time.RFC3339), saves})
	}
	return out
}

var heldTitles = []string{"HELD BACK BY", "NODES", "$/DAY", "WHY"}

// heldTable returns a row for each thing that holds nodes, or a saving, back.
func heldTable(held []view.Held) [][]string {
	var out [][]string
	for _, h := range held {
		nodes, money := "-", fmt.Sprintf("would save %.2f", h.PerDay)
		if !h.Saves {
			nodes, money = strings.Join(h.Nodes, ", "), fmt.Sprintf("cost %.2f", h.PerDay)
			if more := h.Count - len(h.Nodes); more > 0 {
				nodes += fmt.Sprintf(" and %d more", more)
			}
		}
		out = append(out, []string{h.By, nodes, money, h.Why})
	}
	return out
}

var podTitles = []string{"POD", "CPU", "MEMORY", "AGE", "OWNER"}

// podTable returns the cells of each pod.
func podTable(pods []Pod, now time.Time) [][]string {
	var out [][]string
	for _, p := range pods {
		age := "-"
		if !p.Created.IsZero() {
			age = duration.HumanDuration(now.Sub(p.Created))
		}
		out = append(out, []string{p.Namespace + "/" + p.Name, fmt.Sprintf("%.2f", p.CPU), gigabytes(p.Memory), age, p.Owner})
	}
	return out
}

func gigabytes(bytes float64) string { return fmt.Sprintf("%.1fGi", bytes/(1<<30)) }
