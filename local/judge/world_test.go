package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// The features that a world may have are those of one of these mixes; each seed picks some of them, so that failures narrow down by
// themselves.
var (
	tied    = []string{"spread", "near", "apart", "limits", "node", "soft", "taints", "ports", "resources", "daemons", "priority", "namespaces", "pools", "open", "nodes", "going", "types", "volumes", "minvalues", "kubelets"}
	plain   = []string{"node", "soft", "taints", "ports", "resources", "daemons", "priority", "namespaces", "pools", "open", "minvalues", "nodes", "going", "types", "volumes", "kubelets"}
	running = []string{"spread", "near", "apart", "volumes", "limits", "node", "soft", "taints", "ports", "resources", "priority", "namespaces", "pools", "open", "minvalues", "types", "kubelets"}
)

// Labels that no machine decides, and what pods and pools say of them.
var (
	customKeys  = []string{"team", "rack", "num"}
	valuesOfKey = map[string][]string{"team": {"x", "y", "z"}, "rack": {"r1", "r2", "r9"}, "num": {"1", "3", "7"}}
)

// A maker makes a world out of chance.
type maker struct {
	*rand.Rand
	on    map[string]bool
	fleet bool

	shapes, pools, nodes, pods, objects strings.Builder
	kinds                               []kind
	poolNames                           []string
	nodeNames                           []string
	claims, bound                       []string // PersistentVolumeClaims of the namespace default, and those that have a volume
}

// A kind is what nodes of an instance type say of themselves, and where they are sold.
type kind struct {
	text  string
	zones []string
	spot  bool
}

// makeWorld writes the world of a seed, with no other features than those that are allowed.
func makeWorld(seed uint64, allowed []string) []byte {
	m := newMaker(seed, 11, allowed)
	m.makeShapes()
	m.makePools()
	m.makeObjects()
	m.makeNodes()
	m.makePods(1 + m.IntN(6))
	return m.world(seed)
}

// makeFleet writes the fleet of a seed: more nodes, all of pools, and pods that will run on them.
func makeFleet(seed uint64, allowed []string) []byte {
	m := newMaker(seed, 13, allowed)
	m.fleet = true
	m.makeShapes()
	m.makePools()
	m.makeObjects()
	m.makeFleetNodes()
	m.makePods(2 + m.IntN(6))
	return m.world(seed)
}

func newMaker(seed, stream uint64, allowed []string) *maker {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, stream)), on: map[string]bool{}}
	dense := m.one(2)
	for _, name := range allowed {
		m.on[name] = m.one(3) || dense && m.one(3)
	}
	return m
}

func (m *maker) world(seed uint64) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "The world of seed %d.\n", seed)
	for _, s := range []struct {
		name string
		text *strings.Builder
	}{{"shapes", &m.shapes}, {"pools", &m.pools}, {"objects", &m.objects}, {"nodes", &m.nodes}, {"pods", &m.pods}} {
		fmt.Fprintf(&b, "-- %s --\n%s", s.name, s.text)
	}
	return []byte(b.String())
}

func (m *maker) one(in int) bool                 { return m.IntN(in) == 0 }
func (m *maker) pick(from ...string) string      { return from[m.IntN(len(from))] }
func (m *maker) some(from ...string) string      { return strings.Join(m.sample(from), "|") }
func (m *maker) has(feature string, in int) bool { return m.on[feature] && m.one(in) }

// sample picks at least one.
func (m *maker) sample(from []string) []string {
	var out []string
	for _, x := range from {
		if m.one(2) {
			out = append(out, x)
		}
	}
	if len(out) == 0 {
		return []string{m.pick(from...)}
	}
	return out
}

