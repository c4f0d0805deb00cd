// Package zonalshift follows ARC zonal shifts: zones from which the cluster's traffic is shifted away, because an
// operator or AWS found them impaired.
//
// While ARC cannot be asked, the last answer counts: a shift that an operator started counts until its end, a shift that
// AWS started by itself for autoLife.
package zonalshift

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift/types"
)

// api is the part of ARC that tells shifts.
type api interface {
	GetManagedResource(context.Context, *arczonalshift.GetManagedResourceInput,
		...func(*arczonalshift.Options)) (*arczonalshift.GetManagedResourceOutput, error)
}

// autoLife is how long a shift without an end counts after ARC last reported it.
const autoLife = 5 * time.Minute

// A Watch knows the zones that are shifted away. It may be used concurrently; a nil Watch knows of none.
type Watch struct {
	api     api
	cluster string // ARN

	mu       sync.Mutex
	until    map[string]time.Time // by zone id
	sequence uint64
}

// NewWatch returns a Watch of a cluster that has not looked yet.
func NewWatch(api api, clusterARN string) *Watch {
	return &Watch{api: api, cluster: clusterARN, until: map[string]time.Time{}}
}

// Refresh asks which zones are shifted away.
func (w *Watch) Refresh(ctx context.Context) error {
	out, err := w.api.GetManagedResource(ctx, &arczonalshift.GetManagedResourceInput{ResourceIdentifier: aws.String(w.cluster)})
	if err != nil {
		return fmt.Errorf("ask ARC for zonal shifts of %s: %w", w.cluster, err)
	}
	now := time.Now()
	next := map[string]time.Time{}
	add := func(zone *string, until time.Time) {
		if id := aws.ToString(zone); id != "" && until.After(now) && until.After(next[id]) {
			next[id] = until
		}
	}
	for _, s := range out.ZonalShifts {
		if s.AppliedStatus == types.AppliedStatusApplied {
			add(s.AwayFrom, aws.ToTime(s.ExpiryTime))
		}
	}
	for _, s := range out.Autoshifts {
		if s.AppliedStatus == types.AutoshiftAppliedStatusApplied {
			add(s.AwayFrom, now.Add(autoLife))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(slices.Sorted(maps.Keys(w.until)), slices.Sorted(maps.Keys(next))) {
		w.sequence++
	}
	w.until = next
	return nil
}

// Away reports whether traffic is shifted away from a zone, by its id.
func (w *Watch) Away(zoneID string) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep()
	_, ok := w.until[zoneID]
	return ok
}

// Zones returns the ids of the zones that are shifted away, sorted.
func (w *Watch) Zones() []string {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep()
	return slices.Sorted(maps.Keys(w.until))
}

// Sequence returns a number that changes whenever Away may give another answer.
func (w *Watch) Sequence() uint64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep()
	return w.sequence
}

func (w *Watch) sweep() {
	now := time.Now()
	for zone, until := range w.until {
		if !until.After(now) {
			delete(w.until, zone)
			w.sequence++
		}
	}
}
