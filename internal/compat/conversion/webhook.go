package conversion

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/compat/generations"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// path is where the webhook listens.
	path = "/convert"
	// poolsFor is how long it is remembered what pools say about the age of their nodes.
	poolsFor = 10 * time.Second
)

// A webhook answers the API server. It serves once it has a certificate.
type webhook struct {
	reader      client.Reader
	panics      prometheus.Counter
	certificate atomic.Pointer[tls.Certificate]
	gate        *gate

	mu   sync.Mutex
	ages map[string]string // by pool
	read time.Time
}

// listen serves until ctx ends.
func (w *webhook) listen(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("conversion webhook: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, w.serve)
	log := slog.NewLogLogger(telemetry.Log(ctx).Handler(), slog.LevelDebug)
	server := &http.Server{
		Handler: mux, ErrorLog: log, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c := w.certificate.Load(); c != nil {
				return c, nil
			}
			return nil, errors.New("there is no certificate yet")
		}},
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("conversion webhook: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		server.Close() // requests that still wait have had a second
	}
	<-ended
	return nil
}

// serve answers one review.
func (w *webhook) serve(out http.ResponseWriter, r *http.Request) {
	body, leave, err := w.gate.readReview(out, r)
	switch {
	case errors.Is(err, errBusy):
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(out, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	defer leave()
	review := &apiextensionsv1.ConversionReview{}
	if err := json.Unmarshal(body, review); err != nil || review.Request == nil {
		http.Error(out, "the body is not a ConversionReview", http.StatusBadRequest)
		return
	}
	review.Response = w.answer(r.Context(), review.Request)
	review.Request = nil
	out.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(out).Encode(review); err != nil {
		telemetry.Log(r.Context()).Debug("a conversion was not heard", "reason", err)
	}
}

func (w *webhook) answer(ctx context.Context, r *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	out := &apiextensionsv1.ConversionResponse{UID: r.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	err := func() (err error) {
		defer bug.Catch(&err, "converting")
		out.ConvertedObjects, err = w.convert(ctx, r)
		return err
	}()
	if _, panicked := errors.AsType[*bug.Panic](err); panicked {
		w.panics.Inc()
	}
	if err != nil {
		telemetry.Log(ctx).Error("objects could not be converted", "version", r.DesiredAPIVersion, "error", err)
		out.ConvertedObjects, out.Result = nil, metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
	return out
}

// convert turns all objects of a request, in their order.
func (w *webhook) convert(ctx context.Context, r *apiextensionsv1.ConversionRequest) ([]runtime.RawExtension, error) {
	to, err := schema.ParseGroupVersion(r.DesiredAPIVersion)
	if err != nil {
		return nil, err
	}
	out := make([]runtime.RawExtension, len(r.Objects))
	for i := range r.Objects {
		var object map[string]any
		if err := utiljson.Unmarshal(r.Objects[i].Raw, &object); err != nil {
			return nil, err
		}
		converted, err := generations.Convert(object, to.Version, func(pool string) (string, error) { return w.age(ctx, pool) })
		if err != nil {
			return nil, fmt.Errorf("%v: %w", (&unstructured.Unstructured{Object: object}).GetName(), err)
		}
		if out[i].Raw, err = json.Marshal(converted); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// age is when nodes of a pool go, as v1 has it, "" if there is no such pool. Pools are asked for in v1: to convert
// an object that is stored otherwise needs no other object, so nothing waits for itself.
func (w *webhook) age(ctx context.Context, pool string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ages != nil && time.Since(w.read) < poolsFor {
		return w.ages[pool], nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1.GroupVersion.WithKind("NodePoolList"))
	if err := w.reader.List(ctx, list); err != nil {
		return "", fmt.Errorf("read NodePools for the age of their nodes: %w", err)
	}
	w.ages, w.read = map[string]string{}, time.Now()
	for i := range list.Items {
		age, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "template", "spec", "expireAfter")
		w.ages[list.Items[i].GetName()] = age
	}
	return w.ages[pool], nil
}
