package hardware

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

func classWith(t *testing.T, kubelet string, edits ...func(*awsv1.EC2NodeClass)) (*Class, *awsv1.ManagedKubelet) {
	t.Helper()
	nc := &awsv1.EC2NodeClass{}
	nc.Spec.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte(kubelet)}
	for _, edit := range edits {
		edit(nc)
	}
	c, err := ClassOf(nc, Settings{Formulas: true, VMMemoryOverheadPercent: DefaultVMMemoryOverheadPercent})
	if err != nil {
		t.Fatal(err)
	}
	managed, err := nc.Spec.Kubelet.Managed()
	if err != nil {
		t.Fatal(err)
	}
	return c, managed
}

// TestFormulas: a machine is planned with what its kubelet is told.
func TestFormulas(t *testing.T) {
	bottlerocket := func(nc *awsv1.EC2NodeClass) {
		nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
	}
	for name, tc := range map[string]struct {
		kubelet  string
		edit     func(*awsv1.EC2NodeClass)
		pods     int64
		kept     string // of CPU, memory and disk, by the kubelet and by the system
		resolved string // kubeReserved and systemReserved
	}{
		"nothing":                            {`{}`, nil, 29, "70m 574Mi 1Gi, 0 0 0", "{} {}"},
		"pods by interfaces":                 {`{"maxPods":"default_enis * (ips_per_eni - 1)"}`, nil, 27, "70m 574Mi 1Gi, 0 0 0", "{} {}"},
		"pods by their default":              {`{"maxPods":"max_pods + 1"}`, nil, 30, "70m 574Mi 1Gi, 0 0 0", "{} {}"},
		"fewer by core":                      {`{"maxPods":"max_pods + 1","podsPerCore":5}`, nil, 10, "70m 574Mi 1Gi, 0 0 0", "{} {}"},
		"too many pods are the default":      {`{"maxPods":"3000000000"}`, nil, 29, "70m 574Mi 1Gi, 0 0 0", "{} {}"},
		"a reserve by pods":                  {`{"maxPods":"10","kubeReserved":{"memory":"11 * max_pods + 255","cpu":"1"}}`, nil, 10, "1 368Mi 1Gi, 0 0 0", `{"cpu":"1","memory":"368Mi"} {}`},
		"one without a value is the default": {`{"kubeReserved":{"memory":"1 / (vcpus - 2)","cpu":"0 - 1","ephemeral-storage":"vcpus"}}`, nil, 29, "70m 574Mi 2Gi, 0 0 0", `{"ephemeral-storage":"2Gi"} {}`},
		"the system's": {`{"systemReserved":{"memory":"memory_mib / 80","cpu":"vcpus * 11","pid":"vcpus * 500","ephemeral-storage":"1Gi"}}`, nil, 29, "70m 574Mi 1Gi, 30m 112Mi 1Gi",
			`{} {"cpu":"30m","ephemeral-storage":"1Gi","memory":"112Mi","pid":"1000"}`},
		"memory for pods that a formula counts": {`{"maxPods":"10"}`, bottlerocket, 10, "70m 365Mi 1Gi, 0 0 0", "{} {}"},
	} {
		t.Run(name, func(t *testing.T) {
			var edits []func(*awsv1.EC2NodeClass)
			if tc.edit != nil {
				edits = append(edits, tc.edit)
			}
			c, managed := classWith(t, tc.kubelet, edits...)
			large := typeNamed(t, "m5.large")
			it := Size(large, c, 0)
			if got := it.Capacity.Pods().Value(); got != tc.pods {
				t.Errorf("%d pods, want %d", got, tc.pods)
			}
			said := func(l corev1.ResourceList) string {
				return strings.Join([]string{l.Cpu().String(), l.Memory().String(), l.StorageEphemeral().String()}, " ")
			}
			if diff := cmp.Diff(tc.kept, said(it.Overhead.KubeReserved)+", "+said(it.Overhead.SystemReserved)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			resolved := c.Resolve(managed, large)
			if got := jsonOf(t, resolved.KubeReserved) + " " + jsonOf(t, resolved.SystemReserved); got != tc.resolved {
				t.Errorf("the kubelet is told %s, want %s", got, tc.resolved)
			}
		})
	}
}

func jsonOf(t *testing.T, m map[string]string) string {
	t.Helper()
	if m == nil {
		m = map[string]string{}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestResolveLeavesWhatIsWritten(t *testing.T) {
	c, managed := classWith(t, `{"kubeReserved":{"cpu":"vcpus * 10"}}`)
	c.Resolve(managed, typeNamed(t, "m5.large"))
	if got := managed.KubeReserved["cpu"]; got != "vcpus * 10" {
		t.Errorf("the class says %q afterwards", got)
	}
}

// TestClassesWithOtherFormulasDiffer: catalogues are shared by what classes are as JSON.
func TestClassesWithOtherFormulasDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, kubelet := range []string{
		`{}`, `{"maxPods":"vcpus"}`, `{"maxPods":"vcpus * 2"}`, `{"kubeReserved":{"cpu":"vcpus"}}`, `{"kubeReserved":{"memory":"vcpus"}}`, `{"systemReserved":{"cpu":"vcpus"}}`,
	} {
		c, _ := classWith(t, kubelet)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[string(text)]; ok {
			t.Errorf("%s and %s are the same class: %s", kubelet, other, text)
		}
		seen[string(text)] = kubelet
	}
}

func TestFormulasThatCannotBeRead(t *testing.T) {
	for kubelet, want := range map[string]string{
		`{"maxPods":"cores"}`:                  "kubelet.maxPods: ",
		`{"kubeReserved":{"cpu":"much"}}`:      "kubelet.kubeReserved.cpu: ",
		`{"systemReserved":{"pid":"vcpus >"}}`: "kubelet.systemReserved.pid: ",
	} {
		nc := &awsv1.EC2NodeClass{}
		nc.Spec.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte(kubelet)}
		if _, err := ClassOf(nc, Settings{Formulas: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kubelet, err, want)
		}
	}
}

func TestFormulaErrors(t *testing.T) {
	types := []*awsdata.InstanceType{typeNamed(t, "m5.large"), typeNamed(t, "m5.xlarge"), typeNamed(t, "m5.2xlarge"), typeNamed(t, "mac1.metal")}
	for kubelet, want := range map[string]string{
		`{"maxPods":"vcpus * 10","kubeReserved":{"cpu":"10"}}`: "",
		`{"maxPods":"vcpus - 3"}`:                              `maxPods: "vcpus - 3" for m5.large: -1 is no number of pods`,
		`{"maxPods":"100 / (vcpus - 4)"}`:                      "maxPods: ",
		`{"maxPods":"vcpus - 9"}`:                              "(and 2 more types)",
		`{"kubeReserved":{"cpu":"vcpus - 3"}}`:                 "kubeReserved.cpu: ",
		`{"systemReserved":{"pid":"1 / (vcpus - 8)"}}`:         "systemReserved.pid: ",
	} {
		c, _ := classWith(t, kubelet)
		err := c.FormulaErrors(types)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kubelet, err, want)
		}
	}
}

// TestEveryTypeHasWhatFormulasAskFor: of the facts that formulas divide by, none is 0 for a type that can be launched.
func TestEveryTypeHasWhatFormulasAskFor(t *testing.T) {
	c, _ := classWith(t, `{"maxPods":"min(max_pods, 1000000 / (vcpus * memory_mib * default_enis * ips_per_eni))"}`)
	if err := c.FormulaErrors(awsdata.Types()); err != nil {
		t.Error(err)
	}
}
