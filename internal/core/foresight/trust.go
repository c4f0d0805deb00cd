package foresight

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
)

const (
	// MostMissed is how many times in a row pods of an object may fail to come before machines are no longer opened for it.
	MostMissed = 3
	// stuck is how long an announcement for at once may stay unchanged. An autoscaler whose pods a quota refuses would keep room for ever.
	stuck = 5 * time.Minute
)

// Trust remembers whether pods came that were announced, by the object that announced them.
type Trust struct {
	records map[cluster.PodKey]*record // by namespace and source
}

// record is what is known of one object.
type record struct {
	object corev1.ObjectReference
	due    time.Time // of the last announcement
	most   int       // pods that it announced
	left   int       // of those that had not come when it was last seen
	since  time.Time // when that last changed
	seen   bool      // in the last look
	missed int       // announcements in a row of which most pods did not come
}

// An Outcome is what became of an announcement whose time has passed.
type Outcome struct {
	Object       corev1.ObjectReference
	Came, Missed int  // pods
	Off          bool // from now on no machines are opened for the object
}

// Judge takes the announcements of a look. It returns the announcements that machines may be opened for, and the outcomes of earlier
// announcements. An object that was wrong is followed on, and believed again when its pods come.
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

// end closes an announcement. Pods that have not come when they are no longer waited for are missed. Before its time an announcement
// was taken back.
func (r *record) end(ended []Outcome, now time.Time) []Outcome {
	if !r.due.IsZero() && r.most > 0 && !now.Before(r.due) {
		o := Outcome{Object: r.object, Came: r.most}
		if !now.Before(r.due.Add(late)) {
			o = Outcome{Object: r.object, Came: r.most - r.left, Missed: r.left}
		}
		if r.missed++; o.Missed <= o.Came {
			r.missed = 0
		}
		o.Off = r.missed == MostMissed // once: further misses exceed it
		ended = append(ended, o)
	}
	r.most, r.left = 0, 0
	return ended
}
