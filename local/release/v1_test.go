package release

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/test/upstream"
)

// objectsOf are what a chart makes of values, by kind and name.
func objectsOf(t *testing.T, ch *chart.Chart, v values) map[string]values {
	t.Helper()
	caps := common.DefaultCapabilities.Copy()
	caps.APIVersions = append(caps.APIVersions, "monitoring.coreos.com/v1")
	options := common.ReleaseOptions{Name: ch.Name(), Namespace: "karpenter", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(ch, v, options, caps)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(ch, all)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]values{}
	for file, text := range files {
		if strings.HasSuffix(file, ".txt") {
			continue
		}
		for _, document := range documents([]byte(text)) {
			var o values
			if err := yaml.Unmarshal(document, &o); err != nil {
				t.Fatal(err)
			}
			if len(o) > 0 {
				found[fmt.Sprint(o["kind"], " ", nameOf(o))] = o
			}
		}
	}
	return found
}

// bothCharts loads a chart of Karpenter v1, and ours that takes its place.
func bothCharts(t *testing.T, name string) (theirs, ours *chart.Chart) {
	t.Helper()
	loaded, err := loader.Load(filepath.Join(upstream.Charts(t), name))
	if err != nil {
		t.Fatal(err)
	}
	ours, err = Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return loaded, ours
}

// at is what stands at a path of an object, "" where nothing does.
func at(o any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		section, _ := o.(values)
		o = section[key]
	}
	return o
}

// What Karpenter v1's own chart makes of values, ours makes of the same: nothing is taken away by an upgrade, and nothing differs that others
// rely on or that Kubernetes lets nobody change.
func TestOursMakesWhatTheChartOfV1Makes(t *testing.T) {
	theirs, ours := bothCharts(t, "karpenter")
	same := map[string][]string{
		"Deployment":         {"spec.selector", "spec.template.metadata.labels", "spec.template.spec.serviceAccountName", "spec.replicas", "spec.strategy", "spec.template.spec.terminationGracePeriodSeconds", "spec.template.spec.priorityClassName"},
		"ClusterRoleBinding": {"roleRef", "subjects"}, "RoleBinding": {"roleRef", "subjects", "metadata.namespace"},
		"Service":             {"spec.selector", "spec.ports", "spec.type", "metadata.namespace", "metadata.annotations"},
		"ServiceAccount":      {"metadata.namespace", "metadata.annotations", "automountServiceAccountToken"},
		"PodDisruptionBudget": {"spec"}, "ServiceMonitor": {"spec"}, "Role": {"metadata.namespace", "rules"}, "ClusterRole": {"apiVersion"},
	}
	for _, name := range []string{"minimal", "production", "gitops"} {
		t.Run(name, func(t *testing.T) {
			before := objectsOf(t, theirs, valuesFile(t, name))
			v := valuesFile(t, name)
			controller := v["controller"].(values)
			image, _ := controller["image"].(values)
			controller["image"] = values{"repository": "registry.example/karpenter", "tag": image["tag"], "digest": image["digest"]}
			after := objectsOf(t, ours, v)
			if len(before) < 12 {
				t.Errorf("the chart of v1 makes only %v", slices.Sorted(maps.Keys(before)))
			}
			for id, was := range before {
				is, kept := after[id]
				if !kept {
					t.Errorf("an upgrade would remove %s", id)
					continue
				}
				kind, _, _ := strings.Cut(id, " ")
				if len(same[kind]) == 0 {
					t.Errorf("nothing is compared of %s", id)
				}
				for _, path := range same[kind] {
					if diff := cmp.Diff(at(was, path), at(is, path)); diff != "" {
						t.Errorf("%s, %s: %s", id, path, diff)
					}
				}
			}
			wantEnvironment(t, before["Deployment karpenter"], after["Deployment karpenter"])
		})
	}
}

// wantEnvironment fails if a variable of the controller got lost or says something else.
func wantEnvironment(t *testing.T, before, after values) {
	t.Helper()
	variables := func(o values) map[string]any {
		all := map[string]any{}
		for _, e := range at(o, "spec.template.spec").(values)["containers"].([]any)[0].(values)["env"].([]any) {
			all[e.(values)["name"].(string)] = e
		}
		return all
	}
	now := variables(after)
	for name, was := range variables(before) {
		if diff := cmp.Diff(was, now[name]); diff != "" {
			t.Errorf("the controller is told otherwise: %s", diff)
		}
	}
}

