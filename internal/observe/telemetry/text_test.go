package telemetry

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestText(t *testing.T) {
	var b strings.Builder
	text := NewText(&b)
	text.Begin(Family{"empty", "Not written.", []string{"a"}})
	text.Begin(Family{"plain", "A help with \\ and\na line.", nil})
	text.Gauge(1.5, nil)
	text.Begin(Family{"labelled", "Another.", []string{"a", "b"}})
	text.Gauge(1e9, []string{`quoted "x"`}, "back\\slash\nline")
	text.Gauge(0, nil, "ä", "")
	text.Gauge(1, nil, "", "")
	if err := text.Flush(); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP plain A help with \\ and\na line.
# TYPE plain gauge
plain 1.5
# HELP labelled Another.
# TYPE labelled gauge
labelled{a="quoted \"x\"",b="back\\slash\nline"} 1e+09
labelled{a="ä"} 0
labelled 1
`
	if b.String() != want {
		t.Errorf("text:\n%s\nwant:\n%s", &b, want)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if got := families["labelled"].GetMetric()[0].GetLabel()[1].GetValue(); got != "back\\slash\nline" {
		t.Errorf("Prometheus reads %q", got)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestTextSaysWhatWentWrong(t *testing.T) {
	text := NewText(broken{})
	text.Begin(Family{"a", "", nil})
	for range 10_000 {
		text.Gauge(1, nil)
	}
	if err := text.Flush(); err == nil {
		t.Error("nobody hears that the reader is gone")
	}
}
