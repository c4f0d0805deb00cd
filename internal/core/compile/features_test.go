package compile

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// When go.mod moves to a newer Kubernetes and this test names a new feature: let podclass keep the fields of a pod from which the library
// infers the feature, and add a pod that needs it to the test below. A feature with a highest version needs the API server's version, too.
func TestTheFeaturesOfTheLibraryAreKnown(t *testing.T) {
	known := []string{"RestartAllContainersOnContainerExits", "InPlacePodLevelResourcesVerticalScaling", "ExtendWebSocketsToKubelet",
		"InPlacePodVerticalScalingInitContainers", "UserNamespacesHostNetworkSupport"}
	for _, f := range features.AllFeatures {
		if !slices.Contains(known, f.Name()) || f.MaxVersion() != nil {
			t.Errorf("%s with highest version %v is new", f.Name(), f.MaxVersion())
		}
	}
}

// A class needs what each of its pods needs.
func TestWhatAPodNeedsOfAKubelet(t *testing.T) {
	rules := []corev1.ContainerRestartRule{
		{Action: corev1.ContainerRestartRuleActionRestart, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{1}}},
		{Action: corev1.ContainerRestartRuleActionRestartAllContainers, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{2}}},
	}
	container := func(rules ...corev1.ContainerRestartRule) []corev1.Container {
		return []corev1.Container{{Name: "a"}, {Name: "b", RestartPolicyRules: rules}}
	}
	for name, tc := range map[string]struct {
		pod  corev1.PodSpec
		want []string
	}{
		"nothing":                  {corev1.PodSpec{Containers: container()}, nil},
		"a rule for one container": {corev1.PodSpec{Containers: container(rules[0])}, nil},
		"a rule for all":           {corev1.PodSpec{Containers: container(rules...)}, []string{"RestartAllContainersOnContainerExits"}},
		"a rule of an init container": {corev1.PodSpec{InitContainers: container(rules...), Containers: container()},
			[]string{"RestartAllContainersOnContainerExits"}},
		"a user namespace":        {corev1.PodSpec{HostUsers: new(false), Containers: container()}, nil},
		"the network of the host": {corev1.PodSpec{HostNetwork: true, Containers: container()}, nil},
		"the users of the host":   {corev1.PodSpec{HostNetwork: true, HostUsers: new(true), Containers: container()}, nil},
		"a user namespace in the network of the host": {corev1.PodSpec{HostNetwork: true, HostUsers: new(false), Containers: container()},
			[]string{"UserNamespacesHostNetworkSupport"}},
	} {
		t.Run(name, func(t *testing.T) {
			class := podclass.NewInterner().Class(&corev1.Pod{Spec: tc.pod})
			if got := featuresOf(class.Spec); !slices.Equal(got, tc.want) {
				t.Errorf("features = %v, want %v", got, tc.want)
			}
			for _, f := range features.AllFeatures {
				if f.InferForScheduling(&types.PodInfo{Spec: &tc.pod}) != slices.Contains(tc.want, f.Name()) {
					t.Errorf("the library and the table differ over %s", f.Name())
				}
			}
		})
	}
}
