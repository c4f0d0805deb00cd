package pack

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/core/work"
)

// copied writes something and reads it again.
func copied[T any](t *testing.T, in T) (out T) {
	t.Helper()
	text, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAMemoryIsReadAsItWasWritten(t *testing.T) {
	p := many(t)
	first := solveWithin(p, work.Second/5, nil)
	m := copied(t, first.Memory)
	if !reflect.DeepEqual(m, first.Memory) {
		t.Error("another memory was read")
	}
	next := withCount(p, 3, 1)
	got, want := solveWithin(next, work.Second/5, m), solveWithin(next, work.Second/5, first.Memory)
	if got.Memory != m {
		t.Fatal("the memory was not used")
	}
	got.Memory = want.Memory
	if !reflect.DeepEqual(got, want) {
		t.Errorf("price %d, want %d", got.Price, want.Price)
	}
}

// A question that was answered by a search is answered by the same search elsewhere, not by what is remembered of another one, and costs no work.
func TestAKnownQuestionIsSearchedAsItWas(t *testing.T) {
	p, o := searched(t)
	for name, ask := range map[string]func(Options) *Result{
		"for a fleet": func(o Options) *Result { return Solve(p, o) },
		"for a bound": func(o Options) *Result { o.Price = 1 << 40; return Bound(many(t), o) },
	} {
		t.Run(name, func(t *testing.T) {
			first := ask(o)
			known := copied(t, Answers{{question: o.questionFor(t, name, p)}})
			next := o
			next.Known, next.Memory, next.Meter = known, solveWithin(withCount(many(t), 0, 1), work.Second/50, nil).Memory, work.NewMeter(1, nil)
			again := ask(next)
			if again.Work != 0 || next.Meter.Spent() != 0 {
				t.Errorf("%d units of work, %d on the meter", again.Work, next.Meter.Spent())
			}
			again.Work, again.Known, again.Memory = first.Work, first.Known, first.Memory
			if !reflect.DeepEqual(again, first) {
				t.Errorf("price %d and bound %d, at first %d and %d", again.Price, again.Bound(), first.Price, first.Bound())
			}
		})
	}
}

// questionFor is the digest of what such a test asks.
func (o Options) questionFor(t *testing.T, name string, p *Problem) [32]byte {
	if name == "for a fleet" {
		return questionOf(p, o, 's')
	}
	o.Price = 1 << 40
	return questionOf(many(t), o, 'b')
}

func TestAMemoryThatDoesNotHangTogetherIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"kinds": ["YQ=="], "counts": [], "dims": 1}`: "1 kinds, 0 counts",
		`{"dims": 0}`: "0 kinds",
		`{"dims": 2, "cells": [{}], "room": [1]}`:                                                                               "1 prices of room",
		`{"dims": 1, "kinds": ["YQ=="], "counts": [1], "classes": [1]}`:                                                         "no kind 1",
		`{"dims": 1, "kinds": ["YQ=="], "counts": [1], "classes": [-1]}`:                                                        "no kind -1",
		`{"dims": 1, "kinds": ["YQ=="], "counts": [1], "classes": [0], "fleet": [{"Cell": 0, "Items": [{"Class": 0}]}]}`:        "no cell 0",
		`{"dims": 1, "cells": [{}], "room": [1], "kinds": [], "counts": [], "fleet": [{"Cell": 0, "Items": [{"Class": 0}]}]}`:   "no class 0",
		`{"dims": 1, "cells": [{}], "room": [1], "kinds": [], "counts": [], "fleet": [{"Cell": -1, "Items": [{"Class": -1}]}]}`: "no class -1",
		`{"dims": "x"}`: "cannot unmarshal",
	} {
		var m Memory
		if err := json.Unmarshal([]byte(text), &m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{`["zz"]`, `["00"]`, `{}`} {
		var a Answers
		if err := json.Unmarshal([]byte(text), &a); err == nil {
			t.Errorf("%s is taken for answers", text)
		}
	}
}
