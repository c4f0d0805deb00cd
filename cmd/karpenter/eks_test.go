package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/internal/kit/version"
)

// The commands of the pages that people copy line by line run from top to bottom: every variable has a value by then, every file is one
// that a release or the checkout has. AWS, eksctl, Helm and kubectl are stand-ins that note what they are told.
func TestScriptsOfPages(t *testing.T) {
	for page, wants := range map[string][]string{
		"getting-started-eks.md": {
			"aws cloudformation deploy --stack-name Karpenter-demo --template-file dist/karpenter-cloudformation.yaml --capabilities CAPABILITY_NAMED_IAM --parameter-overrides ClusterName=demo\n",
			"helm upgrade --install karpenter dist/karpenter-" + version.Number() + ".tgz --namespace kube-system",
			"karpenter preflight --cluster-name demo",
			"roleARN: arn:aws:iam::text:role/KarpenterControllerRole-demo",
			"role: KarpenterNodeRole-demo",
			"OIDCProvider=text Namespace=kube-system",
			`serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::text:role/KarpenterControllerRole-demo`,
			"kubectl wait --for=delete nodeclaims --all --timeout=15m\nkubectl delete ec2nodeclasses --all --timeout=5m\nhelm uninstall karpenter --namespace kube-system\n",
			"aws ec2 delete-launch-template --launch-template-id text",
		},
		"upgrades.md": {"helm upgrade --install karpenter-crd dist/karpenter-crd-" + version.Number() + ".tgz", "--reset-then-reuse-values"},
	} {
		t.Run(page, func(t *testing.T) {
			said := runPage(t, page)
			for _, want := range wants {
				if !strings.Contains(said, want) {
					t.Errorf("the commands do not say %q:\n%s", want, said)
				}
			}
			if strings.Contains(said, "${") {
				t.Errorf("a variable has no value:\n%s", said)
			}
		})
	}
}

// runPage runs the shell commands of a page after those of the first page, and returns what the stand-ins were told.
func runPage(t *testing.T, page string) string {
	t.Helper()
	dir := t.TempDir()
	bin, log := filepath.Join(dir, "bin"), filepath.Join(dir, "log")
	stand := fmt.Sprintf("#!/bin/sh\nprintf '%%s' \"${0##*/}\" >>%[1]s\nprintf ' %%s' \"$@\" >>%[1]s\necho >>%[1]s\ncase \"$*\" in *'-f -'*) cat >>%[1]s;; *'--output text'*) echo text;; esac\n", log)
	for _, name := range []string{"aws", "eksctl", "helm", "kubectl", "karpenter", "make"} {
		put(t, filepath.Join(bin, name), stand)
	}
	docs, err := filepath.Abs(root + "docs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(docs, filepath.Join(dir, "docs")); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	sources := []string{"getting-started-eks.md"}
	if page != sources[0] {
		sources = append(sources, page)
	}
	for _, source := range sources {
		for _, m := range fence.FindAllStringSubmatch(read(t, filepath.Join(docs, source)), -1) {
			if m[1] == "bash" {
				script.WriteString(m[2])
			}
		}
	}
	shell := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script.String())
	shell.Dir, shell.Env = dir, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir}
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return read(t, log)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// The cluster of the page is YAML, and has what the controller needs: its role, an entry for nodes, the tag by which subnets are found.
func TestTheClusterOfThePage(t *testing.T) {
	_, text, _ := strings.Cut(runPage(t, "getting-started-eks.md"), "eksctl create cluster -f -\n")
	text, _, _ = strings.Cut(text, "aws eks update-kubeconfig")
	var config struct {
		Metadata struct {
			Name, Region, Version string
			Tags                  map[string]string
		}
		IAM struct {
			PodIdentityAssociations []struct{ Namespace, ServiceAccountName, RoleARN string }
		}
		AccessConfig struct {
			AccessEntries []struct{ PrincipalARN, Type string }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if config.Metadata.Tags["karpenter.sh/discovery"] != "demo" || len(config.IAM.PodIdentityAssociations) != 1 || len(config.AccessConfig.AccessEntries) != 1 {
		t.Fatalf("the cluster is %+v", config)
	}
	if got := config.IAM.PodIdentityAssociations[0]; got.Namespace != "kube-system" || got.ServiceAccountName != "karpenter" || !strings.HasSuffix(got.RoleARN, ":role/KarpenterControllerRole-demo") {
		t.Errorf("association %+v", got)
	}
	if got := config.AccessConfig.AccessEntries[0]; got.Type != "EC2_LINUX" || !strings.HasSuffix(got.PrincipalARN, ":role/KarpenterNodeRole-demo") {
		t.Errorf("access entry %+v", got)
	}
}
