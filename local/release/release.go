// Package release installs Karpenter's Helm charts into a cluster, and the objects that a local cluster starts with.
package release

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"karpenter.sh/karpenter/charts"
	"karpenter.sh/karpenter/local/plane"
)

//go:embed objects/*.yaml
var objects embed.FS

// A Release is one chart with its values.
type Release struct {
	Chart  string // folder in package charts, and the release's name
	Values map[string]any
}

// Releases are what a local cluster of a name gets for AWS, with values beside those that it needs.
func Releases(cluster string, values map[string]any) []Release {
	cluster = cmp.Or(cluster, plane.ClusterName)
	return []Release{
		{Chart: "karpenter-crd"},
		{Chart: "karpenter", Values: loader.MergeMaps(map[string]any{
			// a second one would cost a laptop memory, and seconds of each start
			"replicas":   1,
			"controller": map[string]any{"image": map[string]any{"repository": "karpenter/controller"}}, // see package runtime
			"settings": map[string]any{"clusterName": cluster, "interruptionQueue": cluster,
				"uiPort": 8082, "ignoreDRARequests": false},
			"legacy": map[string]any{"v1beta1": "serve"},
		}, values)},
	}
}

// Check says why the charts cannot be installed as wished.
func Check(wish Wish) error {
	p, err := find(wish.Provider)
	if err != nil {
		return err
	}
	values, err := p.withValues(wish.Values)
	if err != nil {
		return err
	}
	for _, r := range Releases(wish.Cluster, values) {
		ch, err := Load(r.Chart)
		if err != nil {
			return err
		}
		options := chartcommon.ReleaseOptions{Name: r.Chart, Namespace: plane.Namespace, Revision: 1, IsInstall: true}
		all, err := util.ToRenderValues(ch, r.Values, options, chartcommon.DefaultCapabilities)
		if err != nil {
			return fmt.Errorf("the chart refuses its values: %w", err)
		}
		if _, err := engine.Render(ch, all); err != nil {
			return fmt.Errorf("the chart refuses its values: %w", err)
		}
	}
	return nil
}

// Load reads a chart of package charts.
func Load(name string) (*chart.Chart, error) {
	root, err := fs.Sub(charts.Files, name)
	if err != nil {
		return nil, err
	}
	var files []*archive.BufferedFile
	err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, path)
		files = append(files, &archive.BufferedFile{Name: path, Data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(files)
}

// A Wish is a wanted installation.
type Wish struct {
	Provider string // of machines; "" for AWS
	Cluster  string // name of the cluster; "" for plane.ClusterName
	Values   map[string]any
	// Override is for values that the user gave with this very command: they count even where the user has installed or upgraded a release
	// with other values since.
	Override bool
}

// Install installs or upgrades every release, unless the cluster has it unchanged.
func Install(ctx context.Context, kubeconfig string, wish Wish, log *slog.Logger) error {
	kube.ManagedFieldsManager = "helm" // a user who uses helm later does not run into our fields
	p, err := find(wish.Provider)
	if err != nil {
		return err
	}
	if p.definitions != "" { // the controller needs them when it starts
		if err := createAll(ctx, kubeconfig, log, p.definitions, wish.Cluster); err != nil {
			return err
		}
	}
	values, err := p.withValues(wish.Values)
	if err != nil {
		return err
	}
	for _, r := range Releases(wish.Cluster, values) {
		begin := time.Now()
		did, err := r.install(ctx, kubeconfig, wish.Override, log)
		if err != nil {
			return fmt.Errorf("chart %s: %w", r.Chart, err)
		}
		log.Info(did, "chart", r.Chart, "took", time.Since(begin).Round(time.Millisecond))
	}
	return nil
}

func (r Release) install(ctx context.Context, kubeconfig string, now bool, log *slog.Logger) (string, error) {
	ch, err := Load(r.Chart)
	if err != nil {
		return "", err
	}
	config, err := configuration(kubeconfig, log)
	if err != nil {
		return "", err
	}
	digest := r.digest(ch)
	last, err := config.Releases.Last(r.Chart)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		install := action.NewInstall(config)
		install.ReleaseName, install.Namespace, install.Description = r.Chart, plane.Namespace, digest
		install.WaitStrategy, install.TakeOwnership = kube.HookOnlyStrategy, true
		install.SkipCRDs = true // they come from karpenter-crd, which keeps them up to date
		_, err := install.RunWithContext(ctx, ch, r.Values)
		return "installed", err
	}
	if err != nil {
		return "", err
	}
	info := last.(*releasev1.Release).Info
	switch {
	case info.Description == digest && info.Status == common.StatusDeployed:
		return "is installed", nil
	case !strings.HasPrefix(info.Description, digestPrefix) && info.Status == common.StatusDeployed && !now:
		return "is left as another tool made it", nil
	}
	upgrade := action.NewUpgrade(config)
	upgrade.Namespace, upgrade.Description, upgrade.MaxHistory = plane.Namespace, digest, 2
	upgrade.WaitStrategy, upgrade.TakeOwnership, upgrade.ForceConflicts = kube.HookOnlyStrategy, true, true
	_, err = upgrade.RunWithContext(ctx, r.Chart, ch, r.Values)
	return "upgraded", err
}

// digestPrefix marks releases that were made here.
const digestPrefix = "sha256:"

// digest names what would be installed, so that an unchanged chart need not be sent at each start.
func (r Release) digest(ch *chart.Chart) string {
	h := sha256.New()
	for _, f := range ch.Raw {
		fmt.Fprintf(h, "%s %d\n", f.Name, len(f.Data))
		h.Write(f.Data)
	}
	values, _ := json.Marshal(r.Values) // plain maps and scalars
	h.Write(values)
	return digestPrefix + hex.EncodeToString(h.Sum(nil))
}

func configuration(kubeconfig string, log *slog.Logger) (*action.Configuration, error) {
	namespace := plane.Namespace
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.QPS = -1 // no limit
		return c
	})
	flags.KubeConfig, flags.Namespace = &kubeconfig, &namespace
	config := action.NewConfiguration()
	config.SetLogger(warnings{log.Handler()})
	return config, config.Init(flags, namespace, "secret")
}

// warnings is a log handler that passes only what deserves a look.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// documents splits a YAML file into its documents.
func documents(text []byte) [][]byte {
	var all [][]byte
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if strings.TrimSpace(string(part)) != "" {
			all = append(all, part)
		}
	}
	return all
}
