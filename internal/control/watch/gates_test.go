package watch

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"karpenter.sh/karpenter/internal/cluster"
)

// What is switched off is not watched, so that it needs no right and no memory.
func TestKindsOfFeaturesAreWatchedOnlyWithThem(t *testing.T) {
	watched := func(s Settings) []string {
		names, _ := New(API{Client: fake.NewClientBuilder().Build()}, cluster.NewStore(), s).Missing()
		return names
	}
	for name, tc := range map[string]struct {
		on   Settings
		kind string
	}{
		"overlays":    {Settings{Overlays: true}, "NodeOverlay"},
		"commitments": {Settings{Commitments: true}, "CommitmentDiscount"},
		"rollouts":    {Settings{Rollouts: true}, "RolloutPolicy"},
		"quotas":      {Settings{Quotas: true}, "CapacityQuota"},
		"buffers":     {Settings{Buffers: true}, "CapacityBuffer"},
		"foresight":   {Settings{Announcing: true}, "CronJob"},
	} {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(watched(Settings{}), tc.kind) {
				t.Errorf("%s is watched while it is off", tc.kind)
			}
			if !slices.Contains(watched(tc.on), tc.kind) {
				t.Errorf("%s is not watched while it is on", tc.kind)
			}
		})
	}
}
