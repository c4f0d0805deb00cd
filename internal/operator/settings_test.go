package operator

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/kit/setting"
)

func readSettings(args []string, env map[string]string) (Settings, error) {
	s := DefaultSettings()
	err := setting.Read("test", s.List(), args, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, io.Discard)
	if err == nil {
		err = s.Validate()
	}
	return s, err
}

func TestDefaults(t *testing.T) {
	s, err := readSettings(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, l := range s.List() {
		got["--"+l.Flag+" "+l.Env()] = l.Default
	}
	for flag, want := range map[string]string{
		"--karpenter-service KARPENTER_SERVICE":                                     "",
		"--metrics-port METRICS_PORT":                                               "8080",
		"--health-probe-port HEALTH_PROBE_PORT":                                     "8081",
		"--ui-port UI_PORT":                                                         "0",
		"--ui-host UI_HOST":                                                         "127.0.0.1",
		"--kube-client-qps KUBE_CLIENT_QPS":                                         "200",
		"--kube-client-burst KUBE_CLIENT_BURST":                                     "300",
		"--enable-profiling ENABLE_PROFILING":                                       "false",
		"--disable-controller-warmup DISABLE_CONTROLLER_WARMUP":                     "false",
		"--disable-leader-election DISABLE_LEADER_ELECTION":                         "false",
		"--disable-cluster-state-observability DISABLE_CLUSTER_STATE_OBSERVABILITY": "false",
		"--leader-election-name LEADER_ELECTION_NAME":                               "karpenter-leader-election",
		"--leader-election-namespace LEADER_ELECTION_NAMESPACE":                     "",
		"--memory-limit MEMORY_LIMIT":                                               "-1",
		"--cpu-requests CPU_REQUESTS":                                               "1000",
		"--log-level LOG_LEVEL":                                                     "info",
		"--log-output-paths LOG_OUTPUT_PATHS":                                       "stdout",
		"--log-error-output-paths LOG_ERROR_OUTPUT_PATHS":                           "stderr",
		"--batch-max-duration BATCH_MAX_DURATION":                                   "10s",
		"--batch-idle-duration BATCH_IDLE_DURATION":                                 "1s",
		"--preference-policy PREFERENCE_POLICY":                                     "Respect",
		"--min-values-policy MIN_VALUES_POLICY":                                     "Strict",
		"--ignore-dra-requests IGNORE_DRA_REQUESTS":                                 "true",
		"--feature-gates FEATURE_GATES":                                             "ReservedCapacity=true,SpotToSpotConsolidation=false,NodeRepair=false,NodeOverlay=false,StaticCapacity=false,CapacityBuffer=false,CommitmentDiscounts=false,CapacityQuota=false,RolloutPolicies=false,TerminateFirstDrift=false,TerminateFirstRepair=false,PodDeletionCostManagement=false",
		"--import-commitments IMPORT_COMMITMENTS":                                   "",
		"--scheduler-config SCHEDULER_CONFIG":                                       "",
	} {
		if have, ok := got[flag]; !ok || have != want {
			t.Errorf("%s = %q, want %q", flag, have, want)
		}
	}
}

func TestSettings(t *testing.T) {
	spread := func(items string) map[string]string {
		return map[string]string{"SCHEDULER_CONFIG": "podTopologySpread:\n  defaultConstraints:\n" + items}
	}
	const zone = "  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}\n"
	for name, tc := range map[string]struct {
		args string
		env  map[string]string
		err  string // part of the error; "" for none
		ok   func(*Settings) bool
	}{
		"a flag wins over the environment": {
			args: "--batch-idle-duration=3s", env: map[string]string{"BATCH_IDLE_DURATION": "2s"},
			ok: func(s *Settings) bool { return s.Batch.Idle == 3*time.Second },
		},
		"the chart's gates": {
			env: map[string]string{"FEATURE_GATES": "ReservedCapacity=false, SpotToSpotConsolidation=true,NodeRepair=false,NodeOverlay=false,StaticCapacity=false,CapacityBuffer=false,CommitmentDiscounts=false,CapacityQuota=false,RolloutPolicies=false,TerminateFirstDrift=false,TerminateFirstRepair=false"},
			ok:  func(s *Settings) bool { return !s.Gates.ReservedCapacity && s.Gates.SpotToSpotConsolidation },
		},
		"gates that are not named keep their default, unknown ones are kept for the log": {
			args: "--feature-gates=Unheard=true,SpotToSpotConsolidation=true",
			ok: func(s *Settings) bool {
				return s.Gates.ReservedCapacity && s.Gates.SpotToSpotConsolidation && slices.Equal(s.Gates.Unknown, []string{"Unheard"})
			},
		},
		"repair by force with terminate-first": {args: "--legacy-node-repair --feature-gates=TerminateFirstRepair=true", err: "TerminateFirstRepair"},
		"terminate-first for drift":            {args: "--legacy-node-repair --feature-gates=TerminateFirstDrift=true"},
		"a malformed gate":                     {args: "--feature-gates=ReservedCapacity", err: "ReservedCapacity"},
		"every gate has code behind it": {
			env: map[string]string{"FEATURE_GATES": "SpotToSpotConsolidation=true,NodeRepair=true,NodeOverlay=true,StaticCapacity=true,CapacityBuffer=true,CommitmentDiscounts=true,TerminateFirstDrift=true,TerminateFirstRepair=true"},
			ok: func(s *Settings) bool {
				return s.Gates.CapacityBuffer && s.Gates.CommitmentDiscounts && s.Gates.NodeRepair && s.Gates.TerminateFirstDrift && s.Gates.TerminateFirstRepair
			},
		},
		"an import":                                {args: "--import-commitments=50% --feature-gates=CommitmentDiscounts=true"},
		"an import that nothing reads":             {env: map[string]string{"IMPORT_COMMITMENTS": "50%"}, err: "switch the feature gate CommitmentDiscounts on"},
		"an import of more than there is":          {args: "--import-commitments=120% --feature-gates=CommitmentDiscounts=true", err: "import-commitments"},
		"devices that are planned for":             {env: map[string]string{"IGNORE_DRA_REQUESTS": "false"}},
		"devices that are refused":                 {env: map[string]string{"IGNORE_DRA_REQUESTS": "true"}},
		"an unknown log level":                     {env: map[string]string{"LOG_LEVEL": "trace"}, err: "trace"},
		"an empty log level":                       {env: map[string]string{"LOG_LEVEL": ""}},
		"an unknown preference policy":             {env: map[string]string{"PREFERENCE_POLICY": "respect"}, err: "PREFERENCE_POLICY"},
		"the other preference policy":              {args: "--preference-policy=Ignore", ok: func(s *Settings) bool { return s.Scheduling.IgnorePreferences }},
		"an unknown min-values policy":             {args: "--min-values-policy=Sometimes", err: "min-values-policy"},
		"the other min-values policy":              {env: map[string]string{"MIN_VALUES_POLICY": "BestEffort"}, ok: func(s *Settings) bool { return s.Scheduling.MinValuesBestEffort }},
		"more types of spot":                       {env: map[string]string{"SPOT_TYPES": "20"}, ok: func(s *Settings) bool { return s.engineSettings().Band.Spot == 20 }},
		"more types of spot than fit a call":       {args: "--spot-types=51", err: "spot-types"},
		"no price of its own for a node":           {args: "--node-price=0", ok: func(s *Settings) bool { return s.engineSettings().NodePrice < 0 }},
		"what an interruption costs":               {args: "--interruption-cost=0.5", ok: func(s *Settings) bool { return s.engineSettings().InterruptionCost == 500_000_000 }},
		"an interruption that pays":                {args: "--interruption-cost=-1", err: "interruption-cost"},
		"interruptions cost nothing by default":    {args: "", ok: func(s *Settings) bool { return s.engineSettings().InterruptionCost == 0 }},
		"a dearer node":                            {args: "--node-price=0.01", ok: func(s *Settings) bool { return s.engineSettings().NodePrice == 10_000_000 }},
		"a node that pays":                         {args: "--node-price=-1", err: "node-price"},
		"spot of no type":                          {args: "--spot-types=0", err: "spot-types"},
		"a port that is none":                      {args: "--metrics-port=70000", err: "metrics-port"},
		"two listeners on one port":                {args: "--metrics-port=8081", err: "8081"},
		"a page":                                   {env: map[string]string{"UI_PORT": "8082"}, ok: func(s *Settings) bool { return s.Serve.UIPort == 8082 && s.uiIsLocal() }},
		"a page for others":                        {args: "--ui-port=8082 --ui-host=0.0.0.0", ok: func(s *Settings) bool { return !s.uiIsLocal() }},
		"a page on a port that is none":            {args: "--ui-port=-1", err: "ui-port"},
		"a page on the port of probes":             {args: "--ui-port=8081", err: "ui-port"},
		"a page on the port of the webhook":        {args: "--ui-port=8443 --v1beta1=serve", err: "ui-port"},
		"where there is no webhook":                {args: "--ui-port=8443"},
		"a batch that ends before it is idle":      {args: "--batch-max-duration=500ms", err: "batch-max-duration"},
		"no requests at all":                       {args: "--kube-client-qps=0", err: "kube-client-qps"},
		"a number in the environment that is none": {env: map[string]string{"METRICS_PORT": "http"}, err: "METRICS_PORT"},
		"a variable that Kubernetes makes for a Service with the name metrics": {
			env: map[string]string{"METRICS_PORT": "tcp://10.0.0.1:80"}, ok: func(s *Settings) bool { return s.Serve.MetricsPort == 8080 },
		},
		"a scheduler config": {
			env: spread(zone + "  - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}\n"),
			ok: func(s *Settings) bool {
				return len(s.Scheduling.DefaultSpread) == 2 && s.Scheduling.DefaultSpread[1].MaxSkew == 2
			},
		},
		"a scheduler config in JSON": {
			env: map[string]string{"SCHEDULER_CONFIG": `{"podTopologySpread":{"defaultConstraints":[{"maxSkew":1,"topologyKey":"a/b","whenUnsatisfiable":"DoNotSchedule"}]}}`},
			ok:  func(s *Settings) bool { return len(s.Scheduling.DefaultSpread) == 1 },
		},
		"an empty scheduler config":                    {env: map[string]string{"SCHEDULER_CONFIG": " "}},
		"a scheduler config with an unknown field":     {env: map[string]string{"SCHEDULER_CONFIG": "profiles: []"}, err: "profiles"},
		"a scheduler config that is no YAML":           {env: map[string]string{"SCHEDULER_CONFIG": "{"}, err: "scheduler config"},
		"a skew of zero":                               {env: spread("  - {maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}\n"), err: "maxSkew"},
		"no topology key":                              {env: spread("  - {maxSkew: 1, whenUnsatisfiable: DoNotSchedule}\n"), err: "topologyKey"},
		"a topology key that is none":                  {env: spread("  - {maxSkew: 1, topologyKey: 'a b', whenUnsatisfiable: DoNotSchedule}\n"), err: "topologyKey"},
		"an unknown whenUnsatisfiable":                 {env: spread("  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}\n"), err: "whenUnsatisfiable"},
		"a selector":                                   {env: spread("  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}\n"), err: "labelSelector"},
		"matchLabelKeys":                               {env: spread("  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [a]}\n"), err: "matchLabelKeys"},
		"two constraints that differ in the skew only": {env: spread(zone + "  - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}\n"), err: "two default constraints"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := readSettings(strings.Fields(tc.args), tc.env)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error = %v, want one that names %q", err, tc.err)
				}
				return
			}
			if err != nil || tc.ok != nil && !tc.ok(&s) {
				t.Errorf("settings = %+v, %v", s, err)
			}
		})
	}
}

func TestWorkersGrowWithTheCPU(t *testing.T) {
	var got []int
	for _, milli := range []int{-1, 0, 500, 1000, 1500, 15_000, 60_000, 90_000} {
		s := DefaultSettings()
		s.CPURequests = milli
		got = append(got, s.Workers(10, 1000))
	}
	if want := []int{10, 10, 10, 10, 26, 244, 1000, 1000}; !slices.Equal(got, want) {
		t.Errorf("workers = %v, want %v", got, want)
	}
}
