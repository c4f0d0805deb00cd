package bootstrap

import "strings"

// windows returns one PowerShell block: the user's commands, then the image's bootstrap script.
func windows(o Options) string {
	var b strings.Builder
	b.WriteString("<powershell>\n")
	if o.UserData != "" {
		b.WriteString(strings.TrimRight(o.UserData, "\n") + "\n")
	}
	b.WriteString(`[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"` + "\n")
	add := func(option, value string) { b.WriteString(" -" + option + " " + powerShellWord(value)) }
	b.WriteString("& $EKSBootstrapScriptFile")
	add("EKSClusterName", o.Cluster.Name)
	add("APIServerEndpoint", o.Cluster.Endpoint)
	if o.Cluster.CABundle != "" {
		add("Base64ClusterCA", o.Cluster.CABundle)
	}
	if args := kubeletArgs(o); len(args) > 0 {
		add("KubeletExtraArgs", strings.Join(args, " "))
	}
	if dns := o.Kubelet.ClusterDNS; len(dns) > 0 {
		add("DNSClusterIP", dns[0])
	}
	b.WriteString("\n</powershell>\n")
	return b.String()
}
