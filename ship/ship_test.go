package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"karpenter.sh/karpenter/internal/kit/version"
)

// Two releases of the same sources, made from two folders at two times, once for the whole package.
var (
	folders []string
	trees   = sync.OnceValues(makeTrees)
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range folders {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// tested are the platforms that tests build for: this machine's. To compile everything for another one takes minutes where nothing
// of it has been compiled yet.
func tested() []v1.Platform {
	if os.Getenv("KARPENTER_SOAK") != "" {
		return platforms
	}
	j := job{}
	if err := j.restrict("linux/" + runtime.GOARCH); err != nil {
		panic(err)
	}
	return j.platforms
}

func makeTrees() ([2]job, error) {
	var jobs [2]job
	for i, root := range []string{"a", "another-name-that-is-longer"} {
		dir, err := os.MkdirTemp("", "ship-")
		if err != nil {
			return jobs, err
		}
		folders = append(folders, dir)
		jobs[i] = job{root: filepath.Join(dir, root), out: filepath.Join(dir, "dist"), image: "registry.test/karpenter", platforms: tested(), say: &bytes.Buffer{}}
		for _, part := range []string{"LICENSE", licenceFile, "go.mod", "go.sum", "api", "charts", "cloud", "cmd", "install", "internal"} {
			if err := copyTree(filepath.Join("..", part), filepath.Join(jobs[i].root, part)); err != nil {
				return jobs, err
			}
		}
	}
	return jobs, nil
}

func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

var releases = sync.OnceValues(func() ([2]job, error) {
	jobs, err := trees()
	if err != nil {
		return jobs, err
	}
	for i := range jobs {
		if err := jobs[i].makeRelease(context.Background()); err != nil {
			return jobs, err
		}
	}
	return jobs, nil
})

// released is a finished release.
func released(t *testing.T) job {
	t.Helper()
	jobs, err := releases()
	if err != nil {
		t.Fatal(err)
	}
	return jobs[0]
}

func read(t *testing.T, j job, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(j.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheSameSourcesGiveTheSameBytes(t *testing.T) {
	jobs, err := releases()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(read(t, jobs[0], checksumFile)), string(read(t, jobs[1], checksumFile))); diff != "" {
		t.Errorf("two builds differ:\n%s", diff)
	}
}

func TestABuildSaysWhatItIsDoing(t *testing.T) {
	j := released(t)
	said := j.say.(*bytes.Buffer).String()
	for _, p := range j.platforms {
		for _, want := range []string{"building for " + called(p), "built for " + called(p) + " in "} {
			if !strings.Contains(said, want) {
				t.Errorf("the build says nothing of %q:\n%s", want, said)
			}
		}
	}
}

func TestChecksumsCoverEveryFile(t *testing.T) {
	j := released(t)
	files, err := under(j.out)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, f := range files {
		if f.name != checksumFile {
			want[f.name] = sum(f.text)
		}
	}
	got := map[string]string{}
	for line := range strings.Lines(string(read(t, j, checksumFile))) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got[name] = digest
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checksums differ from what the files say:\n%s", diff)
	}
	for _, name := range []string{
		archiveName(), originName(), chartName("karpenter"), chartName("karpenter-crd"), "karpenter-crds.yaml", "policies/node-lifecycle.json", templateName, moduleName(), "LICENSE", licenceFile, "image/index.json",
	} {
		if want[name] == "" {
			t.Errorf("the release lacks %s", name)
		}
	}
}

// The definitions of older versions, which lie beside the others, are the chart's business: applied by hand they would take the place
// of those that are served.
func TestTheDefinitionsAreThoseOfTheChart(t *testing.T) {
	var got []string
	for line := range strings.Lines(string(read(t, released(t), "karpenter-crds.yaml"))) {
		if name, ok := strings.CutPrefix(line, "  name: "); ok {
			got = append(got, strings.TrimSpace(name))
		}
	}
	want := []string{"capacitybuffers.autoscaling.x-k8s.io", "capacityquotas.autoscaling.x-k8s.io", "ec2nodeclasses.karpenter.k8s.aws", "commitmentdiscounts.karpenter.sh", "disruptionplans.karpenter.sh", "nodeclaims.karpenter.sh", "nodeoverlays.karpenter.sh", "nodepools.karpenter.sh", "rolloutpolicies.karpenter.sh"}
	if !slices.Equal(got, want) {
		t.Errorf("definitions of %v, want %v", got, want)
	}
}

// pulled is the image of the release, and its parts by platform.
func pulled(t *testing.T, j job) (v1.ImageIndex, map[string]v1.Image) {
	t.Helper()
	all, err := pusher{job: j}.index()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		if images[d.Platform.Architecture], err = all.Image(d.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return all, images
}

// unpack reads all files of an image.
func unpack(t *testing.T, img v1.Image) map[string]*tar.Header {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*tar.Header{}
	for _, layer := range layers {
		text, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(text); ; {
			header, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			files[header.Name] = header
		}
		text.Close()
	}
	return files
}

func TestTheImageHoldsTheProgramAndNothingToRunBesides(t *testing.T) {
	j := released(t)
	all, images := pulled(t, j)
	if err := validate.Index(all); err != nil {
		t.Error(err)
	}
	if len(images) != len(j.platforms) {
		t.Errorf("there are %d images, want %d", len(images), len(j.platforms))
	}
	for arch, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/karpenter"}) || config.Architecture != arch || len(config.Config.Env) != 0 {
			t.Errorf("%s: the image runs %+v on %s", arch, config.Config, config.Architecture)
		}
		files := unpack(t, img)
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"LICENSE", licenceFile, "karpenter"}) {
			t.Errorf("%s: the image holds %v", arch, got)
		}
		for name, f := range files {
			if f.Uid != 0 || f.Gid != 0 || f.Uname != "" || f.Mode&0o022 != 0 || !f.ModTime.Equal(time.Unix(0, 0)) {
				t.Errorf("%s: %s is %+v", arch, name, f)
			}
		}
	}
}

