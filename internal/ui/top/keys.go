package top

import (
	"slices"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// A key is what people press, and what it does.
type key struct {
	press []string
	shown string // how help names it
	short string // in the line at the bottom, "" if it is not there
	does  string
	act   func(*Model) tea.Cmd
}

// keys returns all keys, in the order of the help.
func keys() []key {
	return []key{
		{[]string{"up", "k"}, "↑ k", "", "up", func(m *Model) tea.Cmd { m.move(-1); return nil }},
		{[]string{"down", "j"}, "↓ j", "↑↓ move", "down", func(m *Model) tea.Cmd { m.move(1); return nil }},
		{[]string{"pgup", "ctrl+b"}, "PgUp", "", "a screen up", func(m *Model) tea.Cmd { m.move(1 - m.room()); return nil }},
		{[]string{"pgdown", "ctrl+f"}, "PgDn", "", "a screen down", func(m *Model) tea.Cmd { m.move(m.room() - 1); return nil }},
		{[]string{"home", "g"}, "Home g", "", "to the first", func(m *Model) tea.Cmd { m.move(-farAway); return nil }},
		{[]string{"end", "G"}, "End G", "", "to the last", func(m *Model) tea.Cmd { m.move(farAway); return nil }},
		{[]string{"enter", "right", "l"}, "Enter", "enter open",
			"open the node, step or pod: what is on a node, and what keeps it", (*Model).open},
		{[]string{"esc", "left", "h", "backspace"}, "Esc", "", "close it; in the table, show all nodes again", (*Model).back},
		{[]string{"tab"}, "Tab", "tab table", "the next table: nodes, steps, what is held back, pods that wait",
			func(m *Model) tea.Cmd { m.showTable(m.section + 1); return nil }},
		{[]string{"shift+tab"}, "Shift-Tab", "", "the table before",
			func(m *Model) tea.Cmd { m.showTable(m.section - 1 + sections); return nil }},
		{[]string{"s", ">"}, "s >", "s sort", "sort nodes by the next column", func(m *Model) tea.Cmd { m.sort(1); return nil }},
		{[]string{"S", "<"}, "S <", "", "sort nodes by the column before",
			func(m *Model) tea.Cmd { m.sort(len(columns) - 1); return nil }},
		{[]string{"r"}, "r", "", "the other way round", (*Model).reverse},
		{[]string{"p"}, "p", "p pool", "nodes of the next NodePool only, after the last of all", (*Model).nextPool},
		{[]string{"/"}, "/", "/ find", "nodes that have what you type in their name, pool, type, zone or state", (*Model).find},
		{[]string{"space"}, "Space", "", "read the cluster now", (*Model).read},
		{[]string{"?"}, "?", "? help", "this help", (*Model).showHelp},
		{[]string{"q", "ctrl+c"}, "q Ctrl-C", "q quit", "leave", func(*Model) tea.Cmd { return tea.Quit }},
		{[]string{"ctrl+z"}, "Ctrl-Z", "", "stop for now; fg goes on", func(*Model) tea.Cmd { return tea.Suspend }},
	}
}

// farAway is further than any table is long.
const farAway = 1 << 30

// press does what a key is for. While the user types a filter, it edits the filter.
func (m *Model) press(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.Keystroke()
	if msg.Text != "" && msg.Text != " " { // the letter, however the keyboard makes it
		name = msg.Text
	}
	if m.filter.typing && name != "ctrl+c" {
		m.editFilter(name, msg.Text)
		return nil
	}
	for _, k := range keys() {
		if slices.Contains(k.press, name) {
			return k.act(m)
		}
	}
	return nil
}

// editFilter changes the words of the filter, or ends typing.
func (m *Model) editFilter(name, text string) {
	switch words := m.filter.words; {
	case name == "enter":
		m.filter.typing = false
	case name == "esc":
		m.filter.typing = false
		m.narrow("")
	case name == "backspace":
		_, size := utf8.DecodeLastRuneInString(words)
		m.narrow(words[:len(words)-size])
	case name == "ctrl+u":
		m.narrow("")
	default:
		m.narrow(words + text)
	}
}

// move moves the cursor, or scrolls what is open.
func (m *Model) move(by int) {
	if m.opened != nil {
		m.opened.top = max(0, m.opened.top+by) // scroll keeps it above the end
		return
	}
	m.lists[m.section].move(by)
}

// back closes what is open, or shows all nodes again.
func (m *Model) back() tea.Cmd {
	if m.opened != nil {
		m.opened = nil
		return nil
	}
	m.filter.pool = ""
	m.narrow("")
	return nil
}

// showHelp opens the help: what keys do, and all remarks.
func (m *Model) showHelp() tea.Cmd {
	var rows [][]string
	for _, k := range keys() {
		rows = append(rows, []string{k.shown, k.does})
	}
	m.opened = &opened{section: ofHelp, lines: align([]string{"KEY", ""}, rows)}
	for _, remark := range m.remarks() {
		m.opened.lines = append(m.opened.lines, "", remark)
	}
	return nil
}

// showTable closes what is open and shows another table.
func (m *Model) showTable(to section) {
	m.opened = nil
	m.section = to % sections
}

// showNodes shows the table of nodes with its present order and filter.
func (m *Model) showNodes() {
	m.showTable(ofNodes)
	m.arrange()
}

// sort sorts nodes by the column that is so many to the right.
func (m *Model) sort(by int) {
	m.order = order{column: (m.order.column + by) % len(columns)}
	m.showNodes()
}

func (m *Model) reverse() tea.Cmd {
	m.order.reversed = !m.order.reversed
	m.showNodes()
	return nil
}

// nextPool shows the nodes of the next pool only; after the last pool, of all.
func (m *Model) nextPool() tea.Cmd {
	pools := append([]string{""}, m.pools()...)
	m.filter.pool = pools[(slices.Index(pools, m.filter.pool)+1)%len(pools)]
	m.showNodes()
	return nil
}

// find begins to type the words of the filter.
func (m *Model) find() tea.Cmd {
	m.filter.typing = true
	m.showNodes()
	return nil
}
