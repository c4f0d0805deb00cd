package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// charts are the folders of charts, in the order in which they are installed.
var charts = []string{"karpenter-crd", "karpenter"}

// parts are the files of a release besides the image.
func (j job) parts(digest v1.Hash, made time.Time) ([]file, error) {
	var all []file
	for _, chart := range charts {
		text, err := j.chart(chart, digest, made)
		if err != nil {
			return nil, fmt.Errorf("chart %s: %w", chart, err)
		}
		all = append(all, file{chartName(chart), 0o644, text})
	}
	crds, err := in(filepath.Join(j.root, "api", "crds"), ".yaml")
	if err != nil {
		return nil, err
	}
	all = append(all, file{"karpenter-crds.yaml", 0o644, joined(crds)})
	account, err := j.account(made)
	if err != nil {
		return nil, err
	}
	all = append(all, account...)
	texts, err := j.texts()
	return append(all, texts...), err
}

// account is what is needed in an AWS account: the template, the Terraform module, and the bare policies.
func (j job) account(made time.Time) ([]file, error) {
	template, err := os.ReadFile(filepath.Join(j.root, "install", "aws", templateName))
	if err != nil {
		return nil, err
	}
	module, err := under(filepath.Join(j.root, "install", "aws", "terraform"))
	if err != nil {
		return nil, err
	}
	packed, err := compressed(module, made)
	if err != nil {
		return nil, err
	}
	policies, err := in(filepath.Join(j.root, "internal", "aws", "policy"), ".json")
	if err != nil {
		return nil, err
	}
	for i := range policies {
		policies[i].name = "policies/" + policies[i].name
	}
	return append(policies, file{templateName, 0o644, template}, file{moduleName(), 0o644, packed}), nil
}

// in reads the files of a folder, not of folders in it, whose names end so.
func in(dir, ending string) ([]file, error) {
	files, err := under(dir)
	return slices.DeleteFunc(files, func(f file) bool { return !strings.HasSuffix(f.name, ending) || strings.Contains(f.name, "/") }), err
}

// joined is the YAML files as one.
func joined(files []file) []byte {
	var all bytes.Buffer
	for _, f := range files {
		all.WriteString("---\n")
		all.Write(bytes.TrimPrefix(f.text, []byte("---\n")))
	}
	return all.Bytes()
}

// chart packs a chart as Helm does. The chart names the image by its digest when it is known where the image will be, so that what a
// release installs is what was built with it.
func (j job) chart(chart string, digest v1.Hash, made time.Time) ([]byte, error) {
	files, err := under(filepath.Join(j.root, "charts", chart))
	if err != nil {
		return nil, err
	}
	for i := range files {
		if chart == "karpenter" && files[i].name == "values.yaml" && j.image != "" {
			if files[i].text, err = withImage(files[i].text, j.image, digest); err != nil {
				return nil, err
			}
		}
		files[i].name = chart + "/" + files[i].name
	}
	return compressed(files, made)
}

func compressed(files []file, made time.Time) ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := pack(z, files, made); err != nil {
		return nil, err
	}
	err := z.Close()
	return packed.Bytes(), err
}

// withImage fills in the image that the chart's values leave open.
func withImage(values []byte, image string, digest v1.Hash) ([]byte, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	for field, value := range map[string]string{"repository": ref.Context().Name(), "digest": digest.String()} {
		open := []byte("\n    " + field + ": \"\"\n")
		if n := bytes.Count(values, open); n != 1 {
			return nil, fmt.Errorf("values.yaml has %d open places for the image's %s, want one", n, field)
		}
		values = bytes.Replace(values, open, []byte("\n    "+field+": "+value+"\n"), 1)
	}
	return values, nil
}
