package top

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"karpenter.sh/karpenter/internal/explain/sentence"
)

// A line is one line of the screen.
type line struct {
	text  string
	style string // the escape sequence that turns its style on, "" for plain text
}

// How lines look.
const (
	bold    = "\x1b[1m"
	faint   = "\x1b[2m"
	inverse = "\x1b[7m"
	normal  = "\x1b[m"
)

// View draws the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	return v
}

// draw returns the screen. All text passes through Plain here, so no name can send escape sequences to the terminal.
func (m *Model) draw() string {
	lines := m.head()
	room := m.room()
	body := m.body(room)
	for len(body) < room {
		body = append(body, line{})
	}
	lines = append(append(lines, body...), m.foot())
	var out strings.Builder
	for i, l := range lines[max(0, len(lines)-m.height):] {
		if i > 0 {
			out.WriteByte('\n')
		}
		text := ansi.Truncate(Plain(l.text), m.width, "…")
		if l.style == inverse { // all across
			text += strings.Repeat(" ", max(0, m.width-ansi.StringWidth(text)))
		}
		if l.style != "" {
			text = l.style + text + normal
		}
		out.WriteString(text)
	}
	return out.String()
}

// room returns how many lines there are between head and foot.
func (m *Model) room() int {
	const leastRoom = 2
	return max(leastRoom, m.height-len(m.head())-1)
}

// mostRemarks is how many remarks stand above the tables.
const mostRemarks = 2

// head returns the lines above the tables: the bill, at most mostRemarks remarks, and the tabs.
func (m *Model) head() []line {
	p := m.picture
	out := []line{{p.bill() + " Read at " + p.At.Format("15:04:05") + ".", bold}, {p.paid(), faint}}
	remarks := m.remarks()
	for _, remark := range remarks[:min(mostRemarks, len(remarks))] {
		out = append(out, line{remark, ""})
	}
	if more := len(remarks) - mostRemarks; more > 0 {
		out = append(out, line{"and " + sentence.Count(more, "more remark") + ": ?", ""})
	}
	return append(out, line{}, line{m.tabs(), ""})
}

// remarks returns the error of the last reading, what is paused, and the remarks of the picture.
func (m *Model) remarks() []string {
	out := slices.Concat(m.picture.Paused, m.picture.Remarks)
	if m.trouble != nil {
		out = slices.Insert(out, 0, "The cluster could not be read again: "+m.trouble.Error())
	}
	return out
}

// tabs names the tables and says which nodes are shown.
func (m *Model) tabs() string {
	p := m.picture
	names := [sections]string{
		fmt.Sprintf("nodes %d", len(p.Nodes)), fmt.Sprintf("steps %d", len(p.Steps)),
		fmt.Sprintf("held back %d", len(p.Held)), fmt.Sprintf("waiting %d", len(p.Waiting)),
	}
	if o := m.opened; o != nil {
		return "[" + o.title() + "]  Esc closes it"
	}
	names[m.section] = "[" + names[m.section] + "]"
	out := strings.Join(names[:], "  ")
	if m.section != ofNodes {
		return out
	}
	if m.filter.pool != "" {
		out += "  NodePool " + m.filter.pool
	}
	if m.filter.words != "" || m.filter.typing {
		out += "  /" + m.filter.words
	}
	if m.filter.typing {
		out += "_"
	}
	return out
}

// title names the opened object.
func (o *opened) title() string {
	switch o.section {
	case ofHelp:
		return "help"
	case ofNodes:
		return "node " + o.key
	case ofSteps:
		return "step " + o.key
	case ofHeld:
		return "held back by " + strings.SplitN(o.key, "\n", 2)[0]
	}
	return "pod " + o.key
}

// body returns the lines between head and foot: the open object, or the table.
func (m *Model) body(room int) []line {
	if m.opened != nil {
		return m.openedLines(room)
	}
	l := &m.lists[m.section]
	if len(l.lines) == 0 {
		return []line{{m.emptyText(), ""}}
	}
	out := []line{{l.titles, bold}}
	for i := l.top; i < min(l.top+room-1, len(l.lines)); i++ {
		at := line{l.lines[i], ""}
		if i == l.at {
			at.style = inverse
		}
		out = append(out, at)
	}
	return out
}

// emptyText returns the sentence for an empty table.
func (m *Model) emptyText() string {
	switch {
	case m.section == ofNodes && len(m.picture.Nodes) > 0:
		return "No node is like that; Esc shows all."
	case m.section == ofNodes:
		return "Karpenter has no nodes here."
	case m.section == ofSteps:
		return "No step is under way or waits for approval. Those that wait for their second look are shown by the controller's page."
	case m.section == ofHeld:
		return "No node is held back."
	}
	return "No pod waits for a node."
}

// openedLines returns the lines of the open object that fit.
func (m *Model) openedLines(room int) []line {
	var out []line
	lines := m.wrapped(m.opened.lines)
	for _, text := range lines[min(m.opened.top, len(lines)):] {
		if len(out) == room {
			break
		}
		out = append(out, line{text, ""})
	}
	return out
}

// foot returns the line at the bottom: the keys, or how to end the filter.
func (m *Model) foot() line {
	if m.filter.typing {
		return line{"type what the nodes have; enter keeps it, esc shows all", faint}
	}
	var short []string
	for _, k := range keys() {
		if k.short != "" {
			short = append(short, k.short)
		}
	}
	return line{strings.Join(short, "  "), faint}
}
