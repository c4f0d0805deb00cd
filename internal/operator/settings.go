package operator

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Settings are all settings of the program. DefaultSettings returns the defaults; the zero value is not usable.
type Settings struct {
	Service string // name of the Kubernetes service; the service of the conversion webhook is named after it

	Serve ServeSettings

	DisableObservability bool // no metrics about single nodes, pods and pools, and none about conditions
	HistoricMetrics      bool // metrics also have the names of earlier releases
	Log                  telemetry.LogSettings

	Client         ClientSettings
	LeaderElection LeaderElectionSettings
	DisableWarmup  bool  // a standby starts to watch only when it is elected
	MemoryLimit    int64 // bytes; 0 or less is no limit
	CPURequests    int   // millicores, scales the number of workers

	Batch            BatchSettings
	Scheduling       SchedulingSettings
	Gates            Gates
	LegacyNodeRepair bool // broken nodes are repaired at once and by force, as before 1.15
	Hints            HintSettings
	Disruption       DisruptionSettings
	Journal          JournalSettings
	RecordDir        string // folder for the pods that came and went; "" for none
	Stories          string // folder for scenarios in which pods are not bound although there is room for them; "" for none
	Older            OlderSettings
}

// ServeSettings say what the program serves, where, and who may read it.
type ServeSettings struct {
	MetricsPort, HealthProbePort int    // 0: no listener
	Host                         string // address of both; "" is all addresses, since kubelets and Prometheus are on other machines
	UIPort                       int    // of the page; 0: no listener
	UIHost                       string // where the page listens; a reader on another machine needs a token there
	MetricsAuthentication        bool   // the API server decides who may read the metrics port
	EnableProfiling              bool
}

// JournalSettings say where decisions and costs are kept over restarts; without any, decisions are in memory only.
type JournalSettings struct {
	Dir       string // folder for what was decided
	ConfigMap string // for the newest decisions and what the fleet cost
	Ledger    LedgerSettings
}

// LedgerSettings say whether and where the ledger of costs is kept.
type LedgerSettings struct {
	ConfigMaps string   // the name of the ConfigMaps that keep it, without their number; "" for no ledger
	Labels     []string // keys of labels of pods by which costs can be read
	OpenCost   bool     // nodes have metrics under OpenCost's names, with or without a ledger
}

// mostLedgerLabels is how many labels the ledger may have: each one divides its rows further.
const mostLedgerLabels = 2

// ClientSettings limit the rate of requests to the API server.
type ClientSettings struct {
	QPS, Burst int
}

// LeaderElectionSettings say how replicas agree on who acts.
type LeaderElectionSettings struct {
	Disabled        bool
	Name, Namespace string // of the lease; without a namespace, the program's own is used
}

// BatchSettings say how long pods are collected before they are planned for.
type BatchSettings struct {
	Idle, Max time.Duration
}

// SchedulingSettings change what the engine does.
type SchedulingSettings struct {
	IgnorePreferences   bool
	AssumeRequests      bool // containers without requests count when new nodes are sized
	MinValuesBestEffort bool
	Devices             bool // resource claims are planned for
	DefaultSpread       []corev1.TopologySpreadConstraint
	SpotTypes           int     // how many instance types a spot launch names, if as many are cheap enough
	ImportCommitments   string  // the part of the account's commitments that this cluster counts on; "" imports nothing
	Foresight           bool    // room is kept for pods that are announced
	LearnQuantile       float64 // the part of the days on which the learned room was enough, which decides how much room is kept
	NodePrice           float64 // in dollars an hour, what decisions add for each node
	InterruptionCost    float64 // in dollars, what it costs when a spot machine is taken back; 0: nothing
}

// Gates are the feature gates.
type Gates struct {
	NodeRepair, ReservedCapacity, SpotToSpotConsolidation, NodeOverlay, StaticCapacity bool
	CapacityBuffer, CommitmentDiscounts, CapacityQuota, PodDeletionCostManagement      bool
	RolloutPolicies                                                                    bool
	// With these gates a node goes before its replacement comes if there can be none beside it.
	TerminateFirstDrift, TerminateFirstRepair bool
	// Unknown are the names that are switched on without code behind them. The log names them when the program starts.
	Unknown []string
}

// HintSettings say whether kube-scheduler gets hints where pods are meant to go.
type HintSettings struct {
	Enabled bool
	// HoldTaint keeps the taint of unregistered nodes until they are ready, so that the hint comes at the right moment. It has
	// no effect in clusters with a DaemonSet on the host's network that does not tolerate the taint: nodes may need it.
	HoldTaint bool
}

