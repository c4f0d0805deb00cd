package operator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/kit/identity"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// allowedFor and refusedFor are how long an answer of the API server is cached. A user who loses a right keeps it for that long.
	allowedFor = time.Minute
	refusedFor = 10 * time.Second
	// mostVerdicts is how many answers are cached. If there are more, for example because a client sends many bad tokens, all are
	// forgotten, and the API server is asked again, at the rate of the client for reviews.
	mostVerdicts = 256
	// longestToken is the longest token that is accepted.
	longestToken = 16 << 10
	reviewTime   = 5 * time.Second
)

// A guard passes a request on if the API server authenticates its bearer token and allows its user to access the path.
type guard struct {
	next   http.Handler
	client client.Client

	mu       sync.Mutex
	verdicts map[[sha256.Size]byte]ruling // by a hash of method, path and token
}

// A ruling is a cached answer.
type ruling struct {
	status int // http.StatusOK if the request may pass
	until  time.Time
}

func newGuard(next http.Handler, c client.Client) *guard {
	return &guard{next: next, client: c, verdicts: map[[sha256.Size]byte]ruling{}}
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch status := g.judge(r); status {
	case http.StatusOK:
		g.next.ServeHTTP(w, r)
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
		fallthrough
	default:
		http.Error(w, http.StatusText(status), status)
	}
}

// judge returns the status of the answer to a request, http.StatusOK if it may pass.
func (g *guard) judge(r *http.Request) int {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !ok || token == "" || len(token) > longestToken {
		return http.StatusUnauthorized
	}
	verb := strings.ToLower(r.Method)
	key := sha256.Sum256([]byte(identity.Of(verb, r.URL.Path, token)))
	if v, known := g.known(key); known {
		return v
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTime)
	defer cancel()
	status, err := g.review(ctx, token, verb, r.URL.Path)
	if err != nil {
		telemetry.Log(r.Context()).Error("could not ask the API server who may read this", "path", r.URL.Path, "error", err)
		return http.StatusServiceUnavailable
	}
	g.remember(key, status)
	return status
}

func (g *guard) known(key [sha256.Size]byte) (status int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.verdicts[key]
	return v.status, ok && time.Now().Before(v.until)
}

// remember caches an answer.
func (g *guard) remember(key [sha256.Size]byte, status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.verdicts) >= mostVerdicts {
		clear(g.verdicts)
	}
	lasts := refusedFor
	if status == http.StatusOK {
		lasts = allowedFor
	}
	g.verdicts[key] = ruling{status, time.Now().Add(lasts)}
}

// review asks the API server which user a token belongs to, and whether that user may access the path.
func (g *guard) review(ctx context.Context, token, verb, path string) (status int, err error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := g.client.Create(ctx, who); err != nil {
		return 0, fmt.Errorf("review a token: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := &who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	}}
	if err := g.client.Create(ctx, may); err != nil {
		return 0, fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	if !may.Status.Allowed || may.Status.Denied {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// selfSigned returns a TLS configuration with a new self-signed certificate, so that tokens are encrypted. It does not prove to clients
// which server they talk to.
func selfSigned() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "karpenter"}, DNSNames: []string{"karpenter"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, nil
}
