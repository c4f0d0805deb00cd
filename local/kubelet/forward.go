package kubelet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"karpenter.sh/karpenter/local/runtime"
)

const (
	// forwardIdle is how long a connection of kubectl port-forward may be silent.
	forwardIdle = 4 * time.Hour
	// forwardCreation is how long its streams may take to be made.
	forwardCreation = 30 * time.Second
)

// forward is what kubectl port-forward reaches.
func forward(w http.ResponseWriter, r *http.Request, pods *runtime.Runtime) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	to := forwarder{pods: pods, namespace: r.PathValue("namespace")}
	portforward.ServePortForward(w, r, to, r.PathValue("pod"), "", options, forwardIdle, forwardCreation, portforward.SupportedProtocols)
}

// A forwarder leads to the pods of a namespace.
type forwarder struct {
	pods      *runtime.Runtime
	namespace string
}

// PortForward copies both ways between a stream and a port of a pod until either has ended.
func (f forwarder) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	address, runs := f.pods.AddressOf(f.namespace, pod)
	if !runs {
		return fmt.Errorf("pod %s is simulated: nothing listens in it", pod)
	}
	at, listens := f.pods.Addresses.Lookup(address, int(port))
	if !listens {
		return fmt.Errorf("pod %s has no port %d", pod, port)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", at))
	if err != nil {
		return err
	}
	defer connection.Close()
	var copying sync.WaitGroup
	copying.Go(func() {
		io.Copy(connection, stream)
		connection.(*net.TCPConn).CloseWrite()
	})
	_, err = io.Copy(stream, connection)
	stream.Close()
	copying.Wait()
	return err
}
