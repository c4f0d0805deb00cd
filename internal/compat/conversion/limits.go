package conversion

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// The webhook has no login: every pod of the cluster may reach it. These limits bound what any caller costs.
const (
	// mostBytes is the largest review that is read, and what all reviews in flight have together. The API server sends the objects of a
	// page in one review: 10,000 at most.
	mostBytes = 64 << 20
	// mostObjects is how many objects one review has at most, objectBytes what one of them takes: etcd stores less.
	mostObjects, objectBytes = 10_000, 3 << 20
	// mostDepth is how deeply the JSON of a review is nested at most.
	mostDepth = 100
	// mostReviews is how many reviews are answered at the same time. Others wait for reviewWait.
	mostReviews = 2
	reviewWait  = 10 * time.Second
)

var (
	errTooLarge = errors.New("the review is too large")
	errTooDeep  = errors.New("the review is nested too deeply")
	errTooMany  = errors.New("the review has too many objects")
	errBusy     = errors.New("other reviews are being answered; try again")
)

// A gate lets so many reviews, and so many of their bytes, in at the same time. One review at a time takes its bytes (turn): two that hold
// half of what they need would wait for each other.
type gate struct{ reviews, turn, bytes chan struct{} }

// byteUnit is what one place of gate.bytes stands for.
const byteUnit = 1 << 20

func newGate() *gate {
	return &gate{make(chan struct{}, mostReviews), make(chan struct{}, 1), make(chan struct{}, mostBytes/byteUnit)}
}

// enter waits until a review of a size may be read. leave gives its place back.
func (g *gate) enter(ctx context.Context, size int64) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewWait)
	defer cancel()
	select {
	case g.reviews <- struct{}{}:
	case <-ctx.Done():
		return nil, errBusy
	}
	taken := 0
	leave = func() {
		for range taken {
			<-g.bytes
		}
		<-g.reviews
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		leave()
		return nil, errBusy
	}
	for range (size + byteUnit - 1) / byteUnit {
		select {
		case g.bytes <- struct{}{}:
			taken++
		case <-ctx.Done():
			leave()
			return nil, errBusy
		}
	}
	return leave, nil
}

// readReview reads the body of a request and checks its form before it is decoded. A body without a length counts as the largest.
func (g *gate) readReview(out http.ResponseWriter, r *http.Request) (body []byte, leave func(), err error) {
	size := r.ContentLength
	if size > mostBytes {
		return nil, nil, errTooLarge
	}
	if size < 0 {
		size = mostBytes
	}
	if leave, err = g.enter(r.Context(), size); err != nil {
		return nil, nil, err
	}
	body, err = io.ReadAll(http.MaxBytesReader(out, r.Body, size))
	if err == nil {
		err = checkForm(body)
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return body, leave, nil
}

// objectDepth is how deeply an object of a review is nested: below the review, its request and the list of objects.
const objectDepth = 4

// checkForm reports what is wrong with the nesting and the objects of a JSON text, without decoding it.
func checkForm(text []byte) error {
	depth, objects, begin := 0, 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > mostDepth {
				return errTooDeep
			}
			if depth == objectDepth {
				begin = i
				if objects++; objects > mostObjects {
					return errTooMany
				}
			}
		case '}', ']':
			if depth == objectDepth && i-begin > objectBytes {
				return errTooLarge
			}
			depth--
		}
	}
	return nil
}
