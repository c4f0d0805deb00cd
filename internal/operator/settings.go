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

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Settings is everything about Karpenter itself that can be set. DefaultSettings returns what holds without anybody saying
// anything; the zero value is not usable.
type Settings struct {
	Service string // name of the Kubernetes service; that of the conversion webhook is named after it

	MetricsPort, HealthProbePort int    // 0: no listener
	Host                         string // where they listen: everywhere if empty, as kubelets and Prometheus are on other machines
	UIPort                       int    // of the page; 0: no listener
	UIHost                       string // where it listens; who is not on this machine needs a token there
	MetricsAuthentication        bool   // the API server says who may read the metrics port
	EnableProfiling              bool
	DisableObservability         bool // no metrics about single nodes, pods and pools, and none about conditions
	HistoricMetrics              bool // metrics also have the names that releases before gave them
	Log                          telemetry.LogSettings

	Client         ClientSettings
	LeaderElection LeaderElectionSettings
	DisableWarmup  bool  // a standby starts to watch only when it is elected
	MemoryLimit    int64 // bytes; what is not positive is no limit
	CPURequests    int   // millicores, scales the number of workers

	Batch      BatchSettings
	Scheduling SchedulingSettings
	Gates      Gates
	Hints      HintSettings
	JournalDir string // folder for what was decided; "" keeps it in memory only
	RecordDir  string // folder for the pods that came and went; "" for none
	Stories    string // folder for worlds in which pods are not bound though there is room for them
	Older      OlderSettings
}

// ClientSettings limit how much is asked of the API server.
type ClientSettings struct {
	QPS, Burst int
}

// LeaderElectionSettings say how replicas agree on who acts.
type LeaderElectionSettings struct {
	Disabled        bool
	Name, Namespace string // without namespace, that in which the program runs
}

// BatchSettings say how long pods are collected before they are planned for.
type BatchSettings struct {
	Idle, Max time.Duration
}

// SchedulingSettings change what the engine does.
type SchedulingSettings struct {
	IgnorePreferences   bool
	MinValuesBestEffort bool
	Devices             bool // resource claims are planned for
	DefaultSpread       []corev1.TopologySpreadConstraint
	SpotTypes           int     // of so many instance types a spot machine is bought, where so many are cheap enough
	NodePrice           float64 // in dollars an hour, what decisions add for each node
}

