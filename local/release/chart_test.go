package release

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/operator"
)

type values = map[string]any

const notes = "karpenter/templates/NOTES.txt"

// render returns the objects that `helm template karpenter` with these values would make, by file. Among the APIs may be a
// version of Kubernetes, such as v1.29, that `--kube-version` names.
func render(t *testing.T, chartName string, v values, apis ...string) (map[string]string, error) {
	t.Helper()
	files, err := renderAll(t, chartName, v, apis...)
	delete(files, notes)
	return files, err
}

// renderAll returns the notes for the user as well.
func renderAll(t *testing.T, chartName string, v values, apis ...string) (map[string]string, error) {
	t.Helper()
	ch, err := Load(chartName)
	if err != nil {
		t.Fatal(err)
	}
	caps := common.DefaultCapabilities.Copy()
	for _, api := range apis {
		if strings.HasPrefix(api, "v1.") {
			caps.KubeVersion = common.KubeVersion{Version: api + ".0"}
			continue
		}
		caps.APIVersions = append(caps.APIVersions, api)
	}
	options := common.ReleaseOptions{Name: chartName, Namespace: "karpenter", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(ch, v, options, caps)
	if err != nil {
		return nil, err
	}
	return engine.Render(ch, all)
}

// named is the least that the chart wants.
func named(more ...values) values {
	v := values{"settings": values{"clusterName": "prod"}, "controller": values{"image": values{"repository": "r"}}}
	for _, m := range more {
		for key, value := range m {
			if given, ok := v[key].(values); ok {
				maps.Copy(given, value.(values))
			} else {
				v[key] = value
			}
		}
	}
	return v
}

// object returns the object of that kind and name among everything that is rendered.
func object[T any](t *testing.T, v values, kind, name string) T {
	t.Helper()
	files, err := render(t, "karpenter", v, policies)
	if err != nil {
		t.Fatal(err)
	}
	var found *T
	for _, text := range files {
		for _, document := range documents([]byte(text)) {
			var head struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal(document, &head); err != nil {
				t.Fatalf("%v in\n%s", err, document)
			}
			if head.Kind == kind && head.Metadata.Name == name {
				found = new(T)
				if err := yaml.UnmarshalStrict(document, found); err != nil {
					t.Fatalf("%v in\n%s", err, document)
				}
			}
		}
	}
	if found == nil {
		t.Fatalf("no %s %s is rendered", kind, name)
	}
	return *found
}

func deployment(t *testing.T, v values) appsv1.Deployment {
	return object[appsv1.Deployment](t, v, "Deployment", "karpenter")
}

func TestWithoutClusterNameNothingIsRendered(t *testing.T) {
	_, err := render(t, "karpenter", values{})
	if err == nil || !strings.Contains(err.Error(), "settings.clusterName is required") {
		t.Errorf("error = %v, want one that names the flag", err)
	}
}

// Values of older charts, and of features that this version lacks, are refused with what to write instead: Helm would ignore them.
func TestValuesThatWouldBeLostAreRefused(t *testing.T) {
	aws := func(key string, value any) values { return values{"settings": values{"aws": values{key: value}}} }
	actsAlone := values{"name": "DISABLE_LEADER_ELECTION", "value": "true"}
	gate := func(key string, value any) values {
		return values{"settings": values{"featureGates": values{key: value}}}
	}
	for name, tc := range map[string]struct {
		values values
		want   string // "" where there is nothing to say
	}{
		"the cluster's name of old":           {aws("clusterName", "prod"), "settings.aws.clusterName: write settings.clusterName"},
		"the queue of old":                    {aws("interruptionQueueName", "q"), "settings.aws.interruptionQueueName: write settings.interruptionQueue"},
		"false of old":                        {aws("isolatedVPC", false), "settings.aws.isolatedVPC: write settings.isolatedVPC"},
		"a default instance profile":          {aws("defaultInstanceProfile", "p"), "spec.instanceProfile, or better spec.role, in each EC2NodeClass"},
		"a default instance profile, older":   {values{"aws": values{"defaultInstanceProfile": "p"}}, "aws.defaultInstanceProfile: "},
		"global tags":                         {aws("tags", values{"a": "b"}), "spec.tags in each EC2NodeClass"},
		"no global tags":                      {aws("tags", values{}), ""},
		"pod interfaces":                      {aws("enablePodENI", true), "settings.aws.enablePodENI: remove it"},
		"pods beyond what interfaces hold":    {aws("enableENILimitedPodDensity", false), "spec.kubelet.maxPods"},
		"pods as interfaces hold":             {aws("enableENILimitedPodDensity", true), ""},
		"names of nodes":                      {aws("nodeNameConvention", "resource-name"), "settings.aws.nodeNameConvention: remove it"},
		"a role to assume":                    {values{"settings": values{"assumeRoleARN": "arn"}}, "give the role to the service account"},
		"the cluster's name, oldest":          {values{"clusterName": "prod"}, "clusterName: write settings.clusterName"},
		"the log level of the controller":     {values{"controller": values{"logLevel": "debug"}}, "controller.logLevel: write logLevel"},
		"the log's own settings":              {values{"logConfig": values{"enabled": true}}, "write logLevel, logOutputPaths"},
		"the log's own settings, off":         {values{"logConfig": values{"enabled": false}}, ""},
		"a log for people":                    {values{"logEncoding": "console"}, "the log is JSON"},
		"a log for programs":                  {values{"logEncoding": "json"}, ""},
		"drift off":                           {gate("drift", false), "reason Drifted"},
		"drift on":                            {gate("drift", true), ""},
		"a gate of the provider":              {values{"settings": values{"awsFeatureGates": values{"nodeClassCEL": true}}}, ""},
		"a gate of the provider that is off":  {values{"settings": values{"awsFeatureGates": values{"nodeClassCEL": false}}}, ""},
		"a gate of the provider that is none": {values{"settings": values{"awsFeatureGates": values{"nodeClassCell": true}}}, "nodeClassCell"},
		"devices, and no devices":             {values{"settings": values{"enableDRA": true, "ignoreDRARequests": "true"}}, "settings.ignoreDRARequests=true: settings.enableDRA=true says the contrary"},
		"devices, but no GPUs":                {values{"settings": values{"enableDRA": "true", "awsFeatureGates": values{"draNVIDIAGPU": false}}}, "settings.awsFeatureGates.draNVIDIAGPU=false: "},
		"devices, and GPUs":                   {values{"settings": values{"enableDRA": true, "awsFeatureGates": values{"draNVIDIAGPU": true}}}, ""},
		"two ways of repair":                  {values{"settings": values{"legacyNodeRepair": true, "featureGates": values{"terminateFirstRepair": true}}}, "settings.legacyNodeRepair=true: "},
		"an import that nothing reads":        {values{"settings": values{"importCommitments": "100%"}}, "settings.importCommitments: write settings.featureGates.commitmentDiscounts: true too"},
		"an import":                           {values{"settings": values{"importCommitments": "100%", "featureGates": values{"commitmentDiscounts": true}}}, ""},
		"devices":                             {values{"settings": values{"ignoreDRARequests": false}}, ""},
		"zonal shift":                         {values{"settings": values{"enableZonalShift": true}}, ""},
		"a key that nobody knows":             {values{"replicaCount": 3}, "replicaCount"},
		"a setting that nobody knows":         {values{"settings": values{"clustername": "prod"}}, "clustername"},
		"a level that does not exist":         {values{"logLevel": "verbose"}, "logLevel"},
		"a policy that does not exist":        {values{"settings": values{"preferencePolicy": "respect"}}, "preferencePolicy"},
		"a time without a unit":               {values{"settings": values{"batchIdleDuration": 1}}, "batchIdleDuration"},
		"text where a list belongs":           {values{"tolerations": "all"}, "tolerations"},
		"text where true or false belongs":    {values{"hostNetwork": "false"}, "hostNetwork"},
		"true as text, for a setting":         {values{"settings": values{"isolatedVPC": "true"}}, ""},
		"a share given in percent":            {values{"settings": values{"vmMemoryOverheadPercent": 7.5}}, "7.5 % is 0.075"},
		"a share below nothing":               {values{"settings": values{"vmMemoryOverheadPercent": -0.1}}, "vmMemoryOverheadPercent"},
		"nobody's account":                    {values{"serviceAccount": values{"create": false}}, "serviceAccount.name"},
		"the default account, by its name":    {values{"serviceAccount": values{"create": false, "name": "default"}}, ""},
		"one port for two things":             {values{"controller": values{"metrics": values{"port": 8081}}}, "two ports that differ"},
		"a port for the page that is taken":   {values{"settings": values{"uiPort": 8080}}, "settings.uiPort: write another port"},
		"a port for the page":                 {values{"settings": values{"uiPort": 8082}}, ""},
		"replicas that all act":               {values{"controller": values{"env": []any{actsAlone}}}, "write replicas: 1"},
		"one replica that acts":               {values{"controller": values{"env": []any{actsAlone}}, "replicas": 1}, ""},
		"a webhook's port":                    {values{"webhook": values{"enabled": true, "port": 8443}}, ""},
		"no webhook":                          {values{"webhook": values{"enabled": false}}, ""},
		"no webhook where it is needed":       {values{"webhook": values{"enabled": false}, "legacy": values{"v1beta1": "serve"}}, "v1beta1 is served by a webhook"},
		"Provisioners neither way":            {values{"legacy": values{"provisioners": "delete"}}, "provisioners"},
		"minValues neither way":               {values{"settings": values{"minValuesPolicy": "strict"}}, "minValuesPolicy"},
		"neither true nor false":              {values{"settings": values{"isolatedVPC": "maybe"}}, "isolatedVPC"},
		"less than no replicas":               {values{"replicas": -1}, "replicas"},
		"v1beta1 neither way":                 {values{"legacy": values{"v1beta1": "maybe"}}, "v1beta1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, "karpenter", named(tc.values))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
	_, err := render(t, "karpenter", values{
		"settings": values{"aws": values{"clusterName": "prod", "defaultInstanceProfile": "p"}}, "controller": values{"image": values{"repository": "r"}},
	})
	if err == nil || !strings.Contains(err.Error(), "clusterName: write") || !strings.Contains(err.Error(), "EC2NodeClass") || strings.Contains(err.Error(), "is required") {
		t.Errorf("error = %v, want both mistakes at once, and nothing that follows from them", err)
	}
}

// Helm ignores what a chart does not know, in every section, and templates misread what is of another kind.
func TestEveryValueIsChecked(t *testing.T) {
	ch, err := Load("karpenter")
	if err != nil {
		t.Fatal(err)
	}
	asIs := []string{".strategy", ".podSecurityContext", ".nodeSelector", ".affinity", ".dashboards.labels"} // Kubernetes reads these
	of := func(path string, v any) values {
		keys := strings.Split(path[1:], ".")
		for _, key := range slices.Backward(keys) {
			v = values{key: v}
		}
		return v.(values)
	}
	refused := func(path string, v any) {
		if _, err := util.ToRenderValues(ch, of(path, v), common.ReleaseOptions{}, common.DefaultCapabilities); err == nil {
			t.Errorf("%s may be %v", path[1:], v)
		}
	}
	var check func(path string, all values)
	check = func(path string, all values) {
		refused(path+".somethingElse", 1)
		for key, v := range all {
			switch below, is := v.(values); {
			case key == "initContainers": // of any kind: as text it is for Helm to fill in
			case is && len(below) > 0 && !slices.Contains(asIs, path+"."+key):
				check(path+"."+key, below)
			case is || reflect.TypeOf(v) == reflect.TypeFor[[]any]():
				refused(path+"."+key, "text")
			case reflect.TypeOf(v) == reflect.TypeFor[bool]():
				refused(path+"."+key, "text")
				refused(path+"."+key, 2)
			case reflect.TypeOf(v) == reflect.TypeFor[string]() && v != "":
				refused(path+"."+key, []any{"text"})
			}
		}
	}
	check("", ch.Values)
}

// A gate that the controller would not start with is refused when it is set, and no other.
func TestGatesThatTheControllerRefusesAreRefused(t *testing.T) {
	defaults := operator.DefaultSettings()
	for assignment := range strings.SplitSeq(defaults.Gates.String(), ",") {
		gate, _, _ := strings.Cut(assignment, "=")
		s := operator.DefaultSettings()
		if err := setting.Read("", s.List(), []string{"--feature-gates=" + gate + "=true"}, func(string) (string, bool) { return "", false }, io.Discard); err != nil {
			t.Fatal(err)
		}
		refused := s.Validate() != nil
		key := strings.ToLower(gate[:1]) + gate[1:]
		if _, err := render(t, "karpenter", named(values{"settings": values{"featureGates": values{key: true}}})); refused != (err != nil) {
			t.Errorf("gate %s: the controller refuses it: %t, the chart says %v", gate, refused, err)
		}
	}
}

// What people type with --set, as it stands in guides.
func TestFlagsThatPeopleType(t *testing.T) {
	const role, image = "arn:aws:iam::123456789012:role/KarpenterControllerRole-prod", "controller.image.repository=r"
	for name, tc := range map[string]struct {
		set     []string
		refused string
		role    bool
		env     map[string]string
	}{
		"cluster, endpoint and role": {
			set: []string{image, "settings.clusterName=prod", "settings.clusterEndpoint=https://x.eks.amazonaws.com", `serviceAccount.annotations.eks\.amazonaws\.com/role-arn=` + role},
			env: map[string]string{"CLUSTER_NAME": "prod", "CLUSTER_ENDPOINT": "https://x.eks.amazonaws.com"}, role: true,
		},
		"cluster, queue and resources": {
			set: []string{
				image, "settings.clusterName=my-cluster", "settings.interruptionQueue=my-cluster-karpenter", "controller.resources.requests.cpu=1",
				"controller.resources.requests.memory=1Gi", "controller.resources.limits.cpu=1", "controller.resources.limits.memory=1Gi",
			},
			env: map[string]string{"CLUSTER_NAME": "my-cluster", "INTERRUPTION_QUEUE": "my-cluster-karpenter"},
		},
		"the other Karpenter's image": {
			set:     []string{"settings.clusterName=prod", "controller.image.repository=public.ecr.aws/karpenter/controller"},
			refused: "is of another Karpenter",
		},
		"no image, as in guides for charts that know where theirs is": {
			set: []string{"settings.clusterName=prod"}, refused: "controller.image.repository is required",
		},
		"settings of the time of Provisioners": {
			set:     []string{"settings.aws.clusterName=prod", "settings.aws.defaultInstanceProfile=KarpenterNodeInstanceProfile-prod"},
			refused: "settings.aws.clusterName: write settings.clusterName",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := values{}
			for _, s := range tc.set {
				if err := strvals.ParseInto(s, v); err != nil {
					t.Fatal(err)
				}
			}
			if tc.refused != "" {
				if _, err := render(t, "karpenter", v); err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("error = %v, want %q", err, tc.refused)
				}
				return
			}
			container := deployment(t, v).Spec.Template.Spec.Containers[0]
			for _, e := range container.Env {
				if want, asked := tc.env[e.Name]; asked && e.Value != want {
					t.Errorf("%s = %q, want %q", e.Name, e.Value, want)
				}
				delete(tc.env, e.Name)
			}
			if len(tc.env) > 0 {
				t.Errorf("not told: %v", tc.env)
			}
			if cpu := container.Resources.Limits.Cpu(); len(tc.set) > 4 && cpu.String() != "1" {
				t.Errorf("limit of CPU = %s, want 1", cpu)
			}
			account := object[corev1.ServiceAccount](t, v, "ServiceAccount", "karpenter")
			if got := account.Annotations["eks.amazonaws.com/role-arn"]; (got == role) != tc.role {
				t.Errorf("the service account has the role %q", got)
			}
		})
	}
}

func TestNotesNameWhatIsMissing(t *testing.T) {
	const queue = "settings.interruptionQueue is empty"
	for name, tc := range map[string]struct {
		values  values
		says    string
		saysNot string
	}{
		"without a queue":         {nil, queue, "has no effect"},
		"with a queue":            {values{"settings": values{"interruptionQueue": "q"}}, "kubectl get ec2nodeclasses,nodepools", queue},
		"what an end leaves, too": {nil, "then delete the EC2NodeClasses", "has no effect"},
		"what an end leaves":      {nil, "helm uninstall stops Karpenter and leaves its machines", "has no effect"},
		"v1beta1 is not served":   {nil, "legacy.v1beta1=serve serves it", "without its webhook"},
		"v1beta1 is served":       {values{"legacy": values{"v1beta1": "serve"}}, "set\nlegacy.v1beta1=drop and wait", "is not served"},
		"with values of old age":  {values{"webhook": values{"port": 8443}}, "The value webhook is of an older chart", "extraObjects"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := renderAll(t, "karpenter", named(tc.values))
			if err != nil {
				t.Fatal(err)
			}
			if text := files[notes]; !strings.Contains(text, tc.says) || strings.Contains(text, tc.saysNot) {
				t.Errorf("the notes should say %q and not %q:\n%s", tc.says, tc.saysNot, text)
			}
		})
	}
}

