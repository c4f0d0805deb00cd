package podclass_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

func cpu(q string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
}

func example() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: "image", Env: []corev1.EnvVar{{Name: "A", Value: "1"}},
				Resources: corev1.ResourceRequirements{Requests: cpu("1")},
				Ports:     []corev1.ContainerPort{{ContainerPort: 80}},
			}},
			NodeSelector: map[string]string{"b": "2", "a": "1"},
			Volumes:      []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

func daemon(node string) *corev1.Pod {
	p := example()
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds"}}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "os", Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}},
			MatchFields:      []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}}
	return p
}

func TestClassesAreEqualInputs(t *testing.T) {
	change := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := example()
		edit(p)
		return p
	}
	for name, tc := range map[string]struct {
		a, b *corev1.Pod
		same bool
	}{
		"copies": {example(), example(), true},
		"other name, labels, image, env and plain ports": {example(), change(func(p *corev1.Pod) {
			p.Name, p.Labels = "b", nil
			c := &p.Spec.Containers[0]
			c.Image, c.Env, c.Ports, c.Name = "other", nil, nil, "other"
		}), true},
		"the same quantity in other words": {example(), change(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = cpu("1000m")
		}), true},
		"volumes that bind to nothing":    {example(), change(func(p *corev1.Pod) { p.Spec.Volumes = nil }), true},
		"daemon pods of one set":          {daemon("n1"), daemon("n2"), true},
		"another namespace":               {example(), change(func(p *corev1.Pod) { p.Namespace = "other" }), false},
		"other requests":                  {example(), change(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = cpu("2") }), false},
		"another node selector":           {example(), change(func(p *corev1.Pod) { p.Spec.NodeSelector["a"] = "3" }), false},
		"a host port":                     {example(), change(func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 80 }), false},
		"a toleration":                    {example(), change(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }), false},
		"a claim for a persistent volume": {example(), change(func(p *corev1.Pod) { p.Spec.Volumes[0].VolumeSource = pvc("data") }), false},
		"an init container instead of a container": {example(), change(func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			in := podclass.NewInterner()
			if got := in.Class(tc.a) == in.Class(tc.b); got != tc.same {
				t.Errorf("one class: %v, want %v", got, tc.same)
			}
		})
	}
}

func pvc(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

func TestClassIsACopy(t *testing.T) {
	p := example()
	c := podclass.NewInterner().Class(p)
	p.Spec.NodeSelector["a"] = "changed"
	if got := c.Spec.NodeSelector["a"]; got != "1" {
		t.Errorf("the class changed with the pod: %q", got)
	}
}

func TestDaemonPodsKeepTheirOwnTerms(t *testing.T) {
	c := podclass.NewInterner().Class(daemon("n1"))
	terms := c.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchFields) != 0 || len(terms[0].MatchExpressions) != 1 {
		t.Errorf("terms = %v, want the one of the template without the node's name", terms)
	}
}

func TestResizeCountsTheLarger(t *testing.T) {
	for name, tc := range map[string]struct {
		spec, status string
		refused      bool
		want         string
	}{
		"growing":                     {spec: "3", status: "1", want: "3"},
		"shrinking":                   {spec: "1", status: "3", want: "3"},
		"no status":                   {spec: "2", want: "2"},
		"growing, refused for good":   {spec: "3", status: "1", refused: true, want: "1"},
		"shrinking, refused for good": {spec: "1", status: "3", refused: true, want: "3"},
	} {
		t.Run(name, func(t *testing.T) {
			p := example()
			p.Spec.Containers[0].Resources.Requests = cpu(tc.spec)
			if tc.status != "" {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Resources: &corev1.ResourceRequirements{}, AllocatedResources: cpu(tc.status)}}
			}
			if tc.refused {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
			}
			c := podclass.NewInterner().Class(p)
			if got := c.Spec.Containers[0].Resources.Requests.Cpu().String(); got != tc.want {
				t.Errorf("requests = %s, want %s", got, tc.want)
			}
			if got := p.Spec.Containers[0].Resources.Requests.Cpu().String(); got != tc.spec {
				t.Errorf("the pod itself was changed to %s", got)
			}
			q := example()
			q.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu(tc.spec)}
			if q.Status.Conditions = p.Status.Conditions; tc.status != "" {
				q.Status.Resources, q.Status.AllocatedResources = &corev1.ResourceRequirements{}, cpu(tc.status)
			}
			if got := podclass.NewInterner().Class(q).Spec.Resources.Requests.Cpu().String(); got != tc.want {
				t.Errorf("requests of the pod as a whole = %s, want %s", got, tc.want)
			}
			if got := q.Spec.Resources.Requests.Cpu().String(); got != tc.spec {
				t.Errorf("the pod as a whole was changed to %s", got)
			}
		})
	}
}

// A pod that is resized as a whole is of another class from then on.
func TestResizedPodsAreOfAnotherClass(t *testing.T) {
	in := podclass.NewInterner()
	p := example()
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("1")}
	before := in.Class(p)
	p.Status.Resources = &corev1.ResourceRequirements{Requests: cpu("3")}
	if in.Class(p) == before {
		t.Error("it is of the same class while it holds more than it asks for")
	}
	p.Status.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	if in.Class(p) != before {
		t.Error("what it does not ask for as a whole makes it another class")
	}
}

func TestLabels(t *testing.T) {
	in := podclass.NewInterner()
	a := in.Labels(map[string]string{"a": "1", "b": "2"})
	if in.Labels(map[string]string{"b": "2", "a": "1"}) != a {
		t.Error("equal label sets are two")
	}
	if in.Labels(map[string]string{"a": "1b", "": "2"}) == a || in.Labels(nil) == a {
		t.Error("different label sets are one")
	}
}

func TestWhatNobodyHoldsIsForgotten(t *testing.T) {
	in := podclass.NewInterner()
	keep, labels := in.Class(example()), in.Labels(nil)
	var highest uint32
	for i := range 20_000 {
		p := example()
		p.Spec.NodeSelector["job"] = fmt.Sprint(i)
		c, l := in.Class(p), in.Labels(map[string]string{"job": fmt.Sprint(i)})
		if c.ID <= highest {
			t.Fatalf("ID %d was given again", c.ID)
		}
		highest = c.ID
		in.Release(c, l)
	}
	if classes, sets := in.Len(); classes > 5000 || sets > 5000 {
		t.Errorf("%d classes and %d label sets are remembered, want few", classes, sets)
	}
	if in.Class(example()) != keep || in.Labels(map[string]string{}) != labels {
		t.Error("what was held has been forgotten")
	}
}

func BenchmarkClass(b *testing.B) {
	in := podclass.NewInterner()
	p := example()
	in.Class(p)
	b.ReportAllocs()
	for b.Loop() {
		in.Class(p)
	}
}
