package pack

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"karpenter.sh/karpenter/internal/core/work"
)

// Answers are the last answers that took a long search, the latest first. The same question is asked again and again while its pods wait,
// or while their nodes are looked at for a saving; it is not searched again. A value of Answers never changes.
//
// A digest of all numbers identifies a question. Keeping the questions themselves would take the memory of up to 32 large problems.
type Answers []answer

type answer struct {
	question [sha256.Size]byte
	result   *Result // nil if it was read from a record, which has only the questions
}

const (
	// answerWork is the least work of an answer that is kept.
	answerWork = work.Second / 100
	// mostAnswers is the most answers that are kept.
	mostAnswers = 32
)

// find returns the answer to a question, with a Work of 0, or nil if it is not known.
func (a Answers) find(question [sha256.Size]byte) *Result {
	for i := range a {
		if a[i].question == question && a[i].result != nil {
			out := *a[i].result
			out.Work, out.Known = 0, a
			return &out
		}
	}
	return nil
}

// with returns the answers with one more in front. It leaves out an answer of little work, and one whose search the meter cut.
func (a Answers) with(question [sha256.Size]byte, r *Result, m *work.Meter) Answers {
	if r.Work < answerWork || m.CutAt() > 0 {
		return a
	}
	kept := *r
	return append(Answers{{question, &kept}}, a[:min(len(a), mostAnswers-1)]...)
}

// questionOf returns the digest of a problem, the options that change its answer, and the kind of the question: 's' for Solve, 'b' for
// Bound.
func questionOf(p *Problem, o Options, kind byte) [sha256.Size]byte {
	d := digest{Hash: sha256.New(), buf: []byte{kind}}
	d.flag(o.Fast)
	d.numbers(o.CloseMillionths, int64(o.Least), int64(o.Most), int64(o.Exact), o.Gain, o.Price, int64(o.Over),
		int64(o.without), int64(len(p.Classes)), int64(len(p.Cells)))
	for i := range p.Classes {
		c := &p.Classes[i]
		d.numbers(int64(c.Count), int64(c.PerNode), int64(len(c.Need)), int64(len(c.Cells)))
		d.numbers(c.Need...)
		for _, w := range c.Cells {
			d.numbers(int64(w))
		}
		d.flag(c.Cells == nil)
	}
	for i := range p.Cells {
		c := &p.Cells[i]
		d.numbers(c.Price, c.Own, int64(c.Stock), int64(c.Over))
		d.numbers(c.Room...)
	}
	for _, x := range p.Conflicts {
		d.numbers(int64(x[0]), int64(x[1]))
	}
	d.numbers(int64(len(p.Conflicts)))
	for i := range p.Limits {
		d.numbers(p.Limits[i].Max)
		d.numbers(p.Limits[i].Use...)
	}
	d.flush()
	return [sha256.Size]byte(d.Sum(nil))
}

// A digest writes numbers into a hash.
type digest struct {
	hash.Hash
	buf []byte
}

// numbers writes a list of numbers. The hash sees them in blocks of about 4 KiB, and the rest after flush.
func (d *digest) numbers(list ...int64) {
	for _, n := range list {
		d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(n))
	}
	if len(d.buf) >= 1<<12 {
		d.flush()
	}
}

// flag writes 1 for true and 0 for false.
func (d *digest) flag(on bool) {
	if on {
		d.numbers(1)
		return
	}
	d.numbers(0)
}

func (d *digest) flush() {
	d.Write(d.buf)
	d.buf = d.buf[:0]
}
