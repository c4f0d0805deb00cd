package buffer

import (
	"math"
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
		note Code
	}{
		"replicas":                                  {spec{PodTemplateRef: web, Replicas: new(int32(7))}, Source{Template: one}, 7, 0},
		"no replicas":                               {spec{PodTemplateRef: web, Replicas: new(int32(0))}, Source{Template: one}, 0, NoPods},
		"replicas above the limits":                 {spec{PodTemplateRef: web, Replicas: new(int32(10)), Limits: quota("cpu", "3500m")}, Source{Template: one}, 3, Limited},
		"replicas below the limits":                 {spec{PodTemplateRef: web, Replicas: new(int32(2)), Limits: quota("cpu", "10")}, Source{Template: one}, 2, 0},
		"limits alone":                              {spec{PodTemplateRef: web, Limits: quota("cpu", "5")}, Source{Template: one}, 5, 0},
		"the smallest of several limits":            {spec{PodTemplateRef: web, Limits: quota("cpu", "5", "memory", "2500Mi")}, Source{Template: one}, 2, 0},
		"limits of what nobody requests":            {spec{PodTemplateRef: web, Replicas: new(int32(4)), Limits: quota("gpu", "1")}, Source{Template: one}, 4, 0},
		"nothing but such limits":                   {spec{PodTemplateRef: web, Limits: quota("gpu", "1")}, Source{Template: one}, 0, OtherLimits},
		"a limit below one pod":                     {spec{PodTemplateRef: web, Limits: quota("cpu", "999m")}, Source{Template: one}, 0, BelowOne},
		"a limit of nothing":                        {spec{PodTemplateRef: web, Replicas: new(int32(4)), Limits: quota("cpu", "0")}, Source{Template: one}, 0, BelowOne},
		"thousandths are exact":                     {spec{PodTemplateRef: web, Limits: quota("cpu", "300m")}, Source{Template: template(container(amounts("cpu", "100m"), nil))}, 3, 0},
		"more than an int64 of thousandths":         {spec{PodTemplateRef: web, Limits: quota("memory", "80Pi")}, Source{Template: template(container(amounts("memory", "10Pi"), nil))}, 8, 0},
		"init containers and sidecars count":        {spec{PodTemplateRef: web, Limits: quota("cpu", "8")}, Source{Template: withInit}, 2, 0},
		"limits of containers stand for requests":   {spec{PodTemplateRef: web, Limits: quota("cpu", "8")}, Source{Template: template(container(nil, amounts("cpu", "2")))}, 4, 0},
		"a percentage":                              {spec{ScalableRef: shop, Percentage: new(int32(20))}, Source{Template: one, Replicas: 10}, 2, 0},
		"a percentage is rounded up":                {spec{ScalableRef: shop, Percentage: new(int32(21))}, Source{Template: one, Replicas: 10}, 3, 0},
		"a small percentage is one pod":             {spec{ScalableRef: shop, Percentage: new(int32(1))}, Source{Template: one, Replicas: 2}, 1, 0},
		"more than a hundred percent":               {spec{ScalableRef: shop, Percentage: new(int32(250))}, Source{Template: one, Replicas: 4}, 10, 0},
		"zero percent":                              {spec{ScalableRef: shop, Percentage: new(int32(0))}, Source{Template: one, Replicas: 4}, 0, NoPods},
		"a percentage of nothing":                   {spec{ScalableRef: shop, Percentage: new(int32(50))}, Source{Template: one}, 0, PartOfNothing},
		"a percentage of nothing, and limits":       {spec{ScalableRef: shop, Percentage: new(int32(50)), Limits: quota("cpu", "3")}, Source{Template: one}, 3, 0},
		"the larger of replicas and percentage":     {spec{ScalableRef: shop, Replicas: new(int32(3)), Percentage: new(int32(50))}, Source{Template: one, Replicas: 10}, 5, 0},
		"the larger of percentage and replicas":     {spec{ScalableRef: shop, Replicas: new(int32(8)), Percentage: new(int32(50))}, Source{Template: one, Replicas: 10}, 8, 0},
		"the larger of both, within limits":         {spec{ScalableRef: shop, Replicas: new(int32(8)), Percentage: new(int32(50)), Limits: quota("cpu", "6")}, Source{Template: one, Replicas: 10}, 6, Limited},
		"a workload and nothing that says how many": {spec{ScalableRef: shop}, Source{Template: one, Replicas: 10}, 0, NothingAsked},
		"a percentage means nothing for a template": {spec{PodTemplateRef: web, Replicas: new(int32(2)), Percentage: new(int32(500))}, Source{Template: one}, 2, 0},
		"as many as a buffer may have":              {spec{PodTemplateRef: web, Replicas: new(int32(Most))}, Source{Template: one}, Most, 0},
		"one more than a buffer may have":           {spec{PodTemplateRef: web, Replicas: new(int32(Most + 1))}, Source{Template: one}, Most, TooMany},
		"a number that somebody mistyped":           {spec{PodTemplateRef: web, Replicas: new(int32(math.MaxInt32))}, Source{Template: one}, Most, TooMany},
		"two large numbers that are multiplied":     {spec{ScalableRef: shop, Percentage: new(int32(math.MaxInt32))}, Source{Template: one, Replicas: math.MaxInt32}, Most, TooMany},
		"limits that are larger than any number":    {spec{PodTemplateRef: web, Limits: quota("cpu", "9E")}, Source{Template: template(container(amounts("cpu", "1m"), nil))}, Most, TooMany},
	} {
		t.Run(name, func(t *testing.T) {
			ask, flaw := Resolve(&autoscalingv1beta1.CapacityBuffer{Spec: tc.spec}, tc.from)
			if flaw != nil {
				t.Fatal(flaw)
			}
			if len(ask.Pods) != tc.want || ask.Note.Code != tc.note {
				t.Errorf("%d pods, note %d; want %d, %d", len(ask.Pods), ask.Note.Code, tc.want, tc.note)
			}
		})
	}
}

