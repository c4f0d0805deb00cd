// Command crdgen writes everything that is generated, most of it from the Go types under api: deep copies, CRDs (the plain files that the
// api/crds package embeds, those of the karpenter chart, and the templates of the karpenter-crd chart), the version of both charts, the
// schemas of their values and the pages that list them, what is needed in an AWS account (install/aws), and the reference pages under
// docs/reference. It writes them only if every test and page that the list of features names is there.
//
// Run it with "make gen". Its output depends on nothing but the sources, so running it twice changes nothing.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/controller-tools/pkg/deepcopy"
	"sigs.k8s.io/controller-tools/pkg/genall"

	"karpenter.sh/karpenter/internal/testing/features"
)

// apiPackages are the packages with API types, below the root of the repository.
var apiPackages = []string{
	"api/karpenter/v1", "api/karpenter/v1alpha1", "api/karpenter/v1beta1", "api/aws/v1", "api/aws/v1beta1", "api/autoscaling/v1beta1",
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := writeDeepCopies(); err != nil {
		return fmt.Errorf("deep copies: %w", err)
	}
	files, err := generate()
	if err != nil {
		return err
	}
	return write(files)
}

// generate makes everything but the deep copies, by path.
func generate() (map[string][]byte, error) {
	crds, err := buildCRDs()
	if err != nil {
		return nil, fmt.Errorf("CRDs: %w", err)
	}
	older, err := olderFiles(crds)
	if err != nil {
		return nil, fmt.Errorf("older versions: %w", err)
	}
	files, err := crdFiles(crds)
	if err != nil {
		return nil, fmt.Errorf("CRDs: %w", err)
	}
	maps.Copy(files, older)
	pages, err := referenceFiles(crds)
	if err != nil {
		return nil, fmt.Errorf("reference pages: %w", err)
	}
	maps.Copy(files, pages)
	charts, err := chartVersions()
	if err != nil {
		return nil, fmt.Errorf("versions of charts: %w", err)
	}
	maps.Copy(files, charts)
	values, err := chartFiles()
	if err != nil {
		return nil, fmt.Errorf("values of charts: %w", err)
	}
	maps.Copy(files, values)
	inAccount, err := accountFiles()
	if err != nil {
		return nil, fmt.Errorf("what is needed in an AWS account: %w", err)
	}
	maps.Copy(files, inAccount)
	if err := checkFeatures(); err != nil {
		return nil, fmt.Errorf("features: %w", err)
	}
	return files, nil
}

// checkFeatures reports which test or page of the list of features is not in the tree.
func checkFeatures() error {
	all, err := features.All()
	if err != nil {
		return err
	}
	return features.Check(os.DirFS("."), all)
}

// generatedFiles are the files in the tree that an earlier run made. Their first line says so; other generators write into the
// same folders.
func generatedFiles() ([]string, error) {
	var out []string
	for pattern, header := range map[string]string{terraformFolder + "/*.json": "", crdFolder + "/*.yaml": fileHeader,
		crdFolder + "/*/*.yaml": fileHeader, chartFolder + "/*.yaml": fileHeader, firstFolder + "/*.yaml": fileHeader,
		referenceFolder + "/*.md": pageHeader} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(string(text), header) {
				out = append(out, path)
			}
		}
	}
	return out, nil
}

// write writes the files and removes those that a kind which is gone has left behind.
func write(files map[string][]byte) error {
	old, err := generatedFiles()
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, ok := files[path]; ok {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// repositoryRoot walks up until it sees the api folder beside a go.mod.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, noAPI := os.Stat(filepath.Join(dir, "api", "karpenter", "v1"))
		_, noModule := os.Stat(filepath.Join(dir, "go.mod"))
		if noAPI == nil && noModule == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("run crdgen inside the repository")
		}
		dir = parent
	}
}

func writeDeepCopies() error {
	var generator genall.Generator = deepcopy.Generator{}
	runtime, err := genall.Generators{&generator}.ForRoots(patterns()...)
	if err != nil {
		return err
	}
	runtime.OutputRules = genall.OutputRules{Default: besideSource{}}
	if failed := runtime.Run(); failed {
		return errors.New("the API packages do not type-check")
	}
	return nil
}

func patterns() []string {
	out := make([]string, len(apiPackages))
	for i, p := range apiPackages {
		out[i] = "./" + p
	}
	return out
}
