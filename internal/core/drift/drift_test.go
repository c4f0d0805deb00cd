package drift_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/drift"
)

func vocabulary() *label.Vocabulary { return label.NewVocabulary(v1.Labels(), awsv1.Labels()) }

func claim(labels map[string]string) *v1.NodeClaim {
	return &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
}

func TestStatic(t *testing.T) {
	for name, tc := range map[string]struct {
		owner, claim drift.Stamp
		want         bool
	}{
		"equal hashes":                          {drift.Stamp{Hash: "1", Version: "a"}, drift.Stamp{Hash: "1", Version: "a"}, false},
		"different hashes":                      {drift.Stamp{Hash: "1", Version: "a"}, drift.Stamp{Hash: "2", Version: "a"}, true},
		"different versions cannot be compared": {drift.Stamp{Hash: "1", Version: "a"}, drift.Stamp{Hash: "2", Version: "b"}, false},
		"no hash on the claim":                  {drift.Stamp{Hash: "1", Version: "a"}, drift.Stamp{Version: "a"}, false},
		"no hash on the owner":                  {drift.Stamp{Version: "a"}, drift.Stamp{Hash: "2", Version: "a"}, false},
		"no version on either":                  {drift.Stamp{Hash: "1"}, drift.Stamp{Hash: "2"}, false},
		"no version on the claim":               {drift.Stamp{Hash: "1", Version: "a"}, drift.Stamp{Hash: "2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := drift.Static(tc.owner, tc.claim); got != tc.want {
				t.Errorf("Static = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestReasonPrefersStaticDriftToRequirements(t *testing.T) {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		v1.NodePoolHashAnnotationKey: "1", v1.NodePoolHashVersionAnnotationKey: drift.PoolHashVersion,
	}}}
	p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: "team", Operator: corev1.NodeSelectorOpExists}}
	c := claim(nil)
	if got := drift.Reason(p, c, vocabulary()); got != v1.ReasonRequirementsDrifted {
		t.Errorf("Reason without hash on the claim = %q", got)
	}
	c.Annotations = map[string]string{v1.NodePoolHashAnnotationKey: "2", v1.NodePoolHashVersionAnnotationKey: drift.PoolHashVersion}
	if got := drift.Reason(p, c, vocabulary()); got != v1.ReasonNodePoolDrifted {
		t.Errorf("Reason with another hash = %q", got)
	}
	c.Annotations[v1.NodePoolHashAnnotationKey], c.Labels = "1", map[string]string{"team": "a"}
	if got := drift.Reason(p, c, vocabulary()); got != "" {
		t.Errorf("Reason of a claim that matches = %q", got)
	}
}