func (m *maker) makeShapes() {
	for i := range 2 + m.IntN(4) {
		cpu := 1 << m.IntN(5)
		price := float64(cpu) * (0.04 + 0.02*m.Float64())
		k := kind{text: fmt.Sprintf("cpu=%d mem=%dGi pods=%s", cpu, cpu<<(1+m.IntN(3)), m.pick("4", "8", "29", "110")), zones: m.sample([]string{"a", "b", "c"}), spot: m.one(2)}
		sold := fmt.Sprintf("zones=%s od=%.4f", strings.Join(k.zones, ","), price)
		if k.spot {
			sold += fmt.Sprintf(" spot=%.4f", price*(0.2+0.6*m.Float64()))
		}
		if m.has("resources", 4) {
			k.text += fmt.Sprintf(" gpu=%d", 1+m.IntN(4))
		}
		if m.has("volumes", 2) {
			k.text += fmt.Sprintf(" volumes=csi.example:%d", 1+m.IntN(4))
		}
		labels := m.typeLabels(cpu)
		fmt.Fprintf(&m.shapes, "t%d %s %s", i, k.text, sold)
		for _, label := range labels {
			fmt.Fprintf(&m.shapes, " label=%s", label)
		}
		if m.on["types"] && m.one(6) {
			fmt.Fprintf(&m.shapes, " dry=%s", m.pick("a", "b", "c"))
		}
		fmt.Fprintln(&m.shapes)
		labels = slices.DeleteFunc(labels, func(label string) bool { return strings.HasSuffix(label, ":") })
		k.text += fmt.Sprintf(" type=t%d os=linux labels=%s", i, strings.Join(append(labels, "made:yes"), ","))
		m.kinds = append(m.kinds, k)
	}
}

// typeLabels are labels of an instance type; one without a value is never there.
func (m *maker) typeLabels(cpu int) []string {
	if !m.on["types"] {
		return []string{"arch:amd64"}
	}
	return []string{"family:" + m.pick("f", "g"), "arch:" + m.pick("amd64", "amd64", "arm64"), m.pick("size:", fmt.Sprintf("size:%d", cpu))}
}

func (m *maker) makePools() {
	n := 1
	if m.on["pools"] {
		n = 1 + m.IntN(3)
	}
	for i := range n {
		name := fmt.Sprintf("pool-%d", i)
		m.poolNames = append(m.poolNames, name)
		fmt.Fprint(&m.pools, name)
		if m.has("pools", 3) {
			fmt.Fprintf(&m.pools, " weight=%d", 1+m.IntN(3))
		}
		if m.has("pools", 3) {
			fmt.Fprintf(&m.pools, " labels=team:%s", m.pick("x", "y"))
		}
		if m.has("pools", 3) {
			fmt.Fprintf(&m.pools, " need=zone:In:%s", m.some("a", "b", "c"))
		}
		if m.has("pools", 4) {
			fmt.Fprintf(&m.pools, " need=ct:In:%s", m.pick("spot", "on-demand"))
		}
		if m.has("open", 2) {
			fmt.Fprintf(&m.pools, " need=team:In:%s", m.some("x", "y", "z"))
		}
		if m.has("open", 2) {
			fmt.Fprintf(&m.pools, " need=rack:%s", m.pick("Exists", "NotIn:r9", "In:r1|r2", "DoesNotExist"))
		}
		if m.has("open", 3) {
			fmt.Fprintf(&m.pools, " need=num:%s", m.pick("Gt:2", "Lt:5", "Exists"))
		}
		if m.has("taints", 3) {
			fmt.Fprintf(&m.pools, " taint=%s", m.taint())
		}
		if m.has("taints", 4) {
			fmt.Fprint(&m.pools, " startup=cni:x:NoSchedule")
		}
		if m.has("limits", 2) {
			fmt.Fprintf(&m.pools, " limits=%s", m.pick("nodes:1", "nodes:2", "nodes:5", "cpu:4", "cpu:16", "cpu:40", "mem:32Gi", "cpu:30,nodes:3"))
		}
		if m.has("minvalues", 2) {
			fmt.Fprintf(&m.pools, " need=%s:Exists::2", m.pick("type", "zone", "family", "ct"))
		}
		if m.fleet {
			fmt.Fprintf(&m.pools, " budget=%s", m.pick("100%", "100%", "50%", "1", "0"))
		}
		fmt.Fprintln(&m.pools)
	}
}

