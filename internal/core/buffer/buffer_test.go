package buffer

import (
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
)

type (
	spec = autoscalingv1beta1.CapacityBufferSpec
	list = autoscalingv1beta1.ResourceList
)

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func quota(pairs ...string) list {
	out := list{}
	for name, q := range amounts(pairs...) {
		out[autoscalingv1beta1.ResourceName(name)] = q
	}
	return out
}

func template(containers ...corev1.Container) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers}}
}

func TestHowManyPods(t *testing.T) {
	one := template(container(amounts("cpu", "1", "memory", "1Gi"), nil))
	always := corev1.ContainerRestartPolicyAlways
	withInit := template(container(amounts("cpu", "1"), nil))
	withInit.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "1")}}, container(amounts("cpu", "3"), nil)}
	shop := &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "shop"}
	web := &autoscalingv1beta1.LocalObjectRef{Name: "web"}
	for name, tc := range map[string]struct {
		spec spec
		from Source
		want int
		note string
	}{
		"replicas":                                  {spec{PodTemplateRef: web, Replicas: new(int32(7))}, Source{Template: one}, 7, ""},
		"no replicas":                               {spec{PodTemplateRef: web, Replicas: new(int32(0))}, Source{Template: one}, 0, "asks for no pods"},
		"replicas above the limits":                 {spec{PodTemplateRef: web, Replicas: new(int32(10)), Limits: quota("cpu", "3500m")}, Source{Template: one}, 3, "enough for 3 of 10"},
		"replicas below the limits":                 {spec{PodTemplateRef: web, Replicas: new(int32(2)), Limits: quota("cpu", "10")}, Source{Template: one}, 2, ""},
		"limits alone":                              {spec{PodTemplateRef: web, Limits: quota("cpu", "5")}, Source{Template: one}, 5, ""},
		"the smallest of several limits":            {spec{PodTemplateRef: web, Limits: quota("cpu", "5", "memory", "2500Mi")}, Source{Template: one}, 2, ""},
		"limits of what nobody requests":            {spec{PodTemplateRef: web, Replicas: new(int32(4)), Limits: quota("gpu", "1")}, Source{Template: one}, 4, ""},
		"nothing but such limits":                   {spec{PodTemplateRef: web, Limits: quota("gpu", "1")}, Source{Template: one}, 0, "no resource that a pod requests"},
		"a limit below one pod":                     {spec{PodTemplateRef: web, Limits: quota("cpu", "999m")}, Source{Template: one}, 0, "allows 999m of cpu and one pod requests 1"},
		"a limit of nothing":                        {spec{PodTemplateRef: web, Replicas: new(int32(4)), Limits: quota("cpu", "0")}, Source{Template: one}, 0, "raise it"},
		"thousandths are exact":                     {spec{PodTemplateRef: web, Limits: quota("cpu", "300m")}, Source{Template: template(container(amounts("cpu", "100m"), nil))}, 3, ""},
		"more than an int64 of thousandths":         {spec{PodTemplateRef: web, Limits: quota("memory", "80Pi")}, Source{Template: template(container(amounts("memory", "10Pi"), nil))}, 8, ""},
		"init containers and sidecars count":        {spec{PodTemplateRef: web, Limits: quota("cpu", "8")}, Source{Template: withInit}, 2, ""},
		"limits of containers stand for requests":   {spec{PodTemplateRef: web, Limits: quota("cpu", "8")}, Source{Template: template(container(nil, amounts("cpu", "2")))}, 4, ""},
		"a percentage":                              {spec{ScalableRef: shop, Percentage: new(int32(20))}, Source{Template: one, Replicas: 10}, 2, ""},
		"a percentage is rounded up":                {spec{ScalableRef: shop, Percentage: new(int32(21))}, Source{Template: one, Replicas: 10}, 3, ""},
		"a small percentage is one pod":             {spec{ScalableRef: shop, Percentage: new(int32(1))}, Source{Template: one, Replicas: 2}, 1, ""},
		"more than a hundred percent":               {spec{ScalableRef: shop, Percentage: new(int32(250))}, Source{Template: one, Replicas: 4}, 10, ""},
		"zero percent":                              {spec{ScalableRef: shop, Percentage: new(int32(0))}, Source{Template: one, Replicas: 4}, 0, "asks for no pods"},
		"a percentage of nothing":                   {spec{ScalableRef: shop, Percentage: new(int32(50))}, Source{Template: one}, 0, "no replicas"},
		"a percentage of nothing, and limits":       {spec{ScalableRef: shop, Percentage: new(int32(50)), Limits: quota("cpu", "3")}, Source{Template: one}, 3, ""},
		"the larger of replicas and percentage":     {spec{ScalableRef: shop, Replicas: new(int32(3)), Percentage: new(int32(50))}, Source{Template: one, Replicas: 10}, 5, ""},
		"the larger of percentage and replicas":     {spec{ScalableRef: shop, Replicas: new(int32(8)), Percentage: new(int32(50))}, Source{Template: one, Replicas: 10}, 8, ""},
		"the larger of both, within limits":         {spec{ScalableRef: shop, Replicas: new(int32(8)), Percentage: new(int32(50)), Limits: quota("cpu", "6")}, Source{Template: one, Replicas: 10}, 6, "6 of 8"},
		"a workload and nothing that says how many": {spec{ScalableRef: shop}, Source{Template: one, Replicas: 10}, 0, "spec.percentage"},
		"a percentage means nothing for a template": {spec{PodTemplateRef: web, Replicas: new(int32(2)), Percentage: new(int32(500))}, Source{Template: one}, 2, ""},
		"a number that somebody mistyped":           {spec{PodTemplateRef: web, Replicas: new(int32(math.MaxInt32))}, Source{Template: one}, Most, "the most for one buffer"},
		"two large numbers that are multiplied":     {spec{ScalableRef: shop, Percentage: new(int32(math.MaxInt32))}, Source{Template: one, Replicas: math.MaxInt32}, Most, "the most for one buffer"},
		"limits that are larger than any number":    {spec{PodTemplateRef: web, Limits: quota("cpu", "9E")}, Source{Template: template(container(amounts("cpu", "1m"), nil))}, Most, "the most for one buffer"},
	} {
		t.Run(name, func(t *testing.T) {
			ask, flaw := Resolve(&autoscalingv1beta1.CapacityBuffer{Spec: tc.spec}, tc.from)
			if flaw != nil {
				t.Fatal(flaw)
			}
			if len(ask.Pods) != tc.want || !strings.Contains(ask.Note, tc.note) || tc.note == "" && ask.Note != "" {
				t.Errorf("%d pods, %q; want %d, %q", len(ask.Pods), ask.Note, tc.want, tc.note)
			}
		})
	}
}

