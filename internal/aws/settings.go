package aws

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"

	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/kit/setting"
)

// Settings of the provider.
type Settings struct {
	ClusterName     string
	ClusterEndpoint string // "" to ask EKS
	ClusterCABundle string // base64; "" for that of the API client
	EKSControlPlane bool   // EKS tells the cluster's version
	IsolatedVPC     bool   // neither price list nor IAM's clean-up can be reached
	PriceFile       string // prices to begin with, "" for those that ship with Karpenter

	hardware.Settings // ReservedENIs, VMMemoryOverheadPercent

	InterruptionQueue     string // "" for none
	ReplaceOnRebalance    bool   // rebalance recommendations drift spot machines
	DisableDryRun         bool
	EnableZonalShift      bool
	AMIRefreshInterval    time.Duration
	SubnetRefreshInterval time.Duration
	GroupRefreshInterval  time.Duration // of security groups
	Gates                 GateSettings
	// ReservedCapacity and NodeOverlay are feature gates of the core.
	ReservedCapacity, NodeOverlay bool
	Spot                          SpotSettings
	AllOfferings                  bool // metrics tell prices and availability of all that NodePools may buy
	// V1Beta1 is set while the core supports v1beta1: kubelet configurations that it left in annotations of NodePools are used.
	V1Beta1 bool
}

// GateSettings are the feature gates of the provider that are not about machines' kubelets.
type GateSettings struct {
	RebootForRepair bool // machines are rebooted whose GPU a reboot may mend
	// Unknown are gates that are switched on without code behind them. The log names them when the program starts.
	Unknown []string
}

// SpotSettings are those of the core about spot machines.
type SpotSettings struct {
	Types            int // that a launch may choose from; 0 is the default
	InterruptionCost float64
}

// DefaultSettings returns the settings that apply unless others are given.
func DefaultSettings() Settings {
	return Settings{
		Settings:           hardware.Settings{VMMemoryOverheadPercent: hardware.DefaultVMMemoryOverheadPercent},
		AMIRefreshInterval: time.Minute, SubnetRefreshInterval: time.Minute, GroupRefreshInterval: time.Minute,
		ReservedCapacity: true,
	}
}

// List describes the settings for flags and environment.
func (s *Settings) List() []setting.Setting {
	return []setting.Setting{
		setting.String(&s.ClusterName, "cluster-name", "Name of the cluster that machines join; required."),
		setting.String(&s.ClusterEndpoint, "cluster-endpoint", "URL of the API server for nodes; asked of EKS if empty."),
		setting.String(&s.ClusterCABundle, "cluster-ca-bundle",
			"Certificate authority of the API server in base64; that of the controller's own client if empty."),
		setting.Bool(&s.EKSControlPlane, "eks-control-plane", "Ask EKS, not the API server, for the cluster's version."),
		setting.Bool(&s.IsolatedVPC, "isolated-vpc",
			"The VPC reaches no public endpoints: prices are not refreshed and instance profiles not cleaned up."),
		setting.String(&s.PriceFile, "price-file",
			"File of prices that karpenter prices fetch wrote, instead of those that ship with Karpenter until AWS answers; with "+
				"isolated-vpc for good."),
		setting.Float(&s.VMMemoryOverheadPercent, "vm-memory-overhead-percent",
			"Share of a machine's memory that its node does not see; 0.075 is 7.5 %."),
		setting.String(&s.InterruptionQueue, "interruption-queue", "Name of the SQS queue with interruption messages; none if empty."),
		setting.Bool(&s.ReplaceOnRebalance, "replace-on-rebalance",
			"Replace a spot machine for which EC2 recommends to rebalance: the replacement starts first, within budgets for Drifted. "+
				"Needs interruption-queue."),
		setting.Int(&s.ReservedENIs, "reserved-enis", "Network interfaces of each machine that are not for pods."),
		setting.Bool(&s.DisableDryRun, "disable-dry-run", "Do not try permissions when an EC2NodeClass is validated."),
		setting.Bool(&s.EnableZonalShift, "enable-zonal-shift",
			"Follow ARC zonal shifts: nothing is launched, stopped or replaced in a zone while traffic is shifted away "+
				"from it. ARC must manage the cluster."),
		setting.Duration(&s.AMIRefreshInterval, "ami-refresh-interval", "How often images are asked for."),
		setting.Duration(&s.SubnetRefreshInterval, "subnet-refresh-interval", "How often subnets are asked for."),
		setting.Duration(&s.GroupRefreshInterval, "security-group-refresh-interval", "How often security groups are asked for."),
		setting.Bool(&s.AllOfferings, "all-offering-metrics",
			"Metrics of prices and availability for all that NodePools may buy, which are megabytes at each scrape; otherwise for the "+
				"instance types of the fleet and for what is sold out."),
		setting.Func("aws-feature-gates", celGate+"=false,"+rebootGate+"=false",
			"Features of the provider to switch on or off.", s.readGates),
	}
}

// Gates of the provider: numbers of the kubelet's configuration that depend on the machine, and reboots of machines whose GPU a reboot
// may mend.
const (
	celGate    = "NodeClassCEL"
	rebootGate = "RebootForRepair"
)

// readGates reads the provider's feature gates. Unknown gates that are switched on are kept for the log.
func (s *Settings) readGates(text string) error {
	return setting.Gates(text, func(gate string, on bool) error {
		switch {
		case gate == celGate:
			s.Formulas = on
		case gate == rebootGate:
			s.Gates.RebootForRepair = on
		case on:
			s.Gates.Unknown = append(s.Gates.Unknown, gate)
		}
		return nil
	})
}

// Validate returns all errors in the settings.
func (s *Settings) Validate() error {
	var errs []error
	if s.ClusterName == "" {
		errs = append(errs, errors.New("cluster-name is required"))
	}
	if s.ClusterEndpoint != "" {
		if u, err := url.Parse(s.ClusterEndpoint); err != nil || !u.IsAbs() || u.Host == "" {
			errs = append(errs, fmt.Errorf("cluster-endpoint %q is no absolute URL", s.ClusterEndpoint))
		}
	}
	if _, err := base64.StdEncoding.DecodeString(s.ClusterCABundle); err != nil {
		errs = append(errs, errors.New("cluster-ca-bundle is not base64"))
	}
	if s.VMMemoryOverheadPercent < 0 {
		errs = append(errs, errors.New("vm-memory-overhead-percent must not be negative"))
	}
	if s.ReservedENIs < 0 {
		errs = append(errs, errors.New("reserved-enis must not be negative"))
	}
	if s.AMIRefreshInterval < time.Minute {
		errs = append(errs, errors.New("ami-refresh-interval must be at least 1m"))
	}
	if s.SubnetRefreshInterval < time.Minute {
		errs = append(errs, errors.New("subnet-refresh-interval must be at least 1m"))
	}
	if s.GroupRefreshInterval < time.Minute {
		errs = append(errs, errors.New("security-group-refresh-interval must be at least 1m"))
	}
	return errors.Join(errs...)
}
