package generations

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// object reads YAML as the API server reads objects.
func object(t *testing.T, text string) tree {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out tree
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// beta and hub write the head of an object of either version.
func beta(kind, rest string) string { return head(kind, V1Beta1) + rest }
func hub(kind, rest string) string  { return head(kind, "v1") + rest }

func head(kind, version string) string {
	group := v1.Group
	if kind == awsv1.Kind {
		group = awsv1.Group
	}
	return "apiVersion: " + group + "/" + version + "\nkind: " + kind + "\n"
}

const (
	named   = "metadata: {name: x}\n"
	named2  = "metadata: {name: x, annotations: {compatibility.karpenter.sh/v1beta1-nodeclass-reference: '{\"name\":\"default\"}'}}\n"
	classed = "nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}"
)

func TestFromV1Beta1(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"a pool's policy, expiry and class": {
			beta("NodePool", named+"spec: {disruption: {consolidationPolicy: WhenUnderutilized, expireAfter: 720h}, template: {spec: {nodeClassRef: {name: default}}}}"),
			hub("NodePool", named2+"spec: {disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s}, template: {spec: {expireAfter: 720h, "+classed+"}}}"),
		},
		"time to wait stays where it was refused": {
			beta("NodePool", named+"spec: {disruption: {consolidationPolicy: WhenUnderutilized, consolidateAfter: 30s}, template: {}}"),
			hub("NodePool", named+"spec: {disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 30s}, template: {}}"),
		},
		"consolidation that was switched off stays off": {
			beta("NodePool", named+"spec: {disruption: {consolidationPolicy: WhenUnderutilized, consolidateAfter: Never}}"),
			hub("NodePool", named+"spec: {disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: Never}}"),
		},
		"empty nodes without a time are kept": {
			beta("NodePool", named+"spec: {disruption: {consolidationPolicy: WhenEmpty}}"),
			hub("NodePool", `metadata: {name: x, annotations: {compatibility.karpenter.sh/v1beta1-fields: '[{"at":["spec","disruption","consolidateAfter"],"gives":["Never"]}]'}}
spec: {disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}}`),
		},
		"a kubelet block becomes an annotation": {
			beta("NodePool", named+"spec: {template: {spec: {kubelet: {maxPods: 20, kubeReserved: {cpu: 1}}}}}"),
			hub("NodePool", "metadata: {name: x, annotations: {compatibility.karpenter.sh/v1beta1-kubelet-conversion: '{\"kubeReserved\":{\"cpu\":1},\"maxPods\":20}'}}\nspec: {template: {spec: {}}}"),
		},
		"a class of another group": {
			beta("NodePool", named+"spec: {template: {spec: {nodeClassRef: {name: a, kind: Box, apiVersion: example.org/v7}}}}"),
			hub("NodePool", `metadata: {name: x, annotations: {compatibility.karpenter.sh/v1beta1-nodeclass-reference: '{"kind":"Box","name":"a","apiVersion":"example.org/v7"}'}}
spec: {template: {spec: {nodeClassRef: {group: example.org, kind: Box, name: a}}}}`),
		},
		"a claim of a pool gets the pool's age": {
			beta("NodeClaim", "metadata: {name: x, labels: {karpenter.sh/nodepool: general}}\nspec: {requirements: []}"),
			hub("NodeClaim", "metadata: {name: x, labels: {karpenter.sh/nodepool: general}}\nspec: {requirements: [], expireAfter: 48h}"),
		},
		"a claim of no pool stays": {
			beta("NodeClaim", named+"spec: {requirements: []}"),
			hub("NodeClaim", named+"spec: {requirements: [], expireAfter: Never}"),
		},
		"a family without terms is an alias": {
			beta(awsv1.Kind, named+"spec: {amiFamily: Bottlerocket, role: r}"),
			hub(awsv1.Kind, named+"spec: {amiSelectorTerms: [{alias: bottlerocket@latest}], role: r}"),
		},
		"a version that was pinned": {
			beta(awsv1.Kind, "metadata: {name: x, annotations: {compatibility.karpenter.k8s.aws/v1-alias-version: v20240807}}\nspec: {amiFamily: AL2}"),
			hub(awsv1.Kind, named+"spec: {amiSelectorTerms: [{alias: al2@v20240807}]}"),
		},
		"a family with terms stays": {
			beta(awsv1.Kind, named+"spec: {amiFamily: AL2, amiSelectorTerms: [{id: ami-1}]}"),
			hub(awsv1.Kind, named+"spec: {amiFamily: AL2, amiSelectorTerms: [{id: ami-1}]}"),
		},
		"Ubuntu gets its disk": {
			beta(awsv1.Kind, named+"spec: {amiFamily: Ubuntu, amiSelectorTerms: [{name: u}]}"),
			hub(awsv1.Kind, `metadata: {name: x, annotations: {compatibility.karpenter.k8s.aws/v1beta1-ubuntu: "amiFamily,blockDeviceMappings"}}
spec: {amiFamily: AL2, amiSelectorTerms: [{name: u}], blockDeviceMappings: [{deviceName: /dev/sda1, rootVolume: true, ebs: {encrypted: true, volumeType: gp3, volumeSize: 20Gi}}]}`),
		},
		"Ubuntu keeps its own disks": {
			beta(awsv1.Kind, named+"spec: {amiFamily: Ubuntu, amiSelectorTerms: [{name: u}], blockDeviceMappings: [{deviceName: /dev/sdb}]}"),
			hub(awsv1.Kind, `metadata: {name: x, annotations: {compatibility.karpenter.k8s.aws/v1beta1-ubuntu: amiFamily}}
spec: {amiFamily: AL2, amiSelectorTerms: [{name: u}], blockDeviceMappings: [{deviceName: /dev/sdb}]}`),
		},
		"Ubuntu without images cannot be launched": {
			beta(awsv1.Kind, named+"spec: {amiFamily: Ubuntu, blockDeviceMappings: [{deviceName: /dev/sdb}]}"),
			hub(awsv1.Kind, `metadata: {name: x, annotations: {compatibility.karpenter.k8s.aws/v1beta1-ubuntu: "amiFamily,incompatible"}}
spec: {amiFamily: AL2, amiSelectorTerms: [{id: ami-placeholder}], blockDeviceMappings: [{deviceName: /dev/sdb}]}`),
		},
		"things of the wrong type go through": {
			beta("NodePool", named+"spec: {template: text, disruption: 7}"),
			hub("NodePool", named+"spec: {template: text, disruption: 7}"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Convert(object(t, tc.in), "v1", twoDays)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(object(t, tc.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			back, err := Convert(got, V1Beta1, nil)
			if err != nil {
				t.Fatal(err)
			}
			takeAnnotation(back, v1.V1FieldsAnnotationKey)
			want := object(t, tc.in)
			if diff := cmp.Diff(want, back); diff != "" {
				t.Errorf("back (-want +got):\n%s", diff)
			}
		})
	}
}

// A client of v1beta1 reads an object of v1, changes something, and writes it back.
func TestEditsThroughV1Beta1(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		edit func(tree)
		want string
	}{
		"of the weight keep everything": {
			hub("NodePool", named+"spec: {weight: 1, replicas: 3, disruption: {consolidationPolicy: Balanced, consolidateAfter: 5m, budgets: [{nodes: '1', reasons: [Empty]}, {nodes: '1'}]}, template: {spec: {terminationGracePeriod: 1h}}}"),
			func(o tree) { put(o, int64(2), "spec", "weight") },
			hub("NodePool", named+"spec: {weight: 2, replicas: 3, disruption: {consolidationPolicy: Balanced, consolidateAfter: 5m, budgets: [{nodes: '1', reasons: [Empty]}, {nodes: '1'}]}, template: {spec: {terminationGracePeriod: 1h}}}"),
		},
		"of the policy count": {
			hub("NodePool", named+"spec: {disruption: {consolidationPolicy: Balanced, consolidateAfter: 5m}}"),
			func(o tree) { put(o, "WhenEmpty", "spec", "disruption", "consolidationPolicy") },
			hub("NodePool", named+"spec: {disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m}}"),
		},
		"of budgets keep the reasons of the others": {
			hub("NodePool", named+"spec: {disruption: {budgets: [{nodes: '1', reasons: [Empty]}, {nodes: '2', reasons: [Drifted]}]}}"),
			func(o tree) {
				put(o, []any{tree{"nodes": "9"}, tree{"nodes": "2"}}, "spec", "disruption", "budgets")
			},
			hub("NodePool", named+"spec: {disruption: {budgets: [{nodes: '9'}, {nodes: '2', reasons: [Drifted]}]}}"),
		},
		"of another annotation leave no trace": {
			hub("NodePool", named+"spec: {template: {spec: {"+classed+"}}}"),
			func(o tree) { put(o, "blue", annotations("team")...) },
			hub("NodePool", "metadata: {name: x, annotations: {team: blue}}\nspec: {template: {spec: {"+classed+"}}}"),
		},
		"of the class's name count": {
			hub("NodePool", named2+"spec: {template: {spec: {"+classed+"}}}"),
			func(o tree) { put(o, "other", "spec", "template", "spec", "nodeClassRef", "name") },
			hub("NodePool", strings.ReplaceAll(named2, "default", "other")+"spec: {template: {spec: {"+strings.ReplaceAll(classed, "default", "other")+"}}}"),
		},
		"of tags keep the kubelet of the class": {
			hub(awsv1.Kind, named+"spec: {kubelet: {maxPods: 9}, amiFamily: Custom, amiSelectorTerms: [{alias: al2@latest}]}"),
			func(o tree) { put(o, tree{"a": "b"}, "spec", "tags") },
			hub(awsv1.Kind, named+"spec: {kubelet: {maxPods: 9}, amiFamily: Custom, amiSelectorTerms: [{alias: al2@latest}], tags: {a: b}}"),
		},
		"of the family count": {
			hub(awsv1.Kind, named+"spec: {amiSelectorTerms: [{alias: al2@v20240807}]}"),
			func(o tree) {
				put(o, "Bottlerocket", "spec", "amiFamily")
				takeAnnotation(o, awsv1.AnnotationAliasVersion)
			},
			hub(awsv1.Kind, named+"spec: {amiSelectorTerms: [{alias: bottlerocket@latest}]}"),
		},
		"of an Ubuntu class's images make it an ordinary one": {
			hub(awsv1.Kind, "metadata: {name: x, annotations: {compatibility.karpenter.k8s.aws/v1beta1-ubuntu: 'amiFamily,incompatible'}}\nspec: {amiFamily: AL2, amiSelectorTerms: [{id: ami-placeholder}], blockDeviceMappings: [{deviceName: d}]}"),
			func(o tree) { put(o, []any{tree{"name": "u"}}, "spec", "amiSelectorTerms") },
			hub(awsv1.Kind, "metadata: {name: x, annotations: {compatibility.karpenter.k8s.aws/v1beta1-ubuntu: amiFamily}}\nspec: {amiFamily: AL2, amiSelectorTerms: [{name: u}], blockDeviceMappings: [{deviceName: d}]}"),
		},
		"of nothing drop the mark that it was written as v1": {
			hub("NodePool", "metadata: {name: x, annotations: {karpenter.sh/stored-version-migrated: 'true'}}\nspec: {}"),
			func(tree) {},
			hub("NodePool", named+"spec: {}"),
		},
		"by a client that drops our annotation lose what only v1 has": {
			hub("NodePool", named+"spec: {replicas: 3}"),
			func(o tree) { takeAnnotation(o, v1.V1FieldsAnnotationKey) },
			hub("NodePool", named+"spec: {}"),
		},
		"with a memory that somebody forged change no name": {
			hub("NodePool", named+"spec: {weight: 1}"),
			func(o tree) {
				put(o, `[{"at":["metadata","name"],"is":["y"],"gives":["x"]},{"at":["kind"],"is":["NodeClaim"],"gives":["NodePool"]},{"at":[],"is":[1]},{"at":["spec","weight"],"is":[1,2],"gives":[1]}]`, annotations(v1.V1FieldsAnnotationKey)...)
			},
			hub("NodePool", named+"spec: {weight: 1}"),
		},
		"with a memory that nobody can read": {
			hub("NodePool", named+"spec: {weight: 1}"),
			func(o tree) { put(o, `{`, annotations(v1.V1FieldsAnnotationKey)...) },
			hub("NodePool", named+"spec: {weight: 1}"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen, err := Convert(object(t, tc.in), V1Beta1, nil)
			if err != nil {
				t.Fatal(err)
			}
			tc.edit(seen)
			got, err := Convert(seen, "v1", twoDays)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(object(t, tc.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeConverted(t *testing.T) {
	broken := errors.New("no answer")
	for name, tc := range map[string]struct {
		in, version string
		want        string
	}{
		"another kind":           {"apiVersion: karpenter.sh/v1\nkind: NodeOverlay", V1Beta1, "NodeOverlay"},
		"another version":        {hub("NodePool", ""), "v1alpha5", "v1alpha5"},
		"from another version":   {"apiVersion: karpenter.sh/v1alpha5\nkind: NodePool", "v1", "v1alpha5"},
		"a pool that is unknown": {beta("NodeClaim", "metadata: {labels: {karpenter.sh/nodepool: p}}\nspec: {}"), "v1", "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Convert(object(t, tc.in), tc.version, func(string) (string, error) { return "", broken })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want one about %q", err, tc.want)
			}
		})
	}
}

func TestTheSameVersionIsTheSameObject(t *testing.T) {
	in := object(t, hub("NodePool", named+"spec: {replicas: 3}"))
	if got, err := Convert(in, "v1", nil); err != nil || !reflect.DeepEqual(got, in) {
		t.Errorf("Convert = %v, %v", got, err)
	}
}

// Whatever an API server sends is converted or refused.
func FuzzConvert(f *testing.F) {
	f.Add(`{"apiVersion":"karpenter.sh/v1beta1","kind":"NodePool","metadata":{"annotations":{"compatibility.karpenter.sh/v1-fields":"[{\"at\":[\"spec\"],\"each\":true,\"is\":[1],\"gives\":[1,2]}]"}},"spec":[1]}`)
	f.Add(`{"apiVersion":"karpenter.k8s.aws/v1","kind":"EC2NodeClass","metadata":null,"spec":{"amiSelectorTerms":[1,{"alias":"@"}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var in tree
		if utiljson.Unmarshal([]byte(text), &in) != nil || in == nil {
			return
		}
		for _, version := range []string{"v1", V1Beta1} {
			if out, err := Convert(in, version, twoDays); err == nil && textAt(out, "metadata", "name") != textAt(in, "metadata", "name") {
				t.Errorf("the name became %q", textAt(out, "metadata", "name"))
			}
		}
	})
}
