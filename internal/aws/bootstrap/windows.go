package bootstrap

import (
	"fmt"
	"strings"
)

// windows writes one PowerShell block: the user's commands, then the image's bootstrap script.
func windows(o Options) string {
	var b strings.Builder
	b.WriteString("<powershell>\n")
	if o.UserData != "" {
		b.WriteString(strings.TrimRight(o.UserData, "\n") + "\n")
	}
	b.WriteString(`[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"` + "\n")
	fmt.Fprintf(&b, "& $EKSBootstrapScriptFile -EKSClusterName '%s' -APIServerEndpoint '%s'", o.Cluster.Name, o.Cluster.Endpoint)
	if o.Cluster.CABundle != "" {
		fmt.Fprintf(&b, " -Base64ClusterCA '%s'", o.Cluster.CABundle)
	}
	if args := kubeletArgs(o); len(args) > 0 {
		fmt.Fprintf(&b, " -KubeletExtraArgs '%s'", strings.Join(args, " "))
	}
	if dns := o.Kubelet.ClusterDNS; len(dns) > 0 {
		fmt.Fprintf(&b, " -DNSClusterIP '%s'", dns[0])
	}
	b.WriteString("\n</powershell>\n")
	return b.String()
}
