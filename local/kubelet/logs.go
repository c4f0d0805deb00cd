package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"karpenter.sh/karpenter/local/runtime"
)

// logs is what kubectl logs shows.
func logs(w http.ResponseWriter, r *http.Request, pods *runtime.Runtime) {
	var options corev1.PodLogOptions
	if err := legacyscheme.ParameterCodec.DecodeParameters(r.URL.Query(), corev1.SchemeGroupVersion, &options); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	of := runtime.ContainerName{Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), Container: r.PathValue("container")}
	path, known, err := pods.Log(of, options.Previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Transfer-Encoding", "chunked")
	if !known {
		fmt.Fprintln(w, "This container is simulated: it says nothing.")
		return
	}
	out := flushed{w, http.NewResponseController(w)}
	running := whether{pods: pods, of: of, path: path}
	err = crilogs.ReadLogs(r.Context(), path, of.Container, wanted(&options, time.Now()), running, out, out)
	if err != nil && r.Context().Err() == nil {
		fmt.Fprintln(w, err)
	}
}

// wanted is what was asked for, as the reader takes it.
func wanted(o *corev1.PodLogOptions, now time.Time) *crilogs.LogOptions {
	w := &crilogs.LogOptions{TailLines: o.TailLines, LimitBytes: o.LimitBytes, Follow: o.Follow, Timestamp: o.Timestamps}
	switch {
	case o.SinceSeconds != nil:
		w.Since = now.Add(-time.Duration(*o.SinceSeconds) * time.Second)
	case o.SinceTime != nil:
		w.Since = o.SinceTime.Time
	}
	return w
}

// flushed shows what is written at once.
type flushed struct {
	io.Writer
	controller *http.ResponseController
}

func (f flushed) Write(text []byte) (int, error) {
	n, err := f.Writer.Write(text)
	if err == nil {
		err = f.controller.Flush()
	}
	return n, err
}

// whether tells the reader of a log whether there will be more of it. It asks nothing else.
type whether struct {
	internalapi.RuntimeService
	pods *runtime.Runtime
	of   runtime.ContainerName
	path string
}

func (w whether) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	status := &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED}
	if now, known, err := w.pods.Log(w.of, false); err == nil && known && now == w.path && w.pods.Running(w.of) {
		status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return &runtimeapi.ContainerStatusResponse{Status: status}, nil
}
