//go:build apiserver

package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/api/crds"
	"karpenter.sh/karpenter/test/plane"
)

// One server serves all tests of the package.
var (
	server     *envtest.Environment
	restConfig *rest.Config
	kube       client.Client
	kubeconfig string
	schemas    = map[string]*apiextensionsv1.JSONSchemaProps{} // by kind, and those of v1beta1 by what older calls it
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrllog.SetLogger(logr.Discard()) // v1beta1 is warned of at each request
	definitions, err := readCRDs()
	if err != nil {
		return fail(err)
	}
	var release func()
	if server, release, err = plane.New(definitions, soon); err != nil {
		return fail(err)
	}
	defer release()
	if restConfig, err = server.Start(); err != nil {
		return fail(fmt.Errorf("start the server: %w", err))
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fail(err)
		}
	}()
	restConfig.QPS, restConfig.Burst = -1, -1
	if kube, err = client.New(restConfig, client.Options{}); err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp("", "apiserver")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if kubeconfig, err = writeKubeconfig(dir); err != nil {
		return fail(err)
	}
	if err := waitUntilPublished(definitions); err != nil {
		return fail(err)
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func readCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		text, err := crds.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		kind := definition.Spec.Names.Kind
		schemas[kind] = definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		// Nothing of v1beta1 is kept by these tests, so nothing has to convert it.
		v1beta1, err := crds.Older(definition.Name)
		if err != nil {
			return nil, err
		}
		if v1beta1 != nil {
			definition.Spec.Versions = append(definition.Spec.Versions, *v1beta1)
			schemas[older(kind)] = v1beta1.Schema.OpenAPIV3Schema
		}
		out = append(out, definition)
	}
	return out, nil
}

// soon is how long anything may take that happens within seconds on a machine with nothing else to do.
const soon = 5 * time.Minute

// waitUntilPublished waits until the server's discovery and OpenAPI documents, which it makes some time after a CRD is
// established and which kubectl works by, know all kinds.
func waitUntilPublished(definitions []*apiextensionsv1.CustomResourceDefinition) error {
	published, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		_, lists, err := published.ServerGroupsAndResources()
		if err != nil {
			return false, nil
		}
		paths, err := published.OpenAPIV3().Paths()
		if err != nil {
			return false, nil
		}
		for _, d := range definitions {
			for _, v := range d.Spec.Versions {
				version := d.Spec.Group + "/" + v.Name
				listed := slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
					return l.GroupVersion == version && slices.ContainsFunc(l.APIResources, func(r metav1.APIResource) bool { return r.Kind == d.Spec.Names.Kind })
				})
				if !listed || paths["apis/"+version] == nil {
					return false, nil
				}
			}
		}
		return true, nil
	})
}

// writeKubeconfig gives kubectl a way in.
func writeKubeconfig(dir string) (string, error) {
	user, err := server.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return "", err
	}
	text, err := user.KubeConfig()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, text, 0o600)
}

// kubectl runs kubectl and returns what it printed.
func kubectl(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+filepath.Dir(kubeconfig))
	cmd.Stdin = bytes.NewBufferString(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// parse reads one object.
func parse(text string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	return object, object.UnmarshalJSON(raw)
}

// mustCreate creates an object and removes it when the test ends.
func mustCreate(t *testing.T, object client.Object) {
	t.Helper()
	if err := kube.Create(t.Context(), object); err != nil {
		t.Fatalf("create %s: %v", object.GetName(), err)
	}
	t.Cleanup(func() {
		if err := kube.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete %s: %v", object.GetName(), err)
		}
	})
}
