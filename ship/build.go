package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"karpenter.sh/karpenter/internal/kit/version"
)

// goFlags build the program so that its bytes follow from the sources and the release of Go alone: no path of the machine, no
// identifier of the build, no symbol tables. What the environment would add is overruled by goEnv.
var (
	goFlags = []string{"build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w -buildid="}
	goEnv   = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GODEBUG=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0"}
)

// A program is the controller for one platform.
type program struct {
	platform v1.Platform
	text     []byte
	info     *buildinfo.BuildInfo
}

// build compiles the program for every platform.
func (j job) build(ctx context.Context) ([]program, error) {
	dir, err := os.MkdirTemp("", "karpenter-ship-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var all []program
	for _, p := range j.platforms {
		out := filepath.Join(dir, p.Architecture)
		fmt.Fprintf(j.say, "building for %s; without a build cache this takes several minutes\n", called(p))
		began := time.Now()
		cmd := exec.CommandContext(ctx, "go", append(goFlags, "-o="+out, "./cmd/karpenter")...)
		cmd.Dir = j.root
		cmd.Env = append(append(os.Environ(), goEnv...), "GOOS="+p.OS, "GOARCH="+p.Architecture)
		if said, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build for %s: %w\n%s", called(p), err, said)
		}
		fmt.Fprintf(j.say, "built for %s in %s\n", called(p), time.Since(began).Round(time.Second))
		text, err := os.ReadFile(out)
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.Read(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("read what the program for %s consists of: %w", called(p), err)
		}
		all = append(all, program{platform: p, text: text, info: info})
	}
	return all, nil
}

// name is what files about the program begin with.
func (p program) name() string {
	return "karpenter-" + version.Number() + "-" + p.platform.OS + "-" + p.platform.Architecture
}

// made is when the commit was made that the program was built from: a date that every build agrees on. Without a commit it is 1970.
func (p program) made() time.Time {
	for _, s := range p.info.Settings {
		if s.Key == "vcs.time" {
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				return t.UTC()
			}
		}
	}
	return time.Unix(0, 0).UTC()
}
