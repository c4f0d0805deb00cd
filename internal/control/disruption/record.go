package disruption

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
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
//
// Anybody who may change one claim can write one. So it is believed only where every candidate that still exists carries it too,
// and it never says anything about a claim that does not.
type record struct {
	ID           string              `json:"id"`
	Role         role                `json:"role"`
	Reason       v1.DisruptionReason `json:"reason"`
	Method       disrupt.Method      `json:"method"`
	Candidates   []member            `json:"candidates"`
	Replacements []string            `json:"replacements,omitempty"`
	Created      time.Time           `json:"created"`
	Deadline     time.Time           `json:"deadline"`
	Plan         string              `json:"plan,omitempty"` // by which it was approved
}

// A member is one claim, and none that gets its name later.
type member struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// node returns the machine of the claim, nil when the claim is gone.
func (m member) node(snap *cluster.Snapshot) *cluster.Node {
	if found := snap.ClaimNode(m.Name); found != nil && found.Claim != nil && found.Claim.UID == m.UID {
		return found
	}
	return nil
}

// staying returns the machine of the claim, nil when the claim is gone or being deleted.
func (m member) staying(snap *cluster.Snapshot) *cluster.Node {
	if found := m.node(snap); found != nil && found.Claim.DeletionTimestamp == nil {
		return found
	}
	return nil
}

func memberOf(claim *v1.NodeClaim) member { return member{claim.Name, claim.UID} }

// on tells whether a claim carries this very record, in a role.
func (r record) on(claim *v1.NodeClaim, role role) bool {
	found, ok, err := recordOn(claim)
	return ok && err == nil && found.Role == role && found.as(role) == r.as(role)
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

// names tells whether a claim takes part in the command.
func (r record) names(claim *v1.NodeClaim) bool {
	return slices.Contains(r.Candidates, memberOf(claim)) || slices.Contains(r.Replacements, claim.Name)
}
