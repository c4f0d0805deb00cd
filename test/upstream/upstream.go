// Package upstream fetches the published modules of Karpenter that tests compare with. There is no copy of them here:
// they come from the archives of their Go modules, whose hashes are pinned.
package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A module is an archive and the only content that it may have.
type module struct{ path, version, sum string }

// AWS 1.15.1 was built with core 1.15.1, whose archive was never published.
var (
	core = module{"sigs.k8s.io/karpenter", "v1.15.0", "h1:5SEptlAvsOZbNg4qg8OSdF1qi6BEZHZLA020nXY7jGw="}
	aws  = module{"github.com/aws/karpenter-provider-aws", "v1.15.1", "h1:6eH///KgWKDwD2R6wHRnKGN8Vu8OHueaXjNdx64TnuY="}
)

// Core is the folder of the sources of Karpenter's core. A test whose machine has the archive neither in its module
// cache nor within reach of a module proxy is skipped and says so; in make soak it fails.
func Core(t *testing.T) string { return folder(t, core) }

// AWS is the folder of the sources of the provider for AWS. It skips as Core does.
func AWS(t *testing.T) string { return folder(t, aws) }

// Charts is where the charts karpenter and karpenter-crd are. It skips as Core does.
func Charts(t *testing.T) string { return filepath.Join(folder(t, aws), "charts") }

func folder(t *testing.T, m module) string {
	t.Helper()
	folder, err := m.fetch(t.Context(), t.TempDir())
	if err == nil {
		return folder
	}
	text := fmt.Sprintf("NOT TESTED: %s@%s (3 MB at most) cannot be fetched from the module proxy: %v", m.path, m.version, err)
	if os.Getenv("KARPENTER_SOAK") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}

func (m module) fetch(ctx context.Context, empty string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", m.path+"@"+m.version)
	download.Dir = empty // of no module: none depends on it
	download.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off",
		"GOTOOLCHAIN=auto", "GONOSUMDB="+m.path) // m.sum is what it must be
	var out, said bytes.Buffer
	download.Stdout, download.Stderr = &out, &said
	failed := download.Run()
	var archive struct{ Dir, Sum, Error string }
	if err := json.Unmarshal(out.Bytes(), &archive); err != nil {
		return "", fmt.Errorf("%w: %s", failed, said.String())
	}
	if failed != nil || archive.Error != "" {
		return "", fmt.Errorf("%s%s", archive.Error, said.String())
	}
	if archive.Sum != m.sum {
		return "", fmt.Errorf("its hash is %s, want %s", archive.Sum, m.sum)
	}
	return archive.Dir, nil
}
