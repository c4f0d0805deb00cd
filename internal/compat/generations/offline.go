package generations

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Options say what manifests do not.
type Options struct {
	// InstanceProfile is what the installation gave to node templates without one; Role is used where it is empty.
	InstanceProfile, Role string
	// Prefer is "role" or "instanceProfile": which of them an EC2NodeClass with both keeps.
	Prefer string
	// TakeOver lets pools stand in for the Provisioners that they are made of.
	TakeOver bool
	// IgnoreDefaults leaves out the requirements that Provisioners got when they had none of the kind.
	IgnoreDefaults bool
}

// A Note is something that a person should know about a converted object.
type Note struct {
	// At is where in the new object it is, From where in the old one.
	At, From []string
	Text     string
	// Lost says that the old object asked for something that the new one does not.
	Lost bool
}

// A Move says where a part of a new object was before.
type Move struct {
	To   []string
	Doc  int // the old object's number
	From []string
}

// A Converted is a new object.
type Converted struct {
	Object map[string]any
	Doc    int // the number of the old object that it was made of
	Moves  []Move
	Notes  []Note
	// Gone are parts of the old object that another new one has.
	Gone [][]string

	kubelet any // what the old object said about the kubelet of its nodes
	origin  []string
}

func (c *Converted) note(lost bool, from, at []string, format string, args ...any) {
	c.Notes = append(c.Notes, Note{At: at, From: from, Text: fmt.Sprintf(format, args...), Lost: lost})
}

func (c *Converted) move(from, to []string) {
	c.Moves = append(c.Moves, Move{To: to, Doc: c.Doc, From: from})
}

// An OfflineError says why an object cannot be converted.
type OfflineError struct {
	Doc  int
	At   []string
	Text string
}

func (e *OfflineError) Error() string { return e.Text }

// path splits a path that has no dots in its keys.
func path(dotted string) []string { return strings.Split(dotted, ".") }

// Known reports whether Offline converts objects of this kind.
func Known(gvk schema.GroupVersionKind) bool {
	if gvk.Version == V1Beta1 {
		_, known := kindOf(gvk.GroupKind())
		return known
	}
	return gvk == provisionerKind || gvk == templateKind || gvk == machineKind
}

// Offline converts the objects of some files to v1, all of them together: a kubelet's configuration goes from pools to the
// classes that they name. Objects of other kinds and versions are looked at and left out of the answer.
func Offline(objects []map[string]any, o Options) ([]*Converted, error) {
	var all []*Converted
	for doc, object := range objects {
		made, err := o.one(doc, clone(object).(tree))
		if err != nil {
			err.Doc = doc
			return nil, err
		}
		all = append(all, made...)
	}
	return settleKubelets(all, objects), nil
}

func (o Options) one(doc int, object tree) ([]*Converted, *OfflineError) {
	gvk := schema.FromAPIVersionAndKind(textAt(object, "apiVersion"), textAt(object, "kind"))
	switch {
	case gvk == provisionerKind:
		return o.provisioner(doc, object)
	case gvk == templateKind:
		c := &Converted{Doc: doc, Object: freshObject(object, awsv1.GroupVersion.String(), awsv1.Kind)}
		err := o.template(c, treeAt(object, "spec"), []string{"spec"})
		return []*Converted{c}, err
	case gvk == machineKind:
		c := &Converted{Doc: doc}
		c.note(false, nil, nil, "Machines are not converted: nodes get NodeClaims from their NodePool")
		return []*Converted{c}, nil
	case gvk.Version == V1Beta1 && Known(gvk):
		return o.beta(doc, object, gvk)
	}
	return nil, nil
}

// freshObject is a new object with what people write about an old one.
func freshObject(old tree, apiVersion, kind string) tree {
	return tree{"apiVersion": apiVersion, "kind": kind, "metadata": freshMetadata(old)}
}

