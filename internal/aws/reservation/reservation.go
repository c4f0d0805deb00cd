// Package reservation finds the capacity reservations that a node class may use, and keeps count of what is left in them.
//
// Between two listings the count follows Karpenter's own launches and terminations. It is rather too high than too low: a
// launch into a reservation that is used up fails and corrects the count, but a reservation whose count is too low would
// never be tried, and stay unused.
package reservation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/ttl"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// api is the part of EC2 that reservations need.
type api interface {
	DescribeCapacityReservations(context.Context, *ec2.DescribeCapacityReservationsInput,
		...func(*ec2.Options)) (*ec2.DescribeCapacityReservationsOutput, error)
}

const listLife = time.Minute

// A Book knows reservations and what is left in them. It may be used concurrently.
type Book struct {
	api   api
	lists *ttl.Map[string, []ec2types.CapacityReservation]

	mu       sync.Mutex
	left     map[string]remaining
	sequence uint64
}

type remaining struct {
	count  int
	synced time.Time
}

// NewBook returns a Book that knows of no reservation.
func NewBook(api api) *Book {
	return &Book{api: api, lists: ttl.New[string, []ec2types.CapacityReservation](listLife), left: map[string]remaining{}}
}

// Found are the reservations that a class selects.
type Found struct {
	Usable []awsv1.CapacityReservation // by id
	Others []string                    // which exist, but are of a type that this version does not know; with the type
}

