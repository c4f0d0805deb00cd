package looptest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	awsclass "karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
	"karpenter.sh/karpenter/internal/ui/cli"
)

// A user types commands of kubectl and karpenter, as far as karpenter prints them, and has a ReplicaSet for each Deployment.
type user struct {
	*world
	types  []string // that the commands know, as the model of AWS does
	gauges prometheus.Collector
	serial int
	known  map[string]*cloud.Catalog // by zones of the class
}

// karpenter runs a command and returns its exit code and what it prints.
func (u *user) karpenter(args ...string) (code int, out, trouble string) {
	u.t.Helper()
	var o, e bytes.Buffer
	env := cli.Env{Out: &o, Err: &e, CheckClass: awsclass.Check, Catalog: u.catalog,
		Source:  func(m cli.Market) (cli.Source, error) { return cli.Source{Region: m.Region}, nil },
		Cluster: func(string) (client.Client, error) { return u.API.Client("user"), nil },
		Leader:  u.leader,
	}
	code = cli.Run(u.t.Context(), env, args)
	return code, o.String(), e.String()
}

// catalog is the catalogue that ships with Karpenter.
func (u *user) catalog(m cli.Market, nc *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
	o := offline.Options{Region: m.Region, Class: nc, Settings: hardware.Settings{Formulas: true}}
	if nc != nil {
		for _, s := range nc.Status.Subnets {
			o.Zones = append(o.Zones, s.Zone)
		}
	}
	key := strings.Join(o.Zones, " ")
	if c := u.known[key]; c != nil {
		return c, nil
	}
	c, err := offline.Catalog(o)
	if err != nil {
		return nil, err
	}
	if u.known == nil {
		u.known = map[string]*cloud.Catalog{}
	}
	u.known[key] = &cloud.Catalog{Types: slices.DeleteFunc(slices.Clone(c.Types), func(it *cloud.InstanceType) bool {
		return !slices.ContainsFunc(u.types, func(p string) bool { ok, _ := path.Match(p, it.Name); return ok })
	})}
	return u.known[key], nil
}

// leader is the controller's port of metrics.
func (u *user) leader(_ context.Context, _, what string, _ url.Values) (io.ReadCloser, error) {
	if what != "metrics" {
		return nil, fmt.Errorf("there is no %s here", what)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(u.gauges)
	all, err := r.Gather()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, f := range all {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(&text), nil
}

// word is a word of a shell, perhaps in single quotes.
var word = regexp.MustCompile(`'[^']*'|[^ ']+`)

// typed runs a line as a shell would, as far as karpenter prints such lines.
func (u *user) typed(line string) {
	u.t.Helper()
	line, input, _ := strings.Cut(line, " <<'EOF'\n")
	for _, command := range strings.Split(line, " && ") {
		replaced := strings.HasSuffix(command, " | kubectl replace --force -f -")
		words := word.FindAllString(strings.TrimSuffix(command, " | kubectl replace --force -f -"), -1)
		for i := range words {
			words[i] = strings.Trim(words[i], "'")
		}
		switch {
		case words[0] == "karpenter":
			if code, _, trouble := u.karpenter(words[1:]...); code != 0 {
				u.t.Fatalf("%s: %d, %s", command, code, trouble)
			}
		case words[0] != "kubectl":
			u.t.Fatalf("what is %q?", command)
		case words[1] == "apply":
			u.apply(strings.TrimSuffix(input, "EOF"))
		default:
			u.kubectl(words[1], words[2:], replaced)
		}
	}
	u.controllers()
}

// objectOf is an empty object of a kind.
func (u *user) objectOf(kind string) client.Object {
	known := map[string]client.Object{
		"pod": &corev1.Pod{}, "node": &corev1.Node{}, "nodepool": &v1.NodePool{}, "nodeclaim": &v1.NodeClaim{}, "pdb": &policyv1.PodDisruptionBudget{},
		"deployment": &appsv1.Deployment{}, "statefulset": &appsv1.StatefulSet{},
	}
	if known[kind] == nil {
		u.t.Fatalf("what is a %q?", kind)
	}
	return known[kind]
}

// kubectl changes one object.
func (u *user) kubectl(verb string, args []string, recreate bool) {
	u.t.Helper()
	flags, rest := map[string]string{}, []string{}
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-n" || args[i] == "-p" || args[i] == "-o":
			flags[args[i]] = args[i+1]
			i++
		case strings.HasPrefix(args[i], "--"):
			name, value, _ := strings.Cut(args[i], "=")
			flags[name] = value
		default:
			rest = append(rest, args[i])
		}
	}
	c, o := u.API.Client("user"), u.objectOf(rest[0])
	check := func(err error) {
		if err != nil {
			u.t.Fatalf("kubectl %s %q: %v", verb, args, err)
		}
	}
	check(c.Get(u.t.Context(), client.ObjectKey{Namespace: flags["-n"], Name: rest[1]}, o))
	switch verb {
	case "delete":
		check(c.Delete(u.t.Context(), o))
	case "annotate":
		all := o.GetAnnotations()
		delete(all, strings.TrimSuffix(rest[2], "-"))
		o.SetAnnotations(all)
		check(c.Update(u.t.Context(), o))
	case "taint":
		key, effect, _ := strings.Cut(strings.TrimSuffix(rest[2], "-"), ":")
		n := o.(*corev1.Node)
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && string(t.Effect) == effect })
		check(c.Update(u.t.Context(), n))
	case "patch":
		patch, err := jsonpatch.DecodePatch([]byte(flags["-p"]))
		check(err)
		text, err := json.Marshal(o)
		check(err)
		text, err = patch.Apply(text)
		check(err)
		to := u.objectOf(rest[0])
		check(json.Unmarshal(text, to))
		if !recreate {
			check(c.Update(u.t.Context(), to))
			return
		}
		check(c.Delete(u.t.Context(), o))
		to.SetResourceVersion("")
		to.SetUID("")
		time.Sleep(time.Second) // until it is gone
		check(c.Create(u.t.Context(), to))
	default:
		u.t.Fatalf("kubectl %s?", verb)
	}
}