// machineWritten are annotations that programs wrote onto old objects.
var machineWritten = []string{
	"kubectl.kubernetes.io/last-applied-configuration", v1.NodePoolHashAnnotationKey, v1.NodePoolHashVersionAnnotationKey,
	awsv1.AnnotationNodeClassHash, awsv1.AnnotationNodeClassHashVersion, v1.Group + "/provisioner-hash",
	awsv1.Group + "/nodetemplate-hash",
	v1.NodeClassReferenceAnnotationKey, v1.KubeletCompatibilityAnnotationKey, v1.V1FieldsAnnotationKey, v1.V1Beta1FieldsAnnotationKey,
	v1.StoredVersionMigratedAnnotationKey,
}

func freshMetadata(old tree) tree {
	out := tree{}
	for _, field := range []string{"name", "labels", "annotations", "finalizers"} {
		if value, ok := at(old, "metadata", field); ok {
			out[field] = value
		}
	}
	if all := treeAt(out, "annotations"); all != nil {
		for _, key := range machineWritten {
			delete(all, key)
		}
		if len(all) == 0 {
			delete(out, "annotations")
		}
	}
	return out
}

// beta converts an object of v1beta1 that has its defaults.
func (o Options) beta(doc int, object tree, gvk schema.GroupVersionKind) ([]*Converted, *OfflineError) {
	c := &Converted{Doc: doc}
	origin := clone(object).(tree)
	if gvk.Kind == awsv1.Kind {
		if err := o.oneIdentity(c, treeAt(object, "spec")); err != nil {
			return nil, err
		}
	}
	k, _ := kindOf(gvk.GroupKind())
	out := k.toV1(object)
	if err := expire(out, nil); err != nil {
		return nil, &OfflineError{Text: err.Error()}
	}
	changed := textAt(out, annotations(awsv1.AnnotationUbuntu)...)
	c.Object = tree{"apiVersion": schema.GroupVersion{Group: gvk.Group, Version: "v1"}.String(), "kind": gvk.Kind,
		"metadata": freshMetadata(out), "spec": out["spec"]}
	switch gvk.Kind {
	case "NodePool":
		c.origin = path("spec.template.spec.kubelet")
		c.kubelet, _ = at(origin, c.origin...)
		c.move(path("spec.disruption.expireAfter"), path("spec.template.spec.expireAfter"))
		c.aboutExpiry(path("spec.disruption.expireAfter"))
	case "NodeClaim":
		c.origin = path("spec.kubelet")
		c.kubelet, _ = at(origin, c.origin...)
	case awsv1.Kind:
		c.move(path("spec.amiFamily"), path("spec.amiSelectorTerms"))
		takeAnnotation(c.Object, awsv1.AnnotationUbuntu)
		c.aboutUbuntu(changed)
	}
	return []*Converted{c}, nil
}

// oneIdentity keeps one of role and instanceProfile.
func (o Options) oneIdentity(c *Converted, spec tree) *OfflineError {
	_, role := at(spec, "role")
	_, profile := at(spec, "instanceProfile")
	if !role || !profile {
		return nil
	}
	other := map[string]string{"role": "instanceProfile", "instanceProfile": "role"}[o.Prefer]
	if other == "" {
		return &OfflineError{At: path("spec.instanceProfile"),
			Text: "spec.role and spec.instanceProfile are both set; delete one of the lines, or say --prefer role or " +
				"--prefer instanceProfile"}
	}
	delete(spec, other)
	c.note(true, []string{"spec", other}, []string{"spec", o.Prefer},
		"%s is left out: exactly one of role and instanceProfile may be set", other)
	return nil
}

// aboutExpiry warns of nodes that go young: up to v1 a node that expired waited for its replacement, for budgets and for pods.
func (c *Converted) aboutExpiry(from []string) {
	age, ok := at(c.Object, path("spec.template.spec.expireAfter")...)
	if d, err := v1.ParseNillableDuration(fmt.Sprint(age)); ok && err == nil && d.Duration != nil && d.Hours() < 24 {
		c.note(false, from, path("spec.template.spec.expireAfter"),
			"in v1 a node is removed at this age whatever budgets and do-not-disrupt say")
	}
}

func (c *Converted) aboutUbuntu(changed string) {
	if changed == "" {
		return
	}
	c.note(false, path("spec.amiFamily"), path("spec.amiFamily"),
		"amiFamily Ubuntu is AL2 with Ubuntu's images; its root disk is written down")
	if strings.Contains(changed, awsv1.UbuntuIncompatible) {
		c.note(true, path("spec.amiFamily"), path("spec.amiSelectorTerms"),
			"there is no alias for Ubuntu: select its images by id, name or tags")
	}
}

