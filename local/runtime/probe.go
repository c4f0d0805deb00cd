package runtime

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// prober asks containers how they are. It does not mind certificates, as a kubelet does not.
var prober = &http.Client{
	Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
		Proxy:             nil,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// keepAsking asks again and again, as the probe says, and reports the outcome: true after so many answers in a row, false
// after so many failures, which are reported with the last one. It reports the same thing only once.
func keepAsking(ctx context.Context, p *corev1.Probe, ask func(context.Context) error, tell func(ok bool, err error)) {
	var good, bad int32
	told, last := false, false
	wait := time.Duration(p.InitialDelaySeconds) * time.Second
	for pause(ctx, wait) {
		asked := time.Now()
		limited, stop := context.WithTimeout(ctx, time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
		err := ask(limited)
		stop()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		settled := good >= max(p.SuccessThreshold, 1) || bad >= max(p.FailureThreshold, 1)
		if ok := err == nil; settled && (!told || ok != last) {
			told, last = true, ok
			tell(ok, err)
		}
		wait = max(0, time.Duration(max(p.PeriodSeconds, 1))*time.Second-time.Since(asked))
	}
}

// pause waits, and reports whether to go on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// question is what a probe asks of a container whose ports are those. Only what can be asked on a network is supported.
func question(c *corev1.Container, p *corev1.Probe, ports map[int32]int) (func(context.Context) error, error) {
	switch {
	case p.HTTPGet != nil:
		get := p.HTTPGet
		port, err := portOf(c, get.Port.StrVal, get.Port.IntVal)
		if err != nil {
			return nil, err
		}
		scheme := "http"
		if get.Scheme == corev1.URISchemeHTTPS {
			scheme = "https"
		}
		at, headers := fmt.Sprintf("%s://%s%s", scheme, onThisMachine(port, ports), get.Path), get.HTTPHeaders
		return func(ctx context.Context) error { return ask(ctx, at, headers) }, nil
	case p.TCPSocket != nil:
		port, err := portOf(c, p.TCPSocket.Port.StrVal, p.TCPSocket.Port.IntVal)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", onThisMachine(port, ports))
			if err == nil {
				connection.Close()
			}
			return err
		}, nil
	}
	return nil, fmt.Errorf("container %s: only probes by HTTP and TCP are simulated", c.Name)
}

// onThisMachine is where a port of a container is.
func onThisMachine(port int32, ports map[int32]int) string {
	if at, mapped := ports[port]; mapped {
		return fmt.Sprintf("127.0.0.1:%d", at)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func ask(ctx context.Context, at string, headers []corev1.HTTPHeader) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	for _, h := range headers {
		request.Header.Add(h.Name, h.Value)
	}
	answer, err := prober.Do(request)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", answer.StatusCode)
	}
	return nil
}