func TestTheProgramIsStaticAndSaysWhatItIs(t *testing.T) {
	j := released(t)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, p := range j.platforms {
		name := program{platform: p}.name()
		f, err := elf.NewFile(bytes.NewReader(read(t, j, name)))
		if err != nil {
			t.Fatal(err)
		}
		libraries, err := f.ImportedLibraries()
		if err != nil || len(libraries) != 0 || f.Machine != machines[p.Architecture] {
			t.Errorf("%s is for %v and needs %v (%v)", name, f.Machine, libraries, err)
		}
		for _, part := range f.Progs {
			if part.Type == elf.PT_INTERP {
				t.Errorf("%s needs a loader", name)
			}
		}
	}
}

// programsOf reads the programs of a release back.
func programsOf(j job) ([]program, error) {
	var all []program
	for _, p := range j.platforms {
		text, err := os.ReadFile(filepath.Join(j.out, program{platform: p}.name()))
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.Read(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		all = append(all, program{p, text, info})
	}
	return all, nil
}

func TestTheListOfContentsNamesEveryModule(t *testing.T) {
	j := released(t)
	programs, err := programsOf(j)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		var d spdxDocument
		if err := json.Unmarshal(read(t, j, contentsName(p.name())), &d); err != nil {
			t.Fatal(err)
		}
		listed := map[string]string{}
		for _, pkg := range d.Packages {
			listed[pkg.Name] = pkg.Version
			if pkg.Declared == nothingSaid {
				t.Errorf("%s has no licence", pkg.Name)
			}
		}
		for _, m := range p.info.Deps {
			if listed[m.Path] != m.Version {
				t.Errorf("%s is linked in version %s, the list says %q", m.Path, m.Version, listed[m.Path])
			}
		}
		if want := len(p.info.Deps) + 2; len(d.Packages) != want || len(d.Relationships) != want { // itself and the standard library
			t.Errorf("the list has %d packages and %d relationships, want %d", len(d.Packages), len(d.Relationships), want)
		}
		if got := d.Packages[0].Checksums; len(got) != 1 || got[0].Value != sum(p.text) {
			t.Errorf("the list is about a program with checksum %v", got)
		}
	}
}

func TestTheStatementOfOriginIsAboutWhatIsThere(t *testing.T) {
	j := released(t)
	var s statement
	if err := json.Unmarshal(read(t, j, originName()), &s); err != nil {
		t.Fatal(err)
	}
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" { // what tools take it for
		t.Errorf("it is a %s about %s", s.Type, s.PredicateType)
	}
	got := map[string]bool{}
	for _, r := range s.Subjects {
		got[r.Digest["sha256"]] = true
	}
	all, images := pulled(t, j)
	digest, err := all.Digest()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{digest.Hex: true}
	for _, img := range images {
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		want[d.Hex] = true
	}
	for _, p := range j.platforms {
		want[sum(read(t, j, program{platform: p}.name()))] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("subjects:\n%s", diff)
	}
	unsummed := 0
	for _, r := range s.Predicate.Definition.Dependencies {
		if len(r.Digest) == 0 {
			unsummed++
		}
	}
	if unsummed != 2 { // our sources, which have no commit in this test, and the standard library
		t.Errorf("%d dependencies have no checksum", unsummed)
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true)))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	j := released(t)
	var said bytes.Buffer
	j.image, j.charts, j.say = host+"/team/karpenter", host+"/charts", &said
	if err := j.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, images := pulled(t, j)
	digest, err := all.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if want := j.image + "@" + digest.String(); !strings.Contains(said.String(), want) {
		t.Errorf("push said %q, want %q in it", said.String(), want)
	}
	tag, err := name.NewTag(j.image + ":" + version.Number())
	if err != nil {
		t.Fatal(err)
	}
	there, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(there); err != nil {
		t.Error(err)
	}
	wantPaper(t, tag.Context().Digest(digest.String()), statementType, read(t, j, originName()))
	for arch, img := range images {
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		wantPaper(t, tag.Context().Digest(d.String()), spdxType, read(t, j, contentsName("karpenter-"+version.Number()+"-linux-"+arch)))
	}
	for _, chart := range charts {
		wantChart(t, host+"/charts/"+chart+":"+version.Number(), read(t, j, chartName(chart)), chart)
	}
}

