package supervise

import (
	"encoding/base64"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"karpenter.sh/karpenter/local/plane"
)

// The files name addresses and names that the rest has in code.
func TestTheWayToMetricsLeadsWhereTheyAre(t *testing.T) {
	all, err := furniture([]byte("authority"))
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string]*unstructured.Unstructured{}
	for _, o := range all {
		byKind[o.GetKind()] = o
	}
	said := func(kind string, path ...string) string {
		value, _, err := unstructured.NestedFieldNoCopy(byKind[kind].Object, path...)
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprint(value)
	}
	for what, got := range map[string][2]string{
		"service":             {said("Service", "metadata", "name"), plane.UsageService},
		"its namespace":       {said("Service", "metadata", "namespace"), plane.Namespace},
		"slice of":            {byKind["EndpointSlice"].GetLabels()["kubernetes.io/service-name"], plane.UsageService},
		"namespace of slice":  {said("EndpointSlice", "metadata", "namespace"), plane.Namespace},
		"address":             {said("EndpointSlice", "endpoints"), fmt.Sprintf("[map[addresses:[%s] conditions:map[ready:true]]]", plane.UsageIP)},
		"service of the API":  {said("APIService", "spec", "service", "name"), plane.UsageService},
		"authority":           {said("APIService", "spec", "caBundle"), base64.StdEncoding.EncodeToString([]byte("authority"))},
		"believed unverified": {said("APIService", "spec", "insecureSkipTLSVerify"), "<nil>"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %q, want %q", what, got[0], got[1])
		}
	}
}
