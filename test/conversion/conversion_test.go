//go:build apiserver

package conversion

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/api/crds"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/compat/conversion"
	"karpenter.sh/karpenter/internal/kit/loopback"
	"karpenter.sh/karpenter/test/plane"
)

// soon is how long anything may take that happens within seconds on a machine with nothing else to do.
const soon = 5 * time.Minute

// A cluster is a server with the definitions of 0.33.
type cluster struct {
	client.Client
	kubeconfig string
	settings   conversion.Settings
	replicas   *balancer
}

func start(t *testing.T) *cluster {
	t.Helper()
	return startWith(t, olderDefinitions(t))
}

// olderDefinitions are those of 0.33.
func olderDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range definitions {
		older, err := crds.Older(crd.Name)
		if err != nil {
			t.Fatal(err)
		}
		if older != nil {
			older.Storage = true
			crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{*older}
		}
	}
	return definitions
}

// startWith starts a server that has some definitions.
func startWith(t *testing.T, definitions []*apiextensionsv1.CustomResourceDefinition) *cluster {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	server, release, err := plane.New(definitions, soon)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	config, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	user, err := server.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	replicas := balance(t)
	return &cluster{c, kubeconfig, conversion.Settings{URL: "https://" + replicas.Addr().String(), Namespace: "kube-system", Service: "karpenter-conversion"}, replicas}
}

func freePort(t *testing.T) int {
	t.Helper()
	p, err := loopback.Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p.Number
}

// serve runs a replica, as the one that leads or not, until the returned function is called.
func (c *cluster) serve(t *testing.T, leads bool) (stop func()) {
	t.Helper()
	settings := c.settings
	settings.Port = freePort(t)
	service, err := conversion.New(c, settings, metrics())
	if err != nil {
		t.Fatal(err)
	}
	leave := c.replicas.add(settings.Port)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- service.Run(ctx) }()
	count := 1
	if leads {
		count++
		go func() { ended <- service.Migration(c).Run(ctx) }()
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		leave()
		cancel()
		for range count {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// eventually waits until check has nothing to say.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := check()
		if err == nil {
			t.Logf("%s after %v", what, time.Since(began).Round(100*time.Millisecond))
			return
		}
		if time.Since(began) > soon {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *cluster) list(t *testing.T, kind, version string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: v1.Group, Version: version, Kind: kind + "List"})
	err := c.List(t.Context(), list)
	return list.Items, err
}

// readable checks that every claim can be read in both versions.
func (c *cluster) readable(t *testing.T, claims int) func() error {
	return func() error {
		for _, version := range []string{"v1", "v1beta1"} {
			got, err := c.list(t, "NodeClaim", version)
			if err != nil {
				return err
			}
			if len(got) != claims {
				return fmt.Errorf("%d claims in %s, want %d", len(got), version, claims)
			}
		}
		return c.asked(t)
	}
}

// asked reads a claim as the API server reads it from storage, where it is of v1beta1: lists are answered from memory.
func (c *cluster) asked(t *testing.T) error {
	claim := &unstructured.Unstructured{}
	claim.SetGroupVersionKind(v1.GroupVersion.WithKind("NodeClaim"))
	return c.Get(t.Context(), client.ObjectKey{Name: "general-00000"}, claim)
}

func (c *cluster) kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+filepath.Dir(c.kubeconfig))
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (c *cluster) stored(t *testing.T) string {
	t.Helper()
	crd := c.definition(t)
	slices.Sort(crd.Status.StoredVersions)
	return strings.Join(crd.Status.StoredVersions, ",")
}

func (c *cluster) definition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "nodeclaims." + v1.Group}, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

const pool = `{"apiVersion":"karpenter.sh/v1beta1","kind":"NodePool","metadata":{"name":"general"},"spec":{"template":{"spec":{
"requirements":[],"kubelet":{"maxPods":42},"nodeClassRef":{"name":"default"}}},"disruption":{"consolidationPolicy":"WhenUnderutilized","expireAfter":"36h"}}}`

// claims is how many are converted in storage: 5,000 in a long run.
func claims() int {
	if os.Getenv("KARPENTER_SOAK") != "" {
		return 5000
	}
	return 60
}

