package label_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
)

func TestVocabulary(t *testing.T) {
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	for key, want := range map[string]struct {
		normalized                     string
		wellKnown, restricted, numeric bool
	}{
		v1.NodePoolLabelKey:                   {v1.NodePoolLabelKey, true, false, false},
		v1.CapacityTypeLabelKey:               {v1.CapacityTypeLabelKey, true, false, false},
		v1.NodeInitializedLabelKey:            {v1.NodeInitializedLabelKey, false, true, false},
		v1.Group + "/made-up":                 {v1.Group + "/made-up", false, true, false},
		"sub." + v1.Group + "/made-up":        {"sub." + v1.Group + "/made-up", false, true, false},
		"not-" + v1.Group + "/made-up":        {"not-" + v1.Group + "/made-up", false, false, false},
		v1.Group:                              {v1.Group, false, true, false},
		corev1.LabelHostname:                  {corev1.LabelHostname, false, true, false},
		corev1.LabelTopologyZone:              {corev1.LabelTopologyZone, true, false, false},
		corev1.LabelFailureDomainBetaZone:     {corev1.LabelTopologyZone, true, false, false},
		corev1.LabelFailureDomainBetaRegion:   {corev1.LabelTopologyRegion, true, false, false},
		corev1.LabelInstanceType:              {corev1.LabelInstanceTypeStable, true, false, false},
		"beta.kubernetes.io/arch":             {corev1.LabelArchStable, true, false, false},
		"beta.kubernetes.io/os":               {corev1.LabelOSStable, true, false, false},
		awsv1.LabelEBSZone:                    {corev1.LabelTopologyZone, true, false, false},
		awsv1.LabelInstanceCPU:                {awsv1.LabelInstanceCPU, true, false, true},
		awsv1.LabelInstanceFamily:             {awsv1.LabelInstanceFamily, true, false, false},
		awsv1.LabelNodeClass:                  {awsv1.LabelNodeClass, false, false, false},
		awsv1.Group + "/made-up":              {awsv1.Group + "/made-up", false, true, false},
		awsv1.LabelTopologyZoneID:             {awsv1.LabelTopologyZoneID, true, false, false},
		"node-restriction.kubernetes.io/team": {"node-restriction.kubernetes.io/team", false, false, false},
		"team":                                {"team", false, false, false},
	} {
		if got := known.Normalize(key); got != want.normalized {
			t.Errorf("Normalize(%s) = %s, want %s", key, got, want.normalized)
		}
		if got := known.WellKnown(key); got != want.wellKnown {
			t.Errorf("WellKnown(%s) = %t", key, got)
		}
		if got := known.Restricted(key); got != want.restricted {
			t.Errorf("Restricted(%s) = %t", key, got)
		}
		if got := known.Numeric(key); got != want.numeric {
			t.Errorf("Numeric(%s) = %t", key, got)
		}
	}
}

func TestOnlyClosedLabelsHaveValues(t *testing.T) {
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	for key, want := range map[string][]string{
		v1.CapacityTypeLabelKey:           {"spot", "on-demand", "reserved"},
		awsv1.LabelInstanceTenancy:        {"default", "dedicated"},
		awsv1.LabelInstanceCapabilityFlex: nil,
		"team":                            nil,
	} {
		if got := known.Values(key); !slices.Equal(got, want) {
			t.Errorf("Values(%s) = %v, want %v", key, got, want)
		}
	}
	known.Values(v1.CapacityTypeLabelKey)[0] = "changed"
	if got := known.Values(v1.CapacityTypeLabelKey)[0]; got != "spot" {
		t.Errorf("a caller changed the vocabulary: %s", got)
	}
}

func TestReservationLabels(t *testing.T) {
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	if !known.Reservation(awsv1.LabelCapacityReservationID) || known.Reservation(corev1.LabelTopologyZone) {
		t.Error("reservation labels are told apart wrongly")
	}
}

// TestTables holds the tables together: every label has a sentence, no key stands twice in a table, no flags contradict.
func TestTables(t *testing.T) {
	for _, table := range []label.Table{v1.Labels(), awsv1.Labels()} {
		seen := map[string]bool{}
		for _, l := range table.Labels {
			if seen[l.Key] {
				t.Errorf("%s stands twice", l.Key)
			}
			seen[l.Key] = true
			if l.Restricted && (l.WellKnown || l.Requirable) {
				t.Errorf("%s is restricted and allowed", l.Key)
			}
			if l.Closed && len(l.Values) == 0 {
				t.Errorf("%s is closed without values", l.Key)
			}
		}
	}
	for _, l := range label.NewVocabulary(v1.Labels(), awsv1.Labels()).Labels() {
		if l.Doc == "" {
			t.Errorf("%s has no sentence", l.Key)
		}
	}
}