// DisruptionSettings limit the harm that disruption can do.
type DisruptionSettings struct {
	Breaker BreakerSettings
	Surge   SurgeSettings
}

// BreakerSettings say when voluntary disruption stops because too much of what is new does not get ready.
type BreakerSettings struct {
	Percent       int // of new machines or moved pods that may fail; 0: disruption never stops
	Window, Pause time.Duration
}

// SurgeSettings say whether pods that must not go without a successor move by a restart of their Deployment.
type SurgeSettings struct {
	Enabled bool
	Saving  float64 // what consolidation must save in dollars an hour for each Deployment that is restarted
}

// OlderSettings configure the API version before v1.
type OlderSettings struct {
	V1Beta1 string // none, serve or drop
	Port    int    // of the conversion webhook
	URL     string // of the webhook, if the API server does not reach it by a Service
	// Provisioners configures the handling of Provisioners and AWSNodeTemplates.
	Provisioners string // ignore, tell or convert
}

// SupportsV1Beta1 reports whether objects of v1beta1 are served or being rewritten.
func (o OlderSettings) SupportsV1Beta1() bool { return o.V1Beta1 != olderNone }

// What OlderSettings.V1Beta1 may be.
const (
	olderNone  = "none"  // The definitions are left alone.
	olderServe = "serve" // v1beta1 is served beside v1.
	olderDrop  = "drop"  // What is stored as v1beta1 is rewritten, and v1beta1 is dropped.
)

// What OlderSettings.Provisioners may be.
const (
	provisionersIgnore  = "ignore"
	provisionersTell    = "tell"    // Each says in a condition what it would be today.
	provisionersConvert = "convert" // What each would be today is kept in step with it.
)

// breakerReady is how long a machine, or a pod, may take to get ready before the breaker counts it as failed.
const breakerReady = 5 * time.Minute

// DefaultSettings returns the settings that are used if the user sets nothing.
func DefaultSettings() Settings {
	return Settings{
		Serve:          ServeSettings{MetricsPort: 8080, HealthProbePort: 8081, UIHost: "127.0.0.1"},
		Log:            telemetry.LogSettings{Level: "info", Paths: []string{"stdout"}, ErrorPaths: []string{"stderr"}},
		Client:         ClientSettings{QPS: 200, Burst: 300},
		LeaderElection: LeaderElectionSettings{Name: "karpenter-leader-election"},
		MemoryLimit:    -1,
		CPURequests:    1000,
		Batch:          BatchSettings{Idle: time.Second, Max: 10 * time.Second},
		Scheduling: SchedulingSettings{AssumeRequests: true, SpotTypes: shape.DefaultBand.Spot,
			NodePrice: engine.DefaultNodePrice.Dollars(), LearnQuantile: 0.9},
		Gates: Gates{ReservedCapacity: true},
		Hints: HintSettings{Enabled: true, HoldTaint: true},
		Disruption: DisruptionSettings{Breaker: BreakerSettings{Window: 30 * time.Minute, Pause: time.Hour},
			Surge: SurgeSettings{Saving: disrupt.DefaultSettings().RestartSaving}},
		Older: OlderSettings{V1Beta1: olderNone, Port: 8443, Provisioners: provisionersIgnore},
	}
}

