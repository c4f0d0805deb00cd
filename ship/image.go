package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"karpenter.sh/karpenter/internal/kit/version"
)

// user has no rights, and the chart's pods run as it.
const user = "65532:65532"

// A file goes into the image or a folder of the release.
type file struct {
	name string
	mode int64
	text []byte
}

// image makes the image of a program: the program and the texts that have to go with it.
func image(p program, texts []file) (v1.Image, error) {
	layer, err := layer(append([]file{{"karpenter", 0o755, p.text}}, texts...), p.made())
	if err != nil {
		return nil, err
	}
	config := &v1.ConfigFile{
		OS: p.platform.OS, Architecture: p.platform.Architecture, Variant: p.platform.Variant,
		Created: v1.Time{Time: p.made()},
		Config:  v1.Config{User: user, Entrypoint: []string{"/karpenter"}, WorkingDir: "/", Labels: annotations(p)},
		RootFS:  v1.RootFS{Type: "layers"},
	}
	img, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		return nil, err
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(img, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: p.made()}, CreatedBy: "ship"},
	})
}

// index puts the images of all platforms under one name.
func index(programs []program, images []v1.Image) v1.ImageIndex {
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, img := range images {
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &programs[i].platform}})
	}
	return mutate.Annotations(all, annotations(programs[0])).(v1.ImageIndex)
}

// annotations are what registries and scanners show of an image.
func annotations(p program) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":    "karpenter",
		prefix + "version":  version.Number(),
		prefix + "revision": cmp.Or(version.CommitOf(p.info), "unknown"),
		prefix + "created":  p.made().Format(time.RFC3339),
		prefix + "licenses": licence,
	}
}

func layer(files []file, made time.Time) (v1.Layer, error) {
	var packed bytes.Buffer
	if err := pack(&packed, files, made); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser,
		error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// pack writes files into an archive in which nothing says who made it, and when.
func pack(w io.Writer, files []file, made time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text)),
			ModTime: made, Format: tar.FormatPAX}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(f.text); err != nil {
			return err
		}
	}
	return t.Close()
}