// Gates are the feature gates.
type Gates struct {
	NodeRepair, ReservedCapacity, SpotToSpotConsolidation, NodeOverlay, StaticCapacity, CapacityBuffer bool
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

// OlderSettings configure the API version before v1.
type OlderSettings struct {
	V1Beta1 string // none, serve or drop
	Port    int    // of the conversion webhook
	URL     string // of the webhook, where no Service leads to it
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

// DefaultSettings returns the settings of a Karpenter without any setting.
func DefaultSettings() Settings {
	return Settings{
		MetricsPort:     8080,
		HealthProbePort: 8081,
		UIHost:          "127.0.0.1",
		Log:             telemetry.LogSettings{Level: "info", Paths: []string{"stdout"}, ErrorPaths: []string{"stderr"}},
		Client:          ClientSettings{QPS: 200, Burst: 300},
		LeaderElection:  LeaderElectionSettings{Name: "karpenter-leader-election"},
		MemoryLimit:     -1,
		CPURequests:     1000,
		Batch:           BatchSettings{Idle: time.Second, Max: 10 * time.Second},
		Scheduling:      SchedulingSettings{SpotTypes: shape.DefaultBand.Spot, NodePrice: engine.DefaultNodePrice.Dollars()},
		Gates:           Gates{ReservedCapacity: true},
		Hints:           HintSettings{Enabled: true, HoldTaint: true},
		Older:           OlderSettings{V1Beta1: olderNone, Port: 8443, Provisioners: provisionersIgnore},
	}
}

// List returns every setting, bound to s.
func (s *Settings) List() []setting.Setting {
	return []setting.Setting{
		setting.String(&s.Service, "karpenter-service", "name of Karpenter's Kubernetes service"),
		setting.Int(&s.MetricsPort, "metrics-port", "port of /metrics and /journal; 0 for none"),
		setting.Bool(&s.MetricsAuthentication, "metrics-authentication",
			"serve the metrics port over TLS, with a certificate of its own, and only to whom the API server knows by "+
				"their bearer token and allows to get the path"),
		setting.Int(&s.HealthProbePort, "health-probe-port", "port of /healthz and /readyz; 0 for none"),
		setting.Int(&s.UIPort, "ui-port", "port of the page that shows the fleet; 0 for none"),
		setting.String(&s.UIHost, "ui-host", "address on which the page listens; where that is not one of the "+
			"machine's own it is served over TLS, with a certificate of its own, and the picture only to whom the API "+
			"server knows by their bearer token and allows to get the path /picture"),
		setting.Int(&s.Client.QPS, "kube-client-qps", "requests per second to the API server"),
		setting.Int(&s.Client.Burst, "kube-client-burst", "requests to the API server that may come at once"),
		setting.Bool(&s.EnableProfiling, "enable-profiling", "serve /debug/pprof/ on the metrics port"),
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
		setting.Int(&s.Scheduling.SpotTypes, "spot-types",
			"of how many instance types a spot machine is bought, where so many are cheap enough; more are interrupted "+
				"less and cost more"),
		setting.Float(&s.Scheduling.NodePrice, "node-price",
			"dollars an hour that decisions add for each node, at most a twentieth of its price: at equal price fewer nodes win"),
		setting.String(&s.JournalDir, "journal-dir",
			"folder to which what is decided is written, as lines of JSON, 64 MB at most of which the oldest go; only "+
				"in memory, the last 10,000, if empty"),
		setting.String(&s.RecordDir, "record-dir",
			"folder to which pods are written as they come and go, without what their containers are started with, 1 "+
				"GB at most of which the oldest goes; for karpenter replay; nothing if empty"),
		setting.String(&s.Stories, "scenario-folder",
			"folder to which the world is written, without its names, when a scheduler does not bind a pod although "+
				"there is room for it: at most once an hour, the last 24; nothing is written if empty"),
		setting.Func("ignore-dra-requests", "true",
			"refuse pods that use resource claims; false: devices are planned for, see docs/devices.md", s.Scheduling.parseIgnoreDRA),
		setting.Func("feature-gates", s.Gates.String(), "features to switch on or off, as Name=true,Name=false", s.Gates.parse),
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

// choice is a setting of two words, of which the second sets p.
func choice(p *bool, name, off, on, usage string) setting.Setting {
	return setting.Func(name, off, usage+": "+off+" or "+on, func(text string) error {
		if text != off && text != on {
			return fmt.Errorf("%q is neither %s nor %s", text, off, on)
		}
		*p = text == on
		return nil
	})
}

// parseIgnoreDRA reads whether resource claims are planned for. What is no truth value leaves them ignored, as it always did.
func (s *SchedulingSettings) parseIgnoreDRA(text string) error {
	ignore, err := strconv.ParseBool(text)
	s.Devices = err == nil && !ignore
	return nil
}

// Validate tells everything that is wrong with the settings.
func (s *Settings) Validate() error {
	var errs []error
	add := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	errs = append(errs, s.Log.Validate())
	add(s.MetricsPort >= 0 && s.MetricsPort <= 65535, "metrics-port: %d is not a port", s.MetricsPort)
	add(s.HealthProbePort >= 0 && s.HealthProbePort <= 65535, "health-probe-port: %d is not a port", s.HealthProbePort)
	add(s.MetricsPort == 0 || s.MetricsPort != s.HealthProbePort, "metrics-port and health-probe-port are both %d", s.MetricsPort)
	add(s.UIPort >= 0 && s.UIPort <= 65535, "ui-port: %d is not a port", s.UIPort)
	webhook := s.Older.V1Beta1 != olderNone && s.UIPort == s.Older.Port
	add(s.UIPort == 0 || s.UIPort != s.MetricsPort && s.UIPort != s.HealthProbePort && !webhook,
		"ui-port is %d, which is served already", s.UIPort)
	add(s.Client.QPS > 0, "kube-client-qps: %d is not positive", s.Client.QPS)
	add(s.Client.Burst > 0, "kube-client-burst: %d is not positive", s.Client.Burst)
	add(s.Batch.Idle > 0, "batch-idle-duration: %v is not positive", s.Batch.Idle)
	add(s.Batch.Max >= s.Batch.Idle, "batch-max-duration: %v is less than batch-idle-duration %v", s.Batch.Max, s.Batch.Idle)
	add(s.LeaderElection.Disabled || s.LeaderElection.Name != "", "leader-election-name is empty")
	add(s.Scheduling.NodePrice >= 0 && s.Scheduling.NodePrice < 1000, "node-price: %v is not between 0 and 1000", s.Scheduling.NodePrice)
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

// Workers scales a number of workers with the CPU of the container: least at one core, most at sixty.
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
	}
}

// String writes the gates as they are parsed.
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

// parseConfig reads the part of kube-scheduler's configuration that matters here. Nothing else may stand in it.
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
