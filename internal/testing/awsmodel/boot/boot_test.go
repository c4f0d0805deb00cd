package boot

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/aws/awsdata"
)

func typeNamed(t testing.TB, name string) *awsdata.InstanceType {
	t.Helper()
	for _, it := range awsdata.Types() {
		if it.Name == name {
			return it
		}
	}
	t.Fatalf("no type %s", name)
	return nil
}

var demo = Cluster{Name: "demo", Endpoint: "https://x", CA: "Q0E=", ServiceCIDR: "172.20.0.0/16", Version: "1.36"}

func machine(t testing.TB, f Family, name string) Machine {
	return Machine{
		Family: f, Arch: "amd64", Type: typeNamed(t, name), NodeName: "ip-10-0-0-4.ec2.internal", Zone: "us-east-1a", ZoneID: "use1-az1",
		Region: "us-east-1", RootGiB: 20, Role: true,
	}
}

func mimeOf(parts ...string) string {
	return "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n" + strings.Join(parts, "\n--//\n") + "\n--//--\n"
}

const (
	script         = "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n"
	cluster        = "spec:\n  cluster: {name: demo, apiServerEndpoint: https://x, certificateAuthority: Q0E=, cidr: 172.20.0.0/16}\n"
	header         = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"
	nodeConfigPart = "Content-Type: application/node.eks.aws\n\n" + header + cluster
)

const al2 = script + `#!/bin/bash -xe
exec > >(tee /var/log/user-data.log) 2>&1 # to the console
/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://x' --b64-cluster-ca 'Q0E=' \
--dns-cluster-ip '172.20.0.10' \
--use-max-pods false \
--kubelet-extra-args '--node-labels="a=b,c=d" --register-with-taints="example.com/new:NoExecute,team=x:NoSchedule" --max-pods=58'`

const bottlerocketTOML = `
[settings.kubernetes]
api-server = 'https://x'
cluster-certificate = 'Q0E='
cluster-name = 'demo'
cluster-dns-ip = '172.20.0.10'
max-pods = 58
[settings.kubernetes.node-labels]
'a' = 'b'
[settings.kubernetes.node-taints]
'example.com/new' = [':NoExecute']
[settings.bootstrap-commands.000-mount-instance-storage]
commands = [['apiclient','ephemeral-storage','init'],['apiclient','ephemeral-storage','bind']]
mode = 'always'
essential = true
[settings.host-containers.admin]
enabled = true
`

const windows = `<powershell>
Write-Output 'it''s mine'
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://x' -Base64ClusterCA 'Q0E=' -KubeletExtraArgs '--node-labels="a=b" --register-with-taints="example.com/new:NoExecute" --max-pods=110' -DNSClusterIP '172.20.0.10'
</powershell>`

// What Windows nodes say of themselves, and what the VPC's controller adds, does not come from the user data.
func TestNodesOfWindows(t *testing.T) {
	m := machine(t, Windows, "m5.large")
	m.Build = "10.0.20348"
	n, console := Run(m, demo, windows)
	if n == nil {
		t.Fatal(console)
	}
	addresses := n.Allocatable["vpc.amazonaws.com/PrivateIPv4Address"]
	if n.OS != "windows" || n.Labels[corev1.LabelOSStable] != "windows" || n.Labels[corev1.LabelWindowsBuild] != "10.0.20348" || addresses.Value() != 9 {
		t.Errorf("%s, %d addresses, labels %v", n.OS, addresses.Value(), n.Labels)
	}
	linux, _ := Run(machine(t, AL2, "m5.large"), demo, mimeOf(al2))
	if _, has := linux.Capacity["vpc.amazonaws.com/PrivateIPv4Address"]; has || linux.Labels[corev1.LabelWindowsBuild] != "" {
		t.Errorf("a Linux node has %v and labels %v", linux.Capacity, linux.Labels)
	}
}

