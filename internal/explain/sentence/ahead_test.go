package sentence

import (
	"strings"
	"testing"
)

func TestWhereToLookForPodsThatDidNotCome(t *testing.T) {
	for kind, want := range map[string]string{
		"CronJob":      "Look at the events of its Jobs for what",
		"ScaledObject": "Look at the events of the ReplicaSets that it scales for what",
	} {
		text := AnnouncedInVain(kind, 3)
		if !strings.HasPrefix(text, "3 times in a row most pods that this "+kind+" announced did not come") || !strings.Contains(text, want) {
			t.Errorf("%s: %s", kind, text)
		}
	}
}
