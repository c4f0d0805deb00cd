//go:build apiserver

package apiserver

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/ui/scalable"
)

// customKind is a kind of the user's. One with a path to its replicas can be scaled.
func customKind(plural, kind, replicas string) *apiextensionsv1.CustomResourceDefinition {
	v := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
	}
	if replicas != "" {
		v.Subresources = &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: replicas, StatusReplicasPath: ".status.size"}}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".scalable.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "scalable.example.com", Scope: apiextensionsv1.NamespaceScoped, Versions: []apiextensionsv1.CustomResourceDefinitionVersion{v},
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
		},
	}
}

const podOfOneCPU = `{metadata: {labels: {app: x}}, spec: {restartPolicy: RESTART, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}}`

// What a buffer names is read by discovery, whatever kind it is.
func TestWorkloadsOfAnyKindAreRead(t *testing.T) {
	if _, err := envtest.InstallCRDs(restConfig, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{
		customKind("farms", "Farm", ".spec.size"), customKind("rocks", "Rock", ""),
	}, MaxTime: soon}); err != nil {
		t.Fatal(err)
	}
	always, never := strings.ReplaceAll(podOfOneCPU, "RESTART", "Always"), strings.ReplaceAll(podOfOneCPU, "RESTART", "Never")
	for name, tc := range map[string]struct {
		object      string
		group, kind string
		replicas    int32
		flaw        string
	}{
		"a Deployment, without its group": {`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 4, selector: {matchLabels: {app: x}}, template: ` + always + `}}`, "", "Deployment", 4, ""},
		"a Deployment":                    {`{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {app: x}}, template: ` + always + `}}`, "apps", "Deployment", 1, ""},
		"a StatefulSet":                   {`{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 3, serviceName: s, selector: {matchLabels: {app: x}}, template: ` + always + `}}`, "apps", "StatefulSet", 3, ""},
		"a ReplicaSet":                    {`{apiVersion: apps/v1, kind: ReplicaSet, spec: {replicas: 2, selector: {matchLabels: {app: x}}, template: ` + always + `}}`, "apps", "ReplicaSet", 2, ""},
		"a Job":                           {`{apiVersion: batch/v1, kind: Job, spec: {parallelism: 5, template: ` + never + `}}`, "batch", "Job", 5, ""},
		"a kind of the user's":            {`{apiVersion: scalable.example.com/v1, kind: Farm, spec: {size: 6, template: ` + always + `}}`, "scalable.example.com", "Farm", 6, ""},
		"one without a template":          {`{apiVersion: scalable.example.com/v1, kind: Farm, spec: {size: 6}}`, "scalable.example.com", "Farm", 0, "has no pod template at spec.template"},
		"one that cannot be scaled":       {`{apiVersion: scalable.example.com/v1, kind: Rock, spec: {template: ` + always + `}}`, "scalable.example.com", "Rock", 0, "cannot be scaled"},
		"a kind that nobody serves":       {"", "example.com", "Ghost", 0, "has no kind Ghost"},
		"a kind without namespace":        {"", "karpenter.sh", "NodePool", 0, "is no kind of a namespace"},
		"a DaemonSet":                     {"", "apps", "DaemonSet", 0, "is not scaled"},
		"nothing":                         {"", "apps", "Deployment", 0, "there is no Deployment.apps"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.object != "" {
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(tc.object), &o.Object); err != nil {
					t.Fatal(err)
				}
				o.SetNamespace("default")
				o.SetName("scaled")
				if err := kube.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := kube.Delete(context.Background(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
						t.Error(err)
					}
				})
			}
			from, flaw, err := scalable.Workloads{Client: kube}.Read(t.Context(), "default", &autoscalingv1beta1.ScalableRef{APIGroup: tc.group, Kind: tc.kind, Name: "scaled"})
			if err != nil {
				t.Fatal(err)
			}
			if flaw == nil != (tc.flaw == "") || flaw != nil && !strings.Contains(sentence.BufferFlaw(flaw), tc.flaw) {
				t.Fatalf("flaw = %+v, want %q", flaw, tc.flaw)
			}
			if flaw == nil && (from.Replicas != tc.replicas || from.Template.Labels["app"] != "x" || len(from.Template.Spec.Containers) != 1) {
				t.Errorf("source = %+v, want %d replicas", from, tc.replicas)
			}
		})
	}
}

// A right that is missing is told, and is no error that is tried again and again.
func TestAWorkloadThatMayNotBeRead(t *testing.T) {
	config := rest.CopyConfig(restConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody", Groups: []string{"system:authenticated"}}
	nobody, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, flaw, err := scalable.Workloads{Client: nobody}.Read(t.Context(), "default", &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "scaled"})
	if err != nil || flaw == nil || !strings.Contains(sentence.BufferFlaw(flaw), "give its service account the right") {
		t.Errorf("flaw = %+v, error %v", flaw, err)
	}
}
