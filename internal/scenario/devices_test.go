package scenario

import (
	"fmt"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/core/engine"
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
