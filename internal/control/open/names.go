package open

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"karpenter.sh/karpenter/internal/core/engine"
)

// alphabet has no vowels, so that names do not spell words, and nothing that looks like something else.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

const suffix = 5

// Names returns the names that the claims of these openings will have, if nothing else has taken them: the pool and five
// characters. They follow from the seed, the pool and the pods that a claim is for, so the same decision, worked
// out again, gives the same names.
func (s *Service) Names(seed string, openings []engine.Opening) []string {
	out := make([]string, len(openings))
	taken := map[string]bool{}
	for i := range openings {
		for n := 0; ; n += names { // claims of one plan never share a name, nor a second choice
			out[i] = name(seed, &openings[i], n)
			if !taken[out[i]] {
				taken[out[i]] = true
				break
			}
		}
	}
	return out
}

// name returns the n-th choice of a name for an opening.
func name(seed string, o *engine.Opening, n int) string {
	pods := make([]string, 0, len(o.Pods))
	for _, p := range o.Pods {
		pods = append(pods, string(p.UID))
	}
	slices.Sort(pods)
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d %q", seed, o.Pool, n, pods)
	bits := binary.BigEndian.Uint64(h.Sum(nil))
	text := make([]byte, suffix)
	for i := range text {
		text[i] = alphabet[bits%uint64(len(alphabet))]
		bits /= uint64(len(alphabet))
	}
	return o.Pool + "-" + string(text)
}