func TestWhatIsWrong(t *testing.T) {
	shop, web := &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "shop"}, &autoscalingv1beta1.LocalObjectRef{Name: "web"}
	for name, tc := range map[string]struct {
		spec spec
		want string
	}{
		"nothing is named":             {spec{Replicas: new(int32(1))}, "spec.podTemplateRef"},
		"both are named":               {spec{PodTemplateRef: web, ScalableRef: shop, Replicas: new(int32(1))}, "remove one"},
		"a template without a number":  {spec{PodTemplateRef: web, Percentage: new(int32(5))}, "set spec.replicas"},
		"negative replicas":            {spec{PodTemplateRef: web, Replicas: new(int32(-3))}, "-3"},
		"a negative percentage":        {spec{ScalableRef: shop, Percentage: new(int32(-3))}, "spec.percentage is -3"},
		"a negative limit":             {spec{ScalableRef: shop, Limits: quota("cpu", "-1")}, "spec.limits.cpu is -1"},
		"a template without container": {spec{PodTemplateRef: web, Replicas: new(int32(1))}, "no containers"},
	} {
		t.Run(name, func(t *testing.T) {
			_, flaw := Resolve(&autoscalingv1beta1.CapacityBuffer{Spec: tc.spec}, Source{Template: template()})
			if flaw == nil || !strings.Contains(flaw.Message, tc.want) || flaw.Reason != autoscalingv1beta1.ReasonResolutionFailed {
				t.Errorf("flaw = %+v, want %q", flaw, tc.want)
			}
		})
	}
}

