package disruption

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/disrupt"
)

// A role says what a claim is to a command.
type role string

const (
	candidate   role = "candidate"
	replacement role = "replacement"
)

// A record is what stands on every claim that takes part in a command, so that a restart can go on where the last
// process stopped. It names the whole command; only the role differs from claim to claim.
type record struct {
	ID           string              `json:"id"`
	Role         role                `json:"role"`
	Reason       v1.DisruptionReason `json:"reason"`
	Method       disrupt.Method      `json:"method"`
	Candidates   []string            `json:"candidates"`
	Replacements []string            `json:"replacements,omitempty"`
	Created      time.Time           `json:"created"`
	Deadline     time.Time           `json:"deadline"`
}

func (r record) as(role role) string {
	r.Role = role
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and times always marshal
	}
	return string(text)
}

// recordOn reads the record of a claim; ok is false where there is none.
func recordOn(claim *v1.NodeClaim) (r record, ok bool, err error) {
	text, ok := claim.Annotations[v1.DisruptionCommandAnnotationKey]
	if !ok {
		return record{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return record{}, false, fmt.Errorf("read annotation %s of claim %s: %w", v1.DisruptionCommandAnnotationKey, claim.Name, err)
	}
	if r.ID == "" || len(r.Candidates) == 0 {
		return record{}, false, fmt.Errorf("annotation %s of claim %s names no command", v1.DisruptionCommandAnnotationKey, claim.Name)
	}
	return r, true, nil
}
