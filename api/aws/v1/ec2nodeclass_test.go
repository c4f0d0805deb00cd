package v1_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
)

func TestAMIFamily(t *testing.T) {
	class := func(family string, aliases ...string) *v1.EC2NodeClass {
		c := &v1.EC2NodeClass{}
		if family != "" {
			c.Spec.AMIFamily = &family
		}
		for _, alias := range aliases {
			c.Spec.AMISelectorTerms = append(c.Spec.AMISelectorTerms, v1.AMISelectorTerm{Alias: alias})
		}
		return c
	}
	for name, tc := range map[string]struct {
		class *v1.EC2NodeClass
		want  string
	}{
		"the family that is set":        {class("Bottlerocket"), "Bottlerocket"},
		"the family of the alias":       {class("", "al2023@latest"), "AL2023"},
		"Custom with an alias":          {class("Custom", "al2@latest"), "Custom"},
		"neither":                       {class(""), "Custom"},
		"an alias of an unknown family": {class("", "AL2@latest"), "Custom"},
		"Windows":                       {class("", "windows2025@latest"), "Windows2025"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.class.AMIFamily(); got != tc.want {
				t.Errorf("AMIFamily = %s, want %s", got, tc.want)
			}
		})
	}
	if alias := class("", "", "bottlerocket@v1.2.3").Alias(); alias == nil || *alias != (v1.Alias{Family: "Bottlerocket", Version: "v1.2.3"}) {
		t.Errorf("Alias = %v", alias)
	}
	if class("AL2").Alias() != nil {
		t.Error("an alias where there is none")
	}
}

func TestKubeletConfiguration(t *testing.T) {
	const text = `{"maxPods": "vcpus * 10", "clusterDNS": ["10.0.0.10"], "logging": {"format": "json", "x": null}, "evictionHard": {"memory.available": "5%"}, "cpuManagerPolicy": "static", "podsPerCore": 12345678901}`
	var spec v1.EC2NodeClassSpec
	if err := json.Unmarshal([]byte(`{"kubelet": `+text+`}`), &spec); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(spec.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	var before, after any
	if json.Unmarshal([]byte(text), &before) != nil || json.Unmarshal(out, &after) != nil || !strings.Contains(string(out), `"x":null`) {
		t.Errorf("written back: %s", out)
	}
	passthrough, err := spec.Kubelet.Passthrough()
	if err != nil || !slices.Equal(passthrough, []string{"cpuManagerPolicy", "logging"}) {
		t.Errorf("Passthrough = %v, %v", passthrough, err)
	}
	if _, err := spec.Kubelet.Managed(); err == nil {
		t.Error("a podsPerCore beyond 32 bits was decoded")
	}
	copied := spec.Kubelet.DeepCopy()
	copied.Raw[0] = 'x'
	if spec.Kubelet.Raw[0] != '{' {
		t.Error("a deep copy shares its text")
	}
}

func TestManagedKubelet(t *testing.T) {
	k, err := v1.NewKubeletConfiguration(map[string]any{"maxPods": 42, "kubeReserved": map[string]string{"cpu": "100m"}, "cpuCFSQuota": false, "clusterDNS": []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	managed, err := k.Managed()
	if err != nil {
		t.Fatal(err)
	}
	if managed.MaxPods.IntValue() != 42 || managed.KubeReserved["cpu"] != "100m" || *managed.CPUCFSQuota || managed.ClusterDNS[0] != "a" || managed.PodsPerCore != nil {
		t.Errorf("Managed = %+v", managed)
	}
	var none *v1.KubeletConfiguration
	if managed, err := none.Managed(); err != nil || managed.MaxPods != nil {
		t.Errorf("Managed of nothing = %+v, %v", managed, err)
	}
	if passthrough, err := none.Passthrough(); err != nil || passthrough != nil {
		t.Errorf("Passthrough of nothing = %v, %v", passthrough, err)
	}
	for _, bad := range []string{`[]`, `"x"`, `5`} {
		if json.Unmarshal([]byte(bad), &v1.KubeletConfiguration{}) == nil {
			t.Errorf("%s was read as a kubelet configuration", bad)
		}
	}
}

// TestManagedKubeletFields compares the list with the struct.
func TestManagedKubeletFields(t *testing.T) {
	full := `{"clusterDNS":["a"],"maxPods":1,"podsPerCore":1,"systemReserved":{"a":"b"},"kubeReserved":{"a":"b"},"evictionHard":{"a":"b"},"evictionSoft":{"a":"b"},"evictionSoftGracePeriod":{"a":"b"},"evictionMaxPodGracePeriod":1,"imageGCHighThresholdPercent":1,"imageGCLowThresholdPercent":1,"cpuCFSQuota":true}`
	var managed v1.ManagedKubelet
	if err := json.Unmarshal([]byte(full), &managed); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(managed)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(out, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range v1.ManagedKubeletFields() {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s is not a field of ManagedKubelet", name)
		}
	}
	if len(fields) != len(v1.ManagedKubeletFields()) || !slices.IsSorted(v1.ManagedKubeletFields()) {
		t.Errorf("the list has %d names, the struct %d fields", len(v1.ManagedKubeletFields()), len(fields))
	}
}

func TestCanonicalKubelet(t *testing.T) {
	for raw, want := range map[string]string{
		``: "null", `{}`: "null", `{"b": 1, "a": {"d": 2.50, "c": 12345678901234567890}}`: `{"a":{"c":12345678901234567890,"d":2.50},"b":1}`,
	} {
		k := &v1.KubeletConfiguration{Raw: []byte(raw)}
		if got, err := k.Canonical(); err != nil || got != want {
			t.Errorf("Canonical(%s) = %s, %v, want %s", raw, got, err, want)
		}
	}
}

func TestReadyWithoutReservations(t *testing.T) {
	class := &v1.EC2NodeClass{}
	class.Generation = 1
	now := time.Unix(0, 0)
	for _, dependent := range class.ConditionRules().Dependents {
		if dependent != v1.ConditionTypeCapacityReservationsReady {
			condition.SetTrue(class.WithoutCapacityReservations(), dependent, now)
		}
	}
	if !condition.IsTrue(class, v1.ConditionTypeReady) || condition.Get(class, v1.ConditionTypeCapacityReservationsReady) != nil {
		t.Errorf("with the gate off: %v", class.Status.Conditions)
	}
	condition.Init(class)
	if !condition.IsUnknown(class, v1.ConditionTypeReady) {
		t.Errorf("with the gate on: %v", class.Status.Conditions)
	}
}

func TestRestrictedTag(t *testing.T) {
	for key, want := range map[string]bool{
		"eks:eks-cluster-name": true, "kubernetes.io/cluster/a": true, v1.TagNodePool: true, v1.TagNodeClaim: true, v1.TagNodeClass: true,
		"Name": false, "team": false, "eks:other": false,
	} {
		if got := v1.RestrictedTag(key); got != want {
			t.Errorf("RestrictedTag(%s) = %t", key, got)
		}
	}
}
