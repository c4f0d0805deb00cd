package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// readPods reads pods: a name with cpu, mem, gpu, init, sidecar and overhead (cpu:1,mem:1Gi), labels, ns, priority, on (a node),
// going (being deleted), select=k:v, need=key:Op:v|w (required, terms separated by ";"), want=weight/key:Op:v|w,
// spread=key:skew[:anyway][:min=n], near=key:l:v, apart=key:l:v, nearish and apartish (preferred, with weight/),
// tolerate=k:v:effect, port=n[:protocol[:ip]], pvc=claim, claim=resource claim, template=resource claim template, owner=[kind/]name (of a
// replica set), daemon=set, protected[=value] (do-not-disrupt), ended, unready, planned= the node on which it has a place,
// restart-all (a rule of a container that restarts all of them).
func (w *World) readPods(text string) error {
	return eachLine(text, func(l *line) error {
		for range l.count {
			p, err := w.podOf(l)
			if err != nil {
				return err
			}
			w.Store.Update(func(d *cluster.Draft) { w.putPod(d, p) })
		}
		return nil
	})
}

// readBuffers reads CapacityBuffers, each with the pods that it keeps room for: x3 cpu=1, and on= the node with that
// room.
func (w *World) readBuffers(text string) error {
	return eachLine(text, func(l *line) error {
		var pods []*corev1.Pod
		var at []string
		for range l.count {
			p, err := w.podOf(l)
			if err != nil {
				return err
			}
			at = append(at, p.Spec.NodeName)
			p.UID, p.Spec.NodeName = types.UID(p.Namespace+"/"+p.Name), ""
			pods = append(pods, p)
		}
		w.Store.Update(func(d *cluster.Draft) {
			d.PutSpares("default", l.name, pods)
			d.PlaceSpares("default", l.name, at)
		})
		return nil
	})
}

// readPDBs reads PodDisruptionBudgets, named after the label app of their pods: allowed= evictions now, full (there may never be any),
// always (pods that are not ready may go), ns.
func (w *World) readPDBs(text string) error {
	return eachLine(text, func(l *line) error {
		allowed, err := strconv.ParseInt(l.get("allowed", "0"), 10, 32)
		if err != nil {
			return err
		}
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: l.get("ns", "default"),
			Name: l.name + "-" + strconv.Itoa(w.number("pdb "+l.name))}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": l.name}}
		b.Spec.MinAvailable, b.Status.DisruptionsAllowed = new(intstr.FromInt32(1)), int32(allowed)
		if l.has("full") {
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, new(intstr.FromInt32(0))
		}
		if l.has("always") {
			b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
		}
		w.Objects = append(w.Objects, b)
		w.Store.Update(func(d *cluster.Draft) { cluster.PDBs.Put(d, b) })
		return nil
	})
}

// putPod puts a pod into the store: running if it names a node, unless the story gives another phase, else pending
// and unschedulable.
func (w *World) putPod(d *cluster.Draft, p *corev1.Pod) {
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	p.UID = types.UID(p.Namespace + "/" + p.Name)
	if p.CreationTimestamp.IsZero() {
		p.CreationTimestamp = metav1.NewTime(w.Now.Add(-time.Hour + time.Duration(len(w.names))*time.Second))
	}
	w.names[p.Name]++
	w.readNotes(p)
	switch {
	case p.Spec.NodeName != "" && p.Status.Phase == "":
		p.Status.Phase = corev1.PodRunning
	case p.Spec.NodeName == "":
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable}}
		w.pending = append(w.pending, p)
	}
	w.Objects = append(w.Objects, p)
	d.PutPod(p)
}

// A note holds what a story says about a pod besides the pod's fields: whether the question asks about it, the machine of
// its seat and since when, and how many plans left it out.
type note struct {
	asked, aside bool
	planned      string
	since        time.Time
	plansLeftOut int
}

