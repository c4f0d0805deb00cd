package reservation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

type store struct{ left int32 }

func (s *store) DescribeCapacityReservations(context.Context, *ec2.DescribeCapacityReservationsInput, ...func(*ec2.Options)) (*ec2.DescribeCapacityReservationsOutput, error) {
	return &ec2.DescribeCapacityReservationsOutput{CapacityReservations: []ec2types.CapacityReservation{{
		CapacityReservationId: aws.String("cr-1"), InstanceType: aws.String("m5.large"), AvailabilityZone: aws.String("z-a"),
		State: "active", InstanceMatchCriteria: "targeted", AvailableInstanceCount: &s.left,
	}}}, nil
}

// pages is an EC2 with one reservation a page; an id that it does not know is an error.
type pages struct {
	ids   []string
	calls int
	err   error
}

func (p *pages) DescribeCapacityReservations(_ context.Context, in *ec2.DescribeCapacityReservationsInput, _ ...func(*ec2.Options)) (*ec2.DescribeCapacityReservationsOutput, error) {
	p.calls++
	ids := p.ids
	if len(in.CapacityReservationIds) > 0 {
		if ids = in.CapacityReservationIds; !slices.Contains(p.ids, ids[0]) {
			return nil, &smithy.GenericAPIError{Code: "InvalidCapacityReservationId.NotFound"}
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	at := len(aws.ToString(in.NextToken))
	out := &ec2.DescribeCapacityReservationsOutput{CapacityReservations: []ec2types.CapacityReservation{{
		CapacityReservationId: aws.String(ids[at]), State: "active", InstanceMatchCriteria: "open", AvailableInstanceCount: aws.Int32(1),
	}}}
	if at+1 < len(ids) {
		out.NextToken = aws.String(strings.Repeat("x", at+1))
	}
	return out, nil
}

func TestFind(t *testing.T) {
	open := awsv1.CapacityReservationSelectorTerm{InstanceMatchCriteria: "open"}
	for name, tc := range map[string]struct {
		terms []awsv1.CapacityReservationSelectorTerm
		err   error
		want  []string
		calls int // for two questions
		fails bool
	}{
		"no terms":                  {nil, nil, nil, 0, false},
		"all pages, by id":          {[]awsv1.CapacityReservationSelectorTerm{open}, nil, []string{"cr-1", "cr-2", "cr-3"}, 3, false},
		"found twice, shown once":   {[]awsv1.CapacityReservationSelectorTerm{open, {ID: "cr-2"}}, nil, []string{"cr-1", "cr-2", "cr-3"}, 4, false},
		"an id that does not exist": {[]awsv1.CapacityReservationSelectorTerm{{ID: "cr-9"}, {ID: "cr-3"}}, nil, []string{"cr-3"}, 2, false},
		"EC2 says no":               {[]awsv1.CapacityReservationSelectorTerm{open}, &smithy.GenericAPIError{Code: "UnauthorizedOperation"}, nil, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pages{ids: []string{"cr-3", "cr-1", "cr-2"}, err: tc.err}
			b := NewBook(p)
			nc := &awsv1.EC2NodeClass{}
			nc.Spec.CapacityReservationSelectorTerms = tc.terms
			for range 2 {
				found, err := b.Find(t.Context(), nc, time.Now())
				var got []string
				for _, r := range found.Usable {
					got = append(got, r.ID)
				}
				if !slices.Equal(got, tc.want) || (err != nil) != tc.fails {
					t.Errorf("found %v, %v; want %v", got, err, tc.want)
				}
			}
			if p.calls != tc.calls {
				t.Errorf("asked twice, EC2 was called %d times, want %d", p.calls, tc.calls)
			}
		})
	}
}

// TestPodsHaveTimeToLeaveABlock holds our own end of a block before EC2's, which begins to stop machines half an hour before the block ends.
func TestPodsHaveTimeToLeaveABlock(t *testing.T) {
	const ec2Begins = 30 * time.Minute
	if Leave < ec2Begins+10*time.Minute {
		t.Errorf("a block is left %v before its end, and EC2 begins to stop machines at %v: pods get less than ten minutes", Leave, ec2Begins)
	}
}

// A class that names a reservation of a kind that cannot be used is told so; what is over is not worth a word.
func TestKindsThatCannotBeUsedAreNamed(t *testing.T) {
	b := NewBook(kinds{})
	nc := &awsv1.EC2NodeClass{}
	nc.Spec.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{InstanceMatchCriteria: "targeted"}}
	found, err := b.Find(t.Context(), nc, time.Now())
	if want := []string{"cr-5 (lunar)"}; err != nil || !slices.Equal(found.Others, want) || len(found.Usable) != 3 {
		t.Errorf("found %+v, %v; want three that can be used, and others %q", found, err, want)
	}
}

type kinds struct{}

func (kinds) DescribeCapacityReservations(context.Context, *ec2.DescribeCapacityReservationsInput, ...func(*ec2.Options)) (*ec2.DescribeCapacityReservationsOutput, error) {
	r := func(id string, edit func(*ec2types.CapacityReservation)) ec2types.CapacityReservation {
		out := ec2types.CapacityReservation{CapacityReservationId: aws.String(id), State: "active", InstanceMatchCriteria: "targeted", AvailableInstanceCount: aws.Int32(1)}
		edit(&out)
		return out
	}
	return &ec2.DescribeCapacityReservationsOutput{CapacityReservations: []ec2types.CapacityReservation{
		r("cr-3", func(r *ec2types.CapacityReservation) { r.Interruptible = aws.Bool(true) }),
		r("cr-1", func(*ec2types.CapacityReservation) {}),
		r("cr-2", func(r *ec2types.CapacityReservation) { r.ReservationType = "capacity-block" }),
		r("cr-5", func(r *ec2types.CapacityReservation) { r.ReservationType = "lunar" }),
		r("cr-4", func(r *ec2types.CapacityReservation) { r.State = "expired" }),
	}}, nil
}

