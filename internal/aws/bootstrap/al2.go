package bootstrap

import (
	"net/netip"
	"strings"
)

// al2 returns a multi-part document whose last part calls the image's bootstrap script.
func al2(o Options) (string, error) {
	parts, err := userParts(o.UserData, func(string) string { return shellPart })
	if err != nil {
		return "", err
	}
	return writeMIME(append(parts, part{shellPart, al2Script(o)})), nil
}

// userParts returns the user's own parts; text that is not a multi-part document becomes one part of the given type.
func userParts(text string, contentType func(string) string) ([]part, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, nil
	case isMIME(text):
		return parseMIME(text)
	}
	return []part{{contentType(text), text}}, nil
}

// al2Script returns the script that bootstraps an AL2 node.
func al2Script(o Options) string {
	options := []string{
		"/etc/eks/bootstrap.sh " + bashWord(o.Cluster.Name) + " --apiserver-endpoint " + bashWord(o.Cluster.Endpoint),
	}
	if o.Cluster.CABundle != "" {
		options[0] += " --b64-cluster-ca " + bashWord(o.Cluster.CABundle)
	}
	if dns := o.Kubelet.ClusterDNS; len(dns) > 0 {
		if ip, err := netip.ParseAddr(dns[0]); err == nil && ip.Is6() {
			options = append(options, "--ip-family ipv6")
		}
		options = append(options, "--dns-cluster-ip "+bashWord(dns[0]))
	}
	options = append(options, "--use-max-pods false")
	if args := kubeletArgs(o); len(args) > 0 {
		options = append(options, "--kubelet-extra-args "+bashWord(strings.Join(args, " ")))
	}
	if o.RAID0 {
		options = append(options, "--local-disks raid0")
	}
	return "#!/bin/bash -xe\n" +
		"exec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1\n" +
		strings.Join(options, " \\\n") + "\n"
}
