package usage

import (
	"context"
	"fmt"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	generated "k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// lastRequests is how long requests that are being answered may take when the server ends.
const lastRequests = time.Second

// Options are where the server is and whom it asks.
type Options struct {
	Port       int
	Cert, Key  string // files
	Kubeconfig string // of the API server, which authenticates and authorises users
}

// Serve answers until ctx ends. It lets only users in whom the API server knows: people come through it, with a header that
// says who they are, which counts only beside a certificate of its front proxy.
func Serve(ctx context.Context, client kubernetes.Interface, o Options) error {
	server, err := newServer(client, o)
	if err != nil {
		return fmt.Errorf("serve %s: %w", v1beta1.GroupName, err)
	}
	return server.PrepareRun().RunWithContext(ctx)
}

func newServer(client kubernetes.Interface, o Options) (*genericserver.GenericAPIServer, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	config := genericserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(generated.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(scheme))
	if err := secure(config, o); err != nil {
		return nil, err
	}
	server, err := config.Complete(nil).New("usage", genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	server.ShutdownTimeout = lastRequests
	group := genericserver.NewDefaultAPIGroupInfo(metrics.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap[v1beta1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"pods":  pods{rest.NewDefaultTableConvertor(metrics.Resource("pods")), client},
		"nodes": nodes{rest.NewDefaultTableConvertor(metrics.Resource("nodes")), client},
	}
	return server, server.InstallAPIGroup(&group)
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := metrics.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme, scheme.SetVersionPriority(v1beta1.SchemeGroupVersion)
}

// secure has the server listen on the loopback address, encrypt, and ask the API server who may come in.
func secure(config *genericserver.Config, o Options) error {
	serving := options.NewSecureServingOptions().WithLoopback()
	serving.BindAddress, serving.BindPort = net.IPv4(127, 0, 0, 1), o.Port
	serving.ServerCert.CertKey = options.CertKey{CertFile: o.Cert, KeyFile: o.Key}
	if err := serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return err
	}
	who := options.NewDelegatingAuthenticationOptions()
	who.RemoteKubeConfigFile = o.Kubeconfig
	if err := who.ApplyTo(&config.Authentication, config.SecureServing, nil); err != nil {
		return err
	}
	may := options.NewDelegatingAuthorizationOptions()
	may.RemoteKubeConfigFile = o.Kubeconfig
	return may.ApplyTo(&config.Authorization)
}
