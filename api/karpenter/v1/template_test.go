package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodesDoNotGetAnnotationsThatKarpenterKeepsForItself(t *testing.T) {
	tmpl := &NodeClaimTemplate{Spec: NodeClaimTemplateSpec{NodeClassRef: &NodeClassReference{Group: "karpenter.k8s.aws"}}}
	tmpl.Annotations = map[string]string{
		"note": "x", DoNotDisruptAnnotationKey: "true", "mykarpenter.sh/note": "x", "example.com/disruption-command": "x",
		DisruptionCommandAnnotationKey: "x", LaunchTokenAnnotationKey: "x", EvictAfterAnnotationKey: "x", NodeClaimTerminationTimestampAnnotationKey: "x",
		NodePoolHashAnnotationKey: "x", NodePoolHashVersionAnnotationKey: "x", NodeClaimMinValuesRelaxedAnnotationKey: "x", ProviderCompatibilityAnnotationKey: "x",
		"karpenter.k8s.aws/tagged": "true", "compatibility.karpenter.k8s.aws/cluster-name-tagged": "true", Group + "/of-tomorrow": "x",
	}
	want := map[string]string{"note": "x", DoNotDisruptAnnotationKey: "true", "mykarpenter.sh/note": "x", "example.com/disruption-command": "x"}
	if diff := cmp.Diff(want, tmpl.NodeAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if got := tmpl.ReservedAnnotations(); len(got) != 11 {
		t.Errorf("%d annotations are reserved, want 11: %q", len(got), got)
	}
	if len(tmpl.Annotations) != 15 {
		t.Error("the template itself was changed, and with it its hash")
	}
}
