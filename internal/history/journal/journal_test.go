package journal

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// opened is a record as large as most are.
func opened(i int) Record {
	r := Record{At: noon.Add(time.Duration(i) * time.Second), Act: Opened, Loop: "provisioner", Snapshot: uint64(i), Digest: "0123456789abcdef", Reason: "provisioned",
		Text: fmt.Sprintf("m5.large in zone a for 7 pods, %d", i), PricePerHour: 0.096, BoundPerHour: 0.09,
		Chosen: []Option{{Pool: "default", Type: "m5.large", Zone: "a", CapacityType: "spot", Types: 60, PricePerHour: 0.096}}}
	r.About = append(r.About, Object{Kind: "NodeClaim", Name: fmt.Sprintf("default-%d", i)})
	for p := range 7 {
		r.About = append(r.About, Object{Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("web-%d-%d", i, p)})
	}
	for _, t := range []string{"m6i.large", "m6a.large", "m5a.large"} {
		r.Others = append(r.Others, Option{Pool: "default", Type: t, Zone: "a", CapacityType: "spot", PricePerHour: 0.099, RuledOut: "dearer"})
	}
	return r
}

func TestSelect(t *testing.T) {
	j := New()
	j.Add(Record{At: noon, Act: Placed, Reason: "room", About: []Object{{Kind: "Pod", Namespace: "shop", Name: "web-1"}}})
	j.Add(Record{At: noon.Add(time.Minute), Act: Refused, Reason: "PoolLimit", About: []Object{{Kind: "Pod", Namespace: "shop", Name: "web-2"}, {Kind: "NodePool", Name: "a"}}})
	j.Add(Record{At: noon.Add(time.Hour), Act: Opened, About: []Object{{Kind: "NodeClaim", Name: "web-1"}}})
	for name, tc := range map[string]struct {
		query Query
		want  []uint64
	}{
		"nothing asked is everything":          {Query{}, []uint64{1, 2, 3}},
		"what is new since a number":           {Query{After: 2}, []uint64{3}},
		"since a time, which counts itself":    {Query{Since: noon.Add(time.Minute)}, []uint64{2, 3}},
		"an act":                               {Query{Act: Refused}, []uint64{2}},
		"a reason":                             {Query{Reason: "room"}, []uint64{1}},
		"a name, whatever it names":            {Query{Object: &Object{Name: "web-1"}}, []uint64{1, 3}},
		"a name of a kind":                     {Query{Object: &Object{Kind: "NodeClaim", Name: "web-1"}}, []uint64{3}},
		"a name of a namespace":                {Query{Object: &Object{Namespace: "shop", Name: "web-1"}}, []uint64{1}},
		"not the first object of a record":     {Query{Object: &Object{Kind: "NodePool", Name: "a"}}, []uint64{2}},
		"nothing in another namespace":         {Query{Object: &Object{Namespace: "other", Name: "web-1"}}, nil},
		"the last ones of what is asked about": {Query{Object: &Object{Name: "web-1"}, Last: 1}, []uint64{3}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []uint64
			for _, r := range j.Select(tc.query) {
				got = append(got, r.Seq)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheNewestRecordsAreKept(t *testing.T) {
	j := New()
	for i := range mostRecords * 2 {
		j.Add(opened(i))
	}
	got := j.Select(Query{})
	if len(got) != mostRecords || got[0].Seq != mostRecords+1 || got[len(got)-1].Seq != mostRecords*2 {
		t.Errorf("%d records from %d to %d, want the newest %d", len(got), got[0].Seq, got[len(got)-1].Seq, mostRecords)
	}
}

func TestTenThousandRecordsTakeTwentyMegabytesAtMost(t *testing.T) {
	for name, r := range map[string]func(int) Record{
		"usual": opened,
		"as large as a record may be": func(i int) Record {
			r := opened(i)
			r.Text = strings.Clone(strings.Repeat("long ", 1000))
			for p := range mostObjects {
				r.About = append(r.About, Object{Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("web-%d-%d", i, p)})
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			j := New()
			for i := range mostRecords {
				j.Add(r(i))
			}
			if used := heap() - before; used > mostBytes*11/10 {
				t.Errorf("%d MB", used>>20)
			}
			runtime.KeepAlive(j)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestALargeRecordSaysWhatItLeavesOut(t *testing.T) {
	r := Record{Text: strings.Repeat("x", 2*mostText), More: 1}
	for range mostObjects + 20 {
		r.About = append(r.About, Object{Kind: "Pod", Name: "p"})
	}
	for range mostOptions + 1 {
		r.Chosen, r.Others = append(r.Chosen, Option{}), append(r.Others, Option{})
	}
	j := New()
	j.Add(r)
	r.About[0].Name = "changed"
	got := j.Select(Query{})[0]
	if len(got.About) != mostObjects || got.More != 21 || len(got.Chosen) != mostOptions || len(got.Others) != mostOptions || len(got.Text) > mostText+10 {
		t.Errorf("%d objects, %d more, %d and %d options, %d bytes of text", len(got.About), got.More, len(got.Chosen), len(got.Others), len(got.Text))
	}
	if got.About[0].Name != "p" {
		t.Error("a record changed with what its writer did later")
	}
}

func TestNewsWakeWhoWaits(t *testing.T) {
	j := New()
	news := j.News()
	select {
	case <-news:
		t.Fatal("woken by nothing")
	default:
	}
	j.Add(Record{Act: Placed})
	select {
	case <-news:
	default:
		t.Error("not woken by a record")
	}
}

func TestNobodyHasToHaveAJournal(t *testing.T) {
	var j *Journal
	j.Add(Record{Act: Placed})
	if got := j.Select(Query{}); got != nil || j.News() != nil {
		t.Errorf("%v", got)
	}
}

func BenchmarkAdd(b *testing.B) {
	j := New()
	for i := range mostRecords {
		j.Add(opened(i))
	}
	r := opened(1)
	b.ReportAllocs()
	for b.Loop() {
		j.Add(r)
	}
}