// List returns every setting, bound to s.
func (s *Settings) List() []setting.Setting {
	return []setting.Setting{
		setting.String(&s.Service, "karpenter-service", "name of Karpenter's Kubernetes service"),
		setting.Int(&s.Serve.MetricsPort, "metrics-port", "port of /metrics and /journal; 0 for none"),
		setting.Bool(&s.Serve.MetricsAuthentication, "metrics-authentication",
			"serve the metrics port over TLS, with a certificate of its own, and only to whom the API server knows by "+
				"their bearer token and allows to get the path"),
		setting.Int(&s.Serve.HealthProbePort, "health-probe-port", "port of /healthz and /readyz; 0 for none"),
		setting.Int(&s.Serve.UIPort, "ui-port", "port of the page that shows the fleet; 0 for none"),
		setting.String(&s.Serve.UIHost, "ui-host", "address on which the page listens; where that is not one of the "+
			"machine's own it is served over TLS, with a certificate of its own, and the picture only to whom the API "+
			"server knows by their bearer token and allows to get the path /picture"),
		setting.Int(&s.Client.QPS, "kube-client-qps", "requests per second to the API server"),
		setting.Int(&s.Client.Burst, "kube-client-burst", "requests to the API server that may come at once"),
		setting.Bool(&s.Serve.EnableProfiling, "enable-profiling", "serve /debug/pprof/ on the metrics port"),
		setting.Bool(&s.DisableWarmup, "disable-controller-warmup", "a standby replica reads the cluster only once it is elected"),
		setting.Bool(&s.LeaderElection.Disabled, "disable-leader-election", "act without a lease; only for a single replica"),
		setting.String(&s.LeaderElection.Name, "leader-election-name", "name of the lease"),
		setting.String(&s.LeaderElection.Namespace, "leader-election-namespace", "namespace of the lease; the program's own if empty"),
		setting.Bool(&s.DisableObservability, "disable-cluster-state-observability",
			"no metrics about single nodes, pods and pools, nor about conditions"),
		setting.Bool(&s.HistoricMetrics, "historic-metrics",
			"metrics also have the names that releases before gave them, for dashboards that were written for those: see metrics.md"),
		setting.Int64(&s.MemoryLimit, "memory-limit", "bytes of memory of the container; the garbage collector aims at 90 % of it"),
		setting.Int(&s.CPURequests, "cpu-requests", "millicores of CPU of the container; scales the number of workers"),
		setting.String(&s.Log.Level, "log-level", "debug, info or error"),
		setting.List(&s.Log.Paths, "log-output-paths", "files, stdout or stderr, with commas between them"),
		setting.List(&s.Log.ErrorPaths, "log-error-output-paths", "where trouble with the log itself is reported"),
		setting.Duration(&s.Batch.Max, "batch-max-duration", "longest time for which pods are collected before they are planned for"),
		setting.Duration(&s.Batch.Idle, "batch-idle-duration", "time without a new pod after which those collected are planned for"),
		choice(&s.Scheduling.IgnorePreferences, "preference-policy", "Respect", "Ignore", "whether soft constraints of pods count"),
		choice(&s.Scheduling.MinValuesBestEffort, "min-values-policy", "Strict", "BestEffort",
			"whether minValues may be lowered when they cannot be met"),
		setting.Bool(&s.Scheduling.AssumeRequests, "assume-requests",
			"when a new node is sized, a container without a CPU or memory request counts as 100m and 200Mi, as it does where "+
				"kube-scheduler scores nodes; existing nodes are filled by requests alone"),
		setting.Int(&s.Scheduling.SpotTypes, "spot-types",
			"of how many instance types a spot machine is bought, where so many are cheap enough; more are interrupted "+
				"less and cost more"),
		setting.Float(&s.Scheduling.NodePrice, "node-price",
			"dollars an hour that decisions add for each node, at most a twentieth of its price: at equal price fewer nodes win"),
		setting.Float(&s.Scheduling.InterruptionCost, "interruption-cost",
			"dollars that it costs when a spot machine is taken back, unless its NodePool says otherwise: decisions add the part of it "+
				"that is expected in an hour to the price; 0: spot is chosen by price alone; see docs/spot.md"),
		setting.String(&s.Journal.Dir, "journal-dir",
			"folder to which what is decided is written, as lines of JSON, 64 MB at most of which the oldest go; only "+
				"in memory, the last 10,000, if empty"),
		setting.String(&s.Journal.ConfigMap, "history-config-map",
			"ConfigMap in the namespace of the lease that keeps the newest 2,000 decisions and a week of costs over "+
				"restarts, 400 kB at most; both are in memory only if empty"),
		setting.String(&s.Journal.Ledger.ConfigMaps, "ledger-config-maps",
			"name of the ConfigMaps in the namespace of the lease, without their number, in which is kept what machines cost and for "+
				"whom, for karpenter cost: 20 of 1 MB at most; nothing is noted if empty"),
		setting.List(&s.Journal.Ledger.Labels, "ledger-labels",
			"keys of labels of pods by which karpenter cost can add up, with commas between them; two at most"),
		setting.Bool(&s.Journal.Ledger.OpenCost, "opencost-metrics",
			"nodes also have the metrics node_total_hourly_cost and so on of OpenCost; where OpenCost runs too, sums are double"),
		setting.String(&s.RecordDir, "record-dir",
			"folder to which pods are written as they come and go, without what their containers are started with, 1 "+
				"GB at most of which the oldest goes; for karpenter replay; nothing if empty"),
		setting.String(&s.Stories, "scenario-folder",
			"folder to which the world is written, without its names, when a scheduler does not bind a pod although "+
				"there is room for it: at most once an hour, the last 24; nothing is written if empty"),
		setting.Func("ignore-dra-requests", "true",
			"refuse pods that use resource claims; false: devices are planned for, see docs/devices.md", s.Scheduling.parseIgnoreDRA),
		setting.Func("feature-gates", s.Gates.String(), "features to switch on or off, as Name=true,Name=false", s.Gates.parse),
		setting.Bool(&s.Scheduling.Foresight, "foresight",
			"open machines ahead of time for pods that CronJobs, autoscalers and rollouts announce; see docs/foresight.md"),
		setting.String(&s.Scheduling.ImportCommitments, "import-commitments",
			"with the gate CommitmentDiscounts: keep a CommitmentDiscount for each Reserved Instance and Savings Plan of the account, and "+
				"count on this part of it, such as 100%; nothing is imported if empty"),
		setting.Float(&s.Scheduling.LearnQuantile, "learn-quantile",
			"for how many pods room is kept where a NodePool or CapacityBuffer has the annotation karpenter.sh/learn: as many as were "+
				"enough on such a part of the earlier days"),
		setting.Bool(&s.LegacyNodeRepair, "legacy-node-repair",
			"with the gate NodeRepair: broken nodes are repaired at once and by force, outside of budgets, as before 1.15"),
		setting.Int(&s.Disruption.Breaker.Percent, "breaker-percent",
			"when more than so many percent of new machines, or of moved pods, do not get ready, and at least three, voluntary "+
				"disruption stops; 0: it never does"),
		setting.Duration(&s.Disruption.Breaker.Window, "breaker-window", "how long a machine counts as new, and a pod as moved"),
		setting.Duration(&s.Disruption.Breaker.Pause, "breaker-pause", "for how long disruption stops then, unless it is resumed"),
		setting.Bool(&s.Disruption.Surge.Enabled, "surge",
			"move pods that a PodDisruptionBudget holds, or that are the only ready ones, by a rolling restart of their Deployment, where "+
				"its owner has agreed by the annotation karpenter.sh/surge"),
		setting.Float(&s.Disruption.Surge.Saving, "surge-saving",
			"dollars an hour that consolidation must save for each Deployment that is restarted for it"),
		setting.Func("scheduler-config", "", "default spread constraints of kube-scheduler, as YAML or JSON", s.Scheduling.parseConfig),
		setting.Bool(&s.Hints.Enabled, "nomination-hints",
			"tell kube-scheduler, through status.nominatedNodeName, where pods are meant to go"),
		setting.Bool(&s.Hints.HoldTaint, "hold-taint-until-ready",
			"keep the taint of unregistered nodes until they are ready, for a minute at most, so that hints come in "+
				"time; without effect where a DaemonSet on the host's network does not tolerate it"),
		setting.String(&s.Older.V1Beta1, "v1beta1",
			"none, serve (karpenter.sh/v1beta1 and karpenter.k8s.aws/v1beta1 beside v1, by a conversion webhook), or "+
				"drop (rewrite what is stored as v1beta1 and drop it from the definitions)"),
		setting.String(&s.Older.Provisioners, "provisioners",
			"ignore Provisioners and AWSNodeTemplates, tell each what it would be today, or convert: keep that in step with it"),
		setting.Int(&s.Older.Port, "webhook-port", "port of the conversion webhook"),
		setting.String(&s.Older.URL, "webhook-url", "how the API server reaches the conversion webhook; by a service if empty"),
	}
}

