package telemetry

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// A Text writes gauges in Prometheus's text format, one series at a time, so that hundreds of thousands of series take no memory. All
// series of a family must be written together, after Begin.
type Text struct {
	out    *bufio.Writer
	family Family
	begun  bool   // the family has a series
	line   []byte // a buffer that is used again
}

// NewText returns a Text that writes to out. It must be flushed.
func NewText(out io.Writer) *Text { return &Text{out: bufio.NewWriterSize(out, 32<<10)} }

// Begin begins a family. Nothing is written for a family without series.
func (t *Text) Begin(f Family) { t.family, t.begun = f, false }

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// Gauge writes one series. The values of its labels are values and then more, in the order of the family's labels. Empty labels are not
// written: for Prometheus that is the same, and nodes have dozens of them.
func (t *Text) Gauge(value float64, values []string, more ...string) {
	if len(values)+len(more) != len(t.family.Labels) {
		bug.Reportf("series of %s has %d labels, want %d", t.family.Name, len(values)+len(more), len(t.family.Labels))
		return
	}
	if !t.begun {
		t.begun = true
		fmt.Fprintf(t.out, "# HELP %s %s\n# TYPE %s gauge\n", t.family.Name, helpEscapes.Replace(t.family.Help), t.family.Name)
	}
	line := append(t.line[:0], t.family.Name...)
	between := byte('{')
	for i, name := range t.family.Labels {
		label := ""
		if i < len(values) {
			label = values[i]
		} else {
			label = more[i-len(values)]
		}
		if label != "" {
			line = append(append(append(line, between), name...), `="`...)
			line = append(appendEscaped(line, label), '"')
			between = ','
		}
	}
	if between == ',' {
		line = append(line, '}')
	}
	line = strconv.AppendFloat(append(line, ' '), value, 'g', -1, 64)
	t.line = append(line, '\n')
	t.out.Write(t.line) // an error stays, and Flush returns it
}

func appendEscaped(line []byte, value string) []byte {
	if strings.ContainsAny(value, "\\\n\"") {
		value = valueEscapes.Replace(value)
	}
	return append(line, value...)
}

// Flush writes what is in the buffer, and returns the first error since the beginning.
func (t *Text) Flush() error { return t.out.Flush() }