// apply creates a volume claim.
func (u *user) apply(text string) {
	u.t.Helper()
	o := &corev1.PersistentVolumeClaim{}
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		u.t.Fatalf("%v in\n%s", err, text)
	}
	o.Spec.StorageClassName = new("gp3") // as admission does
	u.API.Put(o)
}

// controllers are those of Deployments and of PodDisruptionBudgets.
func (u *user) controllers() {
	for _, d := range memapi.All[*appsv1.Deployment](u.API) {
		set, ok := sim.Find[*appsv1.ReplicaSet](u.World, d.Name)
		if !ok || equality.Semantic.DeepEqual(set.Spec.Template, d.Spec.Template) {
			continue
		}
		set.Spec.Template = *d.Spec.Template.DeepCopy()
		u.API.Put(set)
		for _, p := range memapi.All[*corev1.Pod](u.API) {
			if owner := metav1.GetControllerOf(p); owner != nil && owner.Name == d.Name {
				memapi.Edit(u.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
				sim.Delete(u.t, u.World, p)
				u.podOf(d)
			}
		}
	}
	for _, b := range memapi.All[*policyv1.PodDisruptionBudget](u.API) {
		selected, healthy := 0, 0
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			u.t.Fatal(err)
		}
		for _, p := range memapi.All[*corev1.Pod](u.API) {
			if s.Matches(labels.Set(p.Labels)) {
				selected++
				if p.Status.Phase == corev1.PodRunning {
					healthy++
				}
			}
		}
		desired := 0
		if b.Spec.MinAvailable != nil {
			desired = b.Spec.MinAvailable.IntValue()
		} else {
			desired = selected - b.Spec.MaxUnavailable.IntValue()
		}
		memapi.Edit(u.API, b.Namespace, b.Name, func(b *policyv1.PodDisruptionBudget) {
			b.Status.ExpectedPods, b.Status.CurrentHealthy, b.Status.DisruptionsAllowed = int32(selected), int32(healthy), int32(max(0, healthy-desired))
		})
	}
}

// deployment makes a Deployment, its ReplicaSet and a pod.
func (u *user) deployment(name, cpus string, edits ...func(*corev1.PodSpec)) {
	like := sim.Pod(name, cpus)
	for _, edit := range edits {
		edit(&like.Spec)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "d"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: like.Labels}
	d.Spec.Template.Labels, d.Spec.Template.Spec = like.Labels, like.Spec
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "rs",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: "d", Controller: new(true)}}}}
	set.Spec.Template = *d.Spec.Template.DeepCopy()
	u.API.Put(d)
	u.API.Put(set)
	u.podOf(d)
}

func (u *user) podOf(d *appsv1.Deployment) {
	u.serial++
	p := sim.Pod(fmt.Sprintf("%s-%d", d.Name, u.serial), "1", sim.OwnedBy(d.Name))
	p.Labels, p.Spec = d.Spec.Template.Labels, *d.Spec.Template.Spec.DeepCopy()
	u.API.Put(p)
}
