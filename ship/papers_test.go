package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"karpenter.sh/karpenter/internal/kit/version"
)

// small is a program that was never built, of a commit that somebody had changed, with three modules.
func small() program {
	return program{
		platform: v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}, text: []byte("a program"),
		info: &buildinfo.BuildInfo{
			GoVersion: "go1.99.1", Main: debug.Module{Path: "karpenter.test/k"},
			Deps: []*debug.Module{
				{Path: "example.test/a", Version: "v1.0.0+incompatible", Sum: "h1:AAEC"},
				{Path: "example.test/b", Version: "v2.0.0", Replace: &debug.Module{Path: "example.test/fork", Version: "v3.0.0", Sum: "h1:AwQF"}},
				{Path: "example.test/unsummed", Version: "v0.4.0"},
			},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}, {Key: "vcs.time", Value: "2026-11-22T06:23:12Z"}},
		},
	}
}

// golden compares a text with a file of testdata, in which VERSION is the number of the release.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), strings.TrimSpace(strings.ReplaceAll(string(got), version.Number(), "VERSION"))); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Who runs the image, on which machine, when it was made and of what: all of it is what registries, scanners and nodes go by.
func TestWhatTheImageSaysOfItself(t *testing.T) {
	p := small()
	img, err := image(p, []file{{"LICENSE", 0o644, []byte("text")}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.RootFS.DiffIDs = nil
	golden(t, "image.json", indented(t, config))
	all, err := index([]program{p}, []v1.Image{img}).IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	all.Manifests[0].Size, all.Manifests[0].Digest = 0, v1.Hash{}
	golden(t, "index.json", indented(t, all))
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != types.OCIConfigJSON || manifest.Layers[0].MediaType != types.OCILayer {
		t.Errorf("kinds %s, %s, %s", manifest.MediaType, manifest.Config.MediaType, manifest.Layers[0].MediaType)
	}
	files := unpack(t, img)
	if len(files) != 2 {
		t.Errorf("it holds %d files, want 2", len(files))
	}
	for name, f := range files {
		if want := map[string]int64{"karpenter": 0o755, "LICENSE": 0o644}[name]; f.Mode != want || !f.ModTime.Equal(p.made()) {
			t.Errorf("%s has mode %o and is of %v", name, f.Mode, f.ModTime)
		}
	}
}

func TestWhatThePapersSay(t *testing.T) {
	p := small()
	list, err := contents(p, map[string]string{"example.test/a": "MIT", "Go's standard library": "BSD-3-Clause"})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "contents.json", list)
	said, err := origin([]program{p, p}, v1.Hash{Algorithm: "sha256", Hex: "00"}, []v1.Hash{{Algorithm: "sha256", Hex: "11"}, {Algorithm: "sha256", Hex: "22"}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "origin.json", said)
	p.info.Deps[0].Sum = "h1:?"
	if _, err := origin([]program{p}, v1.Hash{}, make([]v1.Hash, 1)); err == nil || !strings.Contains(err.Error(), "example.test/a") {
		t.Errorf("a checksum that is none is written down: %v", err)
	}
}
