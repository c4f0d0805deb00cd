// Package boot does what a machine does with its user data: the way of each AMI family from the first byte of user data
// to a kubelet that registers, or does not.
//
// Everything that the resulting node is, name and taints, reserves and labels, comes from the user data and from facts of
// the machine itself, nowhere else. Wrong user data gives no node but a console text that says why, as on AWS. The package
// is pure: no clock, no network.
package boot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// A Family is a kind of machine image, that is, the program that reads the user data.
type Family string

// The families that are understood. Any other image ignores its user data and never joins.
const (
	AL2          Family = "AL2"
	AL2023       Family = "AL2023"
	Bottlerocket Family = "Bottlerocket"
	Windows      Family = "Windows"
)

// A Cluster is what the machine finds at the other end.
type Cluster struct {
	Name        string
	Endpoint    string
	CA          string // base64
	ServiceCIDR string
	Version     string // minor, such as 1.36
}

// A Machine is what boots.
type Machine struct {
	Family   Family
	Build    string // of Windows, such as 10.0.20348
	Arch     string // amd64 or arm64
	Type     *awsdata.InstanceType
	NodeName string
	Zone     string
	ZoneID   string
	Region   string
	RootGiB  int64 // the volume that holds pods' files
	Role     bool  // an instance profile with a role that the cluster admits
	EFA      int   // interfaces of type EFA
}

// A Node is what registers with the cluster.
type Node struct {
	Labels      map[string]string
	Taints      []corev1.Taint
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
	OS          string
	OSImage     string
}

// Run boots machine m with the given user data (decoded, as the machine sees it) towards cluster c. It returns the node
// that registers, or nil when none does, and what the console shows.
func Run(m Machine, c Cluster, userData string) (*Node, []string) {
	s, err := read(m.Family, userData)
	if err != nil {
		return nil, []string{"user data: " + err.Error()}
	}
	if err := contact(m, c, s); err != nil {
		return nil, []string{"kubelet: " + err.Error()}
	}
	node, err := kubelet(m, s)
	if err != nil {
		return nil, []string{"kubelet: " + err.Error()}
	}
	return node, []string{fmt.Sprintf("kubelet: registered node %s with cluster %s, labels %s", m.NodeName, c.Name, sorted(node.Labels))}
}

// settings is what a family's bootstrap understood.
type settings struct {
	cluster, endpoint, ca string
	flags                 kubeletFlags
	raid0                 bool
}

func read(f Family, userData string) (*settings, error) {
	switch f {
	case AL2:
		return readAL2(userData)
	case AL2023:
		return readAL2023(userData)
	case Bottlerocket:
		return readBottlerocket(userData)
	case Windows:
		return readWindows(userData)
	}
	return nil, fmt.Errorf("this image has no bootstrap for the cluster (family %q)", f)
}

// contact reports whether the kubelet would be let in.
func contact(m Machine, c Cluster, s *settings) error {
	switch {
	case s.endpoint != c.Endpoint:
		return fmt.Errorf("cannot reach the API server at %q", s.endpoint)
	case c.CA != "" && s.ca != c.CA:
		return errors.New("certificate signed by unknown authority")
	case !m.Role:
		return errors.New("the API server answers Unauthorized: the machine has no role that the cluster admits")
	case s.cluster != c.Name:
		return fmt.Errorf("the API server answers Unauthorized: the token is for cluster %q", s.cluster)
	}
	return nil
}

func sorted(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ",")
}