// Whoever installs the controller's chart alone has the definitions too.
func TestTheFirstInstallBringsTheDefinitions(t *testing.T) {
	ch, err := Load("karpenter")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range ch.CRDObjects() {
		got = append(got, strings.TrimSuffix(strings.TrimPrefix(c.Name, "crds/"), ".yaml"))
	}
	want := []string{
		"autoscaling.x-k8s.io_capacitybuffers", "autoscaling.x-k8s.io_capacityquotas", "karpenter.k8s.aws_ec2nodeclasses", "karpenter.sh_commitmentdiscounts", "karpenter.sh_disruptionplans", "karpenter.sh_nodeclaims", "karpenter.sh_nodeoverlays", "karpenter.sh_nodepools", "karpenter.sh_rolloutpolicies",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSettingsBecomeEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		values values
		want   map[string]string // "-" for a variable that is not there
	}{
		"defaults are told": {nil, map[string]string{
			"CLUSTER_NAME": "prod", "BATCH_MAX_DURATION": "10s", "BATCH_IDLE_DURATION": "1s", "PREFERENCE_POLICY": "Respect",
			"MIN_VALUES_POLICY": "Strict", "VM_MEMORY_OVERHEAD_PERCENT": "0.075", "RESERVED_ENIS": "0", "LOG_LEVEL": "info",
			"LOG_OUTPUT_PATHS": "stdout", "LOG_ERROR_OUTPUT_PATHS": "stderr", "METRICS_PORT": "8080", "HEALTH_PROBE_PORT": "8081",
			"KARPENTER_SERVICE": "karpenter", "AMI_REFRESH_INTERVAL": "1m", "SUBNET_REFRESH_INTERVAL": "1m",
			"FEATURE_GATES": "ReservedCapacity=true,SpotToSpotConsolidation=false,NodeRepair=false,NodeOverlay=false,StaticCapacity=false,CapacityBuffer=false," +
				"TerminateFirstDrift=false,TerminateFirstRepair=false,PodDeletionCostManagement=false",
			"AWS_FEATURE_GATES":               "NodeClassCEL=false,DRANVIDIAGPU=false,DRAEFA=false,RebootForRepair=false",
			"IGNORE_DRA_REQUESTS":             "true",
			"LEGACY_NODE_REPAIR":              "-",
			"SECURITY_GROUP_REFRESH_INTERVAL": "1m",
		}},
		"enableDRA switches devices on": {
			values{"settings": values{"enableDRA": true}},
			map[string]string{"IGNORE_DRA_REQUESTS": "false", "AWS_FEATURE_GATES": "NodeClassCEL=false,DRANVIDIAGPU=true,DRAEFA=true,RebootForRepair=false"},
		},
		"so does either gate, whatever ignoreDRARequests is": {
			values{"settings": values{"ignoreDRARequests": true, "awsFeatureGates": values{"draEFA": "true"}}},
			map[string]string{"IGNORE_DRA_REQUESTS": "false", "AWS_FEATURE_GATES": "NodeClassCEL=false,DRANVIDIAGPU=false,DRAEFA=true,RebootForRepair=false"},
		},
		"devices without the provider's": {
			values{"settings": values{"ignoreDRARequests": "false"}},
			map[string]string{"IGNORE_DRA_REQUESTS": "false", "AWS_FEATURE_GATES": "NodeClassCEL=false,DRANVIDIAGPU=false,DRAEFA=false,RebootForRepair=false"},
		},
		"what enableDRA implies may be said too": {
			values{"settings": values{"enableDRA": true, "ignoreDRARequests": false, "awsFeatureGates": values{"draEFA": true}}},
			map[string]string{"IGNORE_DRA_REQUESTS": "false"},
		},
		"a gate may be null": {
			values{"settings": values{"featureGates": values{"nodeRepair": nil}}},
			map[string]string{"FEATURE_GATES": "ReservedCapacity=true,SpotToSpotConsolidation=false,NodeRepair=false,NodeOverlay=false,StaticCapacity=false," +
				"CapacityBuffer=false,TerminateFirstDrift=false,TerminateFirstRepair=false,PodDeletionCostManagement=false"},
		},
		"repair as before 1.15": {
			values{"settings": values{"legacyNodeRepair": true, "featureGates": values{"nodeRepair": "true"}}},
			map[string]string{"LEGACY_NODE_REPAIR": "true"},
		},
		"v1beta1 is not served by default": {nil, map[string]string{"V1BETA1": "-", "WEBHOOK_PORT": "-"}},
		"v1beta1 is served where somebody asks": {
			values{"legacy": values{"v1beta1": "serve", "webhookPort": 9443}}, map[string]string{"V1BETA1": "serve", "WEBHOOK_PORT": "9443"},
		},
		"Provisioners are ignored by default": {nil, map[string]string{"PROVISIONERS": "-"}},
		"Provisioners are converted where somebody asks": {
			values{"legacy": values{"provisioners": "convert"}}, map[string]string{"PROVISIONERS": "convert"},
		},
		"there is no page by default":         {nil, map[string]string{"UI_PORT": "-", "UI_HOST": "-"}},
		"there is a page where somebody asks": {values{"settings": values{"uiPort": 8082}}, map[string]string{"UI_PORT": "8082", "UI_HOST": "127.0.0.1"}},
		"what is empty is not told":           {nil, map[string]string{"CLUSTER_ENDPOINT": "-", "CLUSTER_CA_BUNDLE": "-", "INTERRUPTION_QUEUE": "-"}},
		"false and zero are values": {
			values{"settings": values{"isolatedVPC": false, "vmMemoryOverheadPercent": 0, "nominationHints": false}},
			map[string]string{"ISOLATED_VPC": "false", "VM_MEMORY_OVERHEAD_PERCENT": "0", "NOMINATION_HINTS": "false"},
		},
		"settings may be templates": {
			values{"settings": values{"interruptionQueue": "{{ .Release.Name }}-queue"}},
			map[string]string{"INTERRUPTION_QUEUE": "karpenter-queue"},
		},
		"gates are told all together": {
			values{"settings": values{"featureGates": values{"spotToSpotConsolidation": true, "reservedCapacity": false}}},
			map[string]string{"FEATURE_GATES": "ReservedCapacity=false,SpotToSpotConsolidation=true,NodeRepair=false,NodeOverlay=false,StaticCapacity=false,CapacityBuffer=false," +
				"TerminateFirstDrift=false,TerminateFirstRepair=false,PodDeletionCostManagement=false"},
		},
		"a variable that is given stands alone": {
			values{"controller": values{"env": []any{
				values{"name": "LOG_LEVEL", "value": "debug"}, values{"name": "ISOLATED_VPC", "value": "true"}, values{"name": "HTTPS_PROXY", "value": "p"},
			}}},
			map[string]string{"LOG_LEVEL": "debug", "ISOLATED_VPC": "true", "HTTPS_PROXY": "p", "DISABLE_DRY_RUN": "false"},
		},
		"several log paths are joined": {
			values{"logOutputPaths": []any{"stdout", "/tmp/log"}},
			map[string]string{"LOG_OUTPUT_PATHS": "stdout,/tmp/log"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, e := range deployment(t, named(tc.values)).Spec.Template.Spec.Containers[0].Env {
				if _, twice := got[e.Name]; twice {
					t.Errorf("%s is there twice; a server-side apply refuses that", e.Name)
				}
				got[e.Name] = e.Value
			}
			for variable, want := range tc.want {
				value, told := got[variable]
				if want == "-" && told || want != "-" && value != want {
					t.Errorf("%s = %q (told: %t), want %q", variable, value, told, want)
				}
			}
		})
	}
}

