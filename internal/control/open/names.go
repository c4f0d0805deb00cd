package open

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"karpenter.sh/karpenter/internal/core/engine"
)

// alphabet has no vowels, so that names do not spell words, and no characters that look alike.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

// suffix is the number of characters after the name of the pool.
const suffix = 5

// Names returns the first choice of names for the claims of some openings: the pool and five characters. They are a hash of the seed, the
// pool and the pods that a claim is for, so the same decision, worked out again, gives the same names.
func (s *Service) Names(seed string, openings []engine.Opening) []string {
	out := make([]string, len(openings))
	taken := map[string]bool{}
	for i := range openings {
		for n := 0; ; n += names { // steps of names, so that no first choice is a later choice of another claim (create)
			out[i] = name(seed, &openings[i], n)
			if !taken[out[i]] {
				taken[out[i]] = true
				break
			}
		}
	}
	return out
}

// name returns the n-th choice of a name for an opening, the digits of a hash in base len(alphabet).
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
