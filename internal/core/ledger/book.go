package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// hour is the seconds of a clock hour.
const hour = 3600

// A Machine is a machine of the fleet. Its provider ID is its key; the rest is as last seen.
type Machine struct {
	ProviderID   string `json:"i"`
	Node         string `json:"n"`
	Pool         string `json:"p"`
	Type         string `json:"t"`
	Zone         string `json:"z"`
	Region       string `json:"r"`
	CapacityType string `json:"c"`
}

// A Kind says what an account pays for, or what it measures.
type Kind string

// Kinds of accounts that share the bill of a machine.
const (
	Requested Kind = "requested"
	DaemonSet Kind = "daemonset" // and static pods
	System    Kind = "system"
	Starting  Kind = "starting" // idle: the machine is not ready for pods yet
	Ready     Kind = "ready"    // idle: no pod requests it
	Draining  Kind = "draining" // idle: the machine is being removed
	Buffer    Kind = "buffer"   // idle: kept for CapacityBuffers
	Gap       Kind = "gap"      // the whole machine, which went while no process looked
	Unused    Kind = "unused"   // the unused part of a commitment; not in the book, but computed when it is read
)

// Kinds of measures. They get no part of a bill.
const (
	paid      Kind = "paid"      // what the machine cost
	list      Kind = "list"      // the on-demand price
	seconds   Kind = "seconds"   // that were charged
	estimated Kind = "estimated" // seconds of these that no process saw
	missed    Kind = "missed"    // what a cause costs the fleet; Account.Workload is the cause
)

// Idle reports whether the kind is room that no pod asked for.
func (k Kind) Idle() bool { return k == Starting || k == Ready || k == Draining || k == Buffer }

// shares reports whether accounts of the kind share the bill.
func (k Kind) shares() bool {
	return k != paid && k != list && k != seconds && k != estimated && k != missed
}

// An Account is what money or a measure is charged to.
type Account struct {
	Kind      Kind   `json:"k"`
	Namespace string `json:"n,omitempty"`
	Workload  string `json:"w,omitempty"` // such as "Deployment shop/web"
	Labels    string `json:"l,omitempty"` // of pods: "key=value", with commas between them
}

func (a *Account) compare(b *Account) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload),
		cmp.Compare(a.Labels, b.Labels))
}

// A cell is a machine and an account, by their indexes in the book. Machine 0 is the empty one, for amounts of no machine.
type cell struct{ machine, account int32 }

func (c cell) compare(d cell) int {
	return cmp.Or(cmp.Compare(c.machine, d.machine), cmp.Compare(c.account, d.account))
}

// A run is some successive hours, counted from 1970, in which a cell has the same amount in each.
type run struct {
	from, hours int32
	amount      int64
}

// A Book has the amounts of some successive hours. The last hours are open: amounts may be added to them. The others are closed, and kept
// as runs.
type Book struct {
	machines  []Machine
	accounts  []Account
	machineAt map[string]int32 // by provider ID: index of the machine
	accountAt map[Account]int32
	closed    map[cell][]run
	open      map[int32]map[cell]int64 // by hour
	first     int32                    // the first hour of the book
	coarse    int                      // how often it was coarsened
	since     int32                    // the first hour that is open
	until     int64                    // the second up to which it is complete
	terms     []Terms                  // by time
}

// newBook returns an empty book that begins with the hour of a second.
func newBook(at int64) *Book {
	b := &Book{machineAt: map[string]int32{}, accountAt: map[Account]int32{}, closed: map[cell][]run{},
		open: map[int32]map[cell]int64{}, first: int32(at / hour), since: int32(at / hour)}
	b.addMachine(Machine{})
	return b
}

// addMachine returns the index of a machine, which it adds or brings up to date.
func (b *Book) addMachine(m Machine) int32 {
	at, known := b.machineAt[m.ProviderID]
	if !known {
		at = int32(len(b.machines))
		b.machineAt[m.ProviderID], b.machines = at, append(b.machines, m)
	}
	b.machines[at] = m
	return at
}

// addAccount returns the index of an account, which it adds if it is new.
func (b *Book) addAccount(a Account) int32 {
	at, known := b.accountAt[a]
	if !known {
		at = int32(len(b.accounts))
		b.accountAt[a], b.accounts = at, append(b.accounts, a)
	}
	return at
}

// add adds an amount to the hour of a second, or to the first open hour if that is closed.
func (b *Book) add(at int64, machine int32, a Account, amount int64) {
	if amount == 0 {
		return
	}
	h := max(int32(at/hour), b.since)
	if b.open[h] == nil {
		b.open[h] = map[cell]int64{}
	}
	b.open[h][cell{machine, b.addAccount(b.joined(a))}] += amount
}

// closeBefore closes the hours before the hour of a second, and notes that the book is complete up to that second.
func (b *Book) closeBefore(at int64) {
	for _, h := range slices.Sorted(maps.Keys(b.open)) {
		if h >= int32(at/hour) {
			break
		}
		for c, amount := range b.open[h] {
			runs := b.closed[c]
			if last := len(runs) - 1; last >= 0 && runs[last].amount == amount && runs[last].from+runs[last].hours == h {
				runs[last].hours++
			} else {
				b.closed[c] = append(runs, run{h, 1, amount})
			}
		}
		delete(b.open, h)
	}
	b.since, b.until = max(b.since, int32(at/hour)), at
}

// withOpen returns a book that shares the closed hours and has a copy of the open ones, so that adding to it does not change b.
func (b *Book) withOpen() *Book {
	c := *b
	c.machines, c.accounts = slices.Clone(b.machines), slices.Clone(b.accounts)
	c.machineAt, c.accountAt, c.open = maps.Clone(b.machineAt), maps.Clone(b.accountAt), maps.Clone(b.open)
	for h := range c.open {
		c.open[h] = maps.Clone(c.open[h])
	}
	return &c
}

// First returns the first second of the first hour of the book.
func (b *Book) First() int64 { return int64(b.first) * hour }

// continued returns the book that continues this one: it has only the open hours, and the present terms.
func (b *Book) continued() *Book {
	n := newBook(int64(b.since) * hour)
	n.until = b.until
	if now, _ := b.termsOf(b.since); now != nil {
		n.Commit(Terms{max(now.From, n.First()), now.Commitments, now.Others})
	}
	for h, amounts := range b.open {
		for c, amount := range amounts {
			n.add(int64(h)*hour, n.addMachine(b.machines[c.machine]), b.accounts[c.account], amount)
		}
	}
	return n
}

// coarsen merges accounts of pods in the open hours and in later ones. The first call merges all workloads of a namespace, the second all
// namespaces. Sums do not change.
func (b *Book) coarsen() {
	b.coarse++
	for h, amounts := range b.open {
		b.open[h] = map[cell]int64{}
		for c, amount := range amounts {
			b.add(int64(h)*hour, c.machine, b.accounts[c.account], amount)
		}
	}
}

// joined returns the account to charge instead of a, if the book was coarsened.
func (b *Book) joined(a Account) Account {
	if b.coarse > 0 && (a.Kind == Requested || a.Kind == DaemonSet) {
		a.Workload, a.Labels = "(other)", ""
		if b.coarse > 1 {
			a.Namespace = "(other)"
		}
	}
	return a
}

// Label returns the value of a label in a text like Account.Labels, "" if it has none.
func Label(labels, key string) string {
	for pair := range strings.SplitSeq(labels, ",") {
		if name, value, _ := strings.Cut(pair, "="); name == key {
			return value
		}
	}
	return ""
}
