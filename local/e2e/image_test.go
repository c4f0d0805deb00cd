package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/kit/loopback"
	"karpenter.sh/karpenter/internal/kit/version"
	"karpenter.sh/karpenter/local/plane"
)

// The user of the image and of the chart's pods.
const nobody = 65532

// An imageConfig is what the test reads of an image: who runs what.
type imageConfig struct {
	Config struct {
		User       string
		Entrypoint []string
	} `json:"config"`
}

// TestTheImageRuns makes a release, unpacks its image and runs it as a node would: as user 65532 without any capability, its root mounted for
// reading only, with nothing in it but the image and what the kubelet mounts (the service account), and with the environment of the
// chart's pods and of either way in which EKS gives a service account its role. Of its surroundings it needs the API server, AWS and
// their certificates; no file that it may write, no DNS, no shell.
//
// To mount and to change its root the test needs to be root, or to be allowed user namespaces. Where it is neither, as in most containers,
// the program of the image runs like any other, with all the rest.
func TestTheImageRuns(t *testing.T) {
	together.enter(t)
	root, dist := t.TempDir(), release(t)
	t.Run("its chart installs it", func(t *testing.T) { wantChart(t, dist) })
	config := unpackImage(t, dist, root)
	if want := fmt.Sprintf("%d:%[1]d", nobody); config.Config.User != want {
		t.Errorf("the image runs as %q, want %q", config.Config.User, want)
	}
	mountServiceAccount(t, root)
	for name, credentials := range map[string]func(*testing.T, string) []string{
		"with the role of the service account": webIdentity,
		"with Pod Identity":                    podIdentity,
	} {
		t.Run(name, func(t *testing.T) {
			ports := freePorts(t, 2)
			env := append(podEnv(t, map[string]string{"METRICS_PORT": ports[0], "HEALTH_PROBE_PORT": ports[1]}), credentials(t, root)...)
			readyz := "http://127.0.0.1:" + ports[1] + "/readyz"
			if why := containersAllowed(t); why != nil {
				t.Logf("no container: %v", why)
				runUntilReady(t, uncontained(t, root, config.Config.Entrypoint, env), readyz, func(*testing.T, int) {})
				return
			}
			runUntilReady(t, contained(t, root, config.Config.Entrypoint, env), readyz, checkConfined)
		})
	}
}

// uncontained is the same command outside of a container: it finds what a pod finds in the folder that would be its root.
func uncontained(t *testing.T, root string, command, env []string) *exec.Cmd {
	t.Helper()
	dir := filepath.Join(root, serviceAccountFolder)
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "kubeconfig")
	put(t, config, fmt.Appendf(nil, "{clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}], users: [{name: u, user: {token: %q}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}",
		fmt.Sprintf("https://127.0.0.1:%d", shared.run(t).Ports[plane.APIPort]), filepath.Join(dir, "ca.crt"), token), 0o600)
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, command[0]), append(command[1:], "--kubeconfig="+config)...)
	for _, e := range env {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(e, tokenFolder, filepath.Join(root, tokenFolder)))
	}
	return cmd
}

// runUntilReady starts the program, waits until it is ready, checks it, and tells it to end.
func runUntilReady(t *testing.T, cmd *exec.Cmd, readyz string, check func(t *testing.T, pid int)) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		cmd.Process.Kill()
		if t.Failed() {
			t.Logf("the container's log:\n%s", log.String())
		}
	}()
	begin := time.Now()
	eventually(t, func(ctx context.Context) (string, error) {
		select {
		case err := <-ended:
			t.Fatalf("the container ended: %v", err)
		default:
		}
		return whatIsUnready(ctx, readyz)
	})
	t.Logf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
	check(t, cmd.Process.Pid)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the container ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the container does not end when it is told to")
	}
}

const (
	serviceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenFolder          = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
)

// webIdentity is what EKS gives a pod whose service account is annotated with a role.
func webIdentity(t *testing.T, root string) []string {
	put(t, filepath.Join(root, tokenFolder, "token"), []byte("a token for AWS"), 0o644)
	return []string{
		"AWS_ENDPOINT_URL_STS=" + plane.Plane{Ports: shared.run(t).Ports}.AWSEndpoint(), // the SDK asks for roles before it reads AWS_ENDPOINT_URL
		"AWS_ROLE_ARN=arn:aws:iam::" + plane.Account + ":role/KarpenterControllerRole-" + plane.ClusterName,
		"AWS_WEB_IDENTITY_TOKEN_FILE=" + tokenFolder + "/token",
	}
}

// podIdentity is what EKS gives a pod whose service account is associated with a role, with an agent that hands out the credentials.
func podIdentity(t *testing.T, root string) []string {
	const token, file = "a token for the agent", tokenFolder + "/eks-pod-identity-token"
	put(t, filepath.Join(root, file), []byte(token), 0o644)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != token {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":"local","Token":"session","Expiration":%q}`, plane.ControllerKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(agent.Close)
	return []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + agent.URL + "/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=" + file}
}

