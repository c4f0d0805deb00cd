package drift

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// PoolHashVersion stands for one set of mirror structs and one way to hash them: a developer who changes either
// gives it a new text, and the hash controllers then rewrite what is stored instead of drifting the fleet.
const PoolHashVersion = "go1"

// A Stamp is a hash and its version, as annotations hold them.
type Stamp struct{ Hash, Version string }

// The mirror structs are what is hashed. They never change under one version. Absent means omitted; a set has one order.

type poolMirror struct {
	Labels                 map[string]string `json:"labels,omitempty"`
	Annotations            map[string]string `json:"annotations,omitempty"`
	Taints                 []taintMirror     `json:"taints,omitempty"`
	StartupTaints          []taintMirror     `json:"startupTaints,omitempty"`
	NodeClass              *classRefMirror   `json:"nodeClassRef,omitempty"`
	TerminationGracePeriod *time.Duration    `json:"terminationGracePeriod,omitempty"`
	ExpireAfter            *time.Duration    `json:"expireAfter,omitempty"`
	Kubelet                string            `json:"kubelet,omitempty"` // of pools that v1beta1 wrote
}

type taintMirror struct {
	Key    string `json:"key,omitempty"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect,omitempty"`
}

type classRefMirror struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Name  string `json:"name,omitempty"`
}

// PoolStamp hashes what of a pool's template makes nodes what they are: labels, annotations, taints, node class,
// the times that claims take over, and the kubelet that v1beta1 kept with the pool. Requirements are judged by
// Requirements, and the rest of a pool says nothing about its nodes.
func PoolStamp(pool *v1.NodePool) Stamp {
	template := &pool.Spec.Template
	mirror := poolMirror{
		Labels:        template.Labels,
		Annotations:   template.Annotations,
		Taints:        taintMirrors(template.Spec.Taints),
		StartupTaints: taintMirrors(template.Spec.StartupTaints),
		ExpireAfter:   template.Spec.ExpireAfter.Duration,
		Kubelet:       pool.Annotations[v1.KubeletCompatibilityAnnotationKey],
	}
	if ref := template.Spec.NodeClassRef; ref != nil {
		mirror.NodeClass = &classRefMirror{Group: ref.Group, Kind: ref.Kind, Name: ref.Name}
	}
	if period := template.Spec.TerminationGracePeriod; period != nil {
		mirror.TerminationGracePeriod = &period.Duration
	}
	return Stamp{Hash: Digest(mirror), Version: PoolHashVersion}
}

func taintMirrors(taints []corev1.Taint) []taintMirror {
	out := make([]taintMirror, len(taints))
	for i, t := range taints {
		out[i] = taintMirror{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
	}
	return set(out)
}

// set puts taints into one order and takes out repetitions: their order in a list means nothing.
func set(taints []taintMirror) []taintMirror {
	slices.SortFunc(taints, func(a, b taintMirror) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Value, b.Value))
	})
	return slices.Compact(taints)
}

// Digest is the first 64 bits of the SHA-256 of a mirror's JSON, in decimal. A program that stamps hashes of its own, as providers do with
// their node classes, hashes it with this.
func Digest(mirror any) string {
	sum := sha256.Sum256(Canonical(mirror))
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8]), 10)
}

// Canonical writes a mirror as JSON. Mirrors hold nothing that JSON cannot say, so there is no error to report.
func Canonical(mirror any) []byte {
	text, err := json.Marshal(mirror)
	if err != nil {
		panic(fmt.Errorf("drift: a mirror cannot be written as JSON: %w", err))
	}
	return text
}