// Find looks for the reservations that a class selects.
func (b *Book) Find(ctx context.Context, nc *awsv1.EC2NodeClass, now time.Time) (Found, error) {
	seen := map[string]bool{}
	var out Found
	for _, q := range queriesOf(nc.Spec.CapacityReservationSelectorTerms) {
		found, err := b.ask(ctx, q)
		if err != nil {
			return Found{}, fmt.Errorf("describe capacity reservations: %w", err)
		}
		for _, r := range found {
			id := aws.ToString(r.CapacityReservationId)
			if seen[id] {
				continue
			}
			seen[id] = true
			if cr, ok := read(r, now); ok {
				out.Usable = append(out.Usable, cr)
			} else if kind := special(r); kind != "" {
				out.Others = append(out.Others, id+" ("+kind+")")
			}
		}
	}
	slices.Sort(out.Others)
	slices.SortFunc(out.Usable, func(a, b awsv1.CapacityReservation) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// queriesOf returns one call for each selector term. Ids are not put into one call, because one id that does not
// exist would fail the call for all others.
func queriesOf(terms []awsv1.CapacityReservationSelectorTerm) []*ec2.DescribeCapacityReservationsInput {
	active := ec2api.Filter("state", "active")
	var ids []string
	var out []*ec2.DescribeCapacityReservationsInput
	for _, t := range terms {
		if t.ID != "" {
			ids = append(ids, t.ID)
			continue
		}
		var filters []ec2types.Filter
		if t.OwnerID != "" {
			filters = append(filters, ec2api.Filter("owner-id", t.OwnerID))
		}
		if t.InstanceMatchCriteria != "" {
			filters = append(filters, ec2api.Filter("instance-match-criteria", t.InstanceMatchCriteria))
		}
		filters = append(filters, ec2api.TagFilters(t.Tags)...)
		if len(filters) > 0 {
			out = append(out, &ec2.DescribeCapacityReservationsInput{Filters: append(filters, active), MaxResults: aws.Int32(1000)})
		}
	}
	// One id that does not exist would spoil a call by ids for all others.
	for _, id := range ids {
		out = append(out, &ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{id}, Filters: []ec2types.Filter{active}})
	}
	return out
}

// ask returns the reservations of a query, from the cache if they are there.
func (b *Book) ask(ctx context.Context, q *ec2.DescribeCapacityReservationsInput) ([]ec2types.CapacityReservation, error) {
	key := queryKey(q)
	if found, ok := b.lists.Get(key); ok {
		return found, nil
	}
	var out []ec2types.CapacityReservation
	pages := ec2.NewDescribeCapacityReservationsPaginator(b.api, q)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if ec2api.IsNotFound(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		out = append(out, page.CapacityReservations...)
	}
	b.lists.Sweep()
	b.lists.Put(key, out)
	b.sync(out)
	return out, nil
}

func queryKey(q *ec2.DescribeCapacityReservationsInput) string {
	return string(ec2api.FilterIdentity(identity.Texts(nil, q.CapacityReservationIds), q.Filters))
}

// EC2 begins to stop the machines of a capacity block half an hour before it ends. Leave is how long before its end
// the block takes no more machines and gives those up that it has, so that their pods get ten minutes.
const Leave = 40 * time.Minute

// Ending reports whether a reservation is a capacity block that is about to end.
func Ending(r *awsv1.CapacityReservation, now time.Time) bool {
	return r.ReservationType == awsv1.CapacityReservationTypeCapacityBlock && r.EndTime != nil && !now.Before(r.EndTime.Add(-Leave))
}

// read reads a reservation; false if Karpenter cannot launch into it: it is not active, is over, or of an unknown
// kind.
func read(r ec2types.CapacityReservation, now time.Time) (awsv1.CapacityReservation, bool) {
	ended := r.EndDate != nil && !r.EndDate.After(now)
	// The status of a class knows no other ways of matching; the whole status would be refused.
	known := r.InstanceMatchCriteria == ec2types.InstanceMatchCriteriaOpen ||
		r.InstanceMatchCriteria == ec2types.InstanceMatchCriteriaTargeted
	if r.State != ec2types.CapacityReservationStateActive || special(r) != "" || !known || ended {
		return awsv1.CapacityReservation{}, false
	}
	out := awsv1.CapacityReservation{
		ID: aws.ToString(r.CapacityReservationId), InstanceType: aws.ToString(r.InstanceType),
		AvailabilityZone: aws.ToString(r.AvailabilityZone), OwnerID: aws.ToString(r.OwnerId),
		InstanceMatchCriteria: string(r.InstanceMatchCriteria),
		Interruptible:         aws.ToBool(r.Interruptible),
		ReservationType:       awsv1.CapacityReservationTypeDefault, State: awsv1.CapacityReservationStateActive,
	}
	if r.ReservationType == ec2types.CapacityReservationTypeCapacityBlock {
		out.ReservationType = awsv1.CapacityReservationTypeCapacityBlock
	}
	if r.EndDate != nil {
		out.EndTime = &metav1.Time{Time: *r.EndDate}
	}
	if Ending(&out, now) {
		out.State = awsv1.CapacityReservationStateExpiring
	}
	return out, true
}

// special returns the type of a reservation that Karpenter cannot launch into, "" for known types.
func special(r ec2types.CapacityReservation) string {
	switch r.ReservationType {
	case "", ec2types.CapacityReservationTypeDefault, ec2types.CapacityReservationTypeCapacityBlock:
		return ""
	}
	return string(r.ReservationType)
}

// sync notes how many machines EC2 reports as left.
func (b *Book) sync(found []ec2types.CapacityReservation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, r := range found {
		id, n := aws.ToString(r.CapacityReservationId), int(aws.ToInt32(r.AvailableInstanceCount))
		if b.left[id].count != n {
			b.sequence++
		}
		b.left[id] = remaining{n, now}
	}
}

// Left returns how many machines are left in a reservation; an unknown one has none.
func (b *Book) Left(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left[id].count
}

// Launched counts a machine that was launched into a reservation by a call made at the given time. A listing since then
// may have counted it already.
func (b *Book) Launched(id string, called time.Time) {
	b.change(id, func(r remaining) int {
		if r.synced.After(called) {
			return r.count
		}
		return max(0, r.count-1)
	})
}

// Terminated counts a machine of a reservation that is gone.
func (b *Book) Terminated(id string) { b.change(id, func(r remaining) int { return r.count + 1 }) }

// UsedUp notes that a reservation turned out to have nothing left.
func (b *Book) UsedUp(id string) { b.change(id, func(remaining) int { return 0 }) }

// change replaces the number that is left in a known reservation.
func (b *Book) change(id string, next func(remaining) int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.left[id]
	if !ok {
		return
	}
	if n := next(r); n != r.count {
		r.count = n
		b.left[id] = r
		b.sequence++
	}
}

// Sequence returns a number that changes whenever Left may give another answer.
func (b *Book) Sequence() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sequence
}
