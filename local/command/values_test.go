package command

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/local/home"
)

func TestValuesAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("settings: {batchIdleDuration: 3s}\nlogLevel: debug\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	type values = map[string]any
	before := home.Install{Values: values{"replicas": 2.0, "settings": values{"isolatedVPC": true}}}
	for name, tc := range map[string]struct {
		before home.Install
		args   []string
		want   home.Install
		now    bool
		err    string
	}{
		"nothing was ever said":           {},
		"nothing is said now":             {before: before, want: before},
		"what is said is added":           {before, []string{"--set", "settings.batchIdleDuration=2s"}, home.Install{Values: values{"replicas": 2.0, "settings": values{"isolatedVPC": true, "batchIdleDuration": "2s"}}}, true, ""},
		"what is said later wins":         {before, []string{"--values", file, "--set", "logLevel=error", "--set", "replicas=1"}, home.Install{Values: values{"replicas": int64(1), "logLevel": "error", "settings": values{"isolatedVPC": true, "batchIdleDuration": "3s"}}}, true, ""},
		"what was said is forgotten":      {before, []string{"--reset-values"}, home.Install{}, true, ""},
		"an empty cluster stays empty":    {home.Install{Empty: true}, nil, home.Install{Empty: true}, false, ""},
		"until that is taken back":        {home.Install{Empty: true}, []string{"--empty=false", "--set", "replicas=2"}, home.Install{Values: values{"replicas": int64(2)}}, true, ""},
		"it has no values":                {home.Install{Empty: true}, []string{"--set", "replicas=2"}, home.Install{}, false, "an empty cluster has no charts"},
		"another provider":                {before, []string{"--provider", "kwok"}, home.Install{Provider: "kwok", Values: before.Values}, true, ""},
		"it is kept":                      {home.Install{Provider: "kwok"}, nil, home.Install{Provider: "kwok"}, false, ""},
		"until AWS is wanted again":       {home.Install{Provider: "kwok"}, []string{"--provider", "aws"}, home.Install{}, true, ""},
		"there is no such provider":       {before, []string{"--provider", "moon"}, home.Install{}, false, "choose one of aws, aws-upstream, kwok"},
		"the chart refuses what is wrong": {before, []string{"--set", "replica=2"}, home.Install{}, false, "the chart refuses its values"},
		"another name":                    {home.Install{}, []string{"--name", "production"}, home.Install{Name: "production"}, false, ""},
		"the name is kept":                {home.Install{Name: "production"}, nil, home.Install{Name: "production"}, false, ""},
		"it may be said again":            {home.Install{Name: "production"}, []string{"--name", "production"}, home.Install{Name: "production"}, false, ""},
		"no name of a cluster":            {home.Install{}, []string{"--name", "a b"}, home.Install{}, false, "cannot be the name of a cluster"},
		"there is no such file":           {before, []string{"--values", file + ".gone"}, home.Install{}, false, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := home.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := dir.WriteInstall(tc.before); err != nil {
				t.Fatal(err)
			}
			flags := flag.NewFlagSet("up", flag.ContinueOnError)
			w := wishFlags(flags)
			if err := flags.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			got, now, err := w.of(dir)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error = %v, want one that says %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Values) == 0 {
				got.Values = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || now != tc.now {
				t.Errorf("said now: %t, want %t\n%s", now, tc.now, diff)
			}
		})
	}
}

func TestAClusterKeepsItsName(t *testing.T) {
	dir, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Write(home.Run{Server: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"production": "is named local", "local": "", "": ""} {
		wanted := home.Install{}
		err := (&wish{name: name}).nameIt(dir, &wanted)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || wanted.Name != "" {
			t.Errorf("%q: %v, %+v", name, err, wanted)
		}
	}
}

func TestFlagsMayStandAroundTheNode(t *testing.T) {
	for args, want := range map[string]string{"n": "n", "n --for 1m": "n", "--for 1m n": "n", "": "", "n m": "", "--for 1m": "", "n --for 1m m": ""} {
		flags := flag.NewFlagSet("break", flag.ContinueOnError)
		since := flags.Duration("for", 0, "")
		got, err := oneNode(flags, strings.Fields(args))
		if got != want || (err == nil) != (want != "") || want != "" && strings.Contains(args, "for") != (*since > 0) {
			t.Errorf("%q: node %q, %v, %v", args, got, *since, err)
		}
	}
}