// An installation of 0.33 is taken over, served for, converted, and left.
func TestFromAnOldInstallationToOneWithoutV1Beta1(t *testing.T) {
	t.Parallel()
	c := start(t)
	if out, err := c.kubectl(t, pool, "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	for i := range claims() {
		claim := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "karpenter.sh/v1beta1", "kind": "NodeClaim",
			"metadata": map[string]any{"name": fmt.Sprintf("general-%05d", i), "labels": map[string]any{v1.NodePoolLabelKey: "general"}},
			"spec":     map[string]any{"requirements": []any{}, "nodeClassRef": map[string]any{"name": "default"}},
		}}
		if err := c.Create(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}

	whole := t // replicas live longer than the steps that start them
	stop := c.serve(whole, false)
	eventually(t, "both versions are served", c.readable(t, claims()))
	c.checkConverted(t)
	c.checkDefaults(t)
	c.checkManifests(t)
	t.Run("what v1beta1 never allowed is warned of, or refused", c.checkStrict)

	t.Run("a replica that is killed is not missed for longer than seconds", func(t *testing.T) { c.checkKill(t, whole) })
	t.Run("a certificate that has expired is replaced within seconds", func(t *testing.T) {
		stop() // for a year
		secret := c.secret(t)
		cert, key := expired(t)
		secret.Data = map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key, "ca.crt": cert}
		if err := c.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		stop = c.serve(whole, false)
		eventually(t, "readable again", c.readable(t, claims()))
		if bytes.Equal(c.secret(t).Data[corev1.TLSCertKey], cert) {
			t.Error("the certificate was not replaced")
		}
	})
	t.Run("a Secret that is deleted comes back", func(t *testing.T) {
		if err := c.Delete(t.Context(), c.secret(t)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "there is a Secret", func() error {
			return c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "karpenter-conversion"}, &corev1.Secret{})
		})
		eventually(t, "readable again", c.readable(t, claims()))
	})
	t.Run("a definition that somebody overwrites comes back", func(t *testing.T) {
		eventually(t, "overwritten", func() error { // a replica may be about to write it too
			crd := c.definition(t)
			crd.Spec.Conversion.Webhook.ClientConfig.CABundle = nil
			return c.Update(t.Context(), crd)
		})
		eventually(t, "as it was", func() error { // the API server reads by the definition that it knew for a moment more
			if len(c.definition(t).Spec.Conversion.Webhook.ClientConfig.CABundle) == 0 {
				return errors.New("the definition names no authority")
			}
			return nil
		})
		eventually(t, "readable again", c.readable(t, claims()))
	})
	t.Run("nothing is written while nothing changes", func(t *testing.T) {
		eventually(t, "six seconds without a write", func() error { // what was overwritten last may have something to follow
			before := c.definition(t).ResourceVersion
			time.Sleep(6 * time.Second)
			if after := c.definition(t).ResourceVersion; after != before {
				return fmt.Errorf("the definition went from version %s to %s", before, after)
			}
			return nil
		})
	})
	t.Run("v1beta1 cannot be dropped while something is stored in it", func(t *testing.T) {
		stop()
		c.settings.Leaving = true
		stop = c.serve(whole, false) // a standby: nobody rewrites
		eventually(t, "still readable", c.readable(t, claims()))
		time.Sleep(6 * time.Second)
		if len(c.definition(t).Spec.Versions) != 2 {
			t.Error("v1beta1 was dropped")
		}
	})
	t.Run("what is stored is rewritten, and v1beta1 goes", func(t *testing.T) {
		began := time.Now()
		stop()
		stop = c.serve(whole, true)
		eventually(t, "everything is stored as v1", func() error {
			if got := c.stored(t); got != "v1" {
				return fmt.Errorf("stored versions are %s", got)
			}
			return nil
		})
		t.Logf("%d claims took %v", claims(), time.Since(began))
		eventually(t, "v1beta1 is gone", func() error {
			if n := len(c.definition(t).Spec.Versions); n != 1 {
				return fmt.Errorf("%d versions", n)
			}
			return nil
		})
		stop()
		got, err := c.list(t, "NodeClaim", "v1")
		if err != nil || len(got) != claims() {
			t.Errorf("without webhook: %d claims, %v", len(got), err)
		}
	})
}

