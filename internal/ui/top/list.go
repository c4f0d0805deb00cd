package top

import "slices"

// A list is a table with a cursor on one of its rows.
type list struct {
	titles string
	lines  []string
	keys   []string // of the rows: the cursor stays on a key, wherever that goes
	at     int      // the row of the cursor
	top    int      // the first row that is shown
}

// fill replaces the rows; key returns the key of row i. The cursor stays on its key; if that is gone, it stays on its
// row number.
func (l *list) fill(titles []string, rows [][]string, key func(i int) string) {
	was := l.key()
	lines := align(titles, rows)
	l.titles, l.lines, l.keys = lines[0], lines[1:], nil
	for i := range rows {
		l.keys = append(l.keys, key(i))
	}
	if i := slices.Index(l.keys, was); i >= 0 {
		l.at = i
	}
	l.move(0)
}

// key returns the key of the cursor's row, "" where there is none.
func (l *list) key() string {
	if l.at >= len(l.keys) {
		return ""
	}
	return l.keys[l.at]
}

// move moves the cursor by a number of rows, down if it is above 0, and stops at the first and the last row.
func (l *list) move(by int) {
	l.at = max(0, min(l.at+by, len(l.keys)-1))
}

// scroll changes the first row that is shown so that the cursor's row is among the shown ones; room is their number.
func (l *list) scroll(room int) {
	room = max(1, room)
	l.top = max(l.at-room+1, min(l.top, l.at))
	l.top = max(0, min(l.top, len(l.lines)-room))
}