func TestWhatThePodsAreLike(t *testing.T) {
	from := template(container(nil, amounts("cpu", "2")))
	from.Labels, from.Annotations = map[string]string{"app": "web"}, map[string]string{"karpenter.sh/do-not-disrupt": "true"}
	from.Spec.NodeName, from.Spec.NodeSelector = "somewhere", map[string]string{"disk": "ssd"}
	from.Spec.Volumes = []corev1.Volume{
		{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	b := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "spare", UID: "u"}, Spec: spec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: "web"}, Replicas: new(int32(2))}}
	before := from.DeepCopy()
	ask, flaw := Resolve(b, Source{Template: from})
	if flaw != nil || len(ask.Pods) != 2 {
		t.Fatalf("%d pods, flaw %v", len(ask.Pods), flaw)
	}
	for i, p := range ask.Pods {
		if want := []string{"capacity-buffer:spare-1", "capacity-buffer:spare-2"}[i]; p.Name != want || p.Namespace != "shop" || p.UID != types.UID([]string{"u-1", "u-2"}[i]) {
			t.Errorf("pod %d is %s/%s, UID %s", i, p.Namespace, p.Name, p.UID)
		}
		if p.Spec.NodeName != "" || p.Spec.NodeSelector["disk"] != "ssd" || len(p.Spec.Volumes) != 1 || p.Labels["app"] != "web" {
			t.Errorf("pod %d = %+v", i, p.Spec)
		}
		if a := p.Annotations; len(a) != 3 || a["karpenter.sh/capacity-buffer-fake-pod"] != "true" || a["karpenter.sh/capacity-buffer-name"] != "spare" || a["karpenter.sh/capacity-buffer-namespace"] != "shop" {
			t.Errorf("annotations = %v", a)
		}
		if q := p.Spec.Containers[0].Resources.Requests["cpu"]; q.String() != "2" {
			t.Errorf("pod %d requests %v", i, p.Spec.Containers[0].Resources.Requests)
		}
	}
	if before.String() != from.String() {
		t.Error("the template was changed")
	}
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		tally   Tally
		note    string
		fits    bool
		reason  string
		message string
	}{
		"all have room":              {Tally{Ready: 3}, "", true, autoscalingv1beta1.ReasonFitsExistingCapacity, "3 of 3 pods have room on nodes that run"},
		"some are on their way":      {Tally{Ready: 1, Coming: 2}, "", false, autoscalingv1beta1.ReasonRequiresNewCapacity, "1 of 3 pods have room on nodes that run; 2 on nodes that are on their way"},
		"some have none":             {Tally{Ready: 1, None: 2, Why: "limit"}, "", false, autoscalingv1beta1.ReasonRequiresNewCapacity, "1 of 3 pods have room on nodes that run; 2 have none: limit"},
		"what the owner is to know":  {Tally{Ready: 2}, "fewer", true, autoscalingv1beta1.ReasonFitsExistingCapacity, "2 of 2 pods have room on nodes that run; fewer"},
		"a buffer that asks nothing": {Tally{}, "why", false, autoscalingv1beta1.ReasonBufferEmpty, "why"},
	} {
		t.Run(name, func(t *testing.T) {
			fits, reason, message := Verdict(tc.tally, tc.note)
			if fits != tc.fits || reason != tc.reason || message != tc.message {
				t.Errorf("Verdict = %v %s %q", fits, reason, message)
			}
		})
	}
}

func TestWorkloads(t *testing.T) {
	containers := []any{map[string]any{"name": "c", "resources": map[string]any{"requests": map[string]any{"cpu": "1"}}}}
	good := map[string]any{"spec": map[string]any{"containers": containers}}
	for name, tc := range map[string]struct {
		kind     string
		spec     map[string]any
		status   map[string]any
		replicas int32
		flaw     string
	}{
		"a Deployment":                {"Deployment", map[string]any{"replicas": int64(4), "template": good}, nil, 4, ""},
		"one that says no number":     {"Deployment", map[string]any{"template": good}, nil, 1, ""},
		"a Job":                       {"Job", map[string]any{"parallelism": int64(3), "template": good}, nil, 3, ""},
		"a Job that has ended":        {"Job", map[string]any{"parallelism": int64(3), "template": good}, map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}, 0, ""},
		"a Job that is suspended":     {"Job", map[string]any{"suspend": true, "template": good}, nil, 0, ""},
		"a kind without a template":   {"Cache", map[string]any{"size": int64(3)}, nil, 1, "has no pod template at spec.template"},
		"a template of another shape": {"Cache", map[string]any{"template": map[string]any{"spec": map[string]any{"containers": "none"}}}, nil, 1, "has no pod template"},
		"a template that is a text":   {"Cache", map[string]any{"template": "web"}, nil, 1, "has no pod template"},
		"a number that is a text":     {"Cache", map[string]any{"replicas": "3", "template": good}, nil, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{"kind": tc.kind, "metadata": map[string]any{"name": "x"}, "spec": tc.spec}}
			if tc.status != nil {
				o.Object["status"] = tc.status
			}
			template, flaw := TemplateOf(o)
			if flaw == nil != (tc.flaw == "") || flaw != nil && !strings.Contains(flaw.Message, tc.flaw) {
				t.Fatalf("flaw = %v, want %q", flaw, tc.flaw)
			}
			if flaw == nil && template.Spec.Containers[0].Resources.Requests.Cpu().Value() != 1 {
				t.Errorf("template = %+v", template)
			}
			if got := ReplicasOf(o); got != tc.replicas {
				t.Errorf("%d replicas, want %d", got, tc.replicas)
			}
		})
	}
}
