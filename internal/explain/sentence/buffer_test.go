package sentence

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/core/buffer"
)

func TestBuffer(t *testing.T) {
	limited := buffer.Note{Limit: resource.MustParse("3500m"), Request: resource.MustParse("1"), Resource: "cpu", Fit: 3, Wanted: 10}
	of := func(code buffer.Code) buffer.Note { n := limited; n.Code = code; return n }
	for name, tc := range map[string]struct{ got, want string }{
		"a number below zero":        {BufferFlaw(&buffer.Flaw{Code: buffer.Negative, Name: "spec.limits.cpu", Value: "-1"}), "spec.limits.cpu is -1: it may not be negative"},
		"a kind without a template":  {BufferFlaw(&buffer.Flaw{Code: buffer.NoTemplate, Name: "Cache x"}), "Cache x has no pod template at spec.template: write one as a PodTemplate and name it in spec.podTemplateRef"},
		"and why it has none":        {BufferFlaw(&buffer.Flaw{Code: buffer.NoTemplate, Name: "Cache x", Value: "a text"}), "Cache x has no pod template at spec.template (a text): write one as a PodTemplate and name it in spec.podTemplateRef"},
		"a template that is missing": {BufferFlaw(&buffer.Flaw{Code: buffer.TemplateNotFound, Name: "web", Value: "shop"}), `there is no PodTemplate "web" in namespace "shop"`},
		"others have their words":    {BufferFlaw(&buffer.Flaw{Code: buffer.Unreadable, Value: "no right"}), "no right"},
		"a limit below one pod":      {BufferNote(of(buffer.BelowOne)), "spec.limits allows 3500m of cpu and one pod requests 1: raise it, or no room is kept"},
		"a limit":                    {BufferNote(of(buffer.Limited)), "spec.limits allows 3500m of cpu, which is enough for 3 of 10 pods"},
		"too many":                   {BufferNote(of(buffer.TooMany)), "the buffer asks for 10 pods; room is kept for 3, the most for one buffer"},
		"too many of all":            {BufferNote(of(buffer.TooManyOfAll)), "the buffer asks for 10 pods; room is kept for 3, because all buffers of the cluster together have 100000 at most"},
		"nothing to say":             {BufferNote(buffer.Note{}), ""},
		"all have room":              {BufferRoom(buffer.Tally{Ready: 3}, buffer.Note{}), "3 of 3 pods have room on nodes that run"},
		"some are on their way":      {BufferRoom(buffer.Tally{Ready: 1, Coming: 2}, buffer.Note{}), "1 of 3 pods have room on nodes that run; 2 on nodes that are on their way"},
		"some have none":             {BufferRoom(buffer.Tally{Ready: 1, None: 2, Why: "limit"}, buffer.Note{}), "1 of 3 pods have room on nodes that run; 2 have none: limit"},
		"what the owner is to know":  {BufferRoom(buffer.Tally{Ready: 2}, buffer.Note{Code: buffer.NoPods}), "2 of 2 pods have room on nodes that run; the buffer asks for no pods"},
		"a buffer that asks nothing": {BufferRoom(buffer.Tally{}, buffer.Note{Code: buffer.NoPods}), "the buffer asks for no pods"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got  %q\nwant %q", tc.got, tc.want)
			}
		})
	}
}

func TestEveryCodeOfABufferHasWords(t *testing.T) {
	for c := buffer.NothingNamed; c <= buffer.TemplateNotFound; c++ {
		if BufferFlaw(&buffer.Flaw{Code: c}) == "" {
			t.Errorf("flaw %d has no words", c)
		}
	}
	for c := buffer.OtherLimits; c <= buffer.TooManyOfAll; c++ {
		if BufferNote(buffer.Note{Code: c}) == "" {
			t.Errorf("note %d has no words", c)
		}
	}
}
