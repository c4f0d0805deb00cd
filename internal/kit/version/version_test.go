package version

import (
	"regexp"
	"runtime/debug"
	"testing"
)

// Helm takes nothing else for a chart's version, and a "v" before it would name another tag than the image has.
func TestNumberIsASemanticVersion(t *testing.T) {
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.-]+)?$`).MatchString(Number()) {
		t.Errorf("version.txt holds %q", Number())
	}
}

func TestCommitOf(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	for name, tc := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"a build outside of a repository":        {nil, ""},
		"a build of a commit":                    {[]debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, "abc"},
		"a build of sources that were changed":   {[]debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}, "abc-modified"},
		"changed sources of an unknown revision": {[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := CommitOf(&debug.BuildInfo{Settings: tc.settings}); got != tc.want {
				t.Errorf("CommitOf = %q, want %q", got, tc.want)
			}
		})
	}
}
