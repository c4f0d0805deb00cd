package main

import (
	"crypto/x509"
	"fmt"
	"os"

	// The image holds nothing but the program. These roots are used where the system has none, and only there: SSL_CERT_FILE and
	// SSL_CERT_DIR go before them, as does what is mounted where systems keep theirs.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// checkRoots fails when the environment names certificates to trust that are not there. Go would take the compiled-in ones instead and say
// nothing, and a controller behind a proxy of the company's would fail at each call for no visible reason.
func checkRoots(lookup func(string) (string, bool)) error {
	path, _ := lookup("SSL_CERT_FILE")
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("SSL_CERT_FILE: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("SSL_CERT_FILE: %s holds no certificate", path)
	}
	return nil
}
