package foresight

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
)

const (
	// MostMissed is the number of wrong announcements in a row after which no machines are opened for an object.
	MostMissed = 3
	// stuck is how long an announcement "at once" may stay unchanged. Without it, an autoscaler whose pods a quota refuses would keep room
	// for ever.
	stuck = 5 * time.Minute
)

// A Trust remembers, by object, whether the pods that it announced came.
type Trust struct {
	records map[cluster.PodKey]*record // by namespace and source
}

// A record has the present announcement of one object, and how many before it were wrong.
type record struct {
	object corev1.ObjectReference
	due    time.Time // when its pods come; zero means at once
	most   int       // the most pods that it announced
	left   int       // pods that had not come when it was last seen
	since  time.Time // when left last changed
	seen   bool      // it was in the last call of Judge
	missed int       // announcements in a row of which most pods did not come
}

// An Outcome says how many pods of an announcement came. Its time has passed.
type Outcome struct {
	Object       corev1.ObjectReference
	Came, Missed int  // pods
	Off          bool // from now on no machines are opened for the object
}

// Judge takes all present announcements. It returns those for which machines may be opened (believed), and the outcomes of announcements
// that ended since the last call. An object that was wrong too often stays recorded, and is believed again once its pods come.
func (t *Trust) Judge(all []Announcement, now time.Time) (believed []Announcement, ended []Outcome) {
	if t.records == nil {
		t.records = map[cluster.PodKey]*record{}
	}
	for _, r := range t.records {
		r.seen = false
	}
	for _, a := range all {
		key := cluster.PodKey{Namespace: a.Namespace, Name: a.Source()}
		r := t.records[key]
		if r == nil {
			r = &record{object: a.Object(), due: a.At, since: now}
			t.records[key] = r
		}
		if !r.due.Equal(a.At) {
			ended = r.end(ended, now)
			r.due = a.At
		}
		r.object = a.Object()
		if r.left != a.Pods {
			r.left, r.since = a.Pods, now
		}
		r.most, r.seen = max(r.most, a.Pods), true
		if r.missed < MostMissed && (!a.At.IsZero() || now.Sub(r.since) < stuck) {
			believed = append(believed, a)
		}
	}
	for key, r := range t.records {
		if r.seen {
			continue
		}
		ended = r.end(ended, now)
		if r.missed == 0 {
			delete(t.records, key)
		}
	}
	return believed, ended
}

// end ends the record's announcement and appends its outcome, if it has one: an announcement "at once" has none, and an announcement that
// ends before its time was taken back. If it ends within late of its time, all its pods count as come; after that, the pods that have not
// come count as missed.
func (r *record) end(ended []Outcome, now time.Time) []Outcome {
	if !r.due.IsZero() && r.most > 0 && !now.Before(r.due) {
		o := Outcome{Object: r.object, Came: r.most}
		if !now.Before(r.due.Add(late)) {
			o = Outcome{Object: r.object, Came: r.most - r.left, Missed: r.left}
		}
		if r.missed++; o.Missed <= o.Came {
			r.missed = 0
		}
		o.Off = r.missed == MostMissed // true once only: further misses exceed it
		ended = append(ended, o)
	}
	r.most, r.left = 0, 0
	return ended
}
