package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"karpenter.sh/karpenter/internal/kit/loopback"
	"karpenter.sh/karpenter/local/pki"
)

// cluster has a Service in front of two pods that run, one that is not ready, and one that is only played.
func cluster() *fake.Clientset {
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "karpenter", Labels: map[string]string{discoveryv1.LabelServiceName: "karpenter"}}
	endpoint := func(address string, ready *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	}
	return fake.NewClientset(
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.7"}, Ports: []corev1.ServicePort{{Name: "https", Port: 443}, {Name: "else", Port: 80}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: meta, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(8443))}}, Endpoints: []discoveryv1.Endpoint{
			endpoint("10.245.0.1", nil), endpoint("10.245.0.2", new(true)), endpoint("10.245.0.3", new(false)), endpoint("10.244.0.1", new(true)),
		}},
	)
}

var ranges = Ranges{Services: netip.MustParsePrefix("10.96.0.0/16"), Pods: netip.MustParsePrefix("10.244.0.0/15")}

// soon is how long anything may take that happens within seconds on a machine with nothing else to do.
const soon = 5 * time.Minute

func started(t *testing.T, pods func(string, int) (int, bool)) *Resolver {
	t.Helper()
	r, err := NewResolver(cluster(), ranges, pods)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		if where, err := r.resolve("10.96.0.7:443"); err == nil && len(where.addresses) == 2 {
			return r
		} else if time.Now().After(deadline) {
			t.Fatalf("the service is at %v, %v", where, err)
		}
	}
}

func TestResolve(t *testing.T) {
	r := started(t, func(host string, port int) (int, bool) {
		at, runs := map[string]int{"10.245.0.1:8443": 1001, "10.245.0.2:8443": 1002, "10.245.0.3:8443": 1003, "10.0.255.1:9000": 1004}[fmt.Sprintf("%s:%d", host, port)]
		return at, runs
	})
	for address, want := range map[string]struct {
		addresses []string
		kubelet   bool
		err       string
	}{
		"10.245.0.1:8443":            {addresses: []string{"127.0.0.1:1001"}},
		"10.0.255.1:9000":            {addresses: []string{"127.0.0.1:1004"}}, // a pod on the host's network
		"10.96.0.7:443":              {addresses: []string{"127.0.0.1:1001", "127.0.0.1:1002"}},
		"10.96.0.7:80":               {err: "service kube-system/karpenter has no endpoint that runs"},
		"10.96.0.7:81":               {err: "service kube-system/karpenter has no port 81"},
		"10.96.0.8:443":              {err: "no Service has the address 10.96.0.8"},
		"10.245.0.1:1":               {err: "pod 10.245.0.1 is simulated, or does not listen on port 1"},
		"10.244.0.1:8443":            {err: "pod 10.244.0.1 is simulated, or does not listen on port 8443"},
		"ip-10-0-0-1.internal:10250": {kubelet: true},
		"10.0.0.1:10250":             {kubelet: true},
		"127.0.0.1:10250":            {addresses: []string{"127.0.0.1:10250"}},
		"webhooks.example.com:443":   {addresses: []string{"webhooks.example.com:443"}},
		"127.0.0.1:9443":             {addresses: []string{"127.0.0.1:9443"}},
		"127.0.0.1":                  {err: "missing port"},
		"127.0.0.1:http":             {err: "is no port"},
	} {
		got, err := r.resolve(address)
		slices.Sort(got.addresses)
		if !slices.Equal(got.addresses, want.addresses) || got.kubelet != want.kubelet {
			t.Errorf("%s is at %+v, want %+v", address, got, want)
		}
		if (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: error %v, want %q", address, err, want.err)
		}
	}
}

// A client dials through the proxy with some certificate.
type client struct {
	*testing.T
	at     string
	config *tls.Config
}

// through opens a connection to the address.
func (c client) through(address string) (net.Conn, error) {
	connection, err := tls.Dial("tcp", c.at, c.config)
	if err != nil {
		return nil, err
	}
	c.Cleanup(func() { connection.Close() })
	fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", address)
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	return connection, nil
}

// proxied starts a proxy, and returns a client for each name in a certificate.
func proxied(t *testing.T, pods func(string, int) (int, bool)) (func(name string) client, net.Listener) {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := authority.Server("kubelets", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Write(dir, "kubelets"); err != nil {
		t.Fatal(err)
	}
	port, err := loopback.Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	at := fmt.Sprintf("127.0.0.1:%d", port.Number)
	proxy, kubelets := New(started(t, pods), slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- proxy.Serve(ctx, port.Number, Files{
			Cert: filepath.Join(dir, "kubelets.crt"), Key: filepath.Join(dir, "kubelets.key"), Authority: filepath.Join(dir, "ca.crt"),
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", at); err == nil {
			c.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Cert)
	return func(name string) client {
		pair, err := authority.Client(name)
		if err != nil {
			t.Fatal(err)
		}
		own, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return client{t, at, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}}
	}, kubelets
}

func TestTheProxyLeadsToPodsAndKubelets(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "pod") }))
	defer pod.Close()
	there, err := url.Parse(pod.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(there.Port())
	if err != nil {
		t.Fatal(err)
	}
	// Of the two endpoints of the Service, one is not there any more: the other one is tried.
	as, kubelets := proxied(t, func(host string, of int) (int, bool) {
		return map[string]int{"10.245.0.1": port, "10.245.0.2": 1}[host], of == 8443 && strings.HasPrefix(host, "10.245.")
	})
	go http.Serve(kubelets, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "kubelet") }))
	for range 4 {
		for address, want := range map[string]string{"10.96.0.7:443": "pod", "10.245.0.1:8443": "pod", "node-1:10250": "kubelet", there.Host: "pod"} {
			connection, err := as(Client).through(address)
			if err != nil {
				t.Fatalf("%s: %v", address, err)
			}
			io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
			if err != nil {
				t.Fatal(err)
			}
			if said, err := io.ReadAll(answer.Body); string(said) != want || err != nil {
				t.Errorf("at %s somebody says %q, %v, want %q", address, said, err, want)
			}
		}
	}
	if _, err := as(Client).through("10.96.0.8:443"); err == nil || err.Error() != "502 no Service has the address 10.96.0.8" {
		t.Errorf("an address of nobody: %v", err)
	}
}

func TestTheProxyAnswersTheAPIServerOnly(t *testing.T) {
	as, _ := proxied(t, func(host string, of int) (int, bool) { return 1, of == 8443 && strings.HasPrefix(host, "10.245.") })
	if _, err := as("system:kube-scheduler").through("127.0.0.1:1"); err == nil || strings.Contains(err.Error(), "502") {
		t.Errorf("somebody else was answered: %v", err)
	}
	nobody := as(Client)
	nobody.config.Certificates = nil
	if _, err := nobody.through("127.0.0.1:1"); err == nil || strings.Contains(err.Error(), "502") {
		t.Errorf("somebody without a certificate was answered: %v", err)
	}
}
