package command

import (
	"strings"
	"testing"

	"karpenter.sh/karpenter/local/home"
)

func TestWhichKubernetesUpStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		last    home.Run
		asked   string
		running bool
		want    string
		err     string
	}{
		"this executable's, in a new folder": {home.Run{}, "", false, "", ""},
		"the same, where it is named":        {home.Run{}, "1.36", false, "", ""},
		"the same again":                     {home.Run{Server: "https://x"}, "", false, "", ""},
		"another one, in a new folder":       {home.Run{}, "1.34", false, "1.34", ""},
		"what ran last":                      {home.Run{Server: "https://x", Settings: home.Settings{Kubernetes: "1.34"}}, "", false, "1.34", ""},
		"what runs":                          {home.Run{Server: "https://x", Settings: home.Settings{Kubernetes: "1.34"}}, "", true, "1.34", ""},
		"an upgrade":                         {home.Run{Server: "https://x", Settings: home.Settings{Kubernetes: "1.34"}}, "1.36", false, "", ""},
		"an upgrade of what runs":            {home.Run{Server: "https://x", Settings: home.Settings{Kubernetes: "1.34"}}, "1.36", true, "", "another Kubernetes"},
		"an older one than ran":              {home.Run{Server: "https://x"}, "1.35", false, "", "cannot read"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := home.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := dir.Write(tc.last); err != nil {
				t.Fatal(err)
			}
			s := &home.Settings{Kubernetes: tc.asked}
			err = chooseMinor(dir, s, "1.36", tc.running)
			if err == nil && s.Kubernetes != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("Kubernetes %q, %v; want %q, %q", s.Kubernetes, err, tc.want, tc.err)
			}
		})
	}
}