func TestUserDataThatMakesANode(t *testing.T) {
	for name, tc := range map[string]struct {
		family   Family
		userData string
		labels   map[string]string
		taints   []string
		pods     int64
	}{
		"AL2 calls the bootstrap script in the last part, after the user's own": {
			AL2, mimeOf(script+"#!/bin/bash\nsysctl -w vm.max_map_count=262144", al2), map[string]string{"a": "b", "c": "d"},
			[]string{"example.com/new:NoExecute", "team=x:NoSchedule"}, 58},
		"AL2 takes a plain script, with variables": {
			AL2, "#!/bin/bash\nNAME=demo\nexport EP=\"https://x\"\n/etc/eks/bootstrap.sh \"$NAME\" --apiserver-endpoint ${EP} --b64-cluster-ca Q0E=\n", nil, nil, 29},
		"AL2 without the image's pod limit leaves the kubelet's own": {
			AL2, "#!/bin/bash\n/etc/eks/bootstrap.sh demo --apiserver-endpoint https://x --b64-cluster-ca Q0E= --use-max-pods false\n", nil, nil, 110},
		"AL2023 lays later documents over earlier ones and runs them all": {
			AL2023, mimeOf(nodeConfigPart+"  kubelet:\n    config: {maxPods: 10, clusterDNS: [1.1.1.1]}\n    flags: ['--v=2']", script+"#!/bin/bash\necho hi",
				nodeConfigPart+"  kubelet:\n    config: {maxPods: 42, registerWithTaints: [{key: example.com/new, effect: NoExecute}]}\n    flags: ['--node-labels=\"a=b\"']"),
			map[string]string{"a": "b"}, []string{"example.com/new:NoExecute"}, 42},
		"AL2023 takes a bare document and has the image's pod limit":   {AL2023, header + cluster, nil, nil, 29},
		"AL2023 counts pods per core":                                  {AL2023, header + cluster + "  kubelet: {config: {podsPerCore: 3}}", nil, nil, 6},
		"AL2023 takes user data that was packed":                       {AL2023, pack(mimeOf(nodeConfigPart)), nil, nil, 29},
		"Bottlerocket reads its settings and keeps quiet about others": {Bottlerocket, bottlerocketTOML, map[string]string{"a": "b"}, []string{"example.com/new:NoExecute"}, 58},
		"Windows calls the bootstrap script with its arguments":        {Windows, windows, map[string]string{"a": "b"}, []string{"example.com/new:NoExecute"}, 110},
		"a kubelet may name its own zone and type":                     {AL2023, header + cluster + "  kubelet: {flags: ['--node-labels=node.kubernetes.io/foo=bar,topology.kubernetes.io/zone=us-east-1a']}", map[string]string{"node.kubernetes.io/foo": "bar"}, nil, 29},
	} {
		t.Run(name, func(t *testing.T) {
			n, log := Run(machine(t, tc.family, "m5.large"), demo, tc.userData)
			if n == nil {
				t.Fatalf("no node: %q", log)
			}
			for k, v := range tc.labels {
				if n.Labels[k] != v {
					t.Errorf("label %s = %q, want %q", k, n.Labels[k], v)
				}
			}
			var taints []string
			for _, x := range n.Taints {
				taints = append(taints, x.ToString())
			}
			if diff := cmp.Diff(tc.taints, taints); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			if got := n.Capacity.Pods().Value(); got != tc.pods {
				t.Errorf("pods = %d, want %d", got, tc.pods)
			}
		})
	}
}

