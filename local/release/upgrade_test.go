package release

import (
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	"sigs.k8s.io/yaml"
)

const policies = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

var update = flag.Bool("update", false, "rewrite the golden files")

// What people have with Karpenter v1 gives what they had: names, selectors and roles that cannot be changed in place stay. The image is
// what each of them has to say.
func TestValuesOfV1(t *testing.T) {
	for name, more := range map[string]values{
		"minimal":    {"controller": values{"image": values{"repository": "registry.example/karpenter"}}},
		"production": nil,
		"policies":   nil,
		"gitops":     {"controller": values{"image": values{"repository": "registry.example/karpenter"}}},
	} {
		t.Run(name, func(t *testing.T) {
			v := valuesFile(t, name)
			for key, section := range more {
				maps.Copy(v[key].(values), section.(values))
			}
			files, err := render(t, "karpenter", v, "monitoring.coreos.com/v1", policies)
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for _, file := range slices.Sorted(maps.Keys(files)) {
				if text := strings.TrimSpace(files[file]); text != "" {
					all.WriteString("# " + file + "\n" + text + "\n")
				}
			}
			ch, err := Load("karpenter")
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(all.String(), ch.Metadata.Version, "VERSION")
			golden := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("go test ./release -update rewrites it, and the difference deserves a look:\n%s", diff)
			}
		})
	}
}

func valuesFile(t *testing.T, name string) values {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "values", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	v := values{}
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Kubernetes refuses to change these fields of an object that is there: a release of Karpenter v1 has them as they stand here.
func TestWhatAnUpgradeCannotChangeIsAsInV1(t *testing.T) {
	const binding = "rbac.authorization.k8s.io"
	var got []string
	for _, o := range rendered(t, valuesFile(t, "production")) {
		spec, _ := o["spec"].(map[string]any)
		switch o["kind"] {
		case "Deployment":
			labels := spec["selector"].(map[string]any)["matchLabels"].(map[string]any)
			got = append(got, "Deployment "+nameOf(o)+" selects "+strings.Join(slices.Sorted(maps.Keys(labels)), " ")+" = "+labels["app.kubernetes.io/name"].(string)+" "+labels["app.kubernetes.io/instance"].(string))
		case "ClusterRoleBinding", "RoleBinding":
			ref := o["roleRef"].(map[string]any)
			if ref["apiGroup"] != binding {
				t.Errorf("%s binds a role of %s", nameOf(o), ref["apiGroup"])
			}
			got = append(got, o["kind"].(string)+" "+nameOf(o)+" binds "+ref["kind"].(string)+" "+ref["name"].(string))
		}
	}
	slices.Sort(got)
	want := []string{
		"ClusterRoleBinding karpenter binds ClusterRole karpenter",
		"ClusterRoleBinding karpenter-core binds ClusterRole karpenter-core",
		"Deployment karpenter selects app.kubernetes.io/instance app.kubernetes.io/name = karpenter karpenter",
		"RoleBinding karpenter binds Role karpenter",
		"RoleBinding karpenter-dns binds Role karpenter-dns",
		"RoleBinding karpenter-history binds Role karpenter-history",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An installation and two upgrades by Helm itself, against a cluster that takes everything: the second upgrade has nothing to send.
func TestASecondUpgradeChangesNothing(t *testing.T) {
	for _, chartName := range []string{"karpenter", "karpenter-crd"} {
		ch, err := Load(chartName)
		if err != nil {
			t.Fatal(err)
		}
		v := values{}
		if chartName == "karpenter" {
			v = valuesFile(t, "production")
		}
		config := action.NewConfiguration()
		config.Releases, config.KubeClient = storage.Init(driver.NewMemory()), &kubefake.PrintingKubeClient{Out: io.Discard}
		config.Capabilities = common.DefaultCapabilities
		install := action.NewInstall(config)
		install.ReleaseName, install.Namespace, install.SkipCRDs = chartName, "karpenter", true
		if _, err := install.Run(ch, v); err != nil {
			t.Fatal(err)
		}
		var manifests []string
		for range 2 {
			upgrade := action.NewUpgrade(config)
			upgrade.Namespace = "karpenter"
			done, err := upgrade.Run(chartName, ch, v)
			if err != nil {
				t.Fatal(err)
			}
			manifests = append(manifests, done.(*releasev1.Release).Manifest)
		}
		if diff := cmp.Diff(manifests[0], manifests[1]); diff != "" || !strings.Contains(manifests[0], "kind:") {
			t.Errorf("the second upgrade of %s differs from the first: %s", chartName, diff)
		}
	}
}

// Nothing of what goes with a release is a machine: definitions, and so NodeClaims, stay, and nobody is left to drain them.
func TestUninstallLeavesMachinesAlone(t *testing.T) {
	for _, o := range rendered(t, valuesFile(t, "production")) {
		if group, _, _ := strings.Cut(o["apiVersion"].(string), "/"); group == "karpenter.sh" || group == "karpenter.k8s.aws" || group == "apiextensions.k8s.io" {
			t.Errorf("%s %s goes with the release", o["kind"], nameOf(o))
		}
	}
	files, err := render(t, "karpenter-crd", values{"additionalAnnotations": nil, "legacy": values{"enabled": true}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if !strings.Contains(text, "helm.sh/resource-policy: keep") {
			t.Errorf("%s: Helm would remove the definition, and with it every object of the kind", file)
		}
	}
}

func rendered(t *testing.T, v values, apis ...string) []map[string]any {
	t.Helper()
	files, err := render(t, "karpenter", v, apis...)
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for _, text := range files {
		for _, document := range documents([]byte(text)) {
			var o map[string]any
			if err := yaml.Unmarshal(document, &o); err != nil {
				t.Fatal(err)
			}
			if len(o) > 0 {
				all = append(all, o)
			}
		}
	}
	return all
}

func nameOf(o map[string]any) string { return o["metadata"].(map[string]any)["name"].(string) }
