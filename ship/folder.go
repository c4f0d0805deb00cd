package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"karpenter.sh/karpenter/internal/kit/version"
)

// Names in the folder of a release. Users' commands ask for the template by the name it has here.
const (
	layoutFolder = "image"
	checksumFile = "SHA256SUMS"
	templateName = "karpenter-cloudformation.yaml"
)

func archiveName() string { return "karpenter-" + version.Number() + ".oci.tar" }
func originName() string  { return "karpenter-" + version.Number() + ".intoto.json" }
func chartName(chart string) string {
	return chart + "-" + version.Number() + ".tgz"
}
func moduleName() string           { return "karpenter-terraform-" + version.Number() + ".tgz" }
func contentsName(p string) string { return p + ".spdx.json" }

// makeImage writes the image and what is said about it.
func (j job) makeImage(ctx context.Context) error {
	if err := j.clear(); err != nil {
		return err
	}
	if _, _, err := j.writeImage(ctx); err != nil {
		return err
	}
	return j.finish()
}

// makeRelease writes everything.
func (j job) makeRelease(ctx context.Context) error {
	if err := j.clear(); err != nil {
		return err
	}
	digest, made, err := j.writeImage(ctx)
	if err != nil {
		return err
	}
	files, err := j.parts(digest, made)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := j.write(f); err != nil {
			return err
		}
	}
	return j.finish()
}

// clear empties the folder, if it holds an earlier release or nothing.
func (j job) clear() error {
	entries, err := os.ReadDir(j.out)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return os.MkdirAll(j.out, 0o755)
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(j.out, checksumFile)); err != nil {
		return fmt.Errorf("%s holds something that is no release; name another folder with -out", j.out)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(j.out, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (j job) write(f file) error {
	path := filepath.Join(j.out, f.name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, f.text, os.FileMode(f.mode))
}

// writeImage writes the programs, the image as a folder and as one archive, and the papers. It returns the image's digest and date.
func (j job) writeImage(ctx context.Context) (v1.Hash, time.Time, error) {
	programs, err := j.build(ctx)
	if err != nil {
		return v1.Hash{}, time.Time{}, err
	}
	made := programs[0].made()
	texts, err := j.texts()
	if err != nil {
		return v1.Hash{}, made, err
	}
	licences := declared(texts[1].text)
	var images []v1.Image
	var digests []v1.Hash
	var files []file
	for _, p := range programs {
		img, err := image(p, texts)
		if err != nil {
			return v1.Hash{}, made, err
		}
		digest, err := img.Digest()
		if err != nil {
			return v1.Hash{}, made, err
		}
		list, err := contents(p, licences)
		if err != nil {
			return v1.Hash{}, made, err
		}
		images, digests = append(images, img), append(digests, digest)
		files = append(files, file{p.name(), 0o755, p.text}, file{contentsName(p.name()), 0o644, list})
	}
	all := index(programs, images)
	digest, err := all.Digest()
	if err != nil {
		return v1.Hash{}, made, err
	}
	told, err := origin(programs, digest, digests)
	if err != nil {
		return v1.Hash{}, made, err
	}
	archive, err := j.writeLayout(all, made)
	if err != nil {
		return v1.Hash{}, made, err
	}
	for _, f := range append(files, file{originName(), 0o644, told}, file{archiveName(), 0o644, archive}) {
		if err := j.write(f); err != nil {
			return v1.Hash{}, made, err
		}
	}
	fmt.Fprintf(j.say, "image %s\n", digest)
	return digest, made, nil
}

// texts are what has to go with the program wherever it goes.
func (j job) texts() ([]file, error) {
	var all []file
	for _, name := range []string{"LICENSE", licenceFile} {
		text, err := os.ReadFile(filepath.Join(j.root, name))
		if err != nil {
			return nil, err
		}
		all = append(all, file{name, 0o644, text})
	}
	return all, nil
}

// writeLayout writes the image as an OCI layout, and returns the same as one archive.
func (j job) writeLayout(all v1.ImageIndex, made time.Time) ([]byte, error) {
	dir := filepath.Join(j.out, layoutFolder)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version.Number()})
	if err := path.AppendIndex(all, name); err != nil {
		return nil, err
	}
	files, err := under(dir)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	err = pack(&archive, files, made)
	return archive.Bytes(), err
}

// under reads all files below a folder, by name.
func under(dir string) ([]file, error) {
	var all []file
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, file{filepath.ToSlash(name), 0o644, text})
		return err
	})
	return all, err
}

// finish writes the checksums, as sha256sum -c reads them.
func (j job) finish() error {
	files, err := under(j.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		fmt.Fprintf(&sums, "%s  %s\n", sum(f.text), f.name)
	}
	fmt.Fprintf(j.say, "%d files in %s\n", len(files)+1, j.out)
	return j.write(file{checksumFile, 0o644, []byte(sums.String())})
}