func TestPodsOfTheController(t *testing.T) {
	own := map[string]string{"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
	spec := deployment(t, named()).Spec.Template.Spec
	if got := spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels; !maps.Equal(got, own) {
		t.Errorf("anti-affinity selects %v, want the controller's own pods", got)
	}
	if got := spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels; !maps.Equal(got, own) {
		t.Errorf("spread selects %v, want the controller's own pods", got)
	}
	theirs := values{"topologySpreadConstraints": []any{values{
		"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
		"labelSelector": values{"matchLabels": values{"a": "b"}},
	}}}
	if got := deployment(t, named(theirs)).Spec.Template.Spec.TopologySpreadConstraints[0]; got.LabelSelector.MatchLabels["a"] != "b" || got.MaxSkew != 2 {
		t.Errorf("a spread with a selector of its own became %+v", got)
	}
	near := values{"topologyKey": "zone"}
	chosen := values{"topologyKey": "zone", "labelSelector": values{"matchLabels": values{"a": "b"}}}
	kinds := values{
		"requiredDuringSchedulingIgnoredDuringExecution":  []any{near, chosen},
		"preferredDuringSchedulingIgnoredDuringExecution": []any{values{"weight": 7, "podAffinityTerm": near}, values{"weight": 1, "podAffinityTerm": chosen}},
	}
	affinity := deployment(t, named(values{"affinity": values{"podAffinity": kinds, "podAntiAffinity": kinds}})).Spec.Template.Spec.Affinity
	for kind, terms := range map[string][]corev1.PodAffinityTerm{
		"podAffinity, required": affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
		"podAffinity, preferred": {
			affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm, affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[1].PodAffinityTerm,
		},
		"podAntiAffinity, required": affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
		"podAntiAffinity, preferred": {
			affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm, affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[1].PodAffinityTerm,
		},
	} {
		if terms[0].TopologyKey != "zone" || !maps.Equal(terms[0].LabelSelector.MatchLabels, own) || terms[1].LabelSelector.MatchLabels["a"] != "b" {
			t.Errorf("%s: %+v, want the controller's own pods where nothing else is said", kind, terms)
		}
	}
	if got := affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight; got != 7 {
		t.Errorf("a preference of weight 7 has weight %d", got)
	}
	if got := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(got) != 1 ||
		!slices.ContainsFunc(got[0].MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == "karpenter.sh/nodepool" && e.Operator == "DoesNotExist"
		}) {
		t.Errorf("node affinity = %v, want one that keeps off Karpenter's own nodes", got)
	}
	c := spec.Containers[0].SecurityContext
	if *c.Privileged || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !*c.RunAsNonRoot || *c.RunAsUser != 65532 || *c.RunAsGroup != 65532 || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("security context = %+v, want the strictest", c)
	}
	if !*spec.AutomountServiceAccountToken || spec.ServiceAccountName != "karpenter" {
		t.Errorf("the pod has account %q, token mounted: %v", spec.ServiceAccountName, *spec.AutomountServiceAccountToken)
	}
}

