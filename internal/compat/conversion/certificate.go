package conversion

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// validity is how long a certificate is good.
	validity = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate gets a successor.
	renewBefore = 90 * 24 * time.Hour
	// trustFor is how long the definitions name a certificate before it is used: every API server has read them by then.
	trustFor = 10 * time.Minute
	// skew is by how much the clocks of replicas and API servers may differ.
	skew = time.Hour
)

// Keys of the Secret. The first three are those of a Secret of type kubernetes.io/tls.
const (
	certKey     = "tls.crt"
	keyKey      = "tls.key"
	bundleKey   = "ca.crt" // everything that clients shall trust
	nextCertKey = "next.crt"
	nextKeyKey  = "next.key"
)

// A pair is a certificate that signed itself and its key, in PEM.
type pair struct{ cert, key []byte }

// newPair makes a certificate for the name or address by which the API server calls.
func newPair(host string, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Each has a name of its own, so that verifiers which look issuers up by name never take one for the other.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("karpenter-conversion-%x", serial)},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return pair{}, err
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
	}, nil
}

// usable parses a pair that is good for a host now.
func (p pair) usable(host string, now time.Time) (*tls.Certificate, error) {
	c, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, err
	}
	if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
		return nil, err
	}
	switch {
	case now.After(c.Leaf.NotAfter):
		return nil, errors.New("the certificate has expired")
	case now.Before(c.Leaf.NotBefore):
		return nil, errors.New("the certificate is of the future")
	}
	return &c, c.Leaf.VerifyHostname(host)
}

// renewed says what the Secret should hold: the same if nothing is to be done. trusted reports whether all definitions name a certificate.
func renewed(data map[string][]byte, host string, now time.Time, trusted func(cert []byte) bool) (map[string][]byte, error) {
	current, next := pair{data[certKey], data[keyKey]}, pair{data[nextCertKey], data[nextKeyKey]}
	serving, broken := current.usable(host, now)
	coming, missing := next.usable(host, now)
	var err error
	switch {
	case broken != nil && missing == nil: // no request can be served with the other anyway
		current, next = next, pair{}
	case broken != nil:
		next = pair{}
		current, err = newPair(host, now)
	case serving.Leaf.NotAfter.Sub(now) > renewBefore:
		next = pair{}
	case missing != nil:
		next, err = newPair(host, now)
	case now.Sub(coming.Leaf.NotBefore.Add(skew)) >= trustFor && trusted(next.cert):
		current, next = next, pair{}
	}
	out := map[string][]byte{certKey: current.cert, keyKey: current.key}
	if next.cert != nil {
		out[nextCertKey], out[nextKeyKey] = next.cert, next.key
	}
	out[bundleKey] = bundle(now, current.cert, next.cert, data[bundleKey])
	return out, err
}

// mostTrusted is how many certificates a bundle holds at most: the one in use, its successor, its predecessor,
// which replicas that have not read the Secret again still serve with, and one more.
const mostTrusted = 4

// bundle joins certificates that have not expired, each once.
func bundle(now time.Time, texts ...[]byte) []byte {
	var out []byte
	count := 0
	for _, text := range texts {
		for block, rest := pem.Decode(text); block != nil && count < mostTrusted; block, rest = pem.Decode(rest) {
			cert, err := x509.ParseCertificate(block.Bytes)
			one := pem.EncodeToMemory(block)
			if err == nil && now.Before(cert.NotAfter) && !bytes.Contains(out, one) {
				out = append(out, one...)
				count++
			}
		}
	}
	return out
}
