package runtime

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/kit/loopback"
)

// addressRange is where pods that run have their addresses; those that are played have theirs elsewhere.
var addressRange = netip.MustParsePrefix("10.245.0.0/16")

// Addresses say where on this machine the ports of pods are.
type Addresses struct {
	mu    sync.Mutex
	taken map[string]bool // addresses
	next  netip.Addr
	ports map[string]int // by host:port
	last  map[int32]int  // by the port that a container asked for
}

func newAddresses() *Addresses {
	return &Addresses{taken: map[string]bool{}, next: addressRange.Addr().Next(), ports: map[string]int{}, last: map[int32]int{}}
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

// open gives a free port of this machine to each port of a container, the port of the last container that asked
// for the same where it is free: a page in a browser keeps its address. What is returned forgets them.
func (a *Addresses) open(address string, ports []corev1.ContainerPort) (map[int32]int, func(), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := map[int32]*loopback.Port{}
	release := func() {
		for _, p := range held {
			p.Release()
		}
	}
	for _, wanted := range ports {
		if held[wanted.ContainerPort] != nil {
			continue // of another protocol
		}
		p, err := loopback.Preferably(a.last[wanted.ContainerPort])
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("port %d of a container: %w", wanted.ContainerPort, err)
		}
		held[wanted.ContainerPort] = p
	}
	given := map[int32]int{}
	for port, p := range held {
		given[port] = p.Number
		a.last[port] = p.Number
		a.ports[key(address, int(port))] = p.Number
	}
	return given, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for port, at := range given {
			if name := key(address, int(port)); a.ports[name] == at {
				delete(a.ports, name)
			}
		}
		release()
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
