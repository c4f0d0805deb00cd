package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
)

// Pods that get single devices by claims cost what they cost when a resource counts the devices, and it is proven as closely.
func TestDevicesCostWhatAResourceCosts(t *testing.T) {
	const story = `Devices by %s.

-- settings --
devices=true
-- shapes --
plain  cpu=16 mem=64Gi  od=0.4
one    cpu=8  mem=32Gi  od=1   spot=0.6 gpu=1 device=gpu.example:1:model:a|uuid
thick  cpu=64 mem=256Gi od=3.2 spot=2.1 gpu=1 device=gpu.example:1:model:b|uuid
four   cpu=48 mem=192Gi od=3.9 spot=2.2 gpu=4 device=gpu.example:4:model:a|uuid
eight  cpu=96 mem=384Gi od=9   spot=4   gpu=8 device=gpu.example:8:model:b|uuid
-- objects --
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example'"}}]}
---
kind: ResourceClaimTemplate
metadata: {name: gpu1, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
---
kind: ResourceClaimTemplate
metadata: {name: gpu3, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: 3}}]}}}
-- pods --
%s
-- want --
`
	for name, pods := range map[string]string{
		"small pods":            "a x40 cpu=1 mem=4Gi GPU1",
		"pods that need memory": "a x40 cpu=2 mem=40Gi GPU1",
		"pods that need cores":  "a x40 cpu=20 mem=8Gi GPU1",
		"several at once":       "a x9 cpu=1 mem=4Gi GPU3\nb x14 cpu=4 mem=8Gi GPU1",
		"beside others":         "a x9 cpu=1 mem=4Gi GPU1\nweb x30 cpu=3 mem=4Gi",
	} {
		t.Run(name, func(t *testing.T) {
			byResource := planOf(t, fmt.Sprintf(story, "a resource", strings.ReplaceAll(pods, "GPU", "gpu=")))
			byClaim := planOf(t, fmt.Sprintf(story, "claims", strings.ReplaceAll(pods, "GPU", "template=gpu")))
			if byClaim.Price != byResource.Price || byClaim.ConfigBound != byResource.ConfigBound || len(byClaim.Refused) > 0 {
				t.Errorf("by claims %v, no less than %v; by a resource %v, no less than %v; %d refused", byClaim.Price, byClaim.ConfigBound, byResource.Price, byResource.ConfigBound, len(byClaim.Refused))
			}
		})
	}
}

func planOf(t *testing.T, story string) *engine.Plan {
	t.Helper()
	return engine.New(zones).Plan(asked(t, []byte(story)))
}

// TestWhatBecomesOfAClaimBetweenPlans asks one engine twice, about pods of which one wants devices. In between something happens to what that one
// refers to. The other pod gets its place both times.
func TestWhatBecomesOfAClaimBetweenPlans(t *testing.T) {
	const class = `
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example'"}}]}
---`
	template := func(count int) string {
		return fmt.Sprintf(`
kind: ResourceClaimTemplate
metadata: {name: gpus, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: %d}}]}}}
---`, count)
	}
	const claim = `
kind: ResourceClaim
metadata: {name: mine, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
%s
---`
	const elsewhere = `status:
  allocation: {devices: {results: [{request: r, driver: gpu.example, pool: far, device: g}]}, nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [far]}]}]}}
  reservedFor: [{apiGroup: batch, resource: jobs, name: other, uid: other}]`
	free := fmt.Sprintf(claim, "")
	for name, tc := range map[string]struct {
		before, after string // objects
		pods          string
		first, then   string // what is opened, and for whom; who is refused, and for what
	}{
		"nothing happens":                  {class + template(1), class + template(1), "job template=gpus", "one: job; plain: web", "one: job; plain: web"},
		"its device class goes":            {class + template(1), template(1), "job template=gpus", "one: job; plain: web", "plain: web; job: DeviceClassMissing"},
		"its device class comes":           {template(1), class + template(1), "job template=gpus", "plain: web; job: DeviceClassMissing", "one: job; plain: web"},
		"its template asks for two":        {class + template(1), class + template(2), "job template=gpus", "one: job; plain: web", "four: web, job"},
		"its template asks for less":       {class + template(4), class + template(1), "job template=gpus", "four: web, job", "one: job; plain: web"},
		"its template goes":                {class + template(1), class, "job template=gpus", "one: job; plain: web", "plain: web; job: TemplateMissing"},
		"its claim goes":                   {class + free, class, "job claim=mine", "one: job; plain: web", "plain: web; job: Missing"},
		"its claim is allocated to others": {class + free, class + fmt.Sprintf(claim, elsewhere), "job claim=mine", "one: job; plain: web", "plain: web; job: InUseElsewhere"},
		"a pod of its claim fits nowhere":  {class + free, class + free, "job claim=mine\nhuge cpu=500 claim=mine", "one: job; plain: web; huge: DoesNotFit", "one: job; plain: web; huge: DoesNotFit"},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine.New(zones)
			for i, objects := range []string{tc.before, tc.after} {
				got := said(e.Plan(asked(t, []byte(fmt.Sprintf("Claims.\n\n-- settings --\ndevices=true\n-- shapes --\nplain cpu=16 mem=64Gi od=0.4\none cpu=8 mem=32Gi od=1 device=gpu.example:1:model:a|uuid\nfour cpu=48 mem=192Gi od=3.9 device=gpu.example:4:model:a|uuid\n-- objects --\n%s\n-- pods --\nweb cpu=12\n%s\n-- want --\n", strings.TrimSuffix(strings.TrimSpace(objects), "---"), strings.Replace(tc.pods, " ", " cpu=1 ", 1))))))
				if want := []string{tc.first, tc.then}[i]; got != want {
					t.Errorf("plan %d: %s\nwant %s", i+1, got, want)
				}
			}
		})
	}
}

// said is what a plan opens, and for whom, and who is refused, and why.
func said(p *engine.Plan) string {
	var out []string
	for _, o := range p.Open {
		var names []string
		for _, pod := range o.Pods {
			names = append(names, strings.TrimSuffix(pod.Name, "-1"))
		}
		out = append(out, o.Types[0]+": "+strings.Join(names, ", "))
	}
	for _, r := range p.Refused {
		why := r.Reasons[0].Code.Name()
		if f := r.Reasons[0].Flaw; f != reason.NoFlaw {
			why = f.Name()
		}
		out = append(out, strings.TrimSuffix(r.Pod.Name, "-1")+": "+why)
	}
	slices.Sort(out[:len(p.Open)])
	return strings.Join(out, "; ")
}