// readNotes moves the annotations of stories from a pod into w.notes.
func (w *World) readNotes(p *corev1.Pod) {
	n := note{asked: p.Annotations[askedAnnotation] != "", aside: p.Annotations[asideAnnotation] != "",
		planned: p.Annotations[plannedAnnotation]}
	n.since, _ = time.Parse(time.RFC3339Nano, p.Annotations[sinceAnnotation])
	n.plansLeftOut, _ = strconv.Atoi(p.Annotations[leftOutAnnotation])
	if n == (note{}) {
		return
	}
	for _, key := range []string{askedAnnotation, asideAnnotation, plannedAnnotation, sinceAnnotation, leftOutAnnotation} {
		delete(p.Annotations, key)
	}
	if w.notes == nil {
		w.notes = map[cluster.PodKey]note{}
	}
	w.notes[cluster.PodKey{Namespace: p.Namespace, Name: p.Name}] = n
}

// seatPlanned gives pods the seats on machines that the story notes. Enter calls it last, when the machines are in
// the store.
func (w *World) seatPlanned() {
	w.Store.Update(func(d *cluster.Draft) {
		for _, key := range slices.SortedFunc(maps.Keys(w.notes), cluster.PodKey.Compare) {
			if n := w.notes[key]; n.planned != "" {
				d.Plan(key, n.planned, n.since)
			}
		}
	})
}

// spare notes a pod that a CapacityBuffer keeps room for.
func (w *World) spare(p *corev1.Pod) {
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	p.UID = types.UID(p.Namespace + "/" + p.Name)
	key := cluster.PodKey{Namespace: p.Namespace, Name: p.Annotations[v1.CapacityBufferNameAnnotationKey]}
	if w.spares == nil {
		w.spares = map[cluster.PodKey][]*corev1.Pod{}
	}
	w.spares[key] = append(w.spares[key], p)
}

// putSpares puts the pods that spare noted into the store.
func (w *World) putSpares() {
	w.Store.Update(func(d *cluster.Draft) {
		for key, pods := range w.spares {
			d.PutSpares(key.Namespace, key.Name, pods)
		}
	})
}

// podOf returns the pod that a line describes, with the next number in its name.
func (w *World) podOf(l *line) (*corev1.Pod, error) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.get("ns", "default"), Labels: pairs(l.get("labels", ""))}}
	p.Name = l.name + "-" + strconv.Itoa(w.number(l.name))
	requests := corev1.ResourceList{}
	for name, key := range map[corev1.ResourceName]string{corev1.ResourceCPU: "cpu", corev1.ResourceMemory: "mem",
		"gpu.example/gpu": "gpu", corev1.ResourceEphemeralStorage: "disk"} {
		if !l.has(key) {
			continue
		}
		q, err := bounded.ParseQuantity(l.get(key, ""))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		requests[name] = q
	}
	main := corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}
	for _, x := range l.all("port") {
		port, err := portOf(x)
		if err != nil {
			return nil, err
		}
		main.Ports = append(main.Ports, port)
	}
	p.Spec.Containers = []corev1.Container{main}
	if err := addSmallPrint(p, l); err != nil {
		return nil, err
	}
	p.Spec.NodeName = l.get("on", "")
	p.Spec.NodeSelector = pairs(l.get("select", ""))
	for _, x := range l.all("tolerate") {
		f := append(strings.Split(x, ":"), "", "")
		t := corev1.Toleration{Key: f[0], Value: f[1], Effect: corev1.TaintEffect(f[2])}
		if t.Value == "*" {
			t.Operator, t.Value = corev1.TolerationOpExists, ""
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, t)
	}
	for _, x := range l.all("pvc") {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: x,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: x}}})
	}
	for _, x := range l.all("claim") {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: x, ResourceClaimName: &x})
	}
	for _, x := range l.all("template") {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: x, ResourceClaimTemplateName: &x})
	}
	if x := l.get("priority", ""); x != "" {
		n, err := strconv.ParseInt(x, 10, 32)
		if err != nil {
			return nil, err
		}
		priority := int32(n)
		p.Spec.Priority = &priority
	}
	addLife(p, l, w.Now)
	return p, addConstraints(p, l)
}