// wantPaper fails unless exactly that paper is attached to the subject.
func wantPaper(t *testing.T, subject name.Digest, kind types.MediaType, want []byte) {
	t.Helper()
	found, err := remote.Referrers(subject)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := found.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("%d papers are attached to %s, want one", len(manifest.Manifests), subject)
	}
	wantLayer(t, subject.Context().Digest(manifest.Manifests[0].Digest.String()), kind, want)
}

func wantLayer(t *testing.T, ref name.Reference, kind types.MediaType, want []byte) v1.Image {
	t.Helper()
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%s has %d layers (%v), want one", ref, len(layers), err)
	}
	text, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	got, err := io.ReadAll(text)
	if mediaType, _ := layers[0].MediaType(); err != nil || mediaType != kind || !bytes.Equal(got, want) {
		t.Errorf("%s is of type %s and not the file that was pushed (%v)", ref, mediaType, err)
	}
	return img
}

func wantChart(t *testing.T, at string, want []byte, chart string) {
	t.Helper()
	tag, err := name.NewTag(at)
	if err != nil {
		t.Fatal(err)
	}
	img := wantLayer(t, tag, chartType, want)
	text, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var about struct{ Name, Version, AppVersion string }
	if err := json.Unmarshal(text, &about); err != nil || about.Name != chart || about.Version != version.Number() || about.AppVersion != version.Number() {
		t.Errorf("chart %s says it is %+v (%v)", chart, about, err)
	}
}

func TestPushSaysWhatIsMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		job  job
		want string
	}{
		"no place to push to": {job{}, "IMAGE="},
		"a name that is none": {job{image: "Not A Name"}, "could not parse"},
		"nothing was made":    {job{image: "registry.test/karpenter", out: t.TempDir()}, "make image"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.job.push(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want one that says %q", err, tc.want)
			}
		})
	}
}

func TestTheChartOfAReleaseInstallsItsImage(t *testing.T) {
	j := released(t)
	all, _ := pulled(t, j)
	digest, err := all.Digest()
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(read(t, j, chartName("karpenter"))))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		text, readErr := io.ReadAll(r)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		files[header.Name] = string(text)
	}
	for _, want := range []string{"\n    repository: registry.test/karpenter\n", "\n    digest: " + digest.String() + "\n"} {
		if !strings.Contains(files["karpenter/values.yaml"], want) {
			t.Errorf("values.yaml lacks %q", want)
		}
	}
	inTree, err := under(filepath.Join(j.root, "charts", "karpenter"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range inTree {
		if got, ok := files["karpenter/"+f.name]; !ok || got != string(f.text) && f.name != "values.yaml" {
			t.Errorf("the packed chart lacks %s, or has another", f.name)
		}
	}
}

func TestWithImageWantsOnePlaceForEach(t *testing.T) {
	const one = "controller:\n  image:\n    repository: \"\"\n    digest: \"\"\n"
	for name, tc := range map[string]struct {
		values string
		good   bool
	}{
		"one place":         {one, true},
		"none":              {"controller:\n  image: {}\n", false},
		"two of repository": {one + "sidecar:\n    repository: \"\"\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := withImage([]byte(tc.values), "registry.test/karpenter", v1.Hash{Algorithm: "sha256", Hex: "ab"}); (err == nil) != tc.good {
				t.Errorf("error = %v, want one: %v", err, !tc.good)
			}
		})
	}
}

func TestAFolderOfSomebodyElseIsNotEmptied(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(mine, []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (job{out: dir}).clear(); err == nil || !strings.Contains(err.Error(), "no release") {
		t.Errorf("error = %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, checksumFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (job{out: dir}).clear(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("an earlier release leaves %v (%v)", left, err)
	}
}

func TestDatesAreTheCommits(t *testing.T) {
	for name, tc := range map[string]struct{ said, want string }{
		"a commit":     {"2026-11-22T06:23:12Z", "2026-11-22T06:23:12Z"},
		"no commit":    {"", "1970-01-01T00:00:00Z"},
		"another zone": {"2026-11-22T08:23:12+02:00", "2026-11-22T06:23:12Z"},
	} {
		t.Run(name, func(t *testing.T) {
			p := program{info: &buildinfo.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.time", Value: tc.said}}}}
			if got := p.made().Format(time.RFC3339); got != tc.want {
				t.Errorf("made = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWords(t *testing.T) {
	for args, want := range map[string]string{
		"":                            "say one of",
		"sail":                        "say one of",
		"image --platform=plan9/mips": "only linux/amd64 and linux/arm64",
		"push somewhere":              `what is "somewhere"`,
		"push -image=registry.test/x -out=/no/such/folder": "make image",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ship %s: error = %v, want one that says %q", args, err, want)
		}
	}
}
