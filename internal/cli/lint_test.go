package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/class"
)

// machineOf is a node of a class with a pod that asks for a CPU, and its claim.
func machineOf(name, class, kind, image string) string {
	return fmt.Sprintf(`
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: c%[1]s, labels: {karpenter.sh/nodepool: p, topology.kubernetes.io/zone: z1}}
spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: %[2]s}, requirements: []}
status: {providerID: x%[1]s, nodeName: %[1]s, imageID: %[4]s}
---
apiVersion: v1
kind: Node
metadata:
  name: %[1]s
  labels: {karpenter.sh/nodepool: p, karpenter.sh/registered: "true", karpenter.sh/initialized: "true", kubernetes.io/hostname: %[1]s, kubernetes.io/arch: amd64, kubernetes.io/os: linux, topology.kubernetes.io/zone: z1, node.kubernetes.io/instance-type: %[3]s, karpenter.sh/capacity-type: on-demand}
spec: {providerID: x%[1]s}
status: {conditions: [{type: Ready, status: "True"}], allocatable: {cpu: "2", memory: 8Gi, pods: "110"}, capacity: {cpu: "2", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-%[1]s}
spec:
  nodeName: %[1]s
  containers: [{name: c, image: i, resources: {requests: {cpu: 1500m}}}]
---
`, name, class, kind, image)
}

// What an edit of a node class does is said of the nodes of that class only, with what it costs.
func TestAnEditOfANodeClass(t *testing.T) {
	const before = `{"metadata": {"name": "default"}, "spec": {"amiFamily": "AL2023", "role": "r", "amiSelectorTerms": [{"id": "ami-1"}, {"id": "ami-2"}], "subnetSelectorTerms": [{"id": "subnet-1"}],
		"securityGroupSelectorTerms": [{"id": "sg-1"}], "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required"}},
		"status": {"subnets": [{"id": "subnet-1", "zone": "z1"}], "securityGroups": [{"id": "sg-1"}]}}`
	fleet := machineOf("n1", "default", "t.large", "ami-1") + machineOf("n2", "default", "t.medium", "ami-2") + machineOf("n3", "other", "t.small", "ami-1")
	for name, tc := range map[string]struct {
		spec string
		want []string
	}{
		"what is as it was replaces nothing": {`role: r, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{id: subnet-1}]`, nil},
		"another role replaces all nodes": {`role: s, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{id: subnet-1}]`,
			[]string{"EC2NodeClass/default: as it is written it replaces 2 nodes (NodeClassDrift: 2), -$0.4000 an hour (Replaces)"}},
		"another image replaces those of the old one": {`role: r, amiSelectorTerms: [{id: ami-2}], subnetSelectorTerms: [{id: subnet-1}]`,
			[]string{"EC2NodeClass/default: as it is written it replaces 1 node (AMIDrift: 1), -$0.3000 an hour (Replaces)"}},
		"what tags find nobody knows": {`role: r, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{tags: {a: b}}]`,
			[]string{"EC2NodeClass/default: as it is written it may replace 2 nodes (SubnetDrift: 2): what its selectors find is known to the cloud only (Replaces)"}},
		"both": {`role: r, amiSelectorTerms: [{id: ami-2}], subnetSelectorTerms: [{tags: {a: b}}]`,
			[]string{"EC2NodeClass/default: as it is written it replaces 1 node (AMIDrift: 1, SubnetDrift: 1), -$0.3000 an hour; 1 more may be replaced: what its selectors find is known to the cloud only (Replaces)"}},
		"what the controller refuses": {`role: r, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{id: subnet-1}], placementGroupSelector: {name: g}`,
			[]string{"EC2NodeClass/default: placement groups are not supported (Invalid)",
				"EC2NodeClass/default: as it is written it replaces 2 nodes (NodeClassDrift: 2), -$0.4000 an hour (Replaces)"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := fleet + `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec: {amiFamily: AL2023, securityGroupSelectorTerms: [{id: sg-1}], ` + tc.spec + `}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: nobodys}, requirements: []}}}
`
			var zones int
			env := Env{In: strings.NewReader(text), Err: &bytes.Buffer{}, CheckClass: noPlacementGroups,
				Catalog: func(region, spot string, class *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
					return threeTypes(region, spot, class)
				},
				EditClass: func(from, to *awsv1.EC2NodeClass) func(*v1.NodeClaim) (cloud.DriftReason, bool) {
					zones = len(to.Status.Subnets)
					return class.NewEdit(from, to).Drifts
				}}
			l := lintFlags{planFlags{files: []string{"-"}}}
			o, err := readAndEdit(t.Context(), &l, env, before)
			if err != nil {
				t.Fatal(err)
			}
			found, err := l.findings(env, o)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, fmt.Sprintf("%s: %s (%s)", f.Object, f.Text, f.Code))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if zones != 1 {
				t.Errorf("the class of the file has %d subnets, want that of the cluster's", zones)
			}
		})
	}
}

// readAndEdit reads files, and then the class that a cluster has.
func readAndEdit(ctx context.Context, l *lintFlags, env Env, class string) (*objects, error) {
	o, err := l.read(ctx, env)
	if err != nil {
		return nil, err
	}
	return o, o.list(ctx, pages{answers: map[string]string{"": `{"items": [` + class + `]}`}}, &awsv1.EC2NodeClassList{})
}
