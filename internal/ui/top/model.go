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

// A Model is the state of the screen. bubbletea calls it with one message at a time, so it needs no lock.
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

// titles returns the column titles, with an arrow at the column by which nodes are sorted. Widths do not depend on
// which column that is.
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

// matches reports whether a node is shown.
func (f *filter) matches(n *Node) bool {
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

// An opened is what is shown in full instead of a table.
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
	// readDone has the result of a reading.
	readDone struct {
		picture *Picture
		err     error
	}
	// readDue says that it is time to read again.
	readDue struct{}
	// detailFound has the details of a node.
	detailFound struct {
		node   string
		detail Detail
	}
	// panicText is the text of a panic of work in the background, with its stack.
	panicText string
)

// inBackground returns a command that works in a goroutine. Its panic comes back as a message: a panic in the
// goroutine itself would end the program before its text is printed.
func inBackground(work func() tea.Msg) tea.Cmd {
	return func() (msg tea.Msg) {
		defer func() {
			if r := recover(); r != nil {
				msg = panicText(fmt.Sprintf("%v\n\n%s", r, debug.Stack()))
			}
		}()
		return work()
	}
}

// Init begins to wait for the next reading.
func (m *Model) Init() tea.Cmd { return m.later() }

func (m *Model) later() tea.Cmd {
	return tea.Tick(m.source.Every, func(time.Time) tea.Msg { return readDue{} })
}

// read returns the command that reads the cluster, nil if a reading is under way.
func (m *Model) read() tea.Cmd {
	if m.reading {
		return nil
	}
	m.reading = true
	return inBackground(func() tea.Msg {
		p, err := m.source.Read()
		return readDone{p, err}
	})
}

// Update handles a message and returns the command that follows from it.
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
	case readDue:
		next = m.read()
	case readDone:
		m.reading = false
		if m.trouble = msg.err; msg.err == nil {
			m.show(msg.picture)
		}
		next = tea.Batch(m.later(), m.askDetail())
	case detailFound:
		m.receiveDetail(msg)
	case panicText:
		panic(string(msg))
	}
	m.scroll()
	return m, next
}

// show replaces the picture. What is open stays open; if it has gone, a line says so.
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

// arrange fills all tables from the picture, the nodes sorted and filtered.
func (m *Model) arrange() {
	p := m.picture
	var shown []Node
	for _, n := range sorted(p.Nodes, m.order.column, m.order.reversed) {
		if m.filter.matches(&n) {
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

// pools returns the pools that have nodes, sorted.
func (m *Model) pools() []string {
	var out []string
	for i := range m.picture.Nodes {
		out = append(out, m.picture.Nodes[i].Pool)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// narrow sets the words of the filter.
func (m *Model) narrow(words string) {
	m.filter.words = words
	m.arrange()
}

// open shows the row under the cursor in full. For a node it also returns the command that finds what keeps it.
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
		return m.askDetail()
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

// labelled returns the cells of a row as lines, each behind its title.
func labelled(titles, cells []string) []string {
	out := make([]string, len(cells))
	for i, cell := range cells {
		out[i] = strings.ToLower(titles[i]) + ": " + cell
	}
	return out
}

// askDetail returns the command that finds what keeps the opened node; nil if no node is open, it has gone, or the
// search is under way.
func (m *Model) askDetail() tea.Cmd {
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
	return inBackground(func() tea.Msg { return detailFound{name, say(name)} })
}

// node returns the node of a name, nil where there is none.
func (m *Model) node(name string) *Node {
	i := slices.IndexFunc(m.picture.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &m.picture.Nodes[i]
}

// receiveDetail shows the details of a node if it is still open.
func (m *Model) receiveDetail(t detailFound) {
	o := m.opened
	if o == nil || o.section != ofNodes || o.key != t.node {
		return
	}
	o.asked = false
	m.tellNode(&t.detail)
}

// tellNode writes the lines of the opened node. d is nil while what keeps it is not known.
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
		lines = append(lines, "It "+markPhrase(n.Mark)+".")
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

// markPhrase returns a mark as the end of a sentence that begins with "It".
func markPhrase(m view.Mark) string {
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
