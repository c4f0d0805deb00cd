package cluster

import (
	"iter"
	"slices"
	"time"
)

// A FailedFeed is a kind of object that is no longer read although decisions need it: the picture of it may be wrong.
type FailedFeed struct {
	Kind  string
	Since time.Time // when the picture was last known to be right
	Why   string

	// Devices says that nothing but what pods have of devices rests on it.
	Devices bool
}

// FailedFeeds replaces what is known about feeds that have failed.
func (d *Draft) FailedFeeds(all []FailedFeed) { d.failed = slices.Clone(all) }

// FailedFeeds yields the kinds that are no longer read, by name.
func (s *Snapshot) FailedFeeds() iter.Seq[FailedFeed] { return slices.Values(s.failed) }

// Fed reports whether everything that all decisions need is still being read. Nothing may be disrupted voluntarily
// by a picture that is not: it is not known what has come to run on a node since.
func (s *Snapshot) Fed() bool {
	return !slices.ContainsFunc(s.failed, func(f FailedFeed) bool { return !f.Devices })
}

// DevicesFed reports whether what devices there are and who has them is still being read. Otherwise nothing is
// planned for pods that use resource claims, wherever they are.
func (s *Snapshot) DevicesFed() bool {
	return !slices.ContainsFunc(s.failed, func(f FailedFeed) bool { return f.Devices })
}
