package replay

import (
	"container/heap"
	"time"
)

// A clock calls functions in the order of their times, and those of one time in the order in which they were added.
type clock struct {
	now  time.Time
	next alarms
	made int
}

// An alarm is one call that is due at a time.
type alarm struct {
	at     time.Time
	number int
	do     func()
}

// at calls do at a time, or now if that is past.
func (c *clock) at(t time.Time, do func()) {
	if t.Before(c.now) {
		t = c.now
	}
	c.made++
	heap.Push(&c.next, alarm{t, c.made, do})
}

// after calls do after a duration.
func (c *clock) after(d time.Duration, do func()) { c.at(c.now.Add(d), do) }

// alarms are a heap, the earliest first.
type alarms []alarm

func (a alarms) Len() int { return len(a) }
func (a alarms) Less(i, j int) bool {
	if !a[i].at.Equal(a[j].at) {
		return a[i].at.Before(a[j].at)
	}
	return a[i].number < a[j].number
}
func (a alarms) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)   { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	last := len(*a) - 1
	out := (*a)[last]
	(*a)[last] = alarm{}
	*a = (*a)[:last]
	return out
}
