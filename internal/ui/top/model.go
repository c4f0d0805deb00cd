package top

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/view"
)

// A Source is where pictures come from.
type Source struct {
	Read  func() (*Picture, error)
	Every time.Duration // between the end of one reading and the next
}

// A Model is what is on the screen. It receives messages one after the other.
type Model struct {
	source  Source
	picture *Picture
	trouble error // why the last reading failed
	reading bool

	width, height int
	section       section
	lists         [sections]list
	opened        *opened
	order         order
	filter        filter
}

// An order is how nodes are sorted.
type order struct {
	column   int
	reversed bool
}

// titles are those of the columns, with a mark at the one by which nodes are sorted. All are as wide whichever that is.
func (o order) titles() []string {
	out := nodeTitles()
	for i := range out {
		switch c := &columns[i]; {
		case i != o.column:
			out[i] += " "
		case c.falling != o.reversed:
			out[i] += "▼"
		default:
			out[i] += "▲"
		}
	}
	return out
}

// A filter says which nodes are shown.
type filter struct {
	pool   string // "" for all
	words  string // all of which a node has to have somewhere
	typing bool
}

// lets reports whether a node is shown.
func (f *filter) lets(n *Node) bool {
	if f.pool != "" && f.pool != n.Pool {
		return false
	}
	text := strings.ToLower(strings.Join([]string{n.Name, n.Pool, n.Type, n.Zone, n.CapacityType, string(n.Mark)}, " "))
	for word := range strings.FieldsSeq(strings.ToLower(f.words)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// A section is one of the tables.
type section int

// The sections, from left to right.
const (
	ofNodes section = iota
	ofSteps
	ofHeld
	ofWaiting
	sections
	ofHelp = sections // can be opened, and is no table
)

// opened is what is looked at in full.
type opened struct {
	section section
	key     string
	lines   []string
	top     int  // the first line that is shown
	asked   bool // what keeps the node is being worked out
}

// New returns the screen of a picture, its nodes sorted by one of Orders.
func New(first *Picture, by string, source Source) *Model {
	m := &Model{source: source, width: 80, height: 24, order: order{column: columnOf(by)}}
	m.show(first)
	return m
}

// Messages beside those of the terminal.
type (
	// seen is what a reading brought.
	seen struct {
		picture *Picture
		err     error
	}
	// due says that it is time to read again.
	due struct{}
	// told is what is said of a node.
	told struct {
		node   string
		detail Detail
	}
	// mistake is a panic of work in the background, with the place where it happened.
	mistake string
)

// inBackground is work beside the screen. Its panic comes back as a message: a panic in a goroutine would end the program before
// its text is printed.
func inBackground(work func() tea.Msg) tea.Cmd {
	return func() (msg tea.Msg) {
		defer func() {
			if r := recover(); r != nil {
				msg = mistake(fmt.Sprintf("%v\n\n%s", r, debug.Stack()))
			}
		}()
		return work()
	}
}

// Init begins to wait for the next reading.
func (m *Model) Init() tea.Cmd { return m.later() }

func (m *Model) later() tea.Cmd {
	return tea.Tick(m.source.Every, func(time.Time) tea.Msg { return due{} })
}

// read reads once more, unless that is being done.
func (m *Model) read() tea.Cmd {
	if m.reading {
		return nil
	}
	m.reading = true
	return inBackground(func() tea.Msg {
		p, err := m.source.Read()
		return seen{p, err}
	})
}

// Update takes a message in, and says what is to be done next.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		next = m.press(msg)
	case tea.PasteMsg:
		if m.filter.typing {
			m.narrow(m.filter.words + msg.Content)
		}
	case due:
		next = m.read()
	case seen:
		m.reading = false
		if m.trouble = msg.err; msg.err == nil {
			m.show(msg.picture)
		}
		next = tea.Batch(m.later(), m.ask())
	case told:
		m.tell(msg)
	case mistake:
		panic(string(msg))
	}
	m.scroll()
	return m, next
}

// show takes a picture in. The open node stays, while it exists.
func (m *Model) show(p *Picture) {
	m.picture = p
	if m.filter.pool != "" && !slices.Contains(m.pools(), m.filter.pool) {
		m.filter.pool = ""
	}
	m.arrange()
	if o := m.opened; o != nil && o.section != ofNodes && o.section != ofHelp && !slices.Contains(m.lists[o.section].keys, o.key) {
		o.lines = []string{"It is over."}
	}
}

// arrange fills the lists with what is to be shown.
func (m *Model) arrange() {
	p := m.picture
	var shown []Node
	for _, n := range sorted(p.Nodes, m.order.column, m.order.reversed) {
		if m.filter.lets(&n) {
			shown = append(shown, n)
		}
	}
	m.lists[ofNodes].fill(m.order.titles(), nodeTable(shown), func(i int) string { return shown[i].Name })
	m.lists[ofSteps].fill(stepTitles, stepTable(p.Steps), func(i int) string { return p.Steps[i].ID })
	m.lists[ofHeld].fill(heldTitles, heldTable(p.Held), func(i int) string { return p.Held[i].By + "\n" + p.Held[i].Why })
	m.lists[ofWaiting].fill(podTitles, podTable(p.Waiting, p.At), func(i int) string {
		return p.Waiting[i].Namespace +
			"/" + p.Waiting[i].Name
	})
}

