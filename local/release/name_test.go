package release

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"karpenter.sh/karpenter/local/plane"
)

func TestAClusterHasItsNameEverywhere(t *testing.T) {
	for given, want := range map[string]string{"production": "production", "": plane.ClusterName} {
		settings := Releases(given, nil)[1].Values["settings"].(map[string]any)
		if settings["clusterName"] != want || settings["interruptionQueue"] != want {
			t.Errorf("%q: the chart gets %v", given, settings)
		}
		all, err := read("first.yaml", given)
		if err != nil {
			t.Fatal(err)
		}
		class := fmt.Sprint(all[0].Object["spec"])
		if strings.Count(class, "karpenter.sh/discovery:"+want) != 2 || !strings.Contains(class, "role:KarpenterNodeRole-"+want) {
			t.Errorf("%q: the class has %s", given, class)
		}
		p := plane.Plane{Name: given}
		if !slices.Contains(p.Args(plane.AWS), "--cluster="+want) || !slices.Contains(p.Args(plane.ControllerManager), "--cluster-name="+want) {
			t.Errorf("%q: AWS gets %q", given, p.Args(plane.AWS))
		}
	}
}
