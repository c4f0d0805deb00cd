package supervise

import (
	"fmt"
	"net"

	"karpenter.sh/karpenter/local/plane"
)

// choosePorts finds a free port for each name. The last run's ports are taken again where they are free, so that a
// kubeconfig that was copied elsewhere stays good. A wanted API port is taken or refused.
func choosePorts(last map[string]int, wanted int) (map[string]int, error) {
	ports := map[string]int{}
	var held []net.Listener // all at once, so that no two names get the same port
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for _, name := range plane.PortNames() {
		l, err := listen(last[name])
		if name == plane.APIPort && wanted != 0 {
			if l, err = hold(wanted); err != nil {
				return nil, fmt.Errorf("port %d is taken (%w); choose another with --port, or any free one with --port 0", wanted, err)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		ports[name] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// listen holds the preferred port, or any if that one is taken.
func listen(preferred int) (net.Listener, error) {
	if preferred != 0 {
		if l, err := hold(preferred); err == nil {
			return l, nil
		}
	}
	return hold(0)
}

func hold(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}