func TestSatisfied(t *testing.T) {
	labels := map[string]string{"cpu": "8", "arch": "arm64", corev1.LabelTopologyZone: "z1"}
	for name, tc := range map[string]struct {
		key      string
		operator corev1.NodeSelectorOperator
		values   []string
		want     bool
	}{
		"value among those of a widened list":     {"arch", "In", []string{"amd64", "arm64"}, true},
		"value removed from the list":             {"arch", "In", []string{"amd64"}, false},
		"In for a label that the claim lacks":     {"team", "In", []string{"a"}, false},
		"NotIn with the claim's value":            {"arch", "NotIn", []string{"arm64"}, false},
		"NotIn with other values":                 {"arch", "NotIn", []string{"amd64"}, true},
		"NotIn for a label that the claim lacks":  {"team", "NotIn", []string{"a"}, true},
		"NotIn of nothing means Exists":           {"team", "NotIn", nil, false},
		"NotIn of nothing with a value":           {"arch", "NotIn", nil, true},
		"Exists with a value":                     {"arch", "Exists", nil, true},
		"Exists for a label that the claim lacks": {"team", "Exists", nil, false},
		"DoesNotExist with a value":               {"arch", "DoesNotExist", nil, false},
		"DoesNotExist for a label that it lacks":  {"team", "DoesNotExist", nil, true},
		"Gt below the number":                     {"cpu", "Gt", []string{"7"}, true},
		"Gt at the number":                        {"cpu", "Gt", []string{"8"}, false},
		"Lt above the number":                     {"cpu", "Lt", []string{"9"}, true},
		"Lt at the number":                        {"cpu", "Lt", []string{"8"}, false},
		"Gte at the number":                       {"cpu", "Gte", []string{"8"}, true},
		"Gte above the number":                    {"cpu", "Gte", []string{"9"}, false},
		"Lte at the number":                       {"cpu", "Lte", []string{"8"}, true},
		"Lte below the number":                    {"cpu", "Lte", []string{"7"}, false},
		"Gt for a label that is no number":        {"arch", "Gt", []string{"1"}, false},
		"Gt for a label that the claim lacks":     {"team", "Gt", []string{"1"}, false},
		"the old name of a label":                 {corev1.LabelFailureDomainBetaZone, "In", []string{"z1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := []v1.NodeSelectorRequirementWithMinValues{{Key: tc.key, Operator: tc.operator, Values: tc.values}}
			if got := drift.Satisfied(r, labels, vocabulary()); got != tc.want {
				t.Errorf("Satisfied = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestMinValuesDriftNothing(t *testing.T) {
	fifty := 50
	r := []v1.NodeSelectorRequirementWithMinValues{{Key: "a", Operator: "Exists", MinValues: &fifty}}
	if !drift.Satisfied(r, map[string]string{"a": "1"}, vocabulary()) {
		t.Error("minValues counted for drift")
	}
}

func TestInstanceTypeGone(t *testing.T) {
	offering := func(zone, capacityType, reservation string) cloud.Offering {
		labels := map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: capacityType}
		if reservation != "" {
			labels[awsv1.LabelCapacityReservationID] = reservation
		}
		return cloud.Offering{Labels: labels}
	}
	labels := func(capacityType, reservation string) map[string]string {
		l := map[string]string{corev1.LabelInstanceTypeStable: "m", corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: capacityType}
		if reservation != "" {
			l[awsv1.LabelCapacityReservationID] = reservation
		}
		return l
	}
	for name, tc := range map[string]struct {
		labels    map[string]string
		offerings []cloud.Offering
		want      bool
	}{
		"an unavailable offering is still an offering":  {labels("spot", ""), []cloud.Offering{offering("a", "spot", "")}, false},
		"only another zone":                             {labels("spot", ""), []cloud.Offering{offering("b", "spot", "")}, true},
		"only another capacity type":                    {labels("spot", ""), []cloud.Offering{offering("a", "on-demand", "")}, true},
		"no offerings":                                  {labels("spot", ""), nil, true},
		"reserved claim, its reservation":               {labels("reserved", "cr-1"), []cloud.Offering{offering("a", "reserved", "cr-1")}, false},
		"reserved claim, another reservation":           {labels("reserved", "cr-1"), []cloud.Offering{offering("a", "reserved", "cr-2")}, false},
		"reserved claim, on-demand is left":             {labels("reserved", "cr-1"), []cloud.Offering{offering("a", "on-demand", "")}, false},
		"reserved claim, only spot is left":             {labels("reserved", "cr-1"), []cloud.Offering{offering("a", "spot", "")}, true},
		"reserved claim, on-demand in another zone":     {labels("reserved", "cr-1"), []cloud.Offering{offering("b", "on-demand", "")}, true},
		"on-demand claim does not live on reservations": {labels("on-demand", ""), []cloud.Offering{offering("a", "reserved", "cr-1")}, true},
		"type that the catalogue does not know":         {map[string]string{corev1.LabelInstanceTypeStable: "x"}, []cloud.Offering{offering("a", "spot", "")}, true},
		"no type label":                                 {nil, []cloud.Offering{offering("a", "spot", "")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := &cloud.Catalog{Types: []*cloud.InstanceType{{Name: "l"}, {Name: "m", Offerings: tc.offerings}}}
			if got := drift.InstanceTypeGone(claim(tc.labels), catalog, vocabulary()); got != tc.want {
				t.Errorf("InstanceTypeGone = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestMigrate(t *testing.T) {
	present := drift.Stamp{Hash: "new", Version: "2"}
	stamped := func(name, hash, version string, drifted bool) *v1.NodeClaim {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
		if version != "" {
			c.Annotations[v1.NodePoolHashAnnotationKey], c.Annotations[v1.NodePoolHashVersionAnnotationKey] = hash, version
		}
		if drifted {
			condition.SetTrue(c, v1.ConditionTypeDrifted, time.Unix(0, 0))
		}
		return c
	}
	claims := []*v1.NodeClaim{
		stamped("old", "h", "1", false), stamped("old and drifted", "h", "1", true),
		stamped("present", "h", "2", false), stamped("never stamped", "", "", false),
	}
	read := func(c *v1.NodeClaim) drift.Stamp { return drift.Stored(c.Annotations) }
	for name, tc := range map[string]struct {
		stored drift.Stamp
		want   map[string]drift.Stamp
	}{
		"the owner has the present version": {drift.Stamp{Hash: "other", Version: "2"}, map[string]drift.Stamp{}},
		"the owner has another version": {drift.Stamp{Hash: "x", Version: "1"}, map[string]drift.Stamp{
			"old": present, "old and drifted": {Hash: "h", Version: "2"}, "never stamped": present,
		}},
		"the owner was never stamped": {drift.Stamp{}, map[string]drift.Stamp{
			"old": present, "old and drifted": {Hash: "h", Version: "2"}, "never stamped": present,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]drift.Stamp{}
			for _, r := range drift.Migrate(tc.stored, present, claims, read) {
				got[r.Claim.Name] = r.Stamp
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Migrate (-want +got):\n%s", diff)
			}
		})
	}
}
