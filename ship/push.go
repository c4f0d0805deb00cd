package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/internal/kit/version"
)

// Media types of what is not an image.
const (
	spdxType        types.MediaType = "application/spdx+json"
	statementType   types.MediaType = "application/vnd.in-toto+json"
	chartConfigType types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartType       types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// push sends the image of the folder to a registry, with its papers attached to it, and the charts where they are wanted. Credentials
// are those of docker login and its helpers.
func (j job) push(ctx context.Context) error {
	if j.image == "" {
		return errors.New("say where to: IMAGE=<registry>/<repository>")
	}
	ref, err := name.ParseReference(j.image, name.WithDefaultTag(version.Number()))
	if err != nil {
		return err
	}
	p := pusher{job: j, to: ref.Context(), options: []remote.Option{remote.WithContext(ctx),
		remote.WithAuthFromKeychain(authn.DefaultKeychain)}}
	all, err := p.index()
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, all, p.options...); err != nil {
		return fmt.Errorf("push the image: %w", err)
	}
	if err := p.papers(all); err != nil {
		return err
	}
	digest, err := all.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(j.say, "%s@%s\n", ref.Context().Name(), digest)
	if j.charts == "" {
		return nil
	}
	return p.pushCharts()
}

type pusher struct {
	job
	to      name.Repository
	options []remote.Option
}

// index is the image in the folder.
func (p pusher) index() (v1.ImageIndex, error) {
	dir, err := layout.FromPath(filepath.Join(p.out, layoutFolder))
	if err != nil {
		return nil, fmt.Errorf("there is no image in %s: make image or make release first: %w", p.out, err)
	}
	top, err := dir.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, err
	}
	if n := len(manifest.Manifests); n != 1 {
		return nil, fmt.Errorf("%s holds %d images, want one", p.out, n)
	}
	return top.ImageIndex(manifest.Manifests[0].Digest)
}

// papers attaches the lists of contents to the images they are about, and the statement of origin to all of them.
func (p pusher) papers(all v1.ImageIndex) error {
	manifest, err := all.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range manifest.Manifests {
		about := program{platform: *d.Platform}.name()
		if err := p.attach(d, contentsName(about), spdxType); err != nil {
			return err
		}
	}
	whole, err := partial.Descriptor(all)
	if err != nil {
		return err
	}
	return p.attach(*whole, originName(), statementType)
}

// attach pushes a file of the folder as something that is about the subject, which is how other tools find it.
func (p pusher) attach(subject v1.Descriptor, file string, kind types.MediaType) error {
	text, err := os.ReadFile(filepath.Join(p.out, file))
	if err != nil {
		return err
	}
	to := v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}
	paper, err := newArtifact(kind, []byte("{}"), static.NewLayer(text, kind), &to)
	if err != nil {
		return err
	}
	digest, err := paper.Digest()
	if err != nil {
		return err
	}
	if err := remote.Write(p.to.Digest(digest.String()), paper, p.options...); err != nil {
		return fmt.Errorf("push %s: %w", file, err)
	}
	return nil
}

// pushCharts pushes each chart below the folder that was named, as helm push does.
func (p pusher) pushCharts() error {
	for _, chart := range charts {
		text, err := os.ReadFile(filepath.Join(p.out, chartName(chart)))
		if err != nil {
			return fmt.Errorf("make release packs the charts: %w", err)
		}
		about, err := chartConfig(text, chart)
		if err != nil {
			return err
		}
		packed, err := newArtifact(chartConfigType, about, static.NewLayer(text, chartType), nil)
		if err != nil {
			return err
		}
		ref, err := name.NewTag(p.charts + "/" + chart + ":" + version.Number())
		if err != nil {
			return err
		}
		if err := remote.Write(ref, packed, p.options...); err != nil {
			return fmt.Errorf("push chart %s: %w", chart, err)
		}
		fmt.Fprintf(p.say, "oci://%s\n", ref)
	}
	return nil
}

// chartConfig is the Chart.yaml of a packed chart as JSON, which Helm wants beside the chart.
func chartConfig(packed []byte, chart string) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(z); ; {
		header, err := t.Next()
		if err != nil {
			return nil, fmt.Errorf("look for Chart.yaml: %w", err)
		}
		if header.Name != chart+"/Chart.yaml" {
			continue
		}
		var text bytes.Buffer
		if _, err := text.ReadFrom(t); err != nil {
			return nil, err
		}
		return yaml.YAMLToJSON(text.Bytes())
	}
}

// An artifact is a manifest of one layer that is no image. The type of its configuration says its kind.
type artifact struct {
	manifest, config []byte
	layer            v1.Layer
}

// newArtifact makes an artifact, about another thing if there is a subject.
func newArtifact(kind types.MediaType, config []byte, layer v1.Layer, subject *v1.Descriptor) (v1.Image, error) {
	about, err := partial.Descriptor(static.NewLayer(config, kind))
	if err != nil {
		return nil, err
	}
	only, err := partial.Descriptor(layer)
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: *about, Layers: []v1.Descriptor{*only}, Subject: subject,
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{manifest, config, layer})
}

func (a artifact) MediaType() (types.MediaType, error)                    { return types.OCIManifestSchema1, nil }
func (a artifact) RawManifest() ([]byte, error)                           { return a.manifest, nil }
func (a artifact) RawConfigFile() ([]byte, error)                         { return a.config, nil }
func (a artifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.layer, nil }