// choice returns a setting with two values: off, the default, and on, which sets p.
func choice(p *bool, name, off, on, usage string) setting.Setting {
	return setting.Func(name, off, usage+": "+off+" or "+on, func(text string) error {
		if text != off && text != on {
			return fmt.Errorf("%q is neither %s nor %s", text, off, on)
		}
		*p = text == on
		return nil
	})
}

// parseIgnoreDRA reads whether resource claims are ignored. A text that is not a boolean leaves them ignored, as in earlier releases.
func (s *SchedulingSettings) parseIgnoreDRA(text string) error {
	ignore, err := strconv.ParseBool(text)
	s.Devices = err == nil && !ignore
	return nil
}

// Validate returns an error with everything that is wrong with the settings.
func (s *Settings) Validate() error {
	var errs []error
	add := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	errs = append(errs, s.Log.Validate())
	add(s.Serve.MetricsPort >= 0 && s.Serve.MetricsPort <= 65535, "metrics-port: %d is not a port", s.Serve.MetricsPort)
	add(s.Serve.HealthProbePort >= 0 && s.Serve.HealthProbePort <= 65535, "health-probe-port: %d is not a port", s.Serve.HealthProbePort)
	add(s.Serve.MetricsPort == 0 || s.Serve.MetricsPort != s.Serve.HealthProbePort,
		"metrics-port and health-probe-port are both %d", s.Serve.MetricsPort)
	add(s.Serve.UIPort >= 0 && s.Serve.UIPort <= 65535, "ui-port: %d is not a port", s.Serve.UIPort)
	webhook := s.Older.V1Beta1 != olderNone && s.Serve.UIPort == s.Older.Port
	add(s.Serve.UIPort == 0 || s.Serve.UIPort != s.Serve.MetricsPort && s.Serve.UIPort != s.Serve.HealthProbePort && !webhook,
		"ui-port is %d, which is served already", s.Serve.UIPort)
	add(s.Client.QPS > 0, "kube-client-qps: %d is not positive", s.Client.QPS)
	add(s.Client.Burst > 0, "kube-client-burst: %d is not positive", s.Client.Burst)
	add(s.Batch.Idle > 0, "batch-idle-duration: %v is not positive", s.Batch.Idle)
	add(s.Batch.Max >= s.Batch.Idle, "batch-max-duration: %v is less than batch-idle-duration %v", s.Batch.Max, s.Batch.Idle)
	add(!s.LegacyNodeRepair || !s.Gates.TerminateFirstRepair,
		"legacy-node-repair is on: it never waits for a replacement; leave out the feature gate TerminateFirstRepair")
	if share := s.Scheduling.ImportCommitments; share != "" {
		_, err := v1alpha1.Fraction(share)
		add(err == nil, "import-commitments: %v", err)
		add(s.Gates.CommitmentDiscounts, "import-commitments is %s: switch the feature gate CommitmentDiscounts on", share)
	}
	add(s.Disruption.Surge.Saving >= 0, "surge-saving: %v is negative", s.Disruption.Surge.Saving)
	labels := s.Journal.Ledger.Labels
	add(len(labels) <= mostLedgerLabels, "ledger-labels: %d keys; give %d at most", len(labels), mostLedgerLabels)
	for _, key := range labels {
		add(len(validation.IsQualifiedName(key)) == 0, "ledger-labels: %q is no key of a label", key)
	}
	b := s.Disruption.Breaker
	add(b.Percent >= 0 && b.Percent < 100, "breaker-percent: %d is not between 0 and 99", b.Percent)
	add(b.Percent == 0 || b.Window >= breakerReady,
		"breaker-window: %v is less than the %v that a machine may take to get ready", b.Window, breakerReady)
	add(b.Percent == 0 || b.Pause > 0, "breaker-pause: %v is not positive", b.Pause)
	add(s.LeaderElection.Disabled || s.LeaderElection.Name != "", "leader-election-name is empty")
	add(s.Scheduling.NodePrice >= 0 && s.Scheduling.NodePrice < 1000, "node-price: %v is not between 0 and 1000", s.Scheduling.NodePrice)
	add(s.Scheduling.InterruptionCost >= 0 && s.Scheduling.InterruptionCost <= v1.MostInterruptionCost,
		"interruption-cost: %v is not between 0 and %d", s.Scheduling.InterruptionCost, v1.MostInterruptionCost)
	add(s.Scheduling.LearnQuantile >= 0.5 && s.Scheduling.LearnQuantile <= 0.99,
		"learn-quantile: %v is not between 0.5 and 0.99", s.Scheduling.LearnQuantile)
	add(s.Scheduling.SpotTypes >= 1 && s.Scheduling.SpotTypes <= shape.MostSpotTypes,
		"spot-types: %d is not between 1 and %d", s.Scheduling.SpotTypes, shape.MostSpotTypes)
	add(slices.Contains([]string{olderNone, olderServe, olderDrop}, s.Older.V1Beta1),
		"v1beta1: %q is neither none, serve nor drop", s.Older.V1Beta1)
	add(slices.Contains([]string{provisionersIgnore, provisionersTell, provisionersConvert}, s.Older.Provisioners),
		"provisioners: %q is neither ignore, tell nor convert", s.Older.Provisioners)
	add(s.Older.V1Beta1 == olderNone || s.Older.Port > 0 && s.Older.Port <= 65535, "webhook-port: %d is not a port", s.Older.Port)
	add(s.Older.V1Beta1 == olderNone || s.Older.URL != "" || s.Service != "",
		"karpenter-service is empty: the webhook's service is named after it")
	return errors.Join(errs...)
}

