// Package plane prepares API servers for tests.
package plane

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"karpenter.sh/karpenter/internal/kit/loopback"
)

// New is an API server, not started yet, that will have these definitions. Its ports are its own until release is called;
// those that envtest finds by itself are now and then taken before its programs listen.
func New(definitions []*apiextensionsv1.CustomResourceDefinition,
	patience time.Duration) (server *envtest.Environment, release func(), err error) {
	var ports []*loopback.Port
	release = func() {
		for _, p := range ports {
			p.Release()
		}
	}
	for range 3 {
		p, err := loopback.Take()
		if err != nil {
			release()
			return nil, nil, err
		}
		ports = append(ports, p)
	}
	server = &envtest.Environment{
		CRDs: definitions, CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: patience},
		ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience,
	}
	api := server.ControlPlane.GetAPIServer()
	api.SecureServing.Address, api.SecureServing.Port = "127.0.0.1", strconv.Itoa(ports[0].Number)
	api.Configure().Set("authorization-mode", "Node", "RBAC").Append("enable-admission-plugins", "NodeRestriction") // as local/plane has it
	etcd := &envtest.Etcd{URL: at(ports[1])}
	etcd.Configure().Set("listen-peer-urls", at(ports[2]).String())
	server.ControlPlane.Etcd = etcd
	return server, release, nil
}

func at(p *loopback.Port) *url.URL {
	return &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", p.Number)}
}
