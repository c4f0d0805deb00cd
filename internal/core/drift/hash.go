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

// PoolHashVersion is the version of the mirror structs and of the way to hash them. If you change either, give it a new text: then the hash
// controllers rewrite the stored hashes, and no claim drifts.
const PoolHashVersion = "go1"

// A Stamp is a hash and its version, as annotations hold them.
type Stamp struct{ Hash, Version string }

// The mirror structs are what is hashed. They never change under one version. An absent value is omitted; sets are sorted.

// A poolMirror has the parts of a NodePool that are hashed.
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

// PoolStamp returns the stamp of a pool. It covers what the template sets on nodes: labels, annotations, taints, node class, the times that
// claims copy, and the kubelet settings that v1beta1 had in the pool. Satisfied judges requirements; the rest of a pool does not affect
// nodes.
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

// set sorts taints and removes repetitions, because their order in a list has no meaning.
func set(taints []taintMirror) []taintMirror {
	slices.SortFunc(taints, func(a, b taintMirror) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Value, b.Value))
	})
	return slices.Compact(taints)
}

// Digest returns the first 64 bits of the SHA-256 of a mirror's JSON, in decimal. Providers use it for the hashes of their node classes.
func Digest(mirror any) string {
	sum := sha256.Sum256(Canonical(mirror))
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8]), 10)
}

// Canonical returns a mirror as JSON. It panics on an error, which mirrors cannot cause.
func Canonical(mirror any) []byte {
	text, err := json.Marshal(mirror)
	if err != nil {
		panic(fmt.Errorf("drift: a mirror cannot be written as JSON: %w", err))
	}
	return text
}
