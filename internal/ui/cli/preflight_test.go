package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/aws/preflight"
)

func TestPreflight(t *testing.T) {
	fine := preflight.Finding{Check: "queue", State: preflight.OK, Message: "demo"}
	warning := preflight.Finding{Check: "DNS", State: preflight.Warning, Message: "no kube-dns", Command: "aws eks create-addon"}
	missing := preflight.Finding{Check: "subnets", State: preflight.Missing, Message: "none", Command: "aws ec2 create-tags"}
	unknown := preflight.Finding{Check: "quotas", State: preflight.Unknown, Message: "denied"}
	for name, tc := range map[string]struct {
		args  string
		found []preflight.Finding
		fails error
		code  int
		want  string
	}{
		"all is well":                   {"--cluster-name demo", []preflight.Finding{fine}, nil, 0, "ok  queue  demo"},
		"a warning stops nobody":        {"--cluster-name demo", []preflight.Finding{fine, warning}, nil, 0, "aws eks create-addon"},
		"something is missing":          {"--cluster-name demo", []preflight.Finding{fine, missing}, nil, 1, "aws ec2 create-tags"},
		"something could not be read":   {"--cluster-name demo", []preflight.Finding{unknown}, nil, 1, "denied"},
		"no cluster is named":           {"", nil, nil, 2, "--cluster-name is required"},
		"a format that there is not":    {"--cluster-name demo -o yaml", nil, nil, 2, "say table or json"},
		"an argument that is no flag":   {"--cluster-name demo now", nil, nil, 2, `what is "now"`},
		"nothing can be asked":          {"--cluster-name demo", nil, errors.New("no region"), 2, "no region"},
		"the words that explain it all": {"--help", nil, nil, 0, "changes nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			env := Env{Out: &said, Err: &said, Preflight: func(_ context.Context, _ string, n preflight.Names) ([]preflight.Finding, error) {
				if n.Cluster != "demo" || n.Namespace != "kube-system" {
					t.Errorf("looked at %+v", n)
				}
				return tc.found, tc.fails
			}}
			if code := Run(t.Context(), env, append([]string{"preflight"}, strings.Fields(tc.args)...)); code != tc.code || !strings.Contains(said.String(), tc.want) {
				t.Errorf("code %d, want %d with %q in:\n%s", code, tc.code, tc.want, said.String())
			}
		})
	}
}

func TestPreflightForPrograms(t *testing.T) {
	found := []preflight.Finding{{Check: "queue", State: preflight.OK, Message: "demo"}, {Check: "subnets", State: preflight.Missing, Message: "none", Command: "aws"}}
	var said bytes.Buffer
	env := Env{Out: &said, Err: &said, Preflight: func(context.Context, string, preflight.Names) ([]preflight.Finding, error) { return found, nil }}
	if code := Run(t.Context(), env, []string{"preflight", "--cluster-name", "demo", "-o", "json"}); code != 1 {
		t.Errorf("code %d", code)
	}
	var got []map[string]string
	if err := json.Unmarshal(said.Bytes(), &got); err != nil {
		t.Fatalf("%v in\n%s", err, said.String())
	}
	if len(got) != 2 || got[1]["state"] != "missing" || got[1]["check"] != "subnets" || got[1]["command"] != "aws" || len(got[0]) != 3 {
		t.Errorf("said %v", got)
	}
}
