// Package v1chart fetches the Helm charts of Karpenter v1, from which tests upgrade and to which they return. There
// is no copy of them here: they come from the archive of its Go module.
package v1chart

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

// The archive, and the only content that it may have.
const (
	module  = "github.com/aws/karpenter-provider-aws"
	version = "v1.14.1"
	sum     = "h1:WGtIQTQcxpElYMdWfWuPwaF2+9muR+hYhPZsTtoY8Gs="
)

// Folder is where the charts karpenter and karpenter-crd are. A test whose machine has them neither in its module
// cache nor within reach of a module proxy is skipped and says so; in make soak it fails.
func Folder(t *testing.T) string {
	t.Helper()
	folder, err := fetch(t.Context(), t.TempDir())
	if err == nil {
		return folder
	}
	text := fmt.Sprintf("NOT TESTED: the charts of Karpenter v1 cannot be fetched (%s@%s, 2.4 MB, from the module "+
		"proxy): %v", module, version, err)
	if os.Getenv("KARPENTER_SOAK") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}

func fetch(ctx context.Context, empty string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	download.Dir = empty                                                               // of no module: none depends on it
	download.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GONOSUMDB="+module) // what it must be stands above
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
	if archive.Sum != sum {
		return "", fmt.Errorf("its hash is %s, want %s", archive.Sum, sum)
	}
	return filepath.Join(archive.Dir, "charts"), nil
}
