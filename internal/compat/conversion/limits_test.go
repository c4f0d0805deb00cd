package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// review returns the text of a review with these objects.
func review(objects string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"karpenter.sh/v1","objects":[` + objects + `]}}`
}

func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
}

func TestCheckForm(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"a usual review":                       {review(`{"kind":"NodePool","spec":{"limits":{"cpu":"1"}}}`), nil},
		"the deepest object":                   {review(nested(mostDepth - objectDepth + 1)), nil},
		"an object that is one level deeper":   {review(nested(mostDepth - objectDepth + 2)), errTooDeep},
		"lists that are nested":                {review(strings.Repeat("[", 9000)), errTooDeep},
		"brackets in a text":                   {review(`{"a":"` + strings.Repeat(`[{\"`, 9000) + `"}`), nil},
		"as many objects as a page has":        {review(strings.Repeat("{},", mostObjects-1) + "{}"), nil},
		"one object more":                      {review(strings.Repeat("{},", mostObjects) + "{}"), errTooMany},
		"an object that etcd would not store":  {review(`{"a":"` + strings.Repeat("x", objectBytes) + `"}`), errTooLarge},
		"a text that ends in the middle":       {`{"request":{"objects":[{"a":"`, nil},
		"a text that ends with a bare escape":  {`"\`, nil},
		"more closing brackets than there are": {`}}}}{{{{`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := checkForm([]byte(tc.text)); !errors.Is(got, tc.want) {
				t.Errorf("checkForm = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestHostileReviewsCostLittleMemory sends the reviews that took gigabytes before there were limits, several at once.
func TestHostileReviewsCostLittleMemory(t *testing.T) {
	for name, body := range map[string]string{
		"nested 9,000 deep":                     review(nested(9000)),
		"40 MiB of empty objects":               review(strings.Repeat("{},", 14<<20) + "{}"),
		"a page of objects, nested and too big": review(strings.Repeat(nested(90)+",", 60_000) + "{}"),
	} {
		t.Run(name, func(t *testing.T) {
			w := &webhook{gate: newGate(), panics: measured().ConversionPanics}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					out := httptest.NewRecorder()
					w.serve(out, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
					if out.Code != http.StatusRequestEntityTooLarge {
						t.Errorf("status %d, want that the review is refused", out.Code)
					}
				})
			}
			all.Wait()
			runtime.ReadMemStats(&after)
			// What the eight bodies take to be read is allocated one after the other; a decoded one would take gigabytes.
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(8*6*len(body)+8<<20); got > most {
				t.Errorf("%d MB were allocated, want at most %d", got>>20, most>>20)
			}
		})
	}
}

func TestSoManyReviewsAreAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var leave []func()
		for range mostReviews {
			l, err := g.enter(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		begin := time.Now()
		if _, err := g.enter(t.Context(), 100); !errors.Is(err, errBusy) || time.Since(begin) != reviewWait {
			t.Errorf("one more: %v after %v", err, time.Since(begin))
		}
		leave[0]()
		l, err := g.enter(t.Context(), 100)
		if err != nil {
			t.Fatalf("after one has left: %v", err)
		}
		l()
		leave[1]()
	})
}

func TestReviewsShareTheirBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		leave, err := g.enter(t.Context(), mostBytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.enter(t.Context(), 1); !errors.Is(err, errBusy) {
			t.Errorf("a review beside the largest one: %v, want that it waits", err)
		}
		leave()
		if l, err := g.enter(t.Context(), mostBytes); err != nil {
			t.Errorf("after it has left: %v", err)
		} else {
			l()
		}
	})
}

func TestABodyWithoutLengthIsBounded(t *testing.T) {
	w := &webhook{gate: newGate(), panics: measured().ConversionPanics}
	out := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader([]byte(fmt.Sprint(review("{}"), strings.Repeat(" ", mostBytes)))))
	r.ContentLength = -1
	if w.serve(out, r); out.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, want that the review is refused", out.Code)
	}
}
