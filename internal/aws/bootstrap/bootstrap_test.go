package bootstrap

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func ptr[T any](v T) *T { return &v }

// golden compares a document with testdata/<name>.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got); run with -update if it is meant to:\n%s", path, d)
	}
}

func plain() Options {
	return Options{
		Cluster: Cluster{Name: "demo", Endpoint: "https://demo.example", CABundle: "Q0E=", ServiceCIDR: "172.20.0.0/16"},
		Kubelet: Kubelet{ManagedKubelet: awsv1.ManagedKubelet{ClusterDNS: []string{"172.20.0.10"}}, MaxPods: 58},
		Taints:  []corev1.Taint{v1.UnregisteredTaint()},
		Labels:  map[string]string{"b": "2", "a": "1"},
	}
}

// full has every setting.
func full() Options {
	o := plain()
	o.RAID0 = true
	o.Taints = append(o.Taints, corev1.Taint{Key: "team", Value: "x", Effect: "NoSchedule"})
	o.Kubelet.ManagedKubelet = awsv1.ManagedKubelet{
		ClusterDNS:  []string{"172.20.0.10"},
		PodsPerCore: ptr(int32(20)), SystemReserved: map[string]string{"memory": "200Mi", "cpu": "100m"},
		KubeReserved: map[string]string{"memory": "300Mi", "cpu": "50m"},
		EvictionHard: map[string]string{"nodefs.available": "10%", "memory.available": "5%"},
		EvictionSoft: map[string]string{"memory.available": "8%"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "1m0s"},
		EvictionMaxPodGracePeriod: ptr(int32(60)), ImageGCHighThresholdPercent: ptr(int32(80)),
		ImageGCLowThresholdPercent: ptr(int32(50)), CPUCFSQuota: ptr(false),
	}
	o.Kubelet.Fields = map[string]any{
		"podsPerCore": 20, "topologyManagerPolicy": "best-effort", "maxPods": "vcpus * 10",
		"evictionHard": map[string]any{"nodefs.available": "10%", "memory.available": "5%"},
	}
	o.BottlerocketVersion = "1.45.0"
	return o
}

func withUserData(o Options, text string) Options {
	o.UserData = text
	return o
}

const mimeUserData = `Content-Type: multipart/mixed; boundary="XYZ"
MIME-Version: 1.0

--XYZ
Content-Type: text/cloud-config

packages: [jq]
--XYZ
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/sh
echo hi
--XYZ
Content-Type: text/x-shellscript
Content-Transfer-Encoding: base64

IyEvYmluL3NoCg==
--XYZ--
`

const tomlUserData = `
[settings]
motd = "hello"

[settings.kubernetes]
server-tls-bootstrap = false
allowed-unsafe-sysctls = ["net.core.somaxconn"]
max-pods = 7
kube-api-qps = 9
some-future-key = "kept"

[settings.kubernetes.node-labels]
a = "theirs"
mine = "yes"

[settings.kubernetes.node-taints]
gone = ["x:NoSchedule"]

[settings.kubernetes.kube-reserved]
cpu = "1"

[settings.kubernetes.memory-manager-reserved-memory.0]
enabled = true
memory = "1Gi"

[settings.bootstrap-commands.001-mine]
commands = [["apiclient", "set", "motd=x"]]
mode = "once"
essential = false
`