func TestImage(t *testing.T) {
	for name, tc := range map[string]struct {
		image values
		want  string
	}{
		"the chart's version without a tag": {values{"repository": "r"}, "r:0.1.0"},
		"a tag":                             {values{"repository": "r", "tag": "t"}, "r:t"},
		"a tag with a digest":               {values{"repository": "r", "tag": "t", "digest": "sha256:0"}, "r:t@sha256:0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := deployment(t, named(values{"controller": values{"image": tc.image}})).Spec.Template.Spec.Containers[0].Image
			if got != tc.want {
				t.Errorf("image = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSidecarsGetBothKindsOfMounts(t *testing.T) {
	spec := deployment(t, named(values{"controller": values{
		"sidecarContainer":    []any{values{"name": "s", "image": "i"}},
		"extraVolumeMounts":   []any{values{"name": "both", "mountPath": "/both"}},
		"sidecarVolumeMounts": []any{values{"name": "mine", "mountPath": "/mine"}},
	}})).Spec.Template.Spec
	if len(spec.Containers) != 2 || len(spec.Containers[0].VolumeMounts) != 1 || len(spec.Containers[1].VolumeMounts) != 2 {
		t.Errorf("containers = %+v", spec.Containers)
	}
}

func TestLabelsAndAnnotationsForEveryObject(t *testing.T) {
	files, err := render(t, "karpenter", named(values{
		"additionalLabels": values{"team": "a"}, "additionalAnnotations": values{"note": "b"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		for _, document := range documents([]byte(text)) {
			var o struct {
				Kind     string
				Metadata struct{ Labels, Annotations map[string]string }
			}
			if err := yaml.Unmarshal(document, &o); err != nil {
				t.Fatal(err)
			}
			if o.Kind != "" && (o.Metadata.Labels["team"] != "a" || o.Metadata.Annotations["note"] != "b" || o.Metadata.Labels["app.kubernetes.io/managed-by"] != "Helm") {
				t.Errorf("%s: %s has labels %v and annotations %v", name, o.Kind, o.Metadata.Labels, o.Metadata.Annotations)
			}
		}
	}
}

func TestServiceMonitorNeedsItsDefinition(t *testing.T) {
	v := named(values{"serviceMonitor": values{"enabled": true}})
	for api, want := range map[string]bool{"apps/v1": false, "monitoring.coreos.com/v1": true} {
		files, err := render(t, "karpenter", v, api)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(files["karpenter/templates/servicemonitor.yaml"], "kind: ServiceMonitor"); got != want {
			t.Errorf("with %s served, rendered = %t, want %t", api, got, want)
		}
	}
}

// What is scraped is a port of the Service, by its name, which is a port of the controller's container.
func TestAScrapeReachesTheController(t *testing.T) {
	v := named(values{"serviceMonitor": values{"enabled": true}, "controller": values{"metrics": values{"port": 9090}}})
	service, pod := object[corev1.Service](t, v, "Service", "karpenter"), deployment(t, v).Spec.Template
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "http-metrics" && p.Port == 9090 })
	if at < 0 {
		t.Fatalf("the ports are %+v", service.Spec.Ports)
	}
	if to := service.Spec.Ports[at].TargetPort.String(); !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == to && p.ContainerPort == 9090 }) {
		t.Errorf("it leads to %s, and the container has %+v", to, pod.Spec.Containers[0].Ports)
	}
	for key, value := range service.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("it selects %s=%s, and the pods have %v", key, value, pod.Labels)
		}
	}
	for _, o := range rendered(t, v, "monitoring.coreos.com/v1") {
		if o["kind"] != "ServiceMonitor" {
			continue
		}
		for key, value := range o["spec"].(map[string]any)["selector"].(map[string]any)["matchLabels"].(map[string]any) {
			if service.Labels[key] != value {
				t.Errorf("Prometheus looks for %s=%s, and the Service has %v", key, value, service.Labels)
			}
		}
		return
	}
	t.Error("there is no ServiceMonitor")
}

func TestPrometheusShowsATokenWhereMetricsWantOne(t *testing.T) {
	for guarded, want := range map[bool]values{
		false: {"port": "http-metrics", "path": "/metrics"},
		true: {
			"port": "http-metrics", "path": "/metrics", "scheme": "https", "tlsConfig": values{"insecureSkipVerify": true},
			"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
		},
	} {
		found := false
		for _, o := range rendered(t, named(values{"serviceMonitor": values{"enabled": true}, "settings": values{"metricsAuthentication": guarded}}), "monitoring.coreos.com/v1") {
			if o["kind"] != "ServiceMonitor" {
				continue
			}
			found = true
			if diff := cmp.Diff([]any{want}, o["spec"].(values)["endpoints"]); diff != "" {
				t.Errorf("metrics that are guarded: %t\n%s", guarded, diff)
			}
		}
		if !found {
			t.Error("there is no ServiceMonitor")
		}
	}
}

func TestRulesForPrometheus(t *testing.T) {
	asked := named(values{"prometheusRule": values{"enabled": true, "runbooks": "https://wiki/runbooks", "additionalLabels": values{"release": "p"}}})
	for api, want := range map[string]int{"apps/v1": 0, "monitoring.coreos.com/v1": 1} {
		found := 0
		for _, o := range rendered(t, asked, api) {
			if o["kind"] != "PrometheusRule" {
				continue
			}
			found++
			first := o["spec"].(values)["groups"].([]any)[0].(values)["rules"].([]any)[0].(values)
			if got := first["annotations"].(values)["runbook_url"]; got != "https://wiki/runbooks#karpentercannotlaunch" || first["expr"] == "" {
				t.Errorf("the first alert is %v", first)
			}
			if o["metadata"].(values)["labels"].(values)["release"] != "p" {
				t.Errorf("labels: %v", o["metadata"])
			}
		}
		if found != want {
			t.Errorf("with %s served, %d are rendered, want %d", api, found, want)
		}
	}
}

func TestDashboardsForGrafana(t *testing.T) {
	titles := map[string]bool{}
	for _, o := range rendered(t, named(values{"dashboards": values{"enabled": true, "annotations": values{"grafana_folder": "Karpenter"}}})) {
		if o["kind"] != "ConfigMap" || nameOf(o) == "karpenter-history" {
			continue
		}
		meta := o["metadata"].(values)
		if meta["labels"].(values)["grafana_dashboard"] != "1" || meta["annotations"].(values)["grafana_folder"] != "Karpenter" {
			t.Errorf("%s has labels %v and annotations %v", nameOf(o), meta["labels"], meta["annotations"])
		}
		for file, text := range o["data"].(values) {
			var d struct{ Title string }
			if err := yaml.Unmarshal([]byte(text.(string)), &d); err != nil || !strings.Contains(text.(string), "{{nodepool}}") && !strings.Contains(text.(string), "{{action}}") && !strings.Contains(text.(string), "{{pod}}") {
				t.Errorf("%s: %v, or its legends are lost", file, err)
			}
			titles[d.Title] = true
		}
	}
	if len(titles) != 5 {
		t.Errorf("dashboards: %v, want five", titles)
	}
	for _, o := range rendered(t, named()) {
		if o["kind"] == "ConfigMap" && nameOf(o) != "karpenter-history" {
			t.Errorf("%s is rendered, and nobody asked", nameOf(o))
		}
	}
}

func TestNetworkPolicy(t *testing.T) {
	if files, err := render(t, "karpenter", named()); err != nil || strings.TrimSpace(files["karpenter/templates/networkpolicy.yaml"]) != "" {
		t.Errorf("a policy is rendered that nobody asked for, or %v", err)
	}
	some := []any{values{"namespaceSelector": values{}}}
	out := []string{"UDP 53, TCP 53", "TCP 443", "TCP 80 with 169.254.170.23/32 fd00:ec2::23/128 169.254.169.254/32 fd00:ec2::254/128"}
	for name, tc := range map[string]struct {
		asked, more values
		in, out     []string
	}{
		"metrics and probes":               {nil, nil, []string{"TCP 8080", "TCP 8081"}, out},
		"metrics for some":                 {values{"metricsFrom": some}, values{"controller": values{"metrics": values{"port": 9090}}}, []string{"TCP 9090 with somebody", "TCP 8081"}, out},
		"another port of the API server":   {values{"additionalEgress": []any{values{"ports": []any{values{"protocol": "TCP", "port": 6443}}}}}, nil, []string{"TCP 8080", "TCP 8081"}, append(slices.Clip(out), "TCP 6443")},
		"the page for some":                {values{"uiFrom": some}, values{"settings": values{"uiPort": 8082, "uiHost": "0.0.0.0"}}, []string{"TCP 8080", "TCP 8082 with somebody", "TCP 8081"}, out},
		"a page that the pod alone sees":   {nil, values{"settings": values{"uiPort": 8082}}, []string{"TCP 8080", "TCP 8081"}, out},
		"the webhook, from an API server":  {nil, values{"legacy": values{"v1beta1": "serve"}}, []string{"TCP 8080", "TCP 8081", "TCP 8443"}, out},
		"the webhook, while it is dropped": {nil, values{"legacy": values{"v1beta1": "drop", "webhookPort": 9443}}, []string{"TCP 8080", "TCP 8081", "TCP 9443"}, out},
	} {
		t.Run(name, func(t *testing.T) {
			v := named(values{"networkPolicy": values{"enabled": true}}, tc.more)
			maps.Copy(v["networkPolicy"].(values), tc.asked)
			p := object[networkingv1.NetworkPolicy](t, v, "NetworkPolicy", "karpenter").Spec
			var in, out []string
			for _, rule := range p.Ingress {
				in = append(in, let(rule.Ports, rule.From))
			}
			for _, rule := range p.Egress {
				out = append(out, let(rule.Ports, rule.To))
			}
			if diff := cmp.Diff(tc.in, in) + cmp.Diff(tc.out, out); diff != "" {
				t.Error(diff)
			}
			if !slices.Equal(p.PolicyTypes, []networkingv1.PolicyType{"Ingress", "Egress"}) {
				t.Errorf("it is about %v alone", p.PolicyTypes)
			}
			if own := deployment(t, v).Spec.Selector.MatchLabels; !maps.Equal(p.PodSelector.MatchLabels, own) {
				t.Errorf("it is about the pods %v, want %v", p.PodSelector.MatchLabels, own)
			}
		})
	}
}

// let is what one rule of a network policy lets through.
func let(ports []networkingv1.NetworkPolicyPort, with []networkingv1.NetworkPolicyPeer) string {
	var all []string
	for _, p := range ports {
		all = append(all, fmt.Sprintf("%s %s", *p.Protocol, p.Port))
	}
	text, and := strings.Join(all, ", "), " with "
	for _, peer := range with {
		who := "somebody"
		if peer.IPBlock != nil {
			who = peer.IPBlock.CIDR
		}
		text, and = text+and+who, " "
	}
	return text
}

// What the policies do is tested on an API server, in test/apiserver.
func TestPoliciesAreRenderedWhereTheyAreServedAndAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		values values
		apis   []string
		want   string
	}{
		"hints are watched":                                    {nil, []string{policies}, "karpenter-hints"},
		"a cluster that does not know policies":                {nil, []string{"v1.29"}, ""},
		"no cluster, as in helm template":                      {nil, []string{"v1.30"}, "karpenter-hints"},
		"no hints, nothing to watch":                           {values{"settings": values{"nominationHints": false}}, []string{policies}, ""},
		"no policy about hints":                                {values{"admissionPolicies": values{"hints": false}}, []string{policies}, ""},
		"a policy about roles, everywhere":                     {values{"admissionPolicies": values{"passRole": true}}, []string{"v1.29"}, "karpenter-pass-role"},
		"a policy about pools, where it is used":               {values{"admissionPolicies": values{"nodePools": values{"requireLimits": true}}}, []string{"v1.29"}, "karpenter-nodepools"},
		"a policy about Deployments, where they are restarted": {values{"surge": values{"enabled": true}}, []string{policies}, "karpenter-hints karpenter-surge"},
		"a warning about v1beta1, where it is served":          {values{"legacy": values{"v1beta1": "serve"}}, []string{policies}, "karpenter-hints karpenter-v1beta1 warns"},
		"not where nobody could read it":                       {values{"legacy": values{"v1beta1": "serve"}}, []string{"v1.29"}, ""},
		"nor where v1beta1 is not served":                      {values{"legacy": values{"strict": true}}, []string{"v1.29"}, ""},
		"what is strict is strict everywhere":                  {values{"legacy": values{"v1beta1": "serve", "strict": true}}, []string{"v1.29"}, "karpenter-v1beta1"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range rendered(t, named(tc.values), tc.apis...) {
				switch o["kind"] {
				case "ValidatingAdmissionPolicy":
					got = append(got, nameOf(o))
				case "ValidatingAdmissionPolicyBinding":
					switch does := fmt.Sprint(o["spec"].(map[string]any)["validationActions"]); does {
					case "[Deny]":
					case "[Warn]":
						got = append(got, "warns")
					default:
						t.Errorf("%s does %s", nameOf(o), does)
					}
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("policies %v, want %q", got, tc.want)
			}
		})
	}
}