// spelled returns a query as a reader would write it.
func spelled(q *ec2.DescribeCapacityReservationsInput) string {
	text := strings.Join(q.CapacityReservationIds, ",")
	for _, f := range q.Filters {
		text += fmt.Sprintf(";%s=%s", aws.ToString(f.Name), strings.Join(f.Values, ","))
	}
	return text
}

// Node classes share answers: one that selects by a strange tag must not be given the reservations of another.
func TestQueriesHaveKeysOfTheirOwn(t *testing.T) {
	ask := func(tags map[string]string) string {
		return queryKey(queriesOf([]awsv1.CapacityReservationSelectorTerm{{Tags: tags}})[0])
	}
	if ask(map[string]string{"a": "1", "b": "2"}) == ask(map[string]string{"a": "1;tag:b=2"}) {
		t.Error("a tag whose value looks like another tag has the key of two tags")
	}
}

func TestQueries(t *testing.T) {
	var got []string
	for _, q := range queriesOf([]awsv1.CapacityReservationSelectorTerm{
		{ID: "cr-1"}, {Tags: map[string]string{"a": "1"}, OwnerID: "123456789012"}, {InstanceMatchCriteria: "open"}, {ID: "cr-2"},
	}) {
		got = append(got, spelled(q))
	}
	want := []string{";owner-id=123456789012;tag:a=1;state=active", ";instance-match-criteria=open;state=active", "cr-1;state=active", "cr-2;state=active"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("queries differ (-want +got):\n%s", d)
	}
}

func TestRead(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		edit func(*ec2types.CapacityReservation)
		want string // type, state, and whether it is interruptible; "" for not usable
	}{
		"an active one":              {func(*ec2types.CapacityReservation) {}, "default active false"},
		"one that ends soon":         {func(r *ec2types.CapacityReservation) { r.EndDate = aws.Time(now.Add(time.Minute)) }, "default active false"},
		"one that ends now":          {func(r *ec2types.CapacityReservation) { r.EndDate = &now }, ""},
		"one that is over":           {func(r *ec2types.CapacityReservation) { r.EndDate = aws.Time(now.Add(-time.Hour)) }, ""},
		"one that was given up":      {func(r *ec2types.CapacityReservation) { r.State = "cancelled" }, ""},
		"an unknown way of matching": {func(r *ec2types.CapacityReservation) { r.InstanceMatchCriteria = "other" }, ""},
		"an open one":                {func(r *ec2types.CapacityReservation) { r.InstanceMatchCriteria = "open" }, "default active false"},
		"of the default type":        {func(r *ec2types.CapacityReservation) { r.ReservationType = "default" }, "default active false"},
		"an interruptible one":       {func(r *ec2types.CapacityReservation) { r.Interruptible = aws.Bool(true) }, "default active true"},
		"of an unknown type":         {func(r *ec2types.CapacityReservation) { r.ReservationType = "lunar" }, ""},
		"a capacity block": {func(r *ec2types.CapacityReservation) {
			r.ReservationType, r.EndDate = "capacity-block", aws.Time(now.Add(Leave+time.Second))
		}, "capacity-block active false"},
		"a capacity block that ends in forty minutes": {func(r *ec2types.CapacityReservation) {
			r.ReservationType, r.EndDate = "capacity-block", aws.Time(now.Add(Leave))
		}, "capacity-block expiring false"},
		"a capacity block without an end": {func(r *ec2types.CapacityReservation) { r.ReservationType = "capacity-block" }, "capacity-block active false"},
	} {
		r := ec2types.CapacityReservation{CapacityReservationId: aws.String("cr-1"), State: "active", InstanceMatchCriteria: "targeted"}
		tc.edit(&r)
		got := ""
		if cr, ok := read(r, now); ok {
			got = fmt.Sprint(cr.ReservationType, " ", cr.State, " ", cr.Interruptible)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{left: 2}
		b := NewBook(s)
		nc := &awsv1.EC2NodeClass{}
		nc.Spec.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
		find := func() {
			t.Helper()
			if got, err := b.Find(t.Context(), nc, time.Now()); err != nil || len(got.Usable) != 1 {
				t.Fatalf("Find = %v, %v", got, err)
			}
		}
		want := func(n int, when string) {
			t.Helper()
			if got := b.Left("cr-1"); got != n {
				t.Errorf("%s: %d are left, want %d", when, got, n)
			}
		}
		called := time.Now()
		find()
		want(2, "after a listing")
		b.Launched("cr-1", called)
		time.Sleep(time.Second)
		want(1, "after a launch that was called at the moment of the listing")
		b.Launched("cr-1", called.Add(-time.Minute))
		want(1, "after a launch that the listing has counted already")
		b.Launched("cr-1", time.Now())
		b.Launched("cr-1", time.Now())
		want(0, "after more launches than there is room")
		b.Terminated("cr-1")
		want(1, "after a machine is gone")
		b.UsedUp("cr-1")
		want(0, "after EC2 said that it is used up")
		b.Terminated("cr-9")
		if b.Left("cr-9") != 0 {
			t.Error("an unknown reservation has machines left")
		}
		s.left = 5
		time.Sleep(time.Minute)
		before := b.Sequence()
		find()
		want(5, "after another listing")
		if b.Sequence() == before {
			t.Error("a listing with other counts does not move the sequence")
		}
	})
}
