package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// fileVersion changes when an older program would read a file wrongly.
const fileVersion = 1

// A File is the stored form of a book. Equal amounts of successive hours take the room of one.
type File struct {
	Version  int       `json:"version"`
	Until    int64     `json:"until"` // seconds from 1970, up to which it is complete
	First    int32     `json:"first"` // its first hour
	Since    int32     `json:"since"` // the first hour that is open
	Machines []Machine `json:"machines"`
	Accounts []Account `json:"accounts"`
	// Cells has, for each cell in turn: the index of its machine less that of the cell before, the index of its account, the number of its
	// runs; and for each run: its first hour less that of the run before (the first run: less Since), its hours, its amount.
	Cells []int64 `json:"cells"`
	Terms []Terms `json:"terms,omitempty"`
	Tabs  []Tab   `json:"-"` // of machines that run; Book fills them in
	// Open has, for each machine that runs: its index, From, Paid, List, QuotedUntil, Launched, and 1 if its price is known. Times are
	// relative to Until.
	Open []int64 `json:"open,omitempty"`
}

// openFields is how many numbers of Open a machine has.
const openFields = 7

// File returns the stored form of a book that is complete until a second, with the tabs of the machines that run.
func (b *Book) File(until int64, tabs []Tab) *File {
	f := &File{Version: fileVersion, Until: until, First: b.first, Since: b.since, Machines: b.machines, Terms: b.stored()}
	all, last := b.runs(), int32(0)
	places := map[int32]int64{} // index in the file of each account that has amounts
	for _, c := range slices.SortedFunc(maps.Keys(all), cell.compare) {
		at, placed := places[c.account]
		if !placed {
			at = int64(len(f.Accounts))
			places[c.account], f.Accounts = at, append(f.Accounts, b.accounts[c.account])
		}
		f.Cells = append(f.Cells, int64(c.machine-last), at, int64(len(all[c])))
		last = c.machine
		before := b.since
		for _, r := range all[c] {
			f.Cells = append(f.Cells, int64(r.from-before), int64(r.hours), r.amount)
			before = r.from
		}
	}
	for i := range tabs {
		t := &tabs[i]
		known := int64(0)
		if t.Priced {
			known = 1
		}
		f.Open = append(f.Open, int64(b.machineAt[t.Machine.ProviderID]), t.From-until, int64(t.Quote.Paid), int64(t.Quote.List),
			t.QuotedUntil-until, t.Launched-until, known)
	}
	return f
}

var errTorn = errors.New("the ledger is torn")

// Book returns the book of a file, and fills in f.Tabs. Hours that were open are open again. It returns an error if the file has another
// version or does not make sense.
func (f *File) Book() (*Book, error) {
	if f.Version != fileVersion {
		return nil, fmt.Errorf("the ledger has version %d, this program reads version %d", f.Version, fileVersion)
	}
	b := newBook(int64(f.Since) * hour)
	b.first, b.until, b.terms = f.First, f.Until, f.Terms
	if len(f.Machines) == 0 || f.Machines[0] != (Machine{}) {
		return nil, errTorn
	}
	b.machines, b.accounts = f.Machines, f.Accounts
	for i, m := range f.Machines {
		b.machineAt[m.ProviderID] = int32(i)
	}
	for i, a := range f.Accounts {
		b.accountAt[a] = int32(i)
	}
	known := func(at int64, of int) bool { return at >= 0 && at < int64(of) }
	machine := int64(0)
	for at := 0; at < len(f.Cells); {
		if at+3 > len(f.Cells) {
			return nil, errTorn
		}
		machine += f.Cells[at]
		account, runs := f.Cells[at+1], f.Cells[at+2]
		at += 3
		if !known(machine, len(b.machines)) || !known(account, len(b.accounts)) || runs < 0 || runs > int64(len(f.Cells)-at)/3 {
			return nil, errTorn
		}
		if !b.restore(cell{int32(machine), int32(account)}, f.Cells[at:at+3*int(runs)]) {
			return nil, errTorn
		}
		at += 3 * int(runs)
	}
	f.Tabs = nil
	if len(f.Open)%openFields != 0 {
		return nil, errTorn
	}
	for o := range slices.Chunk(f.Open, openFields) {
		if !known(o[0], len(b.machines)) {
			return nil, errTorn
		}
		f.Tabs = append(f.Tabs, Tab{Machine: b.machines[o[0]], From: f.Until + o[1], Quote: quote(o[2], o[3]),
			QuotedUntil: f.Until + o[4], Launched: f.Until + o[5], Priced: o[6] == 1})
	}
	return b, nil
}

// mostHours is more hours than a book ever has. Larger numbers in a file are errors.
const mostHours = 10_000

// restore adds the runs of a cell, as File.Cells has them. It returns false if they cannot be right.
func (b *Book) restore(c cell, runs []int64) bool {
	before := b.since
	for r := range slices.Chunk(runs, 3) {
		if r[0] < -mostHours || r[0] > mostHours || r[1] < 1 || r[1] > mostHours || r[2] < 0 {
			return false
		}
		one := run{before + int32(r[0]), int32(r[1]), r[2]}
		before = one.from
		if one.from >= b.since {
			b.add(int64(one.from)*hour, c.machine, b.accounts[c.account], one.amount)
		} else {
			b.closed[c] = append(b.closed[c], one)
		}
	}
	return true
}