func TestBudgetOfTheController(t *testing.T) {
	pdb := object[policyv1.PodDisruptionBudget](t, named(), "PodDisruptionBudget", "karpenter")
	if pdb.Spec.MaxUnavailable.IntValue() != 1 || len(pdb.Spec.Selector.MatchLabels) != 2 {
		t.Errorf("budget = %+v", pdb.Spec)
	}
}

// TestRights is the whole of what the controller may do. A line more is a right that somebody must ask for.
func TestRights(t *testing.T) {
	read := "get list watch"
	core := []string{
		"karpenter.sh: nodepools nodeclaims nodeoverlays disruptionplans: " + read,
		"autoscaling.x-k8s.io: capacitybuffers: " + read,
		": pods nodes namespaces persistentvolumes persistentvolumeclaims: " + read,
		"apps: daemonsets: " + read,
		"policy: poddisruptionbudgets: " + read,
		"storage.k8s.io: storageclasses csinodes csidrivers volumeattachments: " + read,
		"karpenter.sh: nodeclaims nodeclaims/status: create delete patch",
		"karpenter.sh: nodepools nodepools/status nodeoverlays/status disruptionplans/status: patch",
		"karpenter.sh: disruptionplans: create delete", // and no patch: it asks, others say yes
		"autoscaling.x-k8s.io: capacitybuffers/status: patch",
		": nodes: patch delete",
		": pods: delete",
		": pods/eviction: create",
		": events: create",
	}
	hint := ": pods/status: patch"
	spread := []string{hint, ": services replicationcontrollers: " + read, "apps: replicasets statefulsets: " + read}
	for name, tc := range map[string]struct {
		kind, role string
		values     values
		want       []string
	}{
		"core":               {"ClusterRole", "karpenter-core", nil, append([]string{hint}, core...)},
		"core without hints": {"ClusterRole", "karpenter-core", values{"settings": values{"nominationHints": false}}, core},
		"core with guarded metrics": {"ClusterRole", "karpenter-core", values{"settings": values{"metricsAuthentication": true}}, append([]string{
			hint, "authentication.k8s.io: tokenreviews: create", "authorization.k8s.io: subjectaccessreviews: create",
		}, core...)},
		"core with a guarded page": {"ClusterRole", "karpenter-core", values{"settings": values{"uiPort": 8082, "uiHost": "0.0.0.0"}}, append([]string{
			hint, "authentication.k8s.io: tokenreviews: create", "authorization.k8s.io: subjectaccessreviews: create", // whose token it is, and whether they may see the page
		}, core...)},
		"core with a page of the pod's own":    {"ClusterRole", "karpenter-core", values{"settings": values{"uiPort": 8082}}, append([]string{hint}, core...)},
		"core with a page that is off":         {"ClusterRole", "karpenter-core", values{"settings": values{"uiHost": "0.0.0.0"}}, append([]string{hint}, core...)},
		"core with default spread constraints": {"ClusterRole", "karpenter-core", values{"settings": values{"schedulerConfig": "{}"}}, append(spread, core...)},
		"core with default spread constraints of a variable": {"ClusterRole", "karpenter-core", values{"controller": values{"env": []any{
			values{"name": "SCHEDULER_CONFIG", "value": "{}"},
		}}}, append(spread, core...)},
		"core with more": {"ClusterRole", "karpenter-core", values{"additionalClusterRoleRules": []any{
			values{"apiGroups": []any{"x"}, "resources": []any{"y"}, "verbs": []any{"z"}},
		}}, append([]string{hint, "x: y: z"}, core...)},
		"core that counts on commitments": {"ClusterRole", "karpenter-core", values{"settings": values{"featureGates": values{"commitmentDiscounts": true}}},
			append([]string{hint, "karpenter.sh: commitmentdiscounts: " + read, "karpenter.sh: commitmentdiscounts/status: patch"}, core...)},
		"core that imports commitments": {"ClusterRole", "karpenter-core", values{"settings": values{"importCommitments": "50%", "featureGates": values{"commitmentDiscounts": true}}},
			append([]string{hint, "karpenter.sh: commitmentdiscounts: " + read, "karpenter.sh: commitmentdiscounts: create delete patch",
				"karpenter.sh: commitmentdiscounts/status: patch"}, core...)},
		"core that keeps room for buffers": {"ClusterRole", "karpenter-core", values{"settings": values{"featureGates": values{"capacityBuffer": true}}}, append([]string{
			hint, ": podtemplates: " + read, "apps: deployments statefulsets replicasets: get", "batch: jobs: get",
		}, core...)},
		"core with foresight": {"ClusterRole", "karpenter-core", values{"settings": values{"foresight": true}}, append([]string{
			hint, "batch: cronjobs: " + read, "apps: deployments: " + read, "autoscaling: horizontalpodautoscalers: " + read,
			"keda.sh: scaledobjects: " + read,
		}, core...)},
		"core that keeps to RolloutPolicies": {"ClusterRole", "karpenter-core", values{"settings": values{"featureGates": values{"rolloutPolicies": true}}}, append([]string{
			hint, "karpenter.sh: rolloutpolicies: " + read, "karpenter.sh: rolloutpolicies/status: patch", "apps: deployments: get",
		}, core...)},
		"core that restarts Deployments": {"ClusterRole", "karpenter-core", values{"surge": values{"enabled": true}}, append([]string{
			hint, "apps: deployments: get patch",
		}, core...)},
		"core that keeps to quotas": {"ClusterRole", "karpenter-core", values{"settings": values{"featureGates": values{"capacityQuota": true}}}, append([]string{
			hint, "autoscaling.x-k8s.io: capacityquotas: " + read, "autoscaling.x-k8s.io: capacityquotas/status: patch",
		}, core...)},
		"core that plans for devices": {"ClusterRole", "karpenter-core", values{"settings": values{"ignoreDRARequests": false}}, append([]string{
			hint, "resource.k8s.io: resourceclaims resourceclaimtemplates deviceclasses resourceslices devicetaintrules: " + read,
		}, core...)},
		"core that is asked about Provisioners": {"ClusterRole", "karpenter-core", values{"legacy": values{"provisioners": "tell"}}, append([]string{
			hint, "karpenter.sh: provisioners: get list", "karpenter.k8s.aws: awsnodetemplates: get list",
			"karpenter.sh: provisioners/status: patch", "karpenter.k8s.aws: awsnodetemplates/status: patch",
		}, core...)},
		"core that converts Provisioners": {"ClusterRole", "karpenter-core", values{"legacy": values{"provisioners": "convert"}}, append([]string{
			hint, "karpenter.sh: provisioners: get list", "karpenter.k8s.aws: awsnodetemplates: get list",
			"karpenter.sh: provisioners/status: patch", "karpenter.k8s.aws: awsnodetemplates/status: patch",
			"karpenter.sh: nodepools: create", "karpenter.k8s.aws: ec2nodeclasses: create",
		}, core...)},
		"AWS": {"ClusterRole", "karpenter", nil, []string{
			"karpenter.k8s.aws: ec2nodeclasses: " + read,
			"karpenter.k8s.aws: ec2nodeclasses ec2nodeclasses/status: patch",
		}},
		"people who are admin": {"ClusterRole", "karpenter-admin", nil, append(people(read+write, read+write, read+" patch update delete", read+write),
			"karpenter.k8s.aws: ec2nodeclasses: "+read+write)},
		"people who edit, but not what runs as the nodes' role": {"ClusterRole", "karpenter-edit", nil, people(read+write, read+" delete", read, read)},
		"people who may look, but not at user data":             {"ClusterRole", "karpenter-view", nil, people(read, read, read, read)},
		"people who approve":                                    {"ClusterRole", "karpenter-approver", nil, []string{"karpenter.sh: disruptionplans: " + read + " patch update"}},
		"own namespace": {"Role", "karpenter", nil, []string{
			"coordination.k8s.io: leases: get watch",
			"coordination.k8s.io: leases [karpenter-leader-election]: patch update",
			"coordination.k8s.io: leases: create",
		}},
		"history": {"Role", "karpenter-history", nil, []string{": configmaps [karpenter-history]: get update"}},
		"ledger": {"Role", "karpenter-ledger", values{"settings": values{"ledger": true}}, []string{
			": configmaps [karpenter-ledger-0 karpenter-ledger-1 karpenter-ledger-2 karpenter-ledger-3 karpenter-ledger-4 karpenter-ledger-5 " +
				"karpenter-ledger-6 karpenter-ledger-7 karpenter-ledger-8 karpenter-ledger-9 karpenter-ledger-10 karpenter-ledger-11 " +
				"karpenter-ledger-12 karpenter-ledger-13 karpenter-ledger-14 karpenter-ledger-15 karpenter-ledger-16 karpenter-ledger-17 " +
				"karpenter-ledger-18 karpenter-ledger-19]: get update",
		}},
		"definitions that serve v1beta1": {"ClusterRole", "karpenter-conversion", values{"legacy": values{"v1beta1": "serve"}}, []string{
			"apiextensions.k8s.io: customresourcedefinitions customresourcedefinitions/status [nodepools.karpenter.sh nodeclaims.karpenter.sh ec2nodeclasses.karpenter.k8s.aws]: get update",
		}},
		"the webhook's certificate": {"Role", "karpenter-conversion", values{"legacy": values{"v1beta1": "drop"}}, []string{
			": secrets [karpenter-conversion]: get update",
			": secrets: create",
		}},
		"DNS": {"Role", "karpenter-dns", nil, []string{": services [kube-dns]: get"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range object[rbacv1.ClusterRole](t, named(tc.values), tc.kind, tc.role).Rules {
				names := ""
				if len(r.ResourceNames) > 0 {
					names = " [" + strings.Join(r.ResourceNames, " ") + "]"
				}
				got = append(got, strings.Join(r.APIGroups, " ")+": "+strings.Join(r.Resources, " ")+names+": "+strings.Join(r.Verbs, " "))
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(tc.want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const write = " create delete patch update"

// people is what people may do with the kinds of every cloud, and with claims; status is the controller's alone.
func people(verbs, claims, plans, quotas string) []string {
	return []string{"karpenter.sh: nodepools nodeoverlays commitmentdiscounts rolloutpolicies: " + verbs, "karpenter.sh: nodeclaims: " + claims, "karpenter.sh: disruptionplans: " + plans, "autoscaling.x-k8s.io: capacitybuffers: " + verbs, "autoscaling.x-k8s.io: capacityquotas: " + quotas}
}

func TestRolesOfPeopleGoIntoThoseOfKubernetes(t *testing.T) {
	for _, role := range []string{"admin", "edit", "view"} {
		r := object[rbacv1.ClusterRole](t, named(), "ClusterRole", "karpenter-"+role)
		if r.Labels["rbac.authorization.k8s.io/aggregate-to-"+role] != "true" {
			t.Errorf("role %s has labels %v", role, r.Labels)
		}
	}
}

func TestDefinitionsCarryAnnotations(t *testing.T) {
	files, err := render(t, "karpenter-crd", values{"additionalAnnotations": values{"note": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(files, func(_, text string) bool { return strings.TrimSpace(text) == "" }) // of kinds that nobody asked for
	if len(files) != 9 {
		t.Errorf("%d files, want one per definition", len(files))
	}
	for name, text := range files {
		var o struct {
			Kind     string
			Metadata struct{ Annotations map[string]string }
		}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if o.Kind != "CustomResourceDefinition" || o.Metadata.Annotations["note"] != "b" {
			t.Errorf("%s: %s with annotations %v", name, o.Kind, o.Metadata.Annotations)
		}
	}
}

// A replica that is not ready converts all the same: it may not become ready before it can read what is stored as v1beta1.
func TestTheWebhooksServiceLeadsToEveryReplica(t *testing.T) {
	s := object[corev1.Service](t, named(values{"legacy": values{"v1beta1": "serve", "webhookPort": 9443}}), "Service", "karpenter-conversion")
	if !s.Spec.PublishNotReadyAddresses || s.Spec.Ports[0].Port != 8443 || s.Spec.Ports[0].TargetPort.String() != "https-webhook" {
		t.Errorf("service = %+v", s.Spec)
	}
	ports := deployment(t, named(values{"legacy": values{"v1beta1": "serve", "webhookPort": 9443}})).Spec.Template.Spec.Containers[0].Ports
	if last := ports[len(ports)-1]; last.Name != "https-webhook" || last.ContainerPort != 9443 {
		t.Errorf("ports = %+v", ports)
	}
}

func TestDefinitionsOfOlderKinds(t *testing.T) {
	files, err := render(t, "karpenter-crd", values{"legacy": values{"enabled": true}})
	if err != nil {
		t.Fatal(err)
	}
	text := files["karpenter-crd/templates/legacy.yaml"]
	for _, want := range []string{"provisioners.karpenter.sh", "awsnodetemplates.karpenter.k8s.aws"} {
		if !strings.Contains(text, "name: "+want) {
			t.Errorf("there is no definition %s:\n%s", want, text)
		}
	}
}

// defined is a cluster with one definition, of which objects were stored in these versions.
type defined struct {
	name   string
	stored []any
}

func (d defined) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	if kind != "CustomResourceDefinition" {
		return nil, false, fmt.Errorf("%s is not looked up", kind)
	}
	scheme, crds := runtime.NewScheme(), schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	return fake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{crds: "CustomResourceDefinitionList"}, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": d.name}, "status": map[string]any{"storedVersions": d.stored},
	}}).Resource(crds), false, nil
}

// Where objects may be stored as v1beta1, a release that reads v1 alone is refused, and told how they are rewritten.
func TestWhatIsStoredAsV1Beta1StopsAReleaseWithoutIt(t *testing.T) {
	const nodepools = "nodepools.karpenter.sh"
	for name, tc := range map[string]struct {
		cluster defined
		legacy  string
		refused bool
	}{
		"pools":                        {defined{nodepools, []any{"v1beta1", "v1"}}, "none", true},
		"claims":                       {defined{"nodeclaims.karpenter.sh", []any{"v1beta1"}}, "none", true},
		"classes":                      {defined{"ec2nodeclasses.karpenter.k8s.aws", []any{"v1", "v1beta1"}}, "none", true},
		"v1 alone":                     {defined{nodepools, []any{"v1"}}, "none", false},
		"v1beta1 is served":            {defined{nodepools, []any{"v1beta1", "v1"}}, "serve", false},
		"v1beta1 is rewritten":         {defined{nodepools, []any{"v1beta1", "v1"}}, "drop", false},
		"what is no kind of Karpenter": {defined{"others.example.com", []any{"v1beta1"}}, "none", false},
	} {
		t.Run(name, func(t *testing.T) {
			ch, err := Load("karpenter")
			if err != nil {
				t.Fatal(err)
			}
			all, err := util.ToRenderValues(ch, named(values{"legacy": values{"v1beta1": tc.legacy}}), common.ReleaseOptions{Name: "karpenter", Namespace: "karpenter"}, common.DefaultCapabilities)
			if err != nil {
				t.Fatal(err)
			}
			_, err = engine.RenderWithClientProvider(ch, all, tc.cluster)
			if want := "objects of " + tc.cluster.name + " may be stored as v1beta1"; tc.refused != (err != nil) || tc.refused && !(strings.Contains(err.Error(), want) && strings.Contains(err.Error(), "write legacy.v1beta1: serve, or drop")) {
				t.Errorf("error = %v, refused: %t", err, tc.refused)
			}
		})
	}
}