// pools are the pools that have nodes.
func (m *Model) pools() []string {
	var out []string
	for i := range m.picture.Nodes {
		out = append(out, m.picture.Nodes[i].Pool)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// narrow shows only nodes that have all words.
func (m *Model) narrow(words string) {
	m.filter.words = words
	m.arrange()
}

// open looks at what the cursor is on.
func (m *Model) open() tea.Cmd {
	key := m.lists[m.section].key()
	if key == "" || m.opened != nil {
		return nil
	}
	m.opened = &opened{section: m.section, key: key}
	p := m.picture
	switch at := m.lists[m.section].at; m.section {
	case ofNodes:
		m.tellNode(nil)
		return m.ask()
	case ofSteps:
		m.opened.lines = labelled(stepTitles, stepTable(p.Steps[at : at+1])[0])
		m.opened.lines = append(m.opened.lines, "nodes: "+strings.Join(p.Steps[at].Nodes, ", "),
			fmt.Sprintf("pods that move: %d", p.Steps[at].Pods))
	case ofHeld:
		m.opened.lines = labelled(heldTitles, heldTable(p.Held[at : at+1])[0])
	case ofWaiting:
		pod := &p.Waiting[at]
		m.opened.lines = append(labelled(podTitles, podTable(p.Waiting[at:at+1], p.At)[0]), "",
			fmt.Sprintf("karpenter why pod %s -n %s says why it waits, and what would give it a place.", pod.Name, pod.Namespace))
	}
	return nil
}

// labelled are the cells of a row below each other, each behind its title.
func labelled(titles, cells []string) []string {
	out := make([]string, len(cells))
	for i, cell := range cells {
		out[i] = strings.ToLower(titles[i]) + ": " + cell
	}
	return out
}

// ask has what keeps the opened node worked out, unless that is being done or the node has gone.
func (m *Model) ask() tea.Cmd {
	o := m.opened
	if o == nil || o.section != ofNodes || o.asked {
		return nil
	}
	if m.node(o.key) == nil {
		o.lines = []string{"It has gone."}
		return nil
	}
	o.asked = true
	name, say := o.key, m.picture.Open
	return inBackground(func() tea.Msg { return told{name, say(name)} })
}

// node returns the node of a name, nil where there is none.
func (m *Model) node(name string) *Node {
	i := slices.IndexFunc(m.picture.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &m.picture.Nodes[i]
}

// tell shows what is said of a node, if it is still looked at.
func (m *Model) tell(t told) {
	o := m.opened
	if o == nil || o.section != ofNodes || o.key != t.node {
		return
	}
	o.asked = false
	m.tellNode(&t.detail)
}

// tellNode writes all that is known of the opened node; nil where what keeps it is not known yet.
func (m *Model) tellNode(d *Detail) {
	n := m.node(m.opened.key)
	if n == nil {
		m.opened.lines = []string{"It has gone."}
		return
	}
	lines := []string{
		fmt.Sprintf("%s in %s, %s, NodePool %s, NodeClaim %s", n.Type, n.Zone, n.CapacityType, n.Pool, n.Claim),
		fmt.Sprintf("$%.4f an hour, $%.2f a day", n.Price.Dollars(), 24*n.Price.Dollars()),
		fmt.Sprintf("cpu     %s, %.2f of %.2f", bar(n.CPU), n.CPU.Used, n.CPU.All),
		fmt.Sprintf("memory  %s, %s of %s", bar(n.Memory), gigabytes(n.Memory.Used), gigabytes(n.Memory.All)),
	}
	if n.Mark != "" {
		lines = append(lines, "It "+marked(n.Mark)+".")
	}
	if d == nil {
		m.opened.lines = append(lines, "", "looking for what keeps it …")
		return
	}
	lines = append(lines, "")
	switch {
	case len(d.Holds) > 0:
		lines = append(lines, "It stays, because")
		for _, hold := range d.Holds {
			lines = append(lines, "  "+hold)
		}
	case d.Step != "":
		lines = append(lines, "It goes: "+d.Step)
	default:
		lines = append(lines, "Nothing keeps it; other nodes go before it.")
	}
	lines = append(lines, "", sentence.Count(len(d.Pods), "pod"))
	if len(d.Pods) > 0 {
		lines = append(lines, align(podTitles, podTable(d.Pods, m.picture.At))...)
	}
	m.opened.lines = lines
}

// marked is a mark as a sentence goes on.
func marked(m view.Mark) string {
	switch m {
	case view.InStep, view.Paused:
		return "is " + string(m)
	case view.Drifted:
		return "has " + string(m)
	}
	return string(m)
}

// scroll keeps the cursor on the screen, and the end of what is opened at the bottom.
func (m *Model) scroll() {
	room := m.room()
	for i := range m.lists {
		m.lists[i].scroll(room - 1) // below the titles
	}
	if o := m.opened; o != nil {
		o.top = max(0, min(o.top, len(m.wrapped(o.lines))-room))
	}
}

// wrapped breaks lines that are wider than the screen.
func (m *Model) wrapped(lines []string) []string {
	var out []string
	for _, line := range lines {
		out = append(out, strings.Split(ansi.Wrap(Plain(line), max(1, m.width), ""), "\n")...)
	}
	return out
}