func TestDocuments(t *testing.T) {
	for file, tc := range map[string]struct {
		family  string
		options Options
	}{
		"al2-plain.txt":                  {awsv1.AMIFamilyAL2, plain()},
		"al2-full.txt":                   {awsv1.AMIFamilyAL2, full()},
		"al2-shell.txt":                  {awsv1.AMIFamilyAL2, withUserData(plain(), "#!/bin/bash\nsysctl -w vm.max_map_count=262144\n")},
		"al2-mime.txt":                   {awsv1.AMIFamilyAL2, withUserData(plain(), mimeUserData)},
		"al2023-plain.txt":               {awsv1.AMIFamilyAL2023, plain()},
		"al2023-full.txt":                {awsv1.AMIFamilyAL2023, full()},
		"al2023-shell.txt":               {awsv1.AMIFamilyAL2023, withUserData(plain(), "#!/bin/bash\r\necho hi\r\n")},
		"al2023-yaml.txt":                {awsv1.AMIFamilyAL2023, withUserData(plain(), "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}\n")},
		"al2023-mime.txt":                {awsv1.AMIFamilyAL2023, withUserData(plain(), mimeUserData)},
		"bottlerocket-plain.toml":        {awsv1.AMIFamilyBottlerocket, plain()},
		"bottlerocket-full.toml":         {awsv1.AMIFamilyBottlerocket, full()},
		"bottlerocket-merged.toml":       {awsv1.AMIFamilyBottlerocket, withUserData(plain(), tomlUserData)},
		"bottlerocket-merged-full.toml":  {awsv1.AMIFamilyBottlerocket, withUserData(full(), tomlUserData)},
		"windows2019-plain.txt":          {awsv1.AMIFamilyWindows2019, plain()},
		"windows2022-full.txt":           {awsv1.AMIFamilyWindows2022, full()},
		"windows2025-with-user-data.txt": {awsv1.AMIFamilyWindows2025, withUserData(plain(), "Write-Host hello\n")},
		"custom.txt":                     {awsv1.AMIFamilyCustom, withUserData(full(), "whatever the image understands\r\n")},
	} {
		t.Run(file, func(t *testing.T) {
			got, err := Render(tc.family, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, file, got)
			again, _ := Render(tc.family, tc.options)
			if got != again {
				t.Error("two renderings of the same options differ")
			}
		})
	}
}

// Bottlerocket has a list of taints for each key.
func TestBottlerocketKeepsAllTaintsOfAKey(t *testing.T) {
	o := plain()
	o.Taints = append(o.Taints, corev1.Taint{Key: "team", Value: "x", Effect: "NoSchedule"}, corev1.Taint{Key: "team", Value: "y", Effect: "NoExecute"})
	got, err := Render(awsv1.AMIFamilyBottlerocket, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nteam = ['x:NoSchedule', 'y:NoExecute']\n"; !strings.Contains(got, want) {
		t.Errorf("%q is not in\n%s", want, got)
	}
}

func TestRefusedUserData(t *testing.T) {
	for name, tc := range map[string]struct {
		family   string
		userData string
		want     string
	}{
		"AL2: malformed header":                {awsv1.AMIFamilyAL2, "MIME-Version: 1.0\nContent-Type\n\nx", "MIME"},
		"AL2: a single-part document":          {awsv1.AMIFamilyAL2, "Content-Type: text/plain\n\nx", "multipart"},
		"AL2023: malformed header":             {awsv1.AMIFamilyAL2023, "Content-Type: multipart/mixed; boundary\n\nx", "content type"},
		"Bottlerocket: not TOML":               {awsv1.AMIFamilyBottlerocket, "#!/bin/bash\necho", "TOML"},
		"Bottlerocket: kubernetes is no table": {awsv1.AMIFamilyBottlerocket, "[settings]\nkubernetes = 1\n", "must be a table"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Render(tc.family, withUserData(plain(), tc.userData)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want one about %q", err, tc.want)
			}
		})
	}
	o := plain()
	o.Cluster.ServiceCIDR = ""
	if _, err := Render(awsv1.AMIFamilyAL2023, o); err != ErrNoServiceCIDR {
		t.Errorf("AL2023 without a service CIDR gives %v", err)
	}
}

func TestWhatUserDataOfAL2023Is(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n": nodeConfigPart,
		"# mine\nkind: Whatever\n":                              nodeConfigPart,
		`{"kind": "NodeConfig"}`:                                nodeConfigPart,
		"echo hi":                                               shellPart,
		"- a\n- b\n":                                            shellPart,
		"#!/bin/bash\necho hi\n":                                shellPart,
		"\n#!/bin/bash\necho \"state: up\"\n":                   shellPart, // a mapping, to a reader of YAML
	} {
		if got := al2023Part(text); got != want {
			t.Errorf("%q is taken for %s, want %s", text, got, want)
		}
	}
}

func TestIPv6DNSSwitchesTheFamilyOfAL2(t *testing.T) {
	o := plain()
	o.Kubelet.ClusterDNS = []string{"fd00::10"}
	got, err := Render(awsv1.AMIFamilyAL2, o)
	if err != nil || !strings.Contains(got, "--ip-family ipv6") || !strings.Contains(got, "--dns-cluster-ip 'fd00::10'") {
		t.Errorf("document = %v\n%s", err, got)
	}
}

