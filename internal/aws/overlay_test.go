package aws

import (
	"context"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// bargain says that for the pool "default" r5.2xlarge costs next to nothing and has a resource that EC2 does not know.
func bargain(_ context.Context, pool string, c *cloud.Catalog) *cloud.Catalog {
	out := &cloud.Catalog{Types: slices.Clone(c.Types)}
	for i, it := range out.Types {
		if it.Name != "r5.2xlarge" || pool != "default" {
			continue
		}
		changed := *it
		changed.Capacity = maps.Clone(it.Capacity)
		changed.Capacity["example.com/x"] = resource.MustParse("3")
		changed.Offerings = slices.Clone(it.Offerings)
		for n := range changed.Offerings {
			changed.Offerings[n].Price, changed.Offerings[n].Overlaid = 1_000_000, true
		}
		out.Types[i] = &changed
	}
	return out
}

func TestALaunchReckonsWithOverlays(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.provider.env.in.Corrected = bargain
		claim := newClaim("a")
		claim.Annotations = map[string]string{v1.PriceOverlayAppliedAnnotationKey: "true"}
		_, m := w.create(t, claim)
		if m.InstanceType != "r5.2xlarge" {
			t.Fatalf("launched %s, want what the overlay makes the cheapest", m.InstanceType)
		}
		found, err := w.provider.Get(t.Context(), m.ProviderID)
		if err != nil {
			t.Fatal(err)
		}
		for what, capacity := range map[string]cloud.Machine{"launched": m, "found again": found} {
			if x := capacity.Capacity["example.com/x"]; x.Value() != 3 {
				t.Errorf("the machine that was %s has %s of the overlay's resource, want 3", what, x.String())
			}
		}
		standalone := newClaim("b")
		delete(standalone.Labels, v1.NodePoolLabelKey)
		standalone.Annotations = claim.Annotations
		if _, m := w.create(t, standalone); m.InstanceType == "r5.2xlarge" {
			t.Error("an overlay of a pool counted for a claim without pool")
		}
	})
}
