package operator

import (
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/explain/board"
)

func TestThereIsALedgerOnlyWhereOneIsAskedFor(t *testing.T) {
	p := someParts(t)
	if l, err := p.ledger(); l != nil || err != nil {
		t.Errorf("got %v, %v, want none", l, err)
	}
	p.settings.Serve.UIPort, p.verdicts = 8082, board.New()
	if l, err := p.ledger(); l == nil || l.Verdicts != p.verdicts || err != nil {
		t.Errorf("with a page, which shows what the fleet could cost: %v, %v", l, err)
	}
	p.settings.Serve.UIPort = 0
	p.settings.Journal.Ledger.ConfigMaps, p.settings.LeaderElection.Namespace = "l", "n"
	if l, err := p.ledger(); l == nil || err != nil {
		t.Errorf("got %v, %v", l, err)
	}
}

func TestLabelsOfTheLedger(t *testing.T) {
	for labels, wrong := range map[string]string{"team,example.com/unit": "", "a,b,c": "ledger-labels: 3 keys", "a/b/c": `"a/b/c" is no key`} {
		s, err := readSettings([]string{"--ledger-labels=" + labels}, nil)
		if err == nil {
			err = s.Validate()
		}
		if (err != nil) != (wrong != "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", labels, err)
		}
	}
}