func TestBottlerocketTakesTheFirstDNSServer(t *testing.T) {
	o := plain()
	o.Kubelet.ClusterDNS = []string{"172.20.0.10", "172.20.0.11"}
	got, err := Render(awsv1.AMIFamilyBottlerocket, o)
	if err != nil || !strings.Contains(got, "cluster-dns-ip = '172.20.0.10'") || strings.Contains(got, "172.20.0.11") {
		t.Errorf("document = %v\n%s", err, got)
	}
}

func TestBottlerocketBindFolders(t *testing.T) {
	for version, folders := range map[string]bool{"": true, "1.45.9": true, "v1.46.0": false, "1.47": false, "2.0.0": false, "latest": false, "odd": true} {
		o := plain()
		o.RAID0, o.BottlerocketVersion = true, version
		got, err := Render(awsv1.AMIFamilyBottlerocket, o)
		if err != nil || strings.Contains(got, "--dirs") != folders {
			t.Errorf("version %q: folders named %v, want %v; %v", version, !folders, folders, err)
		}
	}
}

func TestLabels(t *testing.T) {
	claim := map[string]string{
		"team": "x", "example.com/a": "b", awsv1.LabelInstanceFamily: "m5", "kubernetes.io/arch": "amd64",
		"topology.kubernetes.io/zone": "z-a", "node-restriction.kubernetes.io/x": "y", "k8s.io/x": "y", "foo.k8s.io/x": "y",
		"notkubernetes.io/x": "y",
	}
	want := map[string]string{
		"team": "x", "example.com/a": "b", awsv1.LabelInstanceFamily: "m5", "notkubernetes.io/x": "y",
		v1.CapacityTypeLabelKey: "spot", v1.NodeDoNotSyncTaintsLabelKey: "true",
	}
	if d := cmp.Diff(want, Labels(awsv1.AMIFamilyAL2023, claim, "spot")); d != "" {
		t.Errorf("labels differ (-want +got):\n%s", d)
	}
	if _, ok := Labels(awsv1.AMIFamilyCustom, claim, "spot")[v1.NodeDoNotSyncTaintsLabelKey]; ok {
		t.Error("a custom image is taken to register taints")
	}
}

func TestTaints(t *testing.T) {
	now := metav1.Now()
	a := corev1.Taint{Key: "a", Value: "1", Effect: "NoSchedule"}
	b := corev1.Taint{Key: "b", Effect: "NoExecute"}
	dated := a
	dated.TimeAdded = &now
	claim := &v1.NodeClaim{Spec: v1.NodeClaimSpec{Taints: []corev1.Taint{dated}, StartupTaints: []corev1.Taint{b, a}}}
	if d := cmp.Diff([]corev1.Taint{a, b, v1.UnregisteredTaint()}, Taints(claim)); d != "" {
		t.Errorf("taints differ (-want +got):\n%s", d)
	}
}

func FuzzRender(f *testing.F) {
	for _, text := range []string{"", mimeUserData, tomlUserData, "#!/bin/sh", "a: b", "MIME-Version: 1.0\n\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, family := range []string{awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023, awsv1.AMIFamilyBottlerocket, awsv1.AMIFamilyWindows2022} {
			if got, err := Render(family, withUserData(full(), text)); err == nil && !strings.Contains(got, "demo.example") {
				t.Errorf("%s with user data %q lost the cluster", family, text)
			}
		}
	})
}

// A line of the user's own that looks like our border does not end the document.
func TestPartsMayHoldTheBorder(t *testing.T) {
	for name, body := range map[string]string{
		"plain": "#!/bin/sh\necho a", "the border": "#!/bin/sh\ncat <<X\n--//\nX", "the end": "--//--\necho", "a longer one": "--//\n--////\n",
	} {
		t.Run(name, func(t *testing.T) {
			in := []part{{shellPart, body}, {nodeConfigPart, "kind: NodeConfig"}}
			out, err := parseMIME(writeMIME(in))
			if err != nil || len(out) != 2 {
				t.Fatalf("parts = %q, %v; want two", out, err)
			}
			for i := range in {
				if strings.TrimSpace(out[i].body) != strings.TrimSpace(in[i].body) {
					t.Errorf("part %d = %q, want %q", i, out[i].body, in[i].body)
				}
			}
		})
	}
}