// addLife sets the owner of a pod, its annotations, and how far its life has come.
func addLife(p *corev1.Pod, l *line, now time.Time) {
	for key, kind := range map[string]string{"owner": "ReplicaSet", "daemon": "DaemonSet"} {
		x := l.get(key, "")
		if before, name, found := strings.Cut(x, "/"); found {
			kind, x = before, name
		}
		if x != "" {
			api := map[string]string{"Node": "v1"}[kind]
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: cmp.Or(api, "apps/v1"), Kind: kind, Name: x,
				UID: types.UID(x), Controller: new(true)}}
		}
	}
	p.Annotations = protectionOf(l)
	if x := l.get("planned", ""); x != "" {
		p.Annotations = map[string]string{plannedAnnotation: x, sinceAnnotation: now.Format(time.RFC3339Nano)}
	}
	if l.has("going") {
		p.DeletionTimestamp = new(metav1.NewTime(now))
	}
	if p.Spec.NodeName != "" {
		p.Status.StartTime = new(metav1.NewTime(now.Add(-time.Hour)))
	}
	if l.has("ended") {
		p.Status.Phase = corev1.PodSucceeded
	}
	if l.has("unready") {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	}
}

// addSmallPrint adds init containers, sidecars, overhead and restart rules.
func addSmallPrint(p *corev1.Pod, l *line) error {
	always := corev1.ContainerRestartPolicyAlways
	if l.has("restart-all") {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{
			{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	}
	for _, key := range []string{"sidecar", "init"} {
		for _, x := range l.all(key) {
			list, err := quantitiesOf(x)
			if err != nil {
				return err
			}
			c := corev1.Container{Name: key + "-" + strconv.Itoa(len(p.Spec.InitContainers)),
				Resources: corev1.ResourceRequirements{Requests: list}}
			if key == "sidecar" {
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
	if x := l.get("overhead", ""); x != "" {
		list, err := quantitiesOf(x)
		p.Spec.Overhead = list
		return err
	}
	return nil
}

// quantitiesOf reads cpu:1,mem:1Gi.
func quantitiesOf(text string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for k, v := range pairs(text) {
		q, err := bounded.ParseQuantity(v)
		if err != nil {
			return nil, err
		}
		name := corev1.ResourceName(k)
		if k == "mem" {
			name = corev1.ResourceMemory
		}
		out[name] = q
	}
	return out, nil
}

// portOf reads number[:protocol[:ip]].
func portOf(text string) (corev1.ContainerPort, error) {
	f := append(strings.SplitN(text, ":", 3), "", "")
	n, err := strconv.ParseInt(f[0], 10, 32)
	return corev1.ContainerPort{HostPort: int32(n), ContainerPort: int32(n),
		Protocol: corev1.Protocol(cmp.Or(f[1], string(corev1.ProtocolTCP))), HostIP: f[2]}, err
}

// number counts the uses of a name, from 1.
func (w *World) number(name string) int {
	w.names["#"+name]++
	return w.names["#"+name]
}

// addConstraints adds topology spread, node affinity and pod affinity.
func addConstraints(p *corev1.Pod, l *line) error {
	for _, x := range l.all("spread") {
		c, err := spreadOf(x, p.Labels)
		if err != nil {
			return err
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	a := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAffinity: &corev1.PodAffinity{},
		PodAntiAffinity: &corev1.PodAntiAffinity{}}
	if x := l.get("need", ""); x != "" {
		sel := &corev1.NodeSelector{}
		for _, term := range strings.Split(x, ";") {
			t := corev1.NodeSelectorTerm{}
			for _, r := range strings.Split(term, ",") {
				t.MatchExpressions = append(t.MatchExpressions, requirementOf(r))
			}
			sel.NodeSelectorTerms = append(sel.NodeSelectorTerms, t)
		}
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = sel
	}
	for _, x := range l.all("want") {
		weight, rest := weighted(x)
		t := corev1.NodeSelectorTerm{}
		for _, r := range strings.Split(rest, ",") {
			t.MatchExpressions = append(t.MatchExpressions, requirementOf(r))
		}
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution =
			append(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.PreferredSchedulingTerm{Weight: weight, Preference: t})
	}
	for _, x := range l.all("near") {
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution =
			append(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, podTermOf(x))
	}
	for _, x := range l.all("apart") {
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution =
			append(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, podTermOf(x))
	}
	for _, x := range l.all("nearish") {
		weight, rest := weighted(x)
		a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution =
			append(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: podTermOf(rest)})
	}
	for _, x := range l.all("apartish") {
		weight, rest := weighted(x)
		a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution =
			append(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: podTermOf(rest)})
	}
	p.Spec.Affinity = a
	return nil
}

// weighted reads "10/rest"; the weight is 1 if there is none.
func weighted(text string) (int32, string) {
	w, rest, found := strings.Cut(text, "/")
	n, err := strconv.ParseInt(w, 10, 32)
	if !found || err != nil {
		return 1, text
	}
	return int32(n), rest
}

// podTermOf reads key:label:value with options ns=a|b, ns=* (all namespaces), in=label|value (namespaces by label). The value may
// be !v (any pod but those with that value) or * (any pod with the label).
func podTermOf(text string) corev1.PodAffinityTerm {
	f := append(strings.Split(text, ":"), "", "")
	t := corev1.PodAffinityTerm{TopologyKey: longKey(f[0]), LabelSelector: selectorOf(f[1], f[2])}
	for _, x := range f[3:] {
		switch k, v, _ := strings.Cut(x, "="); {
		case x == "ns=*":
			t.NamespaceSelector = &metav1.LabelSelector{}
		case k == "ns":
			t.Namespaces = strings.Split(v, "|")
		case k == "in":
			label, value, _ := strings.Cut(v, "|")
			t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
		}
	}
	return t
}

// selectorOf returns a selector for a label: any value for "*", any other value or none for "!v".
func selectorOf(key, value string) *metav1.LabelSelector {
	if value == "*" {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key,
			Operator: metav1.LabelSelectorOpExists}}}
	}
	if other, not := strings.CutPrefix(value, "!"); not {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key,
			Operator: metav1.LabelSelectorOpNotIn, Values: []string{other}}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// spreadOf reads key:skew with options anyway, min=n, taints=Honor, affinity=Ignore, by=label (matchLabelKeys), of=l|v, of=none,
// of=all. Without "of" the selector is the pod's own labels.
func spreadOf(text string, own map[string]string) (corev1.TopologySpreadConstraint, error) {
	f := strings.Split(text, ":")
	c := corev1.TopologySpreadConstraint{TopologyKey: longKey(f[0]), MaxSkew: 1,
		WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: own}}
	for _, x := range f[1:] {
		k, v, _ := strings.Cut(x, "=")
		switch {
		case x == "anyway":
			c.WhenUnsatisfiable = corev1.ScheduleAnyway
		case k == "min":
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil {
				return c, err
			}
			least := int32(n)
			c.MinDomains = &least
		case k == "taints":
			policy := corev1.NodeInclusionPolicy(v)
			c.NodeTaintsPolicy = &policy
		case k == "affinity":
			policy := corev1.NodeInclusionPolicy(v)
			c.NodeAffinityPolicy = &policy
		case k == "by":
			c.MatchLabelKeys = strings.Split(v, "|")
		case x == "of=none":
			c.LabelSelector = nil
		case x == "of=all":
			c.LabelSelector = &metav1.LabelSelector{}
		case k == "of":
			l, value, _ := strings.Cut(v, "|")
			c.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{l: value}}
		default:
			n, err := strconv.ParseInt(x, 10, 32)
			if err != nil {
				return c, fmt.Errorf("spread %q: %w", text, err)
			}
			c.MaxSkew = int32(n)
		}
	}
	return c, nil
}