// release makes a release for this machine.
func release(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "dist")
	build := exec.Command("go", "run", ".", "release", "-platform", "linux/"+runtime.GOARCH, "-image", "registry.test/karpenter", "-out", out)
	build.Dir = filepath.Join("..", "..", "ship")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make a release: %v\n%s", err, said)
	}
	return out
}

// wantChart fails unless Helm takes the packed charts, and the image stands in the one of the controller.
func wantChart(t *testing.T, dist string) {
	t.Helper()
	for _, name := range []string{"karpenter", "karpenter-crd"} {
		packed, err := loader.LoadFile(filepath.Join(dist, name+"-"+version.Number()+".tgz"))
		if err != nil {
			t.Fatal(err)
		}
		if packed.Name() != name || packed.Metadata.Version != version.Number() || packed.AppVersion() != version.Number() {
			t.Errorf("%s says it is %+v", name, packed.Metadata)
		}
		if err := packed.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "karpenter" {
			continue
		}
		controller, _ := packed.Values["controller"].(map[string]any)
		image, _ := controller["image"].(map[string]any)
		if digest, _ := image["digest"].(string); image["repository"] != "registry.test/karpenter" || !strings.HasPrefix(digest, "sha256:") {
			t.Errorf("the chart's image is %v", image)
		}
	}
}

// unpackImage unpacks the image of a release.
func unpackImage(t *testing.T, out, root string) imageConfig {
	t.Helper()
	type descriptor struct{ Digest string }
	var index, manifest struct {
		Manifests []descriptor
		Config    descriptor
		Layers    []descriptor
	}
	blob := func(d descriptor) string {
		return filepath.Join(out, "image", "blobs", strings.ReplaceAll(d.Digest, ":", "/"))
	}
	decode(t, filepath.Join(out, "image", "index.json"), &index) // names one index of platforms,
	decode(t, blob(index.Manifests[0]), &index)                  // which names one image
	decode(t, blob(index.Manifests[0]), &manifest)
	for _, layer := range manifest.Layers {
		unpackLayer(t, blob(layer), root)
	}
	var config imageConfig
	decode(t, blob(manifest.Config), &config)
	return config
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func unpackLayer(t *testing.T, path, root string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(root, header.Name), text, os.FileMode(header.Mode))
	}
}

func put(t *testing.T, path string, text []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, mode); err != nil {
		t.Fatal(err)
	}
}

// mountServiceAccount puts there what the kubelet mounts into a pod of the chart's service account.
func mountServiceAccount(t *testing.T, root string) {
	t.Helper()
	dir := filepath.Join(root, serviceAccountFolder)
	put(t, filepath.Join(dir, "token"), []byte(strings.TrimSpace(shared.do(t, "kubectl", "create", "token", "karpenter", "-n", plane.Namespace))), 0o644)
	put(t, filepath.Join(dir, "namespace"), []byte(plane.Namespace), 0o644)
	var roots corev1.ConfigMap
	if err := shared.Get(t.Context(), client.ObjectKey{Namespace: plane.Namespace, Name: "kube-root-ca.crt"}, &roots); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "ca.crt"), []byte(roots.Data["ca.crt"]), 0o644)
}

// podEnv is what a container of the chart's Deployment finds, but for what is given, and what a node and EKS add.
func podEnv(t *testing.T, given map[string]string) []string {
	t.Helper()
	var d appsv1.Deployment
	if err := shared.Get(t.Context(), client.ObjectKey{Namespace: plane.Namespace, Name: "karpenter"}, &d); err != nil {
		t.Fatal(err)
	}
	p := plane.Plane{Ports: shared.run(t).Ports}
	env := []string{
		"KUBERNETES_SERVICE_HOST=127.0.0.1", fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", p.Ports[plane.APIPort]),
		"AWS_ENDPOINT_URL=" + p.AWSEndpoint(), "AWS_REGION=" + plane.Region,
	}
	computed := map[string]string{"SYSTEM_NAMESPACE": plane.Namespace, "CPU_REQUESTS": "1000", "MEMORY_LIMIT": "1073741824"}
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		value := e.Value
		if e.ValueFrom != nil {
			text, known := computed[e.Name]
			if !known {
				t.Fatalf("what would a node make of %s?", e.Name)
			}
			value = text
		}
		if text, ok := given[e.Name]; ok {
			value = text
		}
		env = append(env, e.Name+"="+value)
	}
	return env
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		p, err := loopback.Take()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Release)
		ports = append(ports, strconv.Itoa(p.Number))
	}
	return ports
}

func whatIsUnready(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusOK {
		return "", err
	}
	return fmt.Sprintf("%s: %s", answer.Status, said), err
}

// checkConfined fails unless the process is what a restricted pod's is.
func checkConfined(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	outside := nobody
	if uid := os.Getuid(); uid != 0 {
		outside = uid // seen from outside of its user namespace
	}
	for _, want := range []string{fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", outside), "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the container's process is not %q:\n%s", want, status)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	for mount := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(mount); fields[4] != "/" || !strings.HasPrefix(fields[5], "ro") {
			t.Errorf("the container sees a mount that is not its root, or may write there: %s", mount)
		}
	}
}
