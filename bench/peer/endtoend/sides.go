package endtoend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/object"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	peerapis "sigs.k8s.io/karpenter/pkg/apis"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// poolName is that of the only pool.
const poolName = "default"

// startPeer installs Karpenter's definitions and starts it, as the administrator.
func (c *cluster) startPeer(ctx context.Context) error {
	for _, definition := range slices.Concat(peerapis.CRDs, kwokapis.CRDs) {
		if err := c.define(ctx, definition); err != nil {
			return fmt.Errorf("define %s: %w", definition.Name, err)
		}
	}
	if err := c.make(ctx, kwokClass()); err != nil {
		return err
	}
	if err := c.make(ctx, c.pool(c.side)); err != nil {
		return err
	}
	// As its chart would have it on a machine like this; port 0 is any that is free.
	return c.run("karpenter-peer", append(os.Environ(), "KUBECONFIG="+c.file("kubeconfig"), "LEADER_ELECTION_NAMESPACE="+namespace,
		"METRICS_PORT=0", "HEALTH_PROBE_PORT=0", "CPU_REQUESTS=2000", "LOG_LEVEL=info", "SCARCE="+c.file("scarce")))
}

func kwokClass() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kwokapis.Group + "/v1alpha1", "kind": "KWOKNodeClass", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"nodeRegistrationDelay": boot.String()},
	}}
}

// runOut has pools of machines run out, and all others be endless: by the switches of the model of AWS, or the file
// that the programs over the KWOK provider read.
func (c *cluster) runOut(ctx context.Context, pools []string) error {
	if c.side.Peer || c.side.Kwok {
		return os.WriteFile(c.file("scarce"), []byte(strings.Join(pools, "\n")), 0o600)
	}
	var run struct{ Ports map[string]int }
	text, err := os.ReadFile(c.file("run.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &run); err != nil {
		return err
	}
	model := fmt.Sprintf("http://127.0.0.1:%d/_model/faults", run.Ports["aws"])
	faults := map[string]any{}
	if err := speak(ctx, http.MethodGet, model, nil, &faults); err != nil {
		return err
	}
	rules := []any{}
	for _, pool := range pools {
		rules = append(rules, map[string]any{"Match": pool, "Depth": 0})
	}
	faults["Pools"] = rules
	body, err := json.Marshal(faults)
	if err != nil {
		return err
	}
	return speak(ctx, http.MethodPut, model, body, &faults)
}

// speak asks the model of AWS for what is under a URL, or changes it, and reads what it answers.
func speak(ctx context.Context, method, url string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
	}
	return json.Unmarshal(text, into)
}

func (c *cluster) define(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		return err
	}
	o := &unstructured.Unstructured{Object: raw}
	o.SetGroupVersionKind(object.GVK(definition))
	return c.make(ctx, o)
}

// make creates an object as soon as its kind is served.
func (c *cluster) make(ctx context.Context, o client.Object) error {
	return c.until(ctx, "there is "+o.GetName(), func() (bool, error) {
		err := c.Create(ctx, o)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// startOurs starts this project's program in the place of the controller that the local cluster installed, which may carry
// Kubernetes in its memory, with the environment and the rights of its pod.
func (c *cluster) startOurs(ctx context.Context) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "karpenter"}); err != nil {
		return err
	}
	if len(pods.Items) == 0 || len(pods.Items[0].Status.ContainerStatuses) == 0 {
		return fmt.Errorf("there is no pod of the controller")
	}
	linked := strings.TrimPrefix(pods.Items[0].Status.ContainerStatuses[0].ContainerID, "process://")
	environment, err := os.ReadFile("/proc/" + linked + "/environ")
	if err != nil {
		return fmt.Errorf("read the environment of the controller's pod: %w", err)
	}
	if err := c.retire(ctx); err != nil {
		return err
	}
	if err := c.credentials(ctx); err != nil {
		return err
	}
	program, args, objects := "karpenter", []string{"--kubeconfig=" + c.file("measured")}, []*unstructured.Unstructured{c.pool(c.side)}
	if c.side.Kwok { // reads KUBECONFIG
		program, args, objects = "karpenter-overkwok", nil, append(objects, kwokClass())
	}
	for _, o := range objects {
		if err := c.setSpec(ctx, o); err != nil {
			return err
		}
	}
	return c.run(program, append(own(strings.Split(string(environment), "\x00")),
		"KUBECONFIG="+c.file("measured"), "SCARCE="+c.file("scarce"),
		"METRICS_PORT=18180", "HEALTH_PROBE_PORT=18181", "WEBHOOK_PORT=18182", "WEBHOOK_URL=https://127.0.0.1:18182"), args...)
}

// setSpec changes the spec of an object that is there.
func (c *cluster) setSpec(ctx context.Context, o *unstructured.Unstructured) error {
	old := &unstructured.Unstructured{}
	old.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), old); err != nil {
		return err
	}
	old.Object["spec"] = o.Object["spec"]
	return c.Update(ctx, old)
}

// own is an environment without what binds a process to its pod.
func own(environment []string) []string {
	return slices.DeleteFunc(environment, func(pair string) bool {
		return pair == "" || strings.HasPrefix(pair, "KARPENTER_LOCAL_LIFELINE=") || strings.HasPrefix(pair, "KARPENTER_LOCAL_PORTS=")
	})
}

// retire scales the installed controller to nothing.
func (c *cluster) retire(ctx context.Context) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "karpenter"}}
	if err := c.Patch(ctx, d, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))); err != nil {
		return err
	}
	return c.until(ctx, "the installed controller has gone", func() (bool, error) {
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "karpenter"})
		return err == nil && len(pods.Items) == 0, err
	})
}

// credentials writes a kubeconfig of the controller's service account.
func (c *cluster) credentials(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "karpenter"}}
	day := int64((24 * time.Hour).Seconds())
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}
	if err := c.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("ask for a token: %w", err)
	}
	config := api.NewConfig()
	config.Clusters["c"] = &api.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos["u"] = &api.AuthInfo{Token: token.Status.Token}
	config.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	return clientcmd.WriteToFile(*config, c.file("measured"))
}

// pool is the pool of all price figures, which moves no pods yet.
func (c *cluster) pool(side Side) *unstructured.Unstructured {
	var requirements []any
	add := func(key string, operator corev1.NodeSelectorOperator, values ...string) {
		var list []any
		for _, v := range values {
			list = append(list, v)
		}
		requirements = append(requirements, map[string]any{"key": key, "operator": string(operator), "values": list})
	}
	for _, r := range benchload.Pool(false, false).Spec.Template.Spec.Requirements {
		add(r.Key, r.Operator, r.Values...)
	}
	add(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, benchload.Zones()...)
	if side.Capped {
		add(awsv1.LabelInstanceCPU, corev1.NodeSelectorOpLt, "65")
	}
	class := map[string]any{"group": awsv1.Group, "kind": "EC2NodeClass", "name": "default"}
	if side.Peer || side.Kwok {
		class = map[string]any{"group": kwokapis.Group, "kind": "KWOKNodeClass", "name": "default"}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.GroupVersion.String(), "kind": "NodePool", "metadata": map[string]any{"name": poolName},
		"spec": map[string]any{
			"template": map[string]any{"spec": map[string]any{"nodeClassRef": class, "requirements": requirements,
				"expireAfter": "Never"}},
			"disruption": map[string]any{"consolidationPolicy": "WhenEmptyOrUnderutilized",
				"consolidateAfter": "Never", "budgets": []any{map[string]any{"nodes": "10%"}}},
		},
	}}
}
