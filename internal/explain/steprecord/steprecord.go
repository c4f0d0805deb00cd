// Package steprecord reads and writes the record of a disruption step that was begun. Every claim of the step carries it in an annotation:
// the candidates, which go, and the replacements. So a new process can continue where the last one stopped, and the views of the cluster
// know which steps are under way.
//
// Every user who may change one claim can write a record. So a record counts only if every candidate that still exists carries it, and it
// says nothing about other claims.
package steprecord

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
)

// A Role says what a claim is to a command.
type Role string

// The roles.
const (
	Candidate   Role = "candidate"
	Replacement Role = "replacement"
)

// A Record describes a whole step. All claims of the step carry it in an annotation; only the role differs from claim
// to claim.
type Record struct {
	ID           string              `json:"id"`
	Role         Role                `json:"role"`
	Reason       v1.DisruptionReason `json:"reason"`
	Method       disrupt.Method      `json:"method"`
	Candidates   []Member            `json:"candidates"`
	Replacements []string            `json:"replacements,omitempty"`
	Created      time.Time           `json:"created"`
	Deadline     time.Time           `json:"deadline"`
	Plan         string              `json:"plan,omitempty"` // by which it was approved
}

// A Member is one claim. The UID tells it from a later claim with the same name.
type Member struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// Of returns a claim as a member.
func Of(claim *v1.NodeClaim) Member { return Member{claim.Name, claim.UID} }

// Node returns the machine of the claim, nil when the claim is gone.
func (m Member) Node(snap *cluster.Snapshot) *cluster.Node {
	if found := snap.ClaimNode(m.Name); found != nil && found.Claim != nil && found.Claim.UID == m.UID {
		return found
	}
	return nil
}

// Staying returns the machine of the claim, nil when the claim is gone or being deleted.
func (m Member) Staying(snap *cluster.Snapshot) *cluster.Node {
	if found := m.Node(snap); found != nil && found.Claim.DeletionTimestamp == nil {
		return found
	}
	return nil
}

// On reports whether a claim carries exactly this record, in a role.
func (r Record) On(claim *v1.NodeClaim, role Role) bool {
	found, ok, err := Read(claim)
	return ok && err == nil && found.Role == role && found.As(role) == r.As(role)
}

// As returns the text of the record for a claim of a role.
func (r Record) As(role Role) string {
	r.Role = role
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and times always marshal
	}
	return string(text)
}

// Read reads the record of a claim; ok is false where there is none.
func Read(claim *v1.NodeClaim) (r Record, ok bool, err error) {
	text, ok := claim.Annotations[v1.DisruptionCommandAnnotationKey]
	if !ok {
		return Record{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, false, fmt.Errorf("read annotation %s of claim %s: %w", v1.DisruptionCommandAnnotationKey, claim.Name, err)
	}
	if r.ID == "" || len(r.Candidates) == 0 {
		return Record{}, false, fmt.Errorf("annotation %s of claim %s names no command", v1.DisruptionCommandAnnotationKey, claim.Name)
	}
	return r, true, nil
}

// Names reports whether a claim takes part in the command.
func (r Record) Names(claim *v1.NodeClaim) bool {
	return slices.Contains(r.Candidates, Of(claim)) || slices.Contains(r.Replacements, claim.Name)
}

// UnderWay returns the records of the steps that are under way, the oldest first. A record counts if every candidate
// that still exists carries it, and at least one of them is not being deleted yet.
func UnderWay(snap *cluster.Snapshot) []Record {
	known := map[string]Record{}
	for n := range snap.Nodes() {
		if n.Claim == nil || n.Claim.DeletionTimestamp != nil {
			continue
		}
		if r, ok, err := Read(n.Claim); ok && err == nil && r.Role == Candidate && slices.Contains(r.Candidates, Of(n.Claim)) {
			known[r.As(Candidate)] = r
		}
	}
	var out []Record
	for _, r := range known {
		if !slices.ContainsFunc(r.Candidates, func(m Member) bool {
			n := m.Node(snap)
			return n != nil && !r.On(n.Claim, Candidate)
		}) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out
}
