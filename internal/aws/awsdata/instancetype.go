package awsdata

// An InstanceType is what this project reads of one entry of EC2's DescribeInstanceTypes answer, under EC2's names.
type InstanceType struct {
	Name                string `json:"InstanceType"`
	BareMetal           bool
	Hypervisor          string
	UsageClasses        []string `json:"SupportedUsageClasses"`
	VirtualizationTypes []string `json:"SupportedVirtualizationTypes"`
	NitroEnclaves       string   `json:"NitroEnclavesSupport"`
	Processor           struct {
		Manufacturer  string
		Architectures []string `json:"SupportedArchitectures"`
		Features      []string `json:"SupportedFeatures"`
		ClockGHz      float64  `json:"SustainedClockSpeedInGhz"`
	} `json:"ProcessorInfo"`
	VCPU struct {
		Default int `json:"DefaultVCpus"`
	} `json:"VCpuInfo"`
	Memory    MiB       `json:"MemoryInfo"`
	Storage   *Storage  `json:"InstanceStorageInfo"`
	EBS       EBS       `json:"EbsInfo"`
	Network   Network   `json:"NetworkInfo"`
	GPU       *GPUInfo  `json:"GpuInfo"`
	Neuron    *Neuron   `json:"NeuronInfo"`
	Inference *Devices  `json:"InferenceAcceleratorInfo"`
	FPGA      *struct{} `json:"FpgaInfo"`
	Media     *struct{} `json:"MediaAcceleratorInfo"`
	Placement struct {
		Strategies []string `json:"SupportedStrategies"`
	} `json:"PlacementGroupInfo"`
}

// MiB is a size of memory.
type MiB struct {
	MiB int64 `json:"SizeInMiB"`
}

// Storage is the disks that come with the machine.
type Storage struct {
	TotalGB int64  `json:"TotalSizeInGB"`
	NVMe    string `json:"NvmeSupport"`
	Disks   []struct {
		Count int
	}
}

// EBS says how volumes attach.
type EBS struct {
	Optimized     string `json:"EbsOptimizedSupport"`
	OptimizedInfo struct {
		MaxMbps int64 `json:"MaximumBandwidthInMbps"`
	} `json:"EbsOptimizedInfo"`
	AttachmentLimit string `json:"AttachmentLimitType"` // shared with network interfaces, or dedicated
	MaxAttachments  int    `json:"MaximumEbsAttachments"`
}

// Network is the interfaces and their limits.
type Network struct {
	Performance         string `json:"NetworkPerformance"`
	ENA                 string `json:"EnaSupport"`
	EncryptionInTransit bool   `json:"EncryptionInTransitSupported"`
	DefaultCard         int    `json:"DefaultNetworkCardIndex"`
	MaxInterfaces       int    `json:"MaximumNetworkInterfaces"`
	IPv4PerInterface    int    `json:"Ipv4AddressesPerInterface"`
	Cards               []Card `json:"NetworkCards"`
	EFA                 struct {
		Max int `json:"MaximumEfaInterfaces"`
	} `json:"EfaInfo"`
}

// A Card is one network card.
type Card struct {
	Index         int     `json:"NetworkCardIndex"`
	MaxInterfaces int     `json:"MaximumNetworkInterfaces"`
	BaselineGbps  float64 `json:"BaselineBandwidthInGbps"`
}

// GPUInfo is the GPUs of a machine.
type GPUInfo struct {
	GPUs []GPU `json:"Gpus"`
}

// A GPU is one kind of GPU in a machine.
type GPU struct {
	Name, Manufacturer string
	Count              int
	Logical            int `json:"LogicalGpuCount"`
	Memory             MiB `json:"MemoryInfo"`
}

// Neuron is the Inferentia and Trainium devices of a machine.
type Neuron struct {
	Devices []NeuronDevice `json:"NeuronDevices"`
}

// A NeuronDevice is one kind of Neuron device in a machine.
type NeuronDevice struct {
	Name  string
	Count int
	Core  struct {
		Count int
	} `json:"CoreInfo"`
}

// Devices is the inference accelerators of a machine.
type Devices struct {
	Accelerators []Accelerator
}

// An Accelerator is one kind of inference accelerator in a machine.
type Accelerator struct {
	Name, Manufacturer string
	Count              int
}
