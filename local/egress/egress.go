// Package egress leads the API server to what it reaches inside of a cluster: Services, pods, and the kubelets of nodes.
// On this machine none of their addresses exists; it finds out which port of the loopback address is meant.
//
// It is the HTTP CONNECT proxy of an egress selector, which the API server's documentation describes, and answers no client
// but the API server.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Client is the name in the certificate of the API server.
const Client = "kube-apiserver-egress"

// A Proxy leads connections to where they belong.
type Proxy struct {
	resolver *Resolver
	kubelet  *handover
	log      *slog.Logger
}

// New returns a proxy, and where the connections to kubelets arrive.
func New(resolver *Resolver, log *slog.Logger) (*Proxy, net.Listener) {
	kubelet := &handover{connections: make(chan net.Conn), closed: make(chan struct{})}
	return &Proxy{resolver: resolver, kubelet: kubelet, log: log}, kubelet
}

// Files are those of the proxy's certificate, and of the authority that signed it and the API server's.
type Files struct{ Cert, Key, Authority string }

// TLS reads the files, for a server.
func (f Files) TLS() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}

// onlyTheServer lets only the API server in.
func (f Files) onlyTheServer() (*tls.Config, error) {
	config, err := f.TLS()
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(f.Authority)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s holds no certificate", f.Authority)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if name := s.PeerCertificates[0].Subject.CommonName; name != Client {
			return fmt.Errorf("%s has no business here", name)
		}
		return nil
	}
	return config, nil
}

// Serve leads connections until ctx ends.
func (p *Proxy) Serve(ctx context.Context, port int, files Files) error {
	config, err := files.onlyTheServer()
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port), config)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: http.HandlerFunc(p.connect), ReadHeaderTimeout: 10 * time.Second,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { server.Close(); p.kubelet.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// connect is one connection.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "this is a proxy for CONNECT", http.StatusMethodNotAllowed)
		return
	}
	there, nothing := p.dial(r.Context(), r.Host)
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.log.Error("take a connection over", "error", err)
		return
	}
	defer here.Close()
	here.SetDeadline(time.Time{})
	if nothing != nil {
		p.log.Info("nothing to lead to", "address", r.Host, "because", nothing)
		// all that the API server shows
		fmt.Fprintf(here, "HTTP/1.1 502 %s\r\nContent-Length: 0\r\n\r\n", strings.ReplaceAll(nothing.Error(), "\n", "; "))
		return
	}
	defer there.Close()
	if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	join(here, there)
}

// dialTimeout is how long one of several endpoints may take.
const dialTimeout = 3 * time.Second

func (p *Proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	where, err := p.resolver.resolve(address)
	if err != nil {
		return nil, err
	}
	if where.kubelet {
		return p.kubelet.dial()
	}
	var errs []error
	for _, at := range where.addresses {
		connection, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", at)
		if err == nil {
			return connection, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// join copies both ways until both are done. A side that ends its half says so to the other.
func join(a, b net.Conn) {
	var copying sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		copying.Go(func() {
			io.Copy(way[0], way[1])
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				half.CloseWrite()
			} else {
				way[0].Close()
			}
		})
	}
	copying.Wait()
}

// A handover is a listener for connections that were made inside of this process.
type handover struct {
	connections chan net.Conn
	once        sync.Once
	closed      chan struct{}
}

func (h *handover) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case h.connections <- theirs:
		return ours, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.connections:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handover) Addr() net.Addr { return &net.UnixAddr{Name: "kubelets", Net: "unix"} }