// Helm's ways to keep the values of the release before: one forgets what is new in ours, which is said in words, and the others work.
func TestValuesThatHelmKeeps(t *testing.T) {
	image := values{"controller": values{"image": values{"repository": "registry.example/karpenter", "tag": nil, "digest": nil}}}
	for name, tc := range map[string]struct {
		keep func(*action.Upgrade)
		want string // what is said, where it is refused
	}{
		"--reuse-values":            {func(u *action.Upgrade) { u.ReuseValues = true }, "write --reset-then-reuse-values instead"},
		"--reset-then-reuse-values": {func(u *action.Upgrade) { u.ResetThenReuseValues = true }, ""},
	} {
		for _, file := range []string{"minimal", "production", "gitops"} {
			t.Run(name+" of "+file, func(t *testing.T) {
				theirs, ours := bothCharts(t, "karpenter")
				config := action.NewConfiguration()
				config.Releases, config.KubeClient = storage.Init(driver.NewMemory()), &kubefake.PrintingKubeClient{Out: io.Discard}
				config.Capabilities = common.DefaultCapabilities
				install := action.NewInstall(config)
				install.ReleaseName, install.Namespace = "karpenter", "karpenter"
				if _, err := install.Run(theirs, valuesFile(t, file)); err != nil {
					t.Fatal(err)
				}
				upgrade := action.NewUpgrade(config)
				upgrade.Namespace = "karpenter"
				tc.keep(upgrade)
				_, err := upgrade.Run("karpenter", ours, image)
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error = %v, want %q", err, tc.want)
				}
			})
		}
	}
}

// The definitions of v1 become ours and theirs again in place: nothing that Kubernetes refuses to change differs, and ours know every field that theirs
// do, so that no object loses one.
func TestOursKnowWhatTheDefinitionsOfV1Know(t *testing.T) {
	theirs, ours := bothCharts(t, "karpenter-crd")
	after := objectsOf(t, ours, values{})
	for id, was := range objectsOf(t, theirs, values{}) {
		is, kept := after[id]
		if !kept {
			t.Errorf("there is no %s", id)
			continue
		}
		for _, path := range []string{"spec.group", "spec.scope", "spec.conversion", "spec.names.kind", "spec.names.listKind", "spec.names.plural", "spec.names.singular", "spec.names.shortNames"} {
			if diff := cmp.Diff(at(was, path), at(is, path)); diff != "" {
				t.Errorf("%s, %s: %s", id, path, diff)
			}
		}
		before, now := versions(was), versions(is)
		for name, version := range before {
			if now[name] == nil {
				t.Errorf("%s has no version %s", id, name)
				continue
			}
			for _, key := range []string{"served", "storage", "subresources"} {
				if diff := cmp.Diff(version[key], now[name][key]); diff != "" {
					t.Errorf("%s, %s: %s", id, key, diff)
				}
			}
			for _, field := range lacking(at(version, "schema.openAPIV3Schema").(values), at(now[name], "schema.openAPIV3Schema").(values), "") {
				t.Errorf("%s/%s does not know %s", id, name, field)
			}
		}
	}
}

func versions(crd values) map[string]values {
	all := map[string]values{}
	for _, v := range crd["spec"].(values)["versions"].([]any) {
		all[v.(values)["name"].(string)] = v.(values)
	}
	return all
}

// lacking are the fields of a schema that another does not have, or has of another type.
func lacking(schema, other values, path string) []string {
	if schema["type"] != other["type"] {
		return []string{fmt.Sprintf("%s as %v, but as %v", path, schema["type"], other["type"])}
	}
	if other["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	var all []string
	properties, _ := schema["properties"].(values)
	for name, of := range properties {
		is, known := at(other, "properties").(values)[name].(values)
		if !known {
			all = append(all, path+"."+name)
			continue
		}
		all = append(all, lacking(of.(values), is, path+"."+name)...)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		of, deep := schema[key].(values)
		is, known := other[key].(values)
		if deep && !known {
			all = append(all, path+" of "+key)
		} else if deep {
			all = append(all, lacking(of, is, path+"[]")...)
		}
	}
	return all
}

// Their whole file of default values, as people copy it into their repositories, makes the same controller of our chart. With every gate and
// switch of theirs set it does too, but for gates that are contradictions.
func TestTheWholeValuesFileOfV1(t *testing.T) {
	theirs, ours := bothCharts(t, "karpenter")
	for name, edit := range map[string]func(settings values){
		"as it comes": func(values) {},
		"with devices and everything that is off": func(settings values) {
			for _, gates := range []string{"featureGates", "awsFeatureGates"} {
				for gate, on := range settings[gates].(values) {
					if on == false {
						settings[gates].(values)[gate] = true
					}
				}
			}
			settings["enableDRA"], settings["enableZonalShift"], settings["isolatedVPC"], settings["eksControlPlane"] = true, true, true, true
			settings["securityGroupRefreshInterval"], settings["clusterEndpoint"], settings["interruptionQueue"] = "5m", "https://api.example", "queue"
		},
		"with repair as it was": func(settings values) {
			settings["legacyNodeRepair"], settings["featureGates"].(values)["nodeRepair"] = true, true
			settings["ignoreDRARequests"], settings["awsFeatureGates"].(values)["draEFA"] = true, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := copied(t, theirs.Values)
			v["settings"].(values)["clusterName"] = "prod"
			edit(v["settings"].(values))
			before := objectsOf(t, theirs, copied(t, v))
			v["controller"].(values)["image"] = values{"repository": "registry.example/karpenter"}
			after := objectsOf(t, ours, v)
			wantEnvironment(t, before["Deployment karpenter"], after["Deployment karpenter"])
		})
	}
}

func copied(t *testing.T, v values) values {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := values{}
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
