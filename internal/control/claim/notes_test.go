package claim

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// TestNotesAreOfOneClaim: whoever is put under the name of a claim that went, perhaps before anybody saw it go, begins with no failures behind it.
func TestNotesAreOfOneClaim(t *testing.T) {
	of := func(name string, uid types.UID) *v1.NodeClaim {
		return &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	var n notes[launch]
	n.of(of("a", "1")).failures = 3
	for name, tc := range map[string]struct {
		claim *v1.NodeClaim
		want  int
	}{
		"the claim":               {of("a", "1"), 3},
		"another claim":           {of("b", "1"), 0},
		"a later one of its name": {of("a", "2"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var n notes[launch]
			n.of(of("a", "1")).failures = 3
			if got := n.of(tc.claim).failures; got != tc.want {
				t.Errorf("%d failures, want %d", got, tc.want)
			}
		})
	}
	n.forget("a")
	if got := n.of(of("a", "1")).failures; got != 0 {
		t.Errorf("%d failures of a claim that was forgotten", got)
	}
}
