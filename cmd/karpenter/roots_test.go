package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// trusts, when it is set, makes this test binary say which roots it trusts: those that are compiled in, or those of the named file.
const trusts = "KARPENTER_TEST_TRUSTS"

// What is trusted is settled once in a process, so each case is a process.
func TestRoots(t *testing.T) {
	if own, child := os.LookupEnv(trusts); child {
		sayWhatIsTrusted(t, own)
		return
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	own := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(own, text, 0o644); err != nil {
		t.Fatal(err)
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for name, tc := range map[string]struct{ file, want string }{
		"a system without roots trusts those that are compiled in": {nowhere, "compiled in"},
		"SSL_CERT_FILE alone is trusted where it is given":         {own, "own"},
	} {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestRoots$", "-test.v")
			child.Env = append(os.Environ(), "SSL_CERT_FILE="+tc.file, "SSL_CERT_DIR="+nowhere, trusts+"="+own)
			out, err := child.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "trusted: "+tc.want) {
				t.Errorf("%v, want %q in:\n%s", err, tc.want, out)
			}
		})
	}
}

func sayWhatIsTrusted(t *testing.T, own string) {
	trusted, err := x509.SystemCertPool()
	if err != nil {
		t.Fatal(err)
	}
	compiledIn, given := x509.NewCertPool(), x509.NewCertPool()
	for root := range bundle.Roots() {
		cert, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if root.Constraint != nil {
			compiledIn.AddCertWithConstraint(cert, root.Constraint)
		} else {
			compiledIn.AddCert(cert)
		}
	}
	text, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	given.AppendCertsFromPEM(text)
	switch {
	case trusted.Equal(compiledIn):
		t.Log("trusted: compiled in")
	case trusted.Equal(given):
		t.Log("trusted: own")
	default:
		t.Log("trusted: something else")
	}
}

func TestRootsThatAreNotThereStopTheController(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ file, want string }{
		"a file that does not exist":      {"/no/such/roots.pem", "/no/such/roots.pem"},
		"a file without any certificates": {empty, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SSL_CERT_FILE", tc.file)
			err := controller(t.Context(), []string{"--cluster-name=c", "--kubeconfig=/no/such/file"})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want one that names %q", err, tc.want)
			}
		})
	}
}
