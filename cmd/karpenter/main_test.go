package main

import (
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/kit/version"
)

func TestControllerSaysWhatIsWrongBeforeItStarts(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	for name, tc := range map[string]struct{ args, want string }{
		"an unknown flag":             {"--no-such-flag", "no-such-flag"},
		"a bad log level":             {"--cluster-name=c --log-level=loud", "loud"},
		"a gate that is neither":      {"--cluster-name=c --aws-feature-gates=NodeClassCEL=perhaps", "NodeClassCEL=perhaps"},
		"a setting of the provider":   {"", "cluster-name"},
		"all of it at once":           {"--log-level=loud", "cluster-name"},
		"no way to the API server":    {"--cluster-name=c", "not in a cluster"},
		"a kubeconfig that is not":    {"--cluster-name=c --kubeconfig=/no/such/file", "/no/such/file"},
		"an argument that is no flag": {"extra", "extra"},
	} {
		t.Run(name, func(t *testing.T) {
			err := controller(t.Context(), strings.Fields(tc.args))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want one that names %q", err, tc.want)
			}
		})
	}
}

func TestWordsThatAreTriedFirst(t *testing.T) {
	for args, tc := range map[string]struct {
		code int
		want string
	}{
		"help":      {0, "plan"},
		"--help":    {0, "controller"},
		"-h":        {0, "version"},
		"version":   {0, "karpenter " + version.Number() + ","},
		"--version": {0, "karpenter " + version.Number() + ","},
		"fly":       {2, `no command "fly"`},
	} {
		var said strings.Builder
		if code := run(t.Context(), strings.Fields(args), &said, &said); code != tc.code || !strings.Contains(said.String(), tc.want) {
			t.Errorf("karpenter %s: code %d and %q, want %d and something about %q", args, code, said.String(), tc.code, tc.want)
		}
	}
}

// The examples are what people copy: everything in them is valid, and their pods get machines. Two of them have pools for GPUs, of
// which one is as good for the pods of both.
func TestExamples(t *testing.T) {
	var out, trouble strings.Builder
	code := run(t.Context(), []string{"plan", "--time", "1s", "-f", "../../docs/examples"}, &out, &trouble)
	if code != 0 || strings.Contains(trouble.String(), "left out") || strings.Contains(trouble.String(), "is in no file") {
		t.Errorf("code %d: %s%s", code, out.String(), trouble.String())
	}
	for _, want := range []string{"g4dn", "spot-first", "train", "inflate"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the plan does not name %s:\n%s", want, out.String())
		}
	}
}
