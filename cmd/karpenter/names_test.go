package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Manifests, commands and values of every guide have these names in them, so they are where they were. Labels and tags that are the users' own
// need only be taken: TestRestrictedTags and the schemas say which are not.
func TestNamesThatManifestsHave(t *testing.T) {
	for file, names := range map[string][]string{
		"docs/reference/labels.md": {
			"karpenter.sh/capacity-type", "karpenter.sh/nodepool", "karpenter.sh/provisioner-name", "karpenter.sh/do-not-evict", "karpenter.sh/do-not-disrupt",
			"karpenter.k8s.aws/instance-category", "karpenter.k8s.aws/instance-generation", "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-size",
			"karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-gpu-name", "topology.kubernetes.io/zone", "kubernetes.io/arch", "kubernetes.io/os",
			"node.kubernetes.io/instance-type",
		},
		"docs/reference/settings.md":                                 {"CLUSTER_NAME", "CLUSTER_ENDPOINT", "INTERRUPTION_QUEUE"},
		"charts/karpenter/README.md":                                 {"`settings.clusterName`", "`settings.clusterEndpoint`", "`settings.interruptionQueue`", "`controller.resources`", "`serviceAccount.annotations`", "`replicas`"},
		"charts/karpenter/templates/_helpers.tpl":                    {"app.kubernetes.io/name"},
		"charts/karpenter/templates/_checks.tpl":                     {"defaultInstanceProfile", "aws"},
		"docs/getting-started-eks.md":                                {"karpenter.sh/discovery", `eks\.amazonaws\.com/role-arn`, "KarpenterControllerRole-", "KARPENTER_NAMESPACE", "KARPENTER_VERSION", "AWS_ACCOUNT_ID"},
		"docs/examples/gpu.yaml":                                     {"nvidia.com/gpu"},
		"install/aws/karpenter-cloudformation.yaml":                  {"KarpenterControllerRole-${ClusterName}", "KarpenterNodeRole-${ClusterName}", "KarpenterNodeInstanceProfile-${ClusterName}"},
		"charts/karpenter-crd/templates/karpenter.sh_nodepools.yaml": {"nodepools.karpenter.sh"},
	} {
		text := read(t, filepath.Join(root, filepath.FromSlash(file)))
		for _, name := range names {
			if !strings.Contains(text, name) {
				t.Errorf("%s does not have %s", file, name)
			}
		}
	}
}
