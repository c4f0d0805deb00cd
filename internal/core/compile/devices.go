package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/compile/devices"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/reason"
)

// hasOwnClaim reports whether a pod must be in a group of its own, because a resource claim was generated for this pod alone. The first
// call reads all generated claims of the snapshot.
func (b *builder) hasOwnClaim(p *cluster.Pod) bool {
	if b.generated == nil {
		b.generated = devices.ReadGenerated(b.in.Snap)
	}
	return b.generated.Alone(b.in.Snap, p)
}

// readDevices resolves the resource claims of all cohorts, and refuses or postpones cohorts with claims that cannot be planned for; these
// leave b.cohorts. It does nothing if hasOwnClaim was never asked, that is, if no pod has resource claims.
func (b *builder) readDevices() {
	if b.generated == nil {
		return
	}
	in := devices.Input{Snap: b.in.Snap, Memory: b.mem.devices, Generated: b.generated, Selects: b.in.Selects, Now: b.in.Now,
		Pods: b.in.Pods, LeftOut: b.in.LeftOut, Kept: map[cluster.PodKey]bool{},
		Nodes: b.mem.deviceNodes(b.w.nodes, b.gone), Bins: b.w.binOf}
	var asking []*cohort
	for _, c := range b.cohorts {
		if c.info.devices {
			asking, in.Groups = append(asking, c), append(in.Groups, c.pods)
		}
	}
	for _, k := range b.in.Kept {
		in.Kept[k.Pod.PodKey] = true
	}
	for i := range b.mem.daemons {
		d := &b.mem.daemons[i]
		in.Daemons = append(in.Daemons, devices.Daemon{Namespace: d.set.Namespace, Class: d.info.class})
	}
	for _, t := range b.templates {
		in.Templates = append(in.Templates, t.machines())
	}
	var needs []devices.Needs
	b.devices, needs = devices.Read(in)
	for i, c := range asking {
		b.takeDeviceNeeds(c, &needs[i])
	}
	b.cohorts = slices.DeleteFunc(b.cohorts, func(c *cohort) bool { return len(c.pods) == 0 })
}

// takeDeviceNeeds gives a cohort its claims. Each claim may restrict where the pods can run; the alternatives of the cohort's volumes are
// combined with these places. If the claims cannot be planned for, it refuses or postpones the pods, and leaves the cohort empty.
func (b *builder) takeDeviceNeeds(c *cohort, needs *devices.Needs) {
	c.devices = needs.Claims
	for _, list := range needs.Places {
		var terms []label.Reqs
		for _, t := range list {
			r, _ := expressions(b.mem.known, t.MatchExpressions) // no node meets an expression that is wrong
			terms = append(terms, r)
		}
		c.volumes.alternatives = cross(c.volumes.alternatives, merged(terms))
	}
	for _, alt := range c.volumes.alternatives {
		b.mem.learn(alt, b.chosen)
	}
	if needs.Bad.Code == 0 {
		return
	}
	for _, p := range c.pods {
		if needs.Bad.Code == reason.Postponed {
			b.postpone(p)
		} else {
			b.refuse(p, []reason.Count{needs.Bad})
		}
	}
	c.pods = nil
}

// deviceNodes returns the nodes of the problem as package devices needs them, in the same order. gone says for each whether it is treated
// as gone.
func (m *Memory) deviceNodes(nodes []*nodeInfo, gone []bool) []devices.Node {
	out := make([]devices.Node, 0, len(nodes))
	for i, n := range nodes {
		out = append(out, devices.Node{Name: n.row.Name, Initialized: n.initialized, Gone: gone[i], Types: m.machineTypes(n),
			Claimants: n.claimants, Daemons: n.coming.sets})
	}
	return out
}

// machines returns the instance types of a template as package devices needs them, indexed by shape. Types without devices are left zero.
func (t *template) machines() []devices.Machine {
	out := make([]devices.Machine, t.catalog.shape.Len())
	for sh, name := range t.catalog.shape.Names {
		it := t.catalog.from.Type(name)
		if it == nil || len(it.Devices) == 0 {
			continue
		}
		out[sh].Type = it
		if len(t.daemons) > 0 {
			out[sh].Daemons = t.daemons[t.tmpl.DaemonOf[sh]]
		}
	}
	return out
}

// machineTypes returns the instance types that the machine of a Karpenter node may have: the type in the labels of Node or claim, or else
// all types that the claim allows. For a type that the catalogue lacks it returns an empty type, which brings no devices.
func (m *Memory) machineTypes(n *nodeInfo) []*cloud.InstanceType {
	cat := m.poolCatalogs[n.pool]
	if n.row.Claim == nil || cat == nil {
		return nil
	}
	names := m.typesOf(n.row.Claim)
	if name, ok := n.labels[corev1.LabelInstanceTypeStable]; ok {
		names = []string{name}
	} else if name := n.row.Claim.Labels[corev1.LabelInstanceTypeStable]; name != "" {
		names = []string{name}
	}
	var out []*cloud.InstanceType
	for _, name := range names {
		if it := cat.from.Type(name); it != nil {
			out = append(out, it)
		} else {
			out = append(out, &cloud.InstanceType{})
		}
	}
	return out
}

// makeDevices writes into the problem which devices each node has left for the pods of this question, once all other pods have theirs, and
// which devices a machine of each template would bring. It does nothing without resource claims.
func (b *builder) makeDevices() {
	if b.devices == nil {
		return
	}
	var coming []devices.Expected
	for e := range b.withPlaces() {
		if bin, ok := b.w.binOf[e.target]; ok && e.info.devices {
			coming = append(coming, devices.Expected{Pod: e.pod, Class: e.info.class, Bin: bin})
		}
	}
	nodes, templates := b.devices.Place(coming)
	for i := range nodes {
		b.problem.Nodes[i].Devices = nodes[i]
	}
	for i := range templates {
		b.problem.Templates[i].Devices = templates[i]
	}
	b.problem.Devices = b.devices.Effort
}
