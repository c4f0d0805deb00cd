package egress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// kubeletPort is the port of every kubelet.
const kubeletPort = 10250

// Ranges are the addresses that mean something inside of the cluster only.
type Ranges struct{ Services, Pods netip.Prefix }

// A lookup finds the port of this machine that is a pod's port.
type lookup func(host string, port int) (int, bool)

// A Resolver says what an address means.
type Resolver struct {
	ranges  Ranges
	pods    lookup
	slices  discoverylisters.EndpointSliceLister
	byIP    cache.Indexer // of Services
	factory informers.SharedInformerFactory
}

// byClusterIP is the name of an index.
const byClusterIP = "cluster IP"

// NewResolver returns a resolver that finds pods by the given function.
func NewResolver(client kubernetes.Interface, ranges Ranges, pods func(host string, port int) (int, bool)) (*Resolver, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	services, slices := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	err := services.Informer().AddIndexers(cache.Indexers{byClusterIP: func(o any) ([]string,
		error) {
		return o.(*corev1.Service).Spec.ClusterIPs, nil
	}})
	if err != nil {
		return nil, err
	}
	return &Resolver{
		ranges: ranges, pods: pods, slices: slices.Lister(), byIP: services.Informer().GetIndexer(), factory: factory,
	}, nil
}

// Run keeps up with Services until ctx ends.
func (r *Resolver) Run(ctx context.Context) {
	r.factory.StartWithContext(ctx)
	<-ctx.Done()
	r.factory.Shutdown()
}

// A place is where something is: at addresses of this machine, to be tried in turn, or in the kubelets' own server.
type place struct {
	kubelet   bool
	addresses []string
}

func (r *Resolver) resolve(address string) (place, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return place{}, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return place{}, fmt.Errorf("%q is no port", text)
	}
	if at, found := r.pods(host, port); found {
		return here(at), nil
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && r.ranges.Services.Contains(ip):
		return r.service(host, port)
	case err == nil && r.ranges.Pods.Contains(ip):
		return place{}, fmt.Errorf("pod %s is simulated, or does not listen on port %d", host, port)
	case port == kubeletPort && (err != nil || !ip.IsLoopback()):
		return place{kubelet: true}, nil
	}
	return place{addresses: []string{address}}, nil // it is what it says
}

func here(port int) place { return place{addresses: []string{fmt.Sprintf("127.0.0.1:%d", port)}} }

// service finds the endpoints behind a Service, those that are ready first.
func (r *Resolver) service(host string, port int) (place, error) {
	found, err := r.byIP.ByIndex(byClusterIP, host)
	if err != nil || len(found) == 0 {
		return place{}, fmt.Errorf("no Service has the address %s", host)
	}
	s := found[0].(*corev1.Service)
	name, known := portName(s, port)
	if !known {
		return place{}, fmt.Errorf("service %s/%s has no port %d", s.Namespace, s.Name, port)
	}
	all, err := r.slices.EndpointSlices(s.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.Name}))
	if err != nil {
		return place{}, err
	}
	var where place
	for _, slice := range all {
		where.addresses = append(where.addresses, r.endpoints(slice, name)...)
	}
	if len(where.addresses) == 0 {
		return place{}, fmt.Errorf("service %s/%s has no endpoint that runs", s.Namespace, s.Name)
	}
	rand.Shuffle(len(where.addresses), func(i, j int) {
		where.addresses[i], where.addresses[j] = where.addresses[j], where.addresses[i]
	})
	return where, nil
}

func portName(s *corev1.Service, port int) (string, bool) {
	for _, p := range s.Spec.Ports {
		if int(p.Port) == port {
			return p.Name, true
		}
	}
	return "", false
}

// endpoints are those of a slice that take connections.
func (r *Resolver) endpoints(slice *discoveryv1.EndpointSlice, name string) []string {
	var all []string
	for _, p := range slice.Ports {
		if p.Name == nil || *p.Name != name || p.Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, address := range e.Addresses {
				if at, runs := r.pods(address, int(*p.Port)); runs {
					all = append(all, here(at).addresses...)
				}
			}
		}
	}
	return all
}
