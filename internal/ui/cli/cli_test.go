package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"karpenter": func() {
		env := Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Catalog: threeTypes, CheckClass: noPlacementGroups}
		if len(os.Args) < 2 {
			Usage(os.Stderr)
			os.Exit(exitBadInput)
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // as in main
		code := Run(ctx, env, os.Args[1:])
		stop()
		os.Exit(code)
	}, "panics": showAndPanic})
}

func TestCommands(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}

func noPlacementGroups(c *awsv1.EC2NodeClass) error {
	if c.Spec.PlacementGroupSelector != nil {
		return errors.New("placement groups are not supported")
	}
	return nil
}

// threeTypes is a small catalogue: 2, 4 and 8 cores at 0.1, 0.2 and 0.4 dollars, in two zones. The largest brings two devices.
func threeTypes(Market, *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
	c := &cloud.Catalog{}
	for name, cores := range map[string]int64{"t.small": 2, "t.medium": 4, "t.large": 8} {
		it := &cloud.InstanceType{
			Name: name,
			Labels: map[string][]string{
				corev1.LabelInstanceTypeStable: {name}, corev1.LabelArchStable: {"amd64"}, corev1.LabelOSStable: {"linux"},
				corev1.LabelTopologyZone: {"z1", "z2"}, v1.CapacityTypeLabelKey: {v1.CapacityTypeOnDemand},
			},
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(cores*4<<30, resource.BinarySI),
				corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
			},
		}
		if cores == 8 {
			it.Devices = []cloud.DeviceSlice{{Driver: "gpu.example", Devices: []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}}}}
		}
		for _, zone := range []string{"z1", "z2"} {
			it.Offerings = append(it.Offerings, cloud.Offering{Labels: map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand},
				Price: cloud.FromDollars(0.05 * float64(cores)), Available: true})
		}
		c.Types = append(c.Types, it)
	}
	slices.SortFunc(c.Types, func(a, b *cloud.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	return c, nil
}
