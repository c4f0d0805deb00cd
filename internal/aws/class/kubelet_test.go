package class

import (
	"slices"
	"strings"
	"testing"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

func configuration(t *testing.T, text string) *awsv1.KubeletConfiguration {
	t.Helper()
	k := &awsv1.KubeletConfiguration{}
	if err := k.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCheckKubelet(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string // what the messages name, in order
	}{
		"empty":                              {`{}`, nil},
		"fields that only the kubelet has":   {`{"topologyManagerPolicy":"best-effort","memorySwap":{"swapBehavior":"NoSwap"}}`, nil},
		"thresholds and reserves":            {`{"evictionHard":{"memory.available":"5%","pid.available":"100"},"kubeReserved":{"cpu":"1","pid":"100"}}`, nil},
		"soft thresholds with grace":         {`{"evictionSoft":{"memory.available":"5%"},"evictionSoftGracePeriod":{"memory.available":"1m"}}`, nil},
		"an expression":                      {`{"maxPods":"vcpus * 8","kubeReserved":{"cpu":"vcpus"}}`, nil},
		"an unknown field":                   {`{"nope":1}`, []string{"nope"}},
		"an unknown field further down":      {`{"memorySwap":{"nope":1}}`, []string{"memorySwap.nope"}},
		"a wrong type":                       {`{"podsPerCore":"x"}`, []string{"podsPerCore", "podsPerCore"}},
		"taints":                             {`{"registerWithTaints":[]}`, []string{"registerWithTaints"}},
		"an unknown signal":                  {`{"evictionHard":{"gpu.available":"5%"}}`, []string{"gpu.available"}},
		"a threshold above 100 %":            {`{"evictionHard":{"memory.available":"105%"}}`, []string{"105%"}},
		"a negative threshold":               {`{"evictionMinimumReclaim":{"memory.available":"-1Gi"}}`, []string{"-1Gi"}},
		"a grace period that is none":        {`{"evictionSoft":{"memory.available":"5%"},"evictionSoftGracePeriod":{"memory.available":"soon"}}`, []string{"soon"}},
		"soft without grace":                 {`{"evictionSoft":{"memory.available":"5%"}}`, []string{"no evictionSoftGracePeriod"}},
		"grace without soft":                 {`{"evictionSoftGracePeriod":{"memory.available":"1m"}}`, []string{"no evictionSoft"}},
		"an odd reserve":                     {`{"systemReserved":{"gpu":"1"}}`, []string{"gpu"}},
		"a negative reserve":                 {`{"kubeReserved":{"cpu":"-1"}}`, []string{"-1"}},
		"image thresholds out of range":      {`{"imageGCHighThresholdPercent":101,"imageGCLowThresholdPercent":-1}`, []string{"High", "Low"}},
		"image thresholds upside down":       {`{"imageGCHighThresholdPercent":50,"imageGCLowThresholdPercent":50}`, []string{"greater"}},
		"an unknown field three levels down": {`{"logging":{"options":{"json":{"nope":1}}}}`, []string{"logging.options.json.nope"}},
		"zero values":                        {`{"podsPerCore":0,"maxPods":0,"evictionMaxPodGracePeriod":0,"imageGCLowThresholdPercent":0,"kubeReserved":{"cpu":"0"},"evictionHard":{"memory.available":"0%"}}`, nil},
		"a threshold of 100 %":               {`{"evictionHard":{"memory.available":"100%"}}`, nil},
		"one image threshold alone":          {`{"imageGCHighThresholdPercent":0}`, nil},
		"image thresholds in order":          {`{"imageGCHighThresholdPercent":51,"imageGCLowThresholdPercent":50}`, nil},
		"thresholds that are none":           {`{"evictionHard":{"memory.available":"x"},"evictionSoft":{"nodefs.available":"5x%"},"evictionSoftGracePeriod":{"nodefs.available":"1m"},"evictionMinimumReclaim":{"pid.available":""}}`, []string{"evictionHard", "evictionSoft", "evictionMinimumReclaim"}},
		"a threshold that is no number":      {`{"evictionHard":{"memory.available":"NaN%"}}`, []string{"NaN%"}},
		"odd signals everywhere":             {`{"evictionSoft":{"a":"1"},"evictionSoftGracePeriod":{"a":"1s"},"evictionMinimumReclaim":{"a":"1"}}`, []string{"evictionSoft", "evictionMinimumReclaim", "evictionSoftGracePeriod"}},
		"a negative grace period":            {`{"evictionSoft":{"memory.available":"5%"},"evictionSoftGracePeriod":{"memory.available":"-1m"}}`, []string{"-1m"}},
		"DNS that is no address":             {`{"clusterDNS":["10.0.0.10","10.0.0.10'; curl x | sh; '"]}`, []string{"clusterDNS"}},
		"DNS that is no list":                {`{"clusterDNS":"10.0.0.10"}`, []string{"clusterDNS", "clusterDNS"}},
		"a number of pods that is none":      {`{"maxPods":true}`, []string{"maxPods", "maxPods"}},
		"more pods than fit a number":        {`{"maxPods":2147483648}`, []string{"maxPods", "2147483648"}},
		"several things at once":             {`{"registerWithTaints":[],"nope":1,"kubeReserved":{"gpu":"-1"}}`, []string{"registerWithTaints", "nope", "gpu", "negative"}},
		"negative numbers":                   {`{"podsPerCore":-1,"maxPods":-2,"evictionMaxPodGracePeriod":-3}`, []string{"podsPerCore", "evictionMaxPodGracePeriod", "maxPods"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := CheckKubelet(configuration(t, tc.text))
			if len(got) != len(tc.want) {
				t.Fatalf("messages = %q, want %d", got, len(tc.want))
			}
			for i, part := range tc.want {
				if !strings.Contains(got[i], part) {
					t.Errorf("message %q does not name %q", got[i], part)
				}
			}
		})
	}
	if got := CheckKubelet(nil); got != nil {
		t.Errorf("no configuration is wrong: %q", got)
	}
}

func TestExpressions(t *testing.T) {
	m, err := configuration(t, `{"maxPods":"vcpus","kubeReserved":{"cpu":"max_pods * 2","memory":"1Gi"},"systemReserved":{"pid":"vcpus"}}`).Managed()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := expressions(m), []string{"kubeReserved.cpu", "maxPods", "systemReserved.pid"}; !slices.Equal(got, want) {
		t.Errorf("expressions = %v, want %v", got, want)
	}
}

func TestCheckFamily(t *testing.T) {
	for name, tc := range map[string]struct {
		family, text string
		ok           bool
	}{
		"AL2023 takes everything":              {awsv1.AMIFamilyAL2023, `{"topologyManagerPolicy":"none","podsPerCore":1,"clusterDNS":["a","b"]}`, true},
		"Custom is on its own":                 {awsv1.AMIFamilyCustom, `{"topologyManagerPolicy":"none"}`, true},
		"AL2 takes well-known fields":          {awsv1.AMIFamilyAL2, `{"maxPods":5,"podsPerCore":2}`, true},
		"Windows takes no others":              {awsv1.AMIFamilyWindows2019, `{"topologyManagerPolicy":"none"}`, false},
		"Bottlerocket takes no others":         {awsv1.AMIFamilyBottlerocket, `{"topologyManagerPolicy":"none"}`, false},
		"Windows takes podsPerCore":            {awsv1.AMIFamilyWindows2025, `{"podsPerCore":2}`, true},
		"AL2 takes one DNS address":            {awsv1.AMIFamilyAL2, `{"clusterDNS":["a","b"]}`, false},
		"one DNS address is fine":              {awsv1.AMIFamilyBottlerocket, `{"clusterDNS":["a"]}`, true},
		"AL2 takes no others":                  {awsv1.AMIFamilyAL2, `{"topologyManagerPolicy":"none"}`, false},
		"Windows takes one DNS address":        {awsv1.AMIFamilyWindows2022, `{"clusterDNS":["a","b"]}`, false},
		"Bottlerocket knows no podsPerCore":    {awsv1.AMIFamilyBottlerocket, `{"podsPerCore":2}`, false},
		"Bottlerocket takes one DNS address":   {awsv1.AMIFamilyBottlerocket, `{"clusterDNS":["a","b"]}`, false},
		"Bottlerocket takes eviction settings": {awsv1.AMIFamilyBottlerocket, `{"evictionHard":{"memory.available":"5%"}}`, true},
	} {
		if got := checkFamily(tc.family, configuration(t, tc.text)); (len(got) == 0) != tc.ok {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestRestrictedTags(t *testing.T) {
	for key, want := range map[string]string{
		"team": "", awsv1.TagNodePool: awsv1.TagNodePool, awsv1.TagClusterName: awsv1.TagClusterName,
		"kubernetes.io/cluster/other": "kubernetes.io/cluster/other", "kubernetes.io/cluster": "", "kubernetes.io/cluster/-x": "",
	} {
		if got := restrictedTag(map[string]string{key: "v"}); got != want {
			t.Errorf("restrictedTag(%s) = %q, want %q", key, got, want)
		}
	}
}
