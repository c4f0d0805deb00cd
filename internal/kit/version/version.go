// Package version returns the number of the release, from the file that the charts and the image take it from too, and the commit that
// the program was built from.
package version

import (
	_ "embed"
	"runtime/debug"
	"strings"
)

//go:embed version.txt
var text string

// Number is the release, without a "v" before it: charts and images are named so.
func Number() string { return strings.TrimSpace(text) }

// Commit is the revision that this program was built from, as far as the build knows; "-modified" follows when the sources were
// not those of the commit.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return CommitOf(info)
}

// CommitOf is Commit for the build information of another program.
func CommitOf(info *debug.BuildInfo) string {
	said := map[string]string{}
	for _, s := range info.Settings {
		said[s.Key] = s.Value
	}
	commit := said["vcs.revision"]
	if commit != "" && said["vcs.modified"] == "true" {
		commit += "-modified"
	}
	return commit
}