// expired makes a certificate of last year.
func expired(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "old"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().AddDate(-2, 0, 0), NotAfter: time.Now().AddDate(-1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

func (c *cluster) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "karpenter-conversion"}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(out), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// checkConverted looks at what was stored as v1beta1 in v1.
func (c *cluster) checkConverted(t *testing.T) {
	t.Helper()
	pools, err := c.list(t, "NodePool", "v1")
	if err != nil || len(pools) != 1 {
		t.Fatal(pools, err)
	}
	got, err := c.list(t, "NodeClaim", "v1")
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{
		"expiry of the pool":  {dig(pools[0].Object, "spec", "template", "spec", "expireAfter"), "36h"},
		"policy":              {dig(pools[0].Object, "spec", "disruption", "consolidationPolicy"), "WhenEmptyOrUnderutilized"},
		"class":               {dig(pools[0].Object, "spec", "template", "spec", "nodeClassRef", "kind"), "EC2NodeClass"},
		"kubelet":             {pools[0].GetAnnotations()[v1.KubeletCompatibilityAnnotationKey], `{"maxPods":42}`},
		"expiry of the claim": {dig(got[0].Object, "spec", "expireAfter"), "36h"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
}

// checkDefaults looks at what v1beta1 fills in of a pool's disruption, after it went to v1 and back.
func (c *cluster) checkDefaults(t *testing.T) {
	t.Helper()
	for said, want := range map[string]map[string]any{
		"":                        {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"},
		"consolidateAfter: Never": {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h", "consolidateAfter": "Never"},
		"expireAfter: Never":      {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "Never"},
	} {
		want["budgets"] = []any{map[string]any{"nodes": "10%"}}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(disrupted("v1beta1", "defaulted", said)), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), object, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, dig(object.Object, "spec", "disruption")); diff != "" {
			t.Errorf("a pool that says %q of disruption (-want +got):\n%s", said, diff)
		}
	}
}

func dig(o map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return value
}

// checkManifests applies what people have, twice. Nothing may change by the second time.
func (c *cluster) checkManifests(t *testing.T) {
	t.Helper()
	for _, name := range []string{"000-01-nodepool-default", "000-02-ec2nodeclass-default", "000-03-nodepool-gpu", "000-04-nodepool-batch", "000-07-nodepool-spot-arm64-corrected",
		"000-08-nodepool-critical-corrected", "001-01a-ec2nodeclass-role-corrected", "001-02-nodepool-default"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../internal/ui/cli/testdata/convert", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"created", "unchanged"} {
				out, err := c.kubectl(t, string(text), "apply", "--validate=strict", "-f", "-")
				if err != nil || !strings.Contains(out, want) {
					t.Fatalf("kubectl apply says %q (%v), want %s", out, err, want)
				}
				if want == "created" && !strings.Contains(out, "karpenter convert -f FILE") {
					t.Errorf("nobody is told of the newer version: %q", out)
				}
			}
			out, err := c.kubectl(t, string(text), "get", "-f", "-", "-o", "jsonpath=generation={.items[*].metadata.generation}")
			if err != nil || !strings.Contains(out, "generation=1") {
				t.Errorf("%q, %v", out, err)
			}
			if out, err := c.kubectl(t, string(text), "delete", "-f", "-"); err != nil {
				t.Error(out)
			}
		})
	}
	for name, want := range map[string]string{
		"001-01-ec2nodeclass-default":  "delete the line instanceProfile",
		"000-08-nodepool-critical":     "nodeClassRef: {name: default}",
		"beta-budget-without-duration": "duration is missing",
	} {
		text, err := os.ReadFile(filepath.Join("../../internal/ui/cli/testdata/convert", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := c.kubectl(t, string(text), "apply", "-f", "-"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: kubectl apply says %q, want something about %q", name, out, want)
		}
	}
}
