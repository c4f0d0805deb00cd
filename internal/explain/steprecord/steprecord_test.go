package steprecord_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/explain/steprecord"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// claims are the claims of a test, with their names as UIDs.
type claims map[string]*v1.NodeClaim

func (c claims) put(text string, names ...string) {
	for _, name := range names {
		c[name] = &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		if text != "" {
			c[name].Annotations = map[string]string{v1.DisruptionCommandAnnotationKey: text}
		}
	}
}

func step(id string, candidates ...string) steprecord.Record {
	r := steprecord.Record{ID: id, Created: noon}
	for _, name := range candidates {
		r.Candidates = append(r.Candidates, steprecord.Member{Name: name, UID: types.UID(name)})
	}
	return r
}

// A record that names no command, or nothing that goes, is none: whoever takes it over would give it to anybody who carries the same.
func TestRead(t *testing.T) {
	whole := step("one", "a")
	for text, ok := range map[string]bool{
		whole.As(steprecord.Candidate): true, `{}`: false, `{"id": "one"}`: false, `{"candidates": [{"name": "a", "uid": "a"}]}`: false, `[]`: false, ``: false,
	} {
		c := claims{}
		c.put("", "a")
		c["a"].Annotations = map[string]string{v1.DisruptionCommandAnnotationKey: text}
		if r, found, err := steprecord.Read(c["a"]); found != ok || (err == nil) != ok || ok && r.ID != whole.ID {
			t.Errorf("%q: %v, %v, %v", text, r.ID, found, err)
		}
	}
}

func TestUnderWay(t *testing.T) {
	both := step("both", "a", "b")
	as := steprecord.Candidate
	for name, tc := range map[string]struct {
		put  func(claims)
		want []string
	}{
		"every candidate carries it":  {func(c claims) { c.put(both.As(as), "a", "b") }, []string{"both"}},
		"a candidate is gone":         {func(c claims) { c.put(both.As(as), "a") }, []string{"both"}},
		"a candidate does not":        {func(c claims) { c.put(both.As(as), "a"); c.put("", "b") }, nil},
		"a candidate says otherwise":  {func(c claims) { c.put(both.As(as), "a"); c.put(step("other", "a", "b").As(as), "b") }, nil},
		"it is of another claim":      {func(c claims) { c.put(both.As(as), "stranger") }, nil},
		"a candidate got the name":    {func(c claims) { c.put(both.As(as), "a"); c["a"].UID = "new" }, nil},
		"only what comes carries it":  {func(c claims) { c.put(both.As(steprecord.Replacement), "a", "b") }, nil},
		"every candidate goes":        {func(c claims) { c.put(both.As(as), "a", "b"); c.going("a", "b") }, nil},
		"one of them goes":            {func(c claims) { c.put(both.As(as), "a", "b"); c.going("a") }, []string{"both"}},
		"nobody understands it":       {func(c claims) { c.put("{", "a") }, nil},
		"older ones come first":       {func(c claims) { c.put(step("z", "a").As(as), "a"); c.put(late("y", "b").As(as), "b") }, []string{"z", "y"}},
		"of one age the first by ID":  {func(c claims) { c.put(step("z", "a").As(as), "a"); c.put(step("y", "b").As(as), "b") }, []string{"y", "z"}},
		"nobody takes part in a step": {func(c claims) { c.put("", "a", "b") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := claims{}
			tc.put(c)
			store := cluster.NewStore()
			store.Update(func(d *cluster.Draft) {
				for _, claim := range c {
					d.PutClaim(claim)
				}
			})
			var got []string
			for _, r := range steprecord.UnderWay(store.Snapshot()) {
				got = append(got, r.ID)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func (c claims) going(names ...string) {
	for _, name := range names {
		c[name].DeletionTimestamp, c[name].Finalizers = &metav1.Time{Time: noon}, []string{"f"}
	}
}

func late(id string, candidates ...string) steprecord.Record {
	r := step(id, candidates...)
	r.Created = noon.Add(time.Second)
	return r
}
