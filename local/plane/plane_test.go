package plane

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/minor"
)

func plane() Plane {
	ports := map[string]int{}
	for i, name := range PortNames() {
		ports[name] = 10000 + i
	}
	return Plane{Dir: home.Dir("/state"), Ports: ports}
}

func TestNothingListensBeyondThisMachine(t *testing.T) {
	p := plane()
	for _, program := range []string{Etcd, APIServer, Scheduler, ControllerManager} {
		args := p.Args(program)
		if len(args) == 0 {
			t.Errorf("%s has no arguments", program)
		}
		for _, arg := range args {
			name, value, _ := strings.Cut(arg, "=")
			listens := strings.Contains(name, "listen") || strings.Contains(name, "bind-address")
			if listens && !strings.Contains(value, "127.0.0.1") {
				t.Errorf("%s: %s", program, arg)
			}
			if strings.Contains(value, "http://") {
				t.Errorf("%s: %s is not encrypted", program, arg)
			}
		}
	}
}

func TestEveryPortIsUsedOnce(t *testing.T) {
	p := plane()
	used := strings.Join(slices.Concat(p.Args(Etcd), p.Args(APIServer), p.Args(Scheduler), p.Args(ControllerManager), p.Args(Kubelets), p.Args(AWS)), "\n")
	for _, name := range PortNames() {
		if port := p.Ports[name]; !strings.Contains(used, strconv.Itoa(port)) {
			t.Errorf("nobody is told port %s", name)
		}
	}
}

func TestAuthorizationIsOn(t *testing.T) {
	p := plane()
	if !slices.Contains(p.Args(APIServer), "--authorization-mode=Node,RBAC") {
		t.Error("the API server does not check rights")
	}
	if !slices.Contains(p.Args(Etcd), "--client-cert-auth") || !slices.Contains(p.Args(Etcd), "--peer-client-cert-auth") {
		t.Error("etcd talks to anybody")
	}
}

// The control plane may be of another minor, in an executable of its own. All that knows the cluster's version hears of that one.
func TestAnotherMinorsPlane(t *testing.T) {
	p := plane()
	p.Kubernetes = minor.Executable{Path: "/bin/kubernetes-1.34", Version: "v1.34.4"}
	for program, want := range map[string]string{
		APIServer: "/bin/kubernetes-1.34", Scheduler: "/bin/kubernetes-1.34", ControllerManager: "/bin/kubernetes-1.34", Etcd: "", Kubelets: "", AWS: "",
	} {
		if got := p.Executable(program); got != want {
			t.Errorf("%s is in %q, want %q", program, got, want)
		}
	}
	if !slices.Contains(p.Args(Kubelets), "--kubernetes=v1.34.4") || !slices.Contains(p.Args(AWS), "--kubernetes=1.34") {
		t.Errorf("kubelets hear %v, AWS %v", p.Args(Kubelets), p.Args(AWS))
	}
}
