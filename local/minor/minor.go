// Package minor knows which minors of Kubernetes a local cluster can run, and which executable holds the control plane of each.
package minor

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// others are the minors whose control planes are executables of their own. hack/minors writes a list of modules for each.
var others = []string{"1.33", "1.34", "1.35", "1.37"}

// An Executable holds a control plane.
type Executable struct {
	Path    string
	Version string // of Kubernetes, such as v1.34.4
}

// Minor is the minor of a version: 1.34 of v1.34.4.
func Minor(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// Find returns the executable of a minor, that of this process if none is named. Those of other minors are beside it.
func Find(minor string) (Executable, error) {
	self, err := os.Executable()
	if err != nil {
		return Executable{}, err
	}
	path := self
	if minor != "" {
		path = filepath.Join(filepath.Dir(self), "kubernetes-"+minor)
	}
	info, err := buildinfo.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Executable{}, fmt.Errorf("there is no %s: `make up KUBERNETES=%s` builds it, which takes minutes", path, minor)
	}
	if err != nil {
		return Executable{}, err
	}
	for _, d := range info.Deps {
		if d.Path == "k8s.io/kubernetes" {
			return Executable{path, d.Version}, nil
		}
	}
	return Executable{}, fmt.Errorf("%s holds no Kubernetes", path)
}

// A State is what a cluster's folder holds.
type State struct {
	New   bool   // nothing yet
	Minor string // that it ran last, "" for this executable's
}

// Choose returns the minor that a cluster runs, "" for own, which is this executable's: the minor that was asked for, else the minor
// that it ran last. A control plane cannot read what a newer control plane has stored.
func Choose(asked, own string, state State) (string, error) { return choose(asked, own, others, state) }

func choose(asked, own string, others []string, state State) (string, error) {
	if asked == "" {
		return state.Minor, nil
	}
	all := append([]string{own}, others...)
	slices.Sort(all)
	if !slices.Contains(all, asked) {
		known := strings.Join(slices.Compact(all), ", ")
		return "", fmt.Errorf("there is no Kubernetes %q for a local cluster; choose one of %s", asked, known)
	}
	last := state.Minor
	if last == "" {
		last = own
	}
	if !state.New && asked < last {
		return "", fmt.Errorf("the cluster was run by Kubernetes %s, and %s cannot read what that stored; "+
			"`karpenter-local clean` forgets it", last, asked)
	}
	if asked == own {
		return "", nil
	}
	return asked, nil
}
