package aws

import (
	"strings"
	"testing"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

// An annotation with a number that takes long to parse is refused, also where an escape hides it.
func TestAKubeletAnnotationWithAnAbsurdNumberIsRefused(t *testing.T) {
	begin := time.Now()
	for _, amount := range []string{"1e-40000000", `1\u0065-40000000`} {
		_, err := (&variants{}).class(variant{class: &awsv1.EC2NodeClass{}, kubelet: `{"kubeReserved":{"cpu":"` + amount + `"}}`})
		if err == nil || !strings.Contains(err.Error(), "1e-40000000") {
			t.Errorf("%s: %v", amount, err)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
