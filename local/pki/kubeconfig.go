package pki

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig writes a file with which the holder of a client certificate reaches the API server.
func (a *Authority) Kubeconfig(path, server string, client Pair) error {
	return a.kubeconfig(path, server, &clientcmdapi.AuthInfo{ClientCertificateData: client.Cert, ClientKeyData: client.Key})
}

// TokenKubeconfig writes a file with which a service account reaches the API server. The token is read from a file of
// its own again and again, because it expires.
func (a *Authority) TokenKubeconfig(path, server, tokenFile string) error {
	return a.kubeconfig(path, server, &clientcmdapi.AuthInfo{TokenFile: tokenFile})
}

func (a *Authority) kubeconfig(path, server string, user *clientcmdapi.AuthInfo) error {
	const name = "karpenter-local"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.Cert}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}