// settleKubelets puts what pools say about the kubelet of their nodes where v1 has it: on the class that they name. Pools that differ get
// classes of their own. A class that is in no file cannot be written to: the pool keeps its configuration in the annotation that
// counts before the class's.
func settleKubelets(all []*Converted, objects []map[string]any) []*Converted {
	users := poolsByClass(all, objects)
	for _, name := range slices.Sorted(maps.Keys(users)) {
		class := classNamed(all, name)
		var own []*Converted // pools that need another kubelet than the class will have
		settled := false
		for _, pool := range users[name] {
			switch {
			case pool.kubelet == nil:
			case class == nil:
				pool.keepKubelet()
			case !settled && uniform(users[name]) && treeAt(class.Object, "spec", "kubelet") == nil:
				class.setKubelet(pool)
				settled = true
			case settled && same(pool.kubelet, treeAt(class.Object, "spec", "kubelet")):
			default:
				own = append(own, pool)
			}
		}
		for _, pool := range own {
			all = append(all, class.cloneFor(pool))
		}
	}
	for _, c := range all {
		if c.kubelet != nil && c.Object != nil && textAt(c.Object, "kind") == "NodeClaim" {
			c.keepKubelet()
		}
	}
	return all
}

// poolsByClass lists the pools that name each class, also those that are of v1 already and say nothing about a kubelet.
func poolsByClass(all []*Converted, objects []map[string]any) map[string][]*Converted {
	users := map[string][]*Converted{}
	add := func(c *Converted) {
		if name := textAt(c.Object, path("spec.template.spec.nodeClassRef.name")...); name != "" &&
			textAt(c.Object, "kind") == "NodePool" {
			users[name] = append(users[name], c)
		}
	}
	for _, c := range all {
		add(c)
	}
	for _, o := range objects {
		if textAt(o, "apiVersion") == v1.GroupVersion.String() {
			add(&Converted{Object: o})
		}
	}
	return users
}

func classNamed(all []*Converted, name string) *Converted {
	i := slices.IndexFunc(all, func(c *Converted) bool {
		return textAt(c.Object, "kind") == awsv1.Kind && textAt(c.Object, "metadata", "name") == name
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// uniform reports whether all pools want the same kubelet.
func uniform(pools []*Converted) bool {
	return !slices.ContainsFunc(pools, func(c *Converted) bool { return !same(c.kubelet, pools[0].kubelet) })
}

func (c *Converted) setKubelet(pool *Converted) {
	put(c.Object, clone(pool.kubelet), "spec", "kubelet")
	c.Moves = append(c.Moves, Move{To: path("spec.kubelet"), Doc: pool.Doc, From: pool.origin})
	pool.Gone = append(pool.Gone, pool.origin)
}

// keepKubelet leaves the configuration with the object that had it.
func (c *Converted) keepKubelet() {
	put(c.Object, string(asJSON(c.kubelet)), annotations(v1.KubeletCompatibilityAnnotationKey)...)
	c.note(false, c.origin, []string{"metadata", "annotations"},
		"the kubelet's configuration belongs to the EC2NodeClass, which these files do not have: write it there as "+
			"spec.kubelet and drop this annotation")
}

// cloneFor makes a class for one pool whose nodes need another kubelet than those of other pools.
func (c *Converted) cloneFor(pool *Converted) *Converted {
	name := textAt(c.Object, "metadata", "name") + "-" + textAt(pool.Object, "metadata", "name")
	out := &Converted{Doc: c.Doc, Object: clone(c.Object).(tree), Moves: slices.Clone(c.Moves)}
	put(out.Object, name, "metadata", "name")
	out.setKubelet(pool)
	out.note(false, nil, path("metadata.name"), "made because the pools of EC2NodeClass %s want different kubelets",
		textAt(c.Object, "metadata", "name"))
	put(pool.Object, name, path("spec.template.spec.nodeClassRef.name")...)
	pool.note(false, pool.origin, path("spec.template.spec.nodeClassRef.name"), "a class of its own, with this pool's kubelet")
	return out
}
