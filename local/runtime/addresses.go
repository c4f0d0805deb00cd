package runtime

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// addressRange is where pods that run have their addresses; those that are played have theirs elsewhere.
var addressRange = netip.MustParsePrefix("10.245.0.0/16")

// Addresses say where on this machine the ports of pods are.
type Addresses struct {
	mu    sync.Mutex
	taken map[string]bool // addresses
	next  netip.Addr
	ports map[string]int // by host:port
}

func newAddresses() *Addresses {
	return &Addresses{taken: map[string]bool{}, next: addressRange.Addr().Next(), ports: map[string]int{}}
}

// take gives an address to a pod: the wanted one if it is free.
func (a *Addresses) take(wanted string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, err := netip.ParseAddr(wanted); err != nil || !addressRange.Contains(at) || a.taken[wanted] {
		for wanted = ""; wanted == "" || a.taken[wanted]; {
			wanted = a.next.String()
			if a.next = a.next.Next(); !addressRange.Contains(a.next) {
				a.next = addressRange.Addr().Next()
			}
		}
	}
	a.taken[wanted] = true
	return wanted
}

func (a *Addresses) release(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.taken, address)
}

// Hold keeps an address for a server that is no pod, whose port is one of this machine.
func (a *Addresses) Hold(address string, port, at int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken[address] = true
	a.ports[key(address, port)] = at
}

// open gives a free port of this machine to each port of a container. What is returned forgets them.
func (a *Addresses) open(address string, ports []corev1.ContainerPort) (map[int32]int, func(), error) {
	free, err := freePorts(len(ports))
	if err != nil {
		return nil, nil, err
	}
	given := map[int32]int{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, p := range ports {
		given[p.ContainerPort] = free[i]
		a.ports[key(address, int(p.ContainerPort))] = free[i]
	}
	return given, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for port, at := range given {
			if name := key(address, int(port)); a.ports[name] == at {
				delete(a.ports, name)
			}
		}
	}, nil
}

// Lookup finds the port of this machine that is a pod's port.
func (a *Addresses) Lookup(host string, port int) (int, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, known := a.ports[key(host, port)]
	return at, known
}

func key(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }

// freePorts finds that many free ports on the loopback address.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // all at once, so that no port is found twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// portOf is the number of a port that may be given by its name.
func portOf(c *corev1.Container, wanted string, number int32) (int32, error) {
	if wanted == "" {
		return number, nil
	}
	for _, p := range c.Ports {
		if p.Name == wanted {
			return p.ContainerPort, nil
		}
	}
	return 0, fmt.Errorf("container %s has no port %s", c.Name, cmp.Or(wanted, "without a name"))
}
