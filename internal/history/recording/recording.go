// Package recording reads and writes what happened to the pods of a cluster, for replays.
//
// It reads three formats: tables of pods with the times of their creation and deletion (table.go), workloads as kubereplay captures them
// (capture.go), and pods as kubectl and the controller write them (watch.go). Whatever the format, a Recording says which pods were wanted,
// from when until when. Keeper (keeper.go) writes the recordings of a controller, with the disks of pods (disks.go).
//
// A life is one wanted pod. A pod that was evicted and the pod that its owner created next are one life, because replays decide themselves
// which pods to move. Times are whole seconds, as Kubernetes writes them. Every error names the file, the line and what to change.
package recording

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Recording says which pods were wanted in a cluster, and when.
type Recording struct {
	Begin, End time.Time
	Lives      []Life // by their beginning, then by name
	Disks      *Disks // of pods that have any; nil if the format has none
}

// A Life is one wanted pod.
type Life struct {
	Pod  *corev1.Pod // as created; never changed
	From time.Time
	Made time.Time // when it was created, where that was before From; zero otherwise
	To   time.Time // zero where it outlives the recording
	On   string    // the node on which it was first seen, "" if not known

	remade bool // an eviction has moved it since it was first seen
}

// A source is the text of one file.
type source struct {
	name string
	text []byte
}

// at makes an error that names the place, as compilers do.
func (s source) at(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", s.name, line, fmt.Sprintf(format, args...))
}

// lineOf returns the line at an offset of the text.
func (s source) lineOf(offset int64) int {
	return 1 + bytes.Count(s.text[:min(int(offset), len(s.text))], []byte("\n"))
}

// Read reads a recording in any of the formats. The name is for errors.
func Read(name string, text []byte) (*Recording, error) {
	s := source{name, text}
	var lives []Life
	var begin, end time.Time
	var disks *Disks
	var err error
	switch trimmed := bytes.TrimLeft(text, " \t\r\n\ufeff"); {
	case len(trimmed) == 0:
		return nil, s.at(1, "the file is empty; give a CSV of pods, what \"kubectl get pods -w -o json\" wrote, or "+
			"what kubereplay captured")
	case trimmed[0] != '{':
		lives, err = readTable(s)
	case isCapture(trimmed):
		lives, err = readCapture(s)
	default:
		var w *watched
		if w, err = readWatch(s); err == nil {
			lives, begin, end, disks = w.joinedLives(), w.begin, w.end, &w.disks
		}
	}
	if err != nil {
		return nil, err
	}
	r, err := Of(name, lives, end)
	if err != nil {
		return nil, err
	}
	r.Disks = disks
	if !begin.IsZero() {
		r = r.from(begin)
	}
	return r, nil
}

// Of returns a recording of lives. It ends with the last event of a life, or at end if that is later. name is for the
// error.
func Of(name string, lives []Life, end time.Time) (*Recording, error) {
	if len(lives) == 0 {
		return nil, fmt.Errorf("%s: there is no pod in it", name)
	}
	slices.SortStableFunc(lives, byBeginning)
	r := &Recording{Begin: lives[0].From, End: end, Lives: lives}
	for i := range lives {
		for _, t := range []time.Time{lives[i].From, lives[i].To} {
			if t.After(r.End) {
				r.End = t
			}
		}
	}
	return r, nil
}

// byBeginning orders lives by their beginning, then by name.
func byBeginning(a, b Life) int {
	return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
}

// from returns the recording from a time on; the whole recording if no pod is wanted after it.
func (r *Recording) from(begin time.Time) *Recording {
	if cut, err := r.Cut(begin, time.Time{}); err == nil {
		return cut
	}
	return r
}

// Cut returns the part of a recording between two times; the zero time means its own begin or end. Pods that exist
// already begin with it.
func (r *Recording) Cut(from, to time.Time) (*Recording, error) {
	out := &Recording{Begin: r.Begin, End: r.End, Disks: r.Disks}
	if !from.IsZero() {
		out.Begin = from
	}
	if !to.IsZero() {
		out.End = to
	}
	if !out.Begin.Before(out.End) {
		return nil, fmt.Errorf("nothing lies between %s and %s; the recording goes from %s to %s",
			out.Begin.Format(time.RFC3339), out.End.Format(time.RFC3339), r.Begin.Format(time.RFC3339), r.End.Format(time.RFC3339))
	}
	for _, l := range r.Lives {
		late := l.From.After(out.End) || !to.IsZero() && l.From.Equal(out.End)
		if late || !l.To.IsZero() && !l.To.After(out.Begin) {
			continue
		}
		if l.From.Before(out.Begin) {
			l.Made, l.From = cmp.Or(l.Made, l.From), out.Begin
			if l.remade {
				l.On = "" // it may be somewhere else by then
			}
		}
		if l.To.After(out.End) {
			l.To = time.Time{}
		}
		out.Lives = append(out.Lives, l)
	}
	slices.SortStableFunc(out.Lives, byBeginning)
	if len(out.Lives) == 0 {
		return nil, fmt.Errorf("no pod is wanted between %s and %s", out.Begin.Format(time.RFC3339), out.End.Format(time.RFC3339))
	}
	return out, nil
}
