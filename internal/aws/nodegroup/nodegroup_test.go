package nodegroup

import (
	"fmt"
	"strings"
	"testing"
)

func TestAWidenedPoolTakesTheOldestGenerationAndYounger(t *testing.T) {
	groups, err := Read([]byte(`{"nodegroup":{"nodegroupName":"web","clusterName":"demo","instanceTypes":["c6i.large","m5.large","m7g.large"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range Pools(groups, Options{Widen: true})[0].Pool.Spec.Template.Spec.Requirements {
		got = append(got, fmt.Sprint(r.Key, " ", r.Operator, " ", r.Values))
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{"karpenter.k8s.aws/instance-category In [c m]", "karpenter.k8s.aws/instance-generation Gt [4]", "kubernetes.io/arch In [amd64 arm64]"} {
		if !strings.Contains(text, want) {
			t.Errorf("no requirement %s in\n%s", want, text)
		}
	}
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"nodegroup":{"instanceTypes":"m5.large"}}`: "document 1: nodegroup.InstanceTypes cannot be a string",
		`[1]`: "document 1: " + errNoGroup.Error(),
		`{"nodegroup":{"nodegroupName":"a"}}{"nodegroup":{"diskSize":"20Gi"}}`: "document 2: nodegroup.DiskSize cannot be a string",
	} {
		if _, err := Read([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("Read(%s) = %v, want %s", text, err, want)
		}
	}
}
