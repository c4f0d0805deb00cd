package kubelet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/local/egress"
	"karpenter.sh/karpenter/local/runtime"
)

// serve answers what the API server asks kubelets, those of all nodes at once, until ctx ends. Only the API server can
// reach it.
func serve(ctx context.Context, l net.Listener, files egress.Files, pods *runtime.Runtime) error {
	config, err := files.TLS()
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler(pods), ReadHeaderTimeout: 10 * time.Second,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // connections are taken over, which HTTP/2 does not allow
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(tls.NewListener(l, config)); err != nil && !errors.Is(err, http.ErrServerClosed) &&
		!errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func handler(pods *runtime.Runtime) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) { logs(w, r, pods) })
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) { forward(w, r, pods) })
	for _, path := range []string{"/exec/", "/run/", "/attach/"} {
		mux.HandleFunc(path, runNothing)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok")) })
	return mux
}

// runNothing answers in the API's own words: an API server before 1.36 takes other text for a status without a message.
func runNothing(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotImplemented)
	json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotImplemented,
		Message: "this container is simulated: there is nothing in it that could run a command",
	})
}
