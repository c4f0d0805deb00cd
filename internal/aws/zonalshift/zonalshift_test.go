package zonalshift

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift/types"
)

type arc struct {
	out arczonalshift.GetManagedResourceOutput
	err error
	arn string
}

func (a *arc) GetManagedResource(_ context.Context, in *arczonalshift.GetManagedResourceInput, _ ...func(*arczonalshift.Options)) (*arczonalshift.GetManagedResourceOutput, error) {
	a.arn = *in.ResourceIdentifier
	return &a.out, a.err
}

func shifted(zone string, status types.AppliedStatus, until time.Time) types.ZonalShiftInResource {
	return types.ZonalShiftInResource{AwayFrom: &zone, AppliedStatus: status, ExpiryTime: &until}
}

func TestZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Second)
		for name, tc := range map[string]struct {
			out  arczonalshift.GetManagedResourceOutput
			want []string
		}{
			"none": {},
			"those that are applied and not over": {arczonalshift.GetManagedResourceOutput{ZonalShifts: []types.ZonalShiftInResource{
				shifted("az2", "APPLIED", later), shifted("az1", "APPLIED", later), shifted("az3", "NOT_APPLIED", later), shifted("az4", "APPLIED", before),
			}}, []string{"az1", "az2"}},
			"those that AWS applied by itself": {arczonalshift.GetManagedResourceOutput{Autoshifts: []types.AutoshiftInResource{
				{AwayFrom: aws.String("az1"), AppliedStatus: "APPLIED"}, {AwayFrom: aws.String("az2"), AppliedStatus: "NOT_APPLIED"},
			}}, []string{"az1"}},
			"one without a zone": {arczonalshift.GetManagedResourceOutput{ZonalShifts: []types.ZonalShiftInResource{{AppliedStatus: "APPLIED", ExpiryTime: &later}}}, nil},
		} {
			a := &arc{out: tc.out}
			w := NewWatch(a, "arn:cluster")
			if err := w.Refresh(t.Context()); err != nil || a.arn != "arn:cluster" {
				t.Errorf("%s: asked about %s: %v", name, a.arn, err)
			}
			if got := w.Zones(); !slices.Equal(got, tc.want) {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
		}
	})
}

func TestWhatWasHeardCountsUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &arc{out: arczonalshift.GetManagedResourceOutput{
			ZonalShifts: []types.ZonalShiftInResource{shifted("az1", "APPLIED", time.Now().Add(time.Hour))},
			Autoshifts:  []types.AutoshiftInResource{{AwayFrom: aws.String("az2"), AppliedStatus: "APPLIED"}},
		}}
		w := NewWatch(a, "arn")
		at := w.Sequence()
		refresh := func() {
			if err := w.Refresh(t.Context()); (err != nil) != (a.err != nil) {
				t.Error(err)
			}
		}
		moved := func(want bool, when string) {
			t.Helper()
			now := w.Sequence()
			if (now != at) != want {
				t.Errorf("%s: the sequence moved: %v, want %v", when, now != at, want)
			}
			at = now
		}
		refresh()
		moved(true, "two zones are shifted")
		refresh()
		moved(false, "the same is heard again")
		a.err = errors.New("no")
		refresh()
		time.Sleep(autoLife)
		if !w.Away("az1") || w.Away("az2") {
			t.Errorf("five minutes after ARC was last heard of, %v are shifted, want az1", w.Zones())
		}
		moved(true, "one has no end and was not heard of")
		time.Sleep(time.Hour - autoLife)
		if w.Away("az1") {
			t.Error("a shift outlives its end")
		}
		moved(true, "the other ended")
		a.err, a.out.ZonalShifts[0].ExpiryTime = nil, aws.Time(time.Now().Add(time.Hour))
		refresh()
		a.out = arczonalshift.GetManagedResourceOutput{}
		refresh()
		if len(w.Zones()) > 0 {
			t.Error("a shift that was cancelled still counts")
		}
	})
}

// What ARC lists although it is over changes nothing, however often it is heard.
func TestAShiftThatIsOverIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWatch(&arc{out: arczonalshift.GetManagedResourceOutput{ZonalShifts: []types.ZonalShiftInResource{shifted("az1", "APPLIED", time.Now().Add(-time.Minute))}}}, "arn")
		before := w.Sequence()
		for range 2 {
			if err := w.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if now := w.Sequence(); now != before {
				t.Errorf("news %d came of a shift that is over", now-before)
			}
		}
	})
}

func TestWithoutAWatchNoZoneIsShifted(t *testing.T) {
	var w *Watch
	if w.Away("az1") || w.Zones() != nil || w.Sequence() != 0 {
		t.Error("a zone is shifted")
	}
}