// Workers returns a number of workers by the CPU of the container: least at one core, most at sixty cores or more, linear in between.
func (s *Settings) Workers(least, most int) int {
	milli := s.CPURequests
	if milli <= 0 {
		milli = 1000
	}
	cores := (milli + 999) / 1000
	return least + (most-least)*(min(cores, 60)-1)/59
}

// named returns the gates by name, in the order in which they are written.
func (g *Gates) named() []struct {
	name string
	on   *bool
} {
	return []struct {
		name string
		on   *bool
	}{
		{"ReservedCapacity", &g.ReservedCapacity},
		{"SpotToSpotConsolidation", &g.SpotToSpotConsolidation},
		{"NodeRepair", &g.NodeRepair},
		{"NodeOverlay", &g.NodeOverlay},
		{"StaticCapacity", &g.StaticCapacity},
		{"CapacityBuffer", &g.CapacityBuffer},
		{"CommitmentDiscounts", &g.CommitmentDiscounts},
		{"CapacityQuota", &g.CapacityQuota},
		{"RolloutPolicies", &g.RolloutPolicies},
		{"TerminateFirstDrift", &g.TerminateFirstDrift},
		{"TerminateFirstRepair", &g.TerminateFirstRepair},
		{"PodDeletionCostManagement", &g.PodDeletionCostManagement},
	}
}