func pack(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// Pods that select by the names of before 2020 are bound, as the cloud's controller and the kubelet still write them.
func TestNodesHaveTheOldNamesOfTheirLabelsToo(t *testing.T) {
	n, log := Run(machine(t, AL2, "m5.large"), demo, mimeOf(al2))
	if n == nil {
		t.Fatal(log)
	}
	for key, want := range map[string]string{
		"beta.kubernetes.io/instance-type": "m5.large", "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
		"failure-domain.beta.kubernetes.io/zone": "us-east-1a", "failure-domain.beta.kubernetes.io/region": "us-east-1",
	} {
		if got := n.Labels[key]; got != want {
			t.Errorf("label %s = %q, want %q", key, got, want)
		}
	}
}

func TestUserDataThatMakesNoNodeSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		family   Family
		userData string
		change   func(*Machine)
		want     string
	}{
		"nothing at all on AL2":                       {AL2, "", nil, "nothing calls /etc/eks/bootstrap.sh"},
		"AL2 with an option that does not exist":      {AL2, "#!/bin/bash\n/etc/eks/bootstrap.sh demo --endpoint x", nil, "unknown option --endpoint"},
		"AL2 with an open quote":                      {AL2, "#!/bin/bash\n/etc/eks/bootstrap.sh 'demo", nil, "unterminated"},
		"AL2 that names no cluster":                   {AL2, "#!/bin/bash\n/etc/eks/bootstrap.sh --apiserver-endpoint https://x", nil, "CLUSTER_NAME is not defined"},
		"a MIME header that is malformed":             {AL2, "MIME-Version: 1.0\nContent-Type: multipart/mixed\n nonsense", nil, "MIME"},
		"AL2023 that gets AL2's script":               {AL2023, mimeOf(al2), nil, "no NodeConfig"},
		"AL2023 with another kind":                    {AL2023, strings.Replace(header, "NodeConfig", "Node", 1) + cluster, nil, "unknown kind"},
		"AL2023 without the service network":          {AL2023, header + strings.Replace(cluster, ", cidr: 172.20.0.0/16", "", 1), nil, "CIDR is missing"},
		"AL2023 with a text as maxPods":               {AL2023, header + cluster + "  kubelet: {config: {maxPods: many}}", nil, "NodeConfig"},
		"AL2023 with a taint that has no such effect": {AL2023, header + cluster + "  kubelet: {config: {registerWithTaints: [{key: a, effect: Never}]}}", nil, "effect"},
		"Bottlerocket with broken TOML":               {Bottlerocket, "[settings.kubernetes\n", nil, "not valid TOML"},
		"Bottlerocket without its cluster":            {Bottlerocket, "[settings.kubernetes]\nmax-pods = 5\n", nil, "lacks cluster-name"},
		"Windows without its block":                   {Windows, "Write-Output hi", nil, "no <powershell> block"},
		"Windows that does not call the bootstrap":    {Windows, "<powershell>Write-Output hi</powershell>", nil, "nothing calls Start-EKSBootstrap.ps1"},
		"an endpoint that is nobody's":                {AL2023, header + strings.Replace(cluster, "https://x", "https://y", 1), nil, "cannot reach the API server"},
		"another authority":                           {AL2023, header + strings.Replace(cluster, "Q0E=", "T1RIRVI=", 1), nil, "unknown authority"},
		"another cluster's name":                      {AL2023, header + strings.Replace(cluster, "name: demo", "name: other", 1), nil, "Unauthorized"},
		"a machine without a role":                    {AL2023, header + cluster, func(m *Machine) { m.Role = false }, "Unauthorized"},
		"a label that only the control plane may set": {AL2023, header + cluster + "  kubelet: {flags: ['--node-labels=kubernetes.io/role=x']}", nil, "unknown 'kubernetes.io'"},
		"a label value that is none":                  {AL2023, header + cluster + "  kubelet: {flags: ['--node-labels=a=b/c']}", nil, "invalid value"},
		"a flag that the kubelet does not have":       {AL2023, header + cluster + "  kubelet: {flags: ['--hyperdrive=on']}", nil, "unknown flag"},
		"a reserve that is no quantity":               {AL2023, header + cluster + "  kubelet: {config: {kubeReserved: {cpu: lots}}}", nil, "reserved cpu=lots"},
		"an image that no cluster knows":              {"", "anything", nil, "no bootstrap"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, tc.family, "m5.large")
			if tc.change != nil {
				tc.change(&m)
			}
			n, log := Run(m, demo, tc.userData)
			if n != nil {
				t.Fatalf("there is a node, labels %v", n.Labels)
			}
			if text := strings.Join(log, "\n"); !strings.Contains(text, tc.want) {
				t.Errorf("console = %q, want %q in it", text, tc.want)
			}
		})
	}
}

// TestRealMachinesAreRebuilt compares with machines that were measured on AWS, AL2023 with default settings.
func TestRealMachinesAreRebuilt(t *testing.T) {
	for name, want := range map[string]struct{ memory, cpu string }{
		"t4g.small":  {"1408312Ki", "1930m"},
		"t4g.medium": {"3377496Ki", "1930m"},
		"t4g.xlarge": {"15136012Ki", "3920m"},
		"m5.large":   {"7220184Ki", "1930m"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, AL2023, name)
			n, log := Run(m, demo, header+cluster)
			if n == nil {
				t.Fatal(log)
			}
			if got := n.Allocatable.Cpu().String(); got != want.cpu {
				t.Errorf("cpu = %s, want %s", got, want.cpu)
			}
			measured := kibOf(t, want.memory)
			got := n.Allocatable.Memory().Value() / 1024
			if off := got - measured; off < 0 || off > 2048 {
				t.Errorf("memory = %dKi, measured %dKi; want at most 2 MiB more and never less", got, measured)
			}
		})
	}
}

