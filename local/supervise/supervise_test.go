package supervise

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"karpenter.sh/karpenter/local/plane"
)

func TestPortsAreFreeAndStayTheSame(t *testing.T) {
	first, held := chosen(t, nil, 0)
	seen := map[int]bool{}
	for _, name := range plane.PortNames() {
		if p := first[name]; p == 0 || seen[p] {
			t.Errorf("%s got port %d", name, p)
		}
		seen[first[name]] = true
	}
	beside, _ := chosen(t, first, 0)
	for name, p := range beside {
		if seen[p] {
			t.Errorf("%s of a cluster that starts beside it got port %d, which is held", name, p)
		}
	}
	held.release()
	second, _ := chosen(t, first, 0)
	for name, p := range first {
		if second[name] != p {
			t.Errorf("%s moved from port %d to %d, though it is free", name, p, second[name])
		}
	}
}

func TestATakenPortIsLeftAloneOrRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	if ports, _ := chosen(t, map[string]int{plane.EtcdPort: taken}, 0); ports[plane.EtcdPort] == taken {
		t.Errorf("a taken port of the last run is port %d again", taken)
	}
	_, err = choosePorts(nil, taken)
	if err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("a taken port that was asked for: %v, want an error that says what to do", err)
	}
}

func TestAWantedPortIsTaken(t *testing.T) {
	free, held := chosen(t, nil, 0)
	held.release()
	ports, _ := chosen(t, map[string]int{plane.APIPort: free[plane.EtcdPort]}, free[plane.APIPort])
	if ports[plane.APIPort] != free[plane.APIPort] {
		t.Errorf("asked for %d, got %d", free[plane.APIPort], ports[plane.APIPort])
	}
}

// chosen are ports as a cluster has them that starts now.
func chosen(t *testing.T, before map[string]int, wanted int) (map[string]int, holds) {
	t.Helper()
	ports, err := choosePorts(before, wanted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ports.release)
	return ports.numbers(), ports
}

func TestLastWords(t *testing.T) {
	for name, tc := range map[string]struct{ log, want string }{
		"the last line that speaks of an error": {"fine\nError: no room\nfine again\n", "Error: no room"},
		"else the last line":                    {"one\ntwo\n", "two"},
		"an early error is old news":            {"error\n" + strings.Repeat("fine\n", 50), "fine"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(tc.log), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := lastWords(path); !strings.HasPrefix(got, tc.want+" (") {
				t.Errorf("last words = %q, want %q", got, tc.want)
			}
		})
	}
	if got := lastWords("/not/there"); got != "it left no log" {
		t.Errorf("without a log: %q", got)
	}
}