// String returns the gates in the form that parse reads.
func (g *Gates) String() string {
	var parts []string
	for _, gate := range g.named() {
		parts = append(parts, fmt.Sprintf("%s=%v", gate.name, *gate.on))
	}
	return strings.Join(parts, ",")
}

// parse reads Name=bool pairs. Unknown names are kept for the log, because newer Karpenters have more; gates that are not named stay as
// they are.
func (g *Gates) parse(text string) error {
	return setting.Gates(text, func(name string, on bool) error {
		for _, gate := range g.named() {
			if gate.name == name {
				*gate.on = on
				return nil
			}
		}
		if on {
			g.Unknown = append(g.Unknown, name)
		}
		return nil
	})
}

// parseConfig reads the default spread constraints of kube-scheduler's configuration. Other fields are an error.
func (s *SchedulingSettings) parseConfig(text string) error {
	s.DefaultSpread = nil
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var config struct {
		PodTopologySpread struct {
			DefaultConstraints []corev1.TopologySpreadConstraint `json:"defaultConstraints"`
		} `json:"podTopologySpread"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
		return fmt.Errorf("scheduler config: %w", err)
	}
	type identity struct {
		key  string
		when corev1.UnsatisfiableConstraintAction
	}
	seen := map[identity]bool{}
	for i := range config.PodTopologySpread.DefaultConstraints {
		c := &config.PodTopologySpread.DefaultConstraints[i]
		if err := validSpread(c); err != nil {
			return fmt.Errorf("scheduler config: default constraint %d: %w", i+1, err)
		}
		id := identity{c.TopologyKey, c.WhenUnsatisfiable}
		if seen[id] {
			return fmt.Errorf("scheduler config: two default constraints for %s, %s", id.key, id.when)
		}
		seen[id] = true
	}
	s.DefaultSpread = config.PodTopologySpread.DefaultConstraints
	return nil
}

// validSpread returns what is wrong with a default constraint, by the rules of kube-scheduler.
func validSpread(c *corev1.TopologySpreadConstraint) error {
	switch {
	case c.MaxSkew <= 0:
		return fmt.Errorf("maxSkew: %d is not positive", c.MaxSkew)
	case c.TopologyKey == "":
		return errors.New("topologyKey is missing")
	case len(validation.IsQualifiedName(c.TopologyKey)) > 0:
		return fmt.Errorf("topologyKey: %q is not a label key", c.TopologyKey)
	case c.WhenUnsatisfiable != corev1.DoNotSchedule && c.WhenUnsatisfiable != corev1.ScheduleAnyway:
		return fmt.Errorf("whenUnsatisfiable: %q is neither DoNotSchedule nor ScheduleAnyway", c.WhenUnsatisfiable)
	case c.LabelSelector != nil:
		return errors.New("labelSelector may not be set; each pod gets the one of its service and owner")
	case len(c.MatchLabelKeys) > 0:
		return errors.New("matchLabelKeys may not be set")
	}
	return nil
}
