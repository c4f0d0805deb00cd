package hardware

import (
	"testing"

	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/kit/selector"
)

func TestDevicesThatDriversPublish(t *testing.T) {
	byName := map[string]*awsdata.InstanceType{}
	for _, it := range awsdata.Types() {
		byName[it.Name] = it
		if it.GPU != nil {
			for _, g := range it.GPU.GPUs {
				if _, known := nvidiaGPUs[g.Name]; g.Manufacturer == "NVIDIA" && !known {
					t.Errorf("%s: nothing is known of GPU %q", it.Name, g.Name)
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		machine, driver, selector string
		want                      int
	}{
		"eight A100":                   {"p4d.24xlarge", nvidiaDriver, "device.attributes['gpu.nvidia.com'].architecture == 'Ampere'", 8},
		"by type, as the class does":   {"g5.12xlarge", nvidiaDriver, "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'", 4},
		"by what CUDA can do":          {"g6.xlarge", nvidiaDriver, "device.attributes['gpu.nvidia.com'].cudaComputeCapability.compareTo(semver('8.9.0')) >= 0", 1},
		"no slice of a GPU":            {"g6f.large", nvidiaDriver, "true", 0},
		"nothing of another maker":     {"g4ad.2xlarge", nvidiaDriver, "true", 0},
		"Trainium":                     {"trn1.32xlarge", neuronDriver, "device.driver == 'neuron.aws.com'", 16},
		"Inferentia, the second":       {"inf2.24xlarge", neuronDriver, "true", 6},
		"Inferentia, the first":        {"inf1.24xlarge", neuronDriver, "true", 0},
		"a machine without any device": {"m5.large", nvidiaDriver, "true", 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for _, s := range deviceSlices(byName[tc.machine]) {
				for i := range s.Devices {
					yes, err := selector.Selects(tc.selector, s.Driver, &s.Devices[i])
					if err != nil {
						t.Fatal(err)
					}
					if yes && s.Driver == tc.driver {
						n++
					}
				}
			}
			if n != tc.want {
				t.Errorf("%d devices, want %d", n, tc.want)
			}
		})
	}
}