func (m *maker) taint() string {
	return m.pick("dedicated:x", "dedicated:y", "special:z") + ":" + m.pick("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
}

// object writes one object to a line.
func (m *maker) object(format string, args ...any) {
	fmt.Fprintf(&m.objects, "---\n"+format+"\n", args...)
}

func (m *maker) makeObjects() {
	if m.on["namespaces"] {
		m.object("{kind: Namespace, metadata: {name: default, labels: {tier: %s}}}", m.pick("front", "back"))
		m.object("{kind: Namespace, metadata: {name: other, labels: {tier: %s}}}", m.pick("front", "back"))
	}
	if m.on["daemons"] {
		for i := range 1 + m.IntN(2) {
			more := ""
			if m.one(3) {
				more += ", tolerations: [{operator: Exists}]"
			}
			ports := ""
			switch {
			case i == 0 && m.has("ports", 3):
				ports = ", ports: [{hostPort: 80, containerPort: 80, protocol: TCP}]"
			case m.on["types"] && m.one(4):
				more += fmt.Sprintf(", nodeSelector: {kubernetes.io/arch: %s}", m.pick("amd64", "arm64"))
			case m.one(5):
				more += fmt.Sprintf(", nodeSelector: {topology.kubernetes.io/zone: %s}", m.pick("a", "b", "c"))
			case m.one(6):
				more += fmt.Sprintf(", nodeSelector: {karpenter.sh/capacity-type: %s}", m.pick("spot", "on-demand"))
			case m.one(6):
				more += fmt.Sprintf(", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [%s]}]}, {matchExpressions: [{key: karpenter.sh/capacity-type, operator: NotIn, values: [spot]}]}]}}}",
					m.pick("a", "b", "c"))
			}
			m.object("{kind: DaemonSet, metadata: {name: agent-%d, namespace: default}, spec: {template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: c, resources: {requests: {cpu: %dm, memory: %dMi}}%s}]%s}}}}",
				i, m.pick("agent", "agent", "p"), 50*m.IntN(8), 32*m.IntN(12), ports, more)
		}
	}
	if m.on["volumes"] {
		m.makeVolumes()
	}
}

func (m *maker) makeVolumes() {
	m.object("{kind: StorageClass, metadata: {name: late}, provisioner: csi.example, volumeBindingMode: WaitForFirstConsumer}")
	m.object("{kind: StorageClass, metadata: {name: local}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}")
	m.object("{kind: StorageClass, metadata: {name: picky}, provisioner: csi.example, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [%s]}]}]}",
		strings.Join(m.sample([]string{"a", "b", "c"}), ", "))
	const claim = "{kind: PersistentVolumeClaim, metadata: {name: %[1]s, namespace: default, uid: %[1]s, resourceVersion: \"1\"%[2]s}, spec: {accessModes: [%[3]s], resources: {requests: {storage: 1Gi}}, storageClassName: %[4]s%[5]s}, status: {phase: %[6]s}}"
	for i := range 2 + m.IntN(4) {
		name := fmt.Sprintf("v%d", i)
		m.claims = append(m.claims, name)
		mode := m.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
		switch at := m.IntN(6); {
		case at < 2:
			m.object(claim, name, "", mode, m.pick("late", "picky"), "", "Pending")
		case at == 2 && !m.fleet: // a disk that goes with its node is no plan's affair
			m.object(claim, name, "", mode, "local", "", "Pending")
		default:
			m.bound = append(m.bound, name)
			m.object(claim, name, ", annotations: {pv.kubernetes.io/bind-completed: \"yes\"}", mode, "late", ", volumeName: pv-"+name, "Bound")
			m.object("{kind: PersistentVolume, metadata: {name: pv-%[1]s, resourceVersion: \"1\"%[2]s}, spec: {capacity: {storage: 1Gi}, accessModes: [%[3]s], storageClassName: late, claimRef: {kind: PersistentVolumeClaim, namespace: default, name: %[1]s, uid: %[1]s}, csi: {driver: csi.example, volumeHandle: %[1]s}%[4]s}, status: {phase: Bound}}",
				name, m.zoneLabel(), mode, m.volumeAffinity())
		}
	}
	for i := range m.IntN(3) {
		m.object("{kind: PersistentVolume, metadata: {name: disk-%d, resourceVersion: \"1\"}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce, ReadWriteMany, ReadWriteOncePod], storageClassName: local, local: {path: /d}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-%d]}]}]}}}, status: {phase: Available}}",
			i, m.IntN(3))
	}
}

func (m *maker) zoneLabel() string {
	if !m.one(3) {
		return ""
	}
	return fmt.Sprintf(", labels: {%s: %s}", m.pick("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"), m.pick("a", "b", "c", "a__b"))
}

func (m *maker) volumeAffinity() string {
	if m.one(3) {
		return ""
	}
	return fmt.Sprintf(", nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [%s]}]}]}}", strings.Join(m.sample([]string{"a", "b", "c"}), ", "))
}

func (m *maker) makeNodes() {
	if !m.on["nodes"] {
		return
	}
	for i := range 1 + m.IntN(4) {
		name := fmt.Sprintf("node-%d", i)
		m.nodeNames = append(m.nodeNames, name)
		cpu := 2 << m.IntN(3)
		fmt.Fprintf(&m.nodes, "%s cpu=%d mem=%dGi pods=%s zone=%s ct=%s arch=amd64 os=linux", name, cpu, cpu*4, m.pick("8", "29"), m.pick("a", "b", "c", "old"), m.pick("spot", "on-demand"))
		if m.one(2) {
			fmt.Fprintf(&m.nodes, " pool=%s", m.pick(m.poolNames...))
			if m.one(5) {
				fmt.Fprint(&m.nodes, " starting")
			}
		}
		if m.one(3) {
			fmt.Fprintf(&m.nodes, " labels=team:%s", m.pick("x", "y"))
		} else if m.on["open"] && m.one(2) {
			fmt.Fprintf(&m.nodes, " labels=rack:%s", m.pick("r1", "r2"))
		}
		if m.has("taints", 3) {
			fmt.Fprintf(&m.nodes, " taint=%s", m.taint())
		}
		if m.has("volumes", 2) {
			fmt.Fprintf(&m.nodes, " volumes=csi.example:%d", 1+m.IntN(3))
		}
		m.declare()
		if m.one(8) {
			fmt.Fprint(&m.nodes, " cordoned")
		}
		going := m.has("going", 4)
		if going {
			fmt.Fprint(&m.nodes, " going")
		}
		fmt.Fprintln(&m.nodes)
		for j := range m.IntN(4) { // never more than the node has: an overdrawn node takes no pod of ours
			fmt.Fprintf(&m.pods, "old-%d-%d on=%s cpu=%dm mem=%dMi owner=old", i, j, name, 50*m.IntN(9), 64*m.IntN(9))
			m.constrain(m.bound)
			if !going && m.has("going", 4) {
				fmt.Fprint(&m.pods, " going")
			}
			fmt.Fprintln(&m.pods)
		}
	}
}

func (m *maker) makeFleetNodes() {
	for i := range 2 + m.IntN(6) {
		k := m.kinds[m.IntN(len(m.kinds))]
		ct := "on-demand"
		if k.spot && m.one(2) {
			ct = "spot"
		}
		fmt.Fprintf(&m.nodes, "node-%d pool=%s zone=%s ct=%s %s", i, m.pick(m.poolNames...), m.pick(k.zones...), ct, k.text)
		if m.has("taints", 4) {
			fmt.Fprintf(&m.nodes, " taint=%s", m.taint())
		}
		m.declare()
		if m.one(8) {
			fmt.Fprint(&m.nodes, " protected")
		}
		if m.one(12) {
			fmt.Fprint(&m.nodes, " cordoned")
		}
		fmt.Fprintln(&m.nodes)
	}
	if m.one(3) {
		m.object("{kind: PodDisruptionBudget, metadata: {name: careful, namespace: default}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: %s}}}, status: {disruptionsAllowed: %d}}", m.pick("p", "q"), m.IntN(2))
	}
}

// declare lets a kubelet have the feature that some pods need.
func (m *maker) declare() {
	if m.has("kubelets", 2) {
		fmt.Fprint(&m.nodes, " declares=RestartAllContainersOnContainerExits")
	}
}

func (m *maker) makePods(kinds int) {
	for i := range kinds {
		fmt.Fprintf(&m.pods, "pod-%d x%d", i, 1+m.IntN(5))
		if !m.one(10) {
			fmt.Fprintf(&m.pods, " cpu=%dm mem=%dMi", 100*(1+m.IntN(30)), 128*(1+m.IntN(30)))
		}
		m.constrain(m.claims)
		if m.has("resources", 4) {
			fmt.Fprintf(&m.pods, " %s", m.pick("gpu=1", "init=cpu:1500m", "init=mem:2Gi", "sidecar=cpu:100m init=cpu:2"))
		}
		if m.has("kubelets", 3) {
			fmt.Fprint(&m.pods, " restart-all")
		}
		if m.has("priority", 2) {
			fmt.Fprintf(&m.pods, " priority=%d", m.IntN(3))
		}
		if m.fleet {
			fmt.Fprintf(&m.pods, " owner=set-%d", i)
			if m.one(12) {
				fmt.Fprint(&m.pods, " protected")
			}
		}
		fmt.Fprintln(&m.pods)
	}
}

// constrain writes what else a pod asks for, with volumes of some claims.
func (m *maker) constrain(claims []string) {
	add := func(format string, args ...any) { fmt.Fprintf(&m.pods, " "+format, args...) }
	add("labels=app:%s", m.pick("p", "q", "r"))
	if m.has("namespaces", 3) {
		add("ns=other")
	} else if len(claims) > 0 && m.one(3) {
		first := m.IntN(len(claims))
		add("pvc=%s", claims[first])
		if second := m.IntN(2 * len(claims)); second < len(claims) && second != first { // kube-scheduler wants two disks for one that is named twice
			add("pvc=%s", claims[second])
		}
	}
	if m.has("resources", 4) {
		add("%s", m.pick("sidecar=cpu:200m,mem:128Mi", "overhead=cpu:250m"))
	}
	if m.has("ports", 3) {
		add("port=%s", m.pick("80", "80", "81", "80:UDP", "80:TCP:10.0.0.1", "80:TCP:10.0.0.2"))
	}
	if m.has("taints", 2) {
		add("tolerate=%s", m.pick("dedicated:x:NoSchedule", "dedicated:*:", "dedicated:y:NoExecute", "special:z:", ":*:", "special:*:NoSchedule", "dedicated:x:"))
	}
	if m.has("node", 3) {
		add("select=%s", m.pick("zone:a", "zone:b", "ct:spot", "ct:on-demand", "team:x", "arch:arm64", "family:f", "rack:r1"))
	}
	if m.has("node", 3) {
		terms := m.requirement()
		if m.one(3) {
			terms += "," + m.requirement()
		}
		if m.one(3) {
			terms += ";" + m.requirement()
		}
		add("need=%s", terms)
	}
	if m.has("soft", 3) {
		add("want=%d/%s", 1+m.IntN(9), m.requirement())
	}
	m.constrainTogether(add)
}

func (m *maker) constrainTogether(add func(string, ...any)) {
	if m.has("spread", 2) {
		for range 1 + m.IntN(2) {
			c := fmt.Sprintf("spread=%s:%d:of=app|%s", m.topology(), 1+m.IntN(2), m.pick("p", "q", "r"))
			if m.one(4) {
				c += ":anyway"
			} else if m.one(4) {
				c += fmt.Sprintf(":min=%d", 1+m.IntN(3))
			}
			if m.one(5) {
				c += ":affinity=Ignore"
			}
			if m.one(5) {
				c += ":taints=Honor"
			}
			if m.one(6) {
				c += ":by=app"
			}
			add("%s", c)
		}
	}
	if m.has("near", 4) {
		add("near=%s", m.term())
		if m.one(4) {
			add("near=%s", m.term())
		}
	}
	if m.has("apart", 3) {
		add("apart=%s", m.term())
		if m.one(4) {
			add("apart=%s", m.term())
		}
	}
	if m.has("soft", 4) && m.on["near"] {
		add("nearish=%d/%s", 1+m.IntN(9), m.term())
	}
	if m.has("soft", 4) && m.on["apart"] {
		add("apartish=%d/%s", 1+m.IntN(9), m.term())
	}
}

func (m *maker) topology() string {
	return m.pick("zone", "zone", "zone", "host", "host", "ct", "team", "arch", "type", "rack")
}

func (m *maker) term() string {
	t := m.topology() + ":app:" + m.pick("p", "q", "r", "!p", "*")
	if m.on["namespaces"] {
		t += m.pick("", "", ":ns=other", ":ns=default|other", ":ns=*", ":in=tier|front")
	}
	return t
}

// requirement is one expression of node affinity.
func (m *maker) requirement() string {
	switch m.IntN(9) {
	case 0, 1:
		return "zone:" + m.pick("In", "NotIn") + ":" + m.some("a", "b", "c")
	case 2:
		return "ct:" + m.pick("In", "NotIn") + ":" + m.pick("spot", "on-demand")
	case 3:
		return "team:" + m.pick("In:x", "In:x|y", "NotIn:x", "Exists:", "DoesNotExist:")
	case 4:
		return "rack:" + m.pick("In:r1", "In:r1|r9", "NotIn:r1", "Exists:", "DoesNotExist:")
	case 5:
		return "num:" + m.pick("Gt:0", "Lt:4", "Gt:5", "In:3", "Exists:")
	case 6:
		return "arch:" + m.pick("In:arm64", "NotIn:arm64", "In:amd64|arm64", "Exists:")
	case 7:
		return "size:" + m.pick("Gt:2", "Lt:8", "Exists:", "DoesNotExist:")
	}
	return "type:" + m.pick("In:t0|t1", "NotIn:t0", "Exists:")
}