func kibOf(t *testing.T, text string) int64 {
	var n int64
	if _, err := fmt.Sscanf(text, "%dKi", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReservesOfTheFamilies(t *testing.T) {
	flags := "--max-pods=10"
	al2 := func(extra string) string {
		return "#!/bin/bash\n/etc/eks/bootstrap.sh demo --apiserver-endpoint https://x --b64-cluster-ca Q0E= --kubelet-extra-args '" + flags + extra + "'"
	}
	taken := func(t *testing.T, f Family, userData string, r corev1.ResourceName) string {
		t.Helper()
		n, log := Run(machine(t, f, "t3.large"), demo, userData)
		if n == nil {
			t.Fatal(log)
		}
		q := n.Capacity[r]
		q.Sub(n.Allocatable[r])
		return q.String()
	}
	for name, tc := range map[string]struct {
		family   Family
		userData string
		resource corev1.ResourceName
		want     string
	}{
		"AL2 keeps memory by the interfaces, not by max-pods":        {AL2, al2(""), corev1.ResourceMemory, "740Mi"},
		"a kube-reserved flag on AL2 replaces the image's whole map": {AL2, al2(" --kube-reserved=cpu=200m"), corev1.ResourceMemory, "100Mi"},
		"AL2023 merges kube-reserved key by key":                     {AL2023, header + cluster + "  kubelet: {config: {kubeReserved: {cpu: 200m}}}", corev1.ResourceMemory, "740Mi"},
		"system-reserved comes on top":                               {AL2023, header + cluster + "  kubelet: {config: {systemReserved: {memory: 100Mi}}}", corev1.ResourceMemory, "840Mi"},
		"an eviction threshold in percent of what the machine has":   {AL2023, header + cluster + "  kubelet: {config: {evictionHard: {memory.available: 100%}}}", corev1.ResourceMemory, "640Mi"},
		"Bottlerocket keeps memory by max-pods": {Bottlerocket, "[settings.kubernetes]\napi-server='https://x'\ncluster-certificate='Q0E='\ncluster-name='demo'\nmax-pods=10\n",
			corev1.ResourceMemory, "465Mi"},
		"two processors leave 70m": {AL2023, header + cluster, corev1.ResourceCPU, "70m"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := taken(t, tc.family, tc.userData, tc.resource); got != tc.want {
				t.Errorf("%s kept = %s, want %s", tc.resource, got, tc.want)
			}
		})
	}
}

func TestInstanceStoreBecomesPodStorage(t *testing.T) {
	n, log := Run(machine(t, AL2023, "m5d.large"), demo, header+cluster+"  instance: {localStorage: {strategy: RAID0}}")
	if n == nil {
		t.Fatal(log)
	}
	if got := n.Capacity.StorageEphemeral().Value(); got != 75e9 {
		t.Errorf("storage = %d, want the 75 GB of the local disk", got)
	}
}

func TestDevicesOfAcceleratedTypes(t *testing.T) {
	for name, want := range map[string]map[corev1.ResourceName]int64{
		"g5.12xlarge":   {"nvidia.com/gpu": 4},
		"g6f.large":     {"nvidia.com/gpu": 1},
		"inf2.48xlarge": {"aws.amazon.com/neuron": 12, "aws.amazon.com/neuroncore": 24},
		"m5.large":      {"vpc.amazonaws.com/pod-eni": 9},
	} {
		t.Run(name, func(t *testing.T) {
			n, log := Run(machine(t, AL2023, name), demo, header+cluster)
			if n == nil {
				t.Fatal(log)
			}
			for r, v := range want {
				if q := n.Capacity[r]; q.Value() != v {
					t.Errorf("%s = %s, want %d", r, q.String(), v)
				}
			}
		})
	}
}

// FuzzRun feeds every family with anything. A machine may stay away, but it must say why, and booting it must end.
func FuzzRun(f *testing.F) {
	for _, seed := range []string{al2, mimeOf(al2), mimeOf(nodeConfigPart), header + cluster, bottlerocketTOML, windows, "\x1f\x8b", "#!/bin/bash\n/etc/eks/bootstrap.sh \\", "$", "${", "--//"} {
		f.Add(seed)
	}
	m := machine(f, AL2, "m5.large")
	f.Fuzz(func(t *testing.T, userData string) {
		for _, family := range []Family{AL2, AL2023, Bottlerocket, Windows} {
			m.Family = family
			n, log := Run(m, demo, userData)
			if len(log) == 0 || slices.Contains(log, "") {
				t.Errorf("%s says nothing: %q", family, log)
			}
			if n != nil && n.Capacity.Memory().IsZero() {
				t.Errorf("%s makes a node without memory", family)
			}
		}
	})
}
