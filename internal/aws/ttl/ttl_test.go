package ttl

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"
)

func TestEntriesRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New[string, int](time.Minute)
		m.Put("a", 1)
		time.Sleep(30 * time.Second)
		m.Put("b", 2)
		if v, ok := m.Get("a"); v != 1 || !ok {
			t.Errorf("a = %d, %v after half its life", v, ok)
		}
		time.Sleep(30 * time.Second)
		if _, ok := m.Get("a"); ok {
			t.Error("a outlived its minute")
		}
		if !m.Touch("b") {
			t.Error("b is gone after half its life")
		}
		time.Sleep(59 * time.Second)
		if _, ok := m.Get("b"); !ok {
			t.Error("a touched entry did not start a new life")
		}
		time.Sleep(time.Second)
		if m.Touch("b") {
			t.Error("an entry that ran out can be touched")
		}
		if got := m.Sweep(); !maps.Equal(got, map[string]int{"b": 2}) {
			t.Errorf("swept %v, want b", got)
		}
		if got := m.Sweep(); len(got) != 0 {
			t.Errorf("swept %v twice", got)
		}
		m.Put("c", 3)
		m.Delete("c")
		if _, ok := m.Get("c"); ok {
			t.Error("a deleted entry is still there")
		}
	})
}
