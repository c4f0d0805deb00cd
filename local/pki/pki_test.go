package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func certificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func authority(t *testing.T, dir string) *Authority {
	t.Helper()
	a, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheAuthorityIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, second := authority(t, dir), authority(t, dir)
	if !slices.Equal(first.Cert, second.Cert) {
		t.Error("the second start made another authority")
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a damaged authority is taken")
	}
}

func TestCertificatesAreGoodForWhatTheyAreFor(t *testing.T) {
	a := authority(t, t.TempDir())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Cert)

	server, err := a.Server("api", []string{"kubernetes"}, net.ParseIP("10.96.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "10.96.0.1", "kubernetes"} {
		if _, err := certificate(t, server.Cert).Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("as a server on %s: %v", host, err)
		}
	}
	client, err := a.Client("jane", "admins")
	if err != nil {
		t.Fatal(err)
	}
	cert := certificate(t, client.Cert)
	if cert.Subject.CommonName != "jane" || !slices.Equal(cert.Subject.Organization, []string{"admins"}) {
		t.Errorf("subject = %s", cert.Subject)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("as a client: %v", err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client's certificate is good for a server")
	}
	if _, err := tls.X509KeyPair(client.Cert, client.Key); err != nil {
		t.Error(err)
	}
}

func TestTheTokenKeyIsMadeOnceAndChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.key")
	if err := TokenKey(path); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := TokenKey(path); err != nil {
		t.Fatal(err)
	}
	if second, _ := os.ReadFile(path); !slices.Equal(first, second) {
		t.Error("the second start made another key")
	}
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := TokenKey(path); err == nil {
		t.Error("a damaged key is taken")
	}
}

func TestKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir)
	client, err := a.Client("jane")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := a.Kubeconfig(path, "https://127.0.0.1:1", client); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:1" || len(config.CertData) == 0 || len(config.CAData) == 0 {
		t.Errorf("config = %+v", config)
	}
	if err := a.TokenKubeconfig(path, "https://127.0.0.1:1", "/token"); err != nil {
		t.Fatal(err)
	}
	if config, err = clientcmd.BuildConfigFromFlags("", path); err == nil && config.BearerTokenFile != "/token" {
		t.Errorf("token file = %q", config.BearerTokenFile)
	}
}