func TestAllBuffersTogetherHaveALimit(t *testing.T) {
	ask := Ask{Pods: make([]*corev1.Pod, 7), Note: Note{Code: Limited}}
	for others, want := range map[int]struct {
		pods int
		note Note
	}{
		0:             {7, Note{Code: Limited}},
		MostOfAll - 7: {7, Note{Code: Limited}},
		MostOfAll - 6: {6, Note{Code: TooManyOfAll, Fit: 6, Wanted: 7}},
		MostOfAll + 1: {0, Note{Code: TooManyOfAll, Wanted: 7}},
	} {
		if got := ask.Beside(others); len(got.Pods) != want.pods || got.Note != want.note {
			t.Errorf("beside %d others: %d pods, %+v; want %d, %+v", others, len(got.Pods), got.Note, want.pods, want.note)
		}
	}
}

func TestANoteSaysTheNumbers(t *testing.T) {
	limits := spec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: "web"}, Replicas: new(int32(10)), Limits: quota("cpu", "3500m")}
	ask, _ := Resolve(&autoscalingv1beta1.CapacityBuffer{Spec: limits}, Source{Template: template(container(amounts("cpu", "1"), nil))})
	n := ask.Note
	if n.Limit.String() != "3500m" || n.Request.String() != "1" || n.Resource != "cpu" || n.Fit != 3 || n.Wanted != 10 {
		t.Errorf("note = %+v", n)
	}
}

func TestWhatIsWrong(t *testing.T) {
	shop, web := &autoscalingv1beta1.ScalableRef{Kind: "Deployment", Name: "shop"}, &autoscalingv1beta1.LocalObjectRef{Name: "web"}
	for name, tc := range map[string]struct {
		spec spec
		want Flaw
	}{
		"nothing is named":             {spec{Replicas: new(int32(1))}, Flaw{Code: NothingNamed}},
		"both are named":               {spec{PodTemplateRef: web, ScalableRef: shop, Replicas: new(int32(1))}, Flaw{Code: BothNamed}},
		"a template without a number":  {spec{PodTemplateRef: web, Percentage: new(int32(5))}, Flaw{Code: NoNumber}},
		"negative replicas":            {spec{PodTemplateRef: web, Replicas: new(int32(-3))}, Flaw{Negative, "spec.replicas", "-3"}},
		"a negative percentage":        {spec{ScalableRef: shop, Percentage: new(int32(-3))}, Flaw{Negative, "spec.percentage", "-3"}},
		"a negative limit":             {spec{ScalableRef: shop, Limits: quota("cpu", "-1")}, Flaw{Negative, "spec.limits.cpu", "-1"}},
		"a template without container": {spec{PodTemplateRef: web, Replicas: new(int32(1))}, Flaw{Code: NoContainers}},
	} {
		t.Run(name, func(t *testing.T) {
			_, flaw := Resolve(&autoscalingv1beta1.CapacityBuffer{Spec: tc.spec}, Source{Template: template()})
			if flaw == nil || *flaw != tc.want || flaw.Reason() != autoscalingv1beta1.ReasonResolutionFailed {
				t.Errorf("flaw = %+v, want %+v", flaw, tc.want)
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
		tally  Tally
		fits   bool
		reason string
	}{
		"all have room":              {Tally{Ready: 3}, true, autoscalingv1beta1.ReasonFitsExistingCapacity},
		"some are on their way":      {Tally{Ready: 1, Coming: 2}, false, autoscalingv1beta1.ReasonRequiresNewCapacity},
		"some have none":             {Tally{Ready: 1, None: 2, Why: "limit"}, false, autoscalingv1beta1.ReasonRequiresNewCapacity},
		"a buffer that asks nothing": {Tally{}, false, autoscalingv1beta1.ReasonBufferEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			if fits, reason := tc.tally.Verdict(); fits != tc.fits || reason != tc.reason {
				t.Errorf("Verdict = %v %s", fits, reason)
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
		"a kind without a template":   {"Cache", map[string]any{"size": int64(3)}, nil, 1, "Cache x"},
		"a template of another shape": {"Cache", map[string]any{"template": map[string]any{"spec": map[string]any{"containers": "none"}}}, nil, 1, "Cache x"},
		"a template that is a text":   {"Cache", map[string]any{"template": "web"}, nil, 1, "Cache x"},
		"a number that is a text":     {"Cache", map[string]any{"replicas": "3", "template": good}, nil, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{"kind": tc.kind, "metadata": map[string]any{"name": "x"}, "spec": tc.spec}}
			if tc.status != nil {
				o.Object["status"] = tc.status
			}
			template, flaw := TemplateOf(o)
			if flaw == nil != (tc.flaw == "") || flaw != nil && (flaw.Code != NoTemplate || flaw.Name != tc.flaw) {
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
