package policy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestDocumentsAreFilledInAndShortEnough(t *testing.T) {
	docs, err := Documents(Names{"aws", "us-east-1", "123456789012", "a-cluster-with-a-rather-long-name", "nodes", "queue"})
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 7 {
		t.Errorf("there are %d policies, want 7", len(docs))
	}
	for name, doc := range docs {
		if strings.Contains(string(doc), "${") {
			t.Errorf("%s has a place that is not filled in", name)
		}
		compact := &bytes.Buffer{}
		if err := json.Compact(compact, doc); err != nil {
			t.Fatal(err)
		}
		if compact.Len() > 6144 {
			t.Errorf("%s has %d characters, AWS takes 6144", name, compact.Len())
		}
	}
}
