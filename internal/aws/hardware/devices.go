package hardware

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// Drivers of dynamic resource allocation, by the names under which they publish.
const (
	nvidiaDriver = "gpu.nvidia.com"
	neuronDriver = "neuron.aws.com"
)

// nvidiaGPUs are the attributes that the driver gives to the GPUs that EC2 sells, by EC2's names.
var nvidiaGPUs = map[string]struct{ architecture, capability string }{
	"K80":                 {"Kepler", "3.7.0"},
	"M60":                 {"Maxwell", "5.2.0"},
	"V100":                {"Volta", "7.0.0"},
	"T4":                  {"Turing", "7.5.0"},
	"T4g":                 {"Turing", "7.5.0"},
	"A100":                {"Ampere", "8.0.0"},
	"A10G":                {"Ampere", "8.6.0"},
	"L4":                  {"Ada Lovelace", "8.9.0"},
	"L40S":                {"Ada Lovelace", "8.9.0"},
	"H100":                {"Hopper", "9.0.0"},
	"H200":                {"Hopper", "9.0.0"},
	"B200":                {"Blackwell", "10.0.0"},
	"B300":                {"Blackwell", "10.3.0"},
	"RTX PRO 4500":        {"Blackwell", "12.0.0"},
	"RTX PRO Server 6000": {"Blackwell", "12.0.0"},
}

// nvidiaLater and neuronLater are the attributes whose values are known only once the machine exists. The product's name
// is one, because the driver and EC2 use different names. The memory of a GPU is one, because the driver publishes only
// what the firmware leaves of it.
var (
	nvidiaLater = []string{"uuid", "minor", "productName", "brand", "driverVersion", "cudaDriverVersion", "pcieBusID",
		"addressingMode", "memory",
		"resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot"}
	neuronLater = []string{"deviceId", "serial", "neuronDriverVersion", "driverVersion", "instanceType", "topology",
		"topology_x", "topology_y", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot",
		"resource.aws.com/devicegroup1_id", "resource.aws.com/devicegroup4_id", "resource.aws.com/devicegroup8_id",
		"resource.aws.com/devicegroup16_id"}
)

// deviceSlices returns the devices that drivers of dynamic resource allocation will publish on a machine.
func deviceSlices(t *awsdata.InstanceType) (out []cloud.DeviceSlice) {
	gpus := cloud.DeviceSlice{Driver: nvidiaDriver, Later: nvidiaLater}
	if t.GPU != nil {
		for _, g := range t.GPU.GPUs {
			for range g.Count { // a slice of a GPU is none that the driver publishes
				if g.Manufacturer == "NVIDIA" {
					gpus.Devices = append(gpus.Devices, nvidia(len(gpus.Devices), g))
				}
			}
		}
	}
	if len(gpus.Devices) > 0 {
		out = append(out, gpus)
	}
	neurons := cloud.DeviceSlice{Driver: neuronDriver, Later: neuronLater}
	if t.Neuron != nil {
		for _, d := range t.Neuron.Devices {
			if d.Name == "Inferentia" {
				continue // the driver knows the second generation and later ones
			}
			for range d.Count {
				neurons.Devices = append(neurons.Devices, resourcev1.Device{Name: fmt.Sprintf("neurondevice%d", len(neurons.Devices))})
			}
		}
	}
	if len(neurons.Devices) > 0 {
		out = append(out, neurons)
	}
	return out
}

// nvidia returns the device for GPU number n of a machine.
func nvidia(n int, g awsdata.GPU) resourcev1.Device {
	d := resourcev1.Device{Name: fmt.Sprintf("gpu-%d", n),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": {StringValue: new("gpu")}}}
	if known, ok := nvidiaGPUs[g.Name]; ok {
		d.Attributes["architecture"] = resourcev1.DeviceAttribute{StringValue: &known.architecture}
		d.Attributes["cudaComputeCapability"] = resourcev1.DeviceAttribute{VersionValue: &known.capability}
	}
	return d
}
