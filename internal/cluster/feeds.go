package cluster

import (
	"iter"
	"slices"
	"time"
)

// A FailedFeed is a kind of object that is no longer read although decisions need it: what the store has of it may be old.
type FailedFeed struct {
	Kind  string
	Since time.Time // when the store was last known to be up to date
	Why   string

	// Devices says that only plans for pods with resource claims need the kind.
	Devices bool
}

// FailedFeeds replaces what is known about feeds that have failed.
func (d *Draft) FailedFeeds(all []FailedFeed) { d.failed = slices.Clone(all) }

// FailedFeeds yields the kinds that are no longer read, by name.
func (s *Snapshot) FailedFeeds() iter.Seq[FailedFeed] { return slices.Values(s.failed) }

// Fed reports whether all kinds that decisions need are still being read (kinds for devices aside). Otherwise nothing may be disrupted
// voluntarily, because pods may have started on a node since.
func (s *Snapshot) Fed() bool {
	return !slices.ContainsFunc(s.failed, func(f FailedFeed) bool { return !f.Devices })
}

// DevicesFed reports whether the kinds about devices are still being read. Otherwise nothing is planned for pods that use resource
// claims.
func (s *Snapshot) DevicesFed() bool {
	return !slices.ContainsFunc(s.failed, func(f FailedFeed) bool { return f.Devices })
}
