package supervise

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/local/plane"
)

func TestPortsAreFreeAndStayTheSame(t *testing.T) {
	first, err := choosePorts(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, name := range plane.PortNames() {
		if p := first[name]; p == 0 || seen[p] {
			t.Errorf("%s got port %d", name, p)
		}
		seen[first[name]] = true
	}
	second, err := choosePorts(first, 0)
	if err != nil {
		t.Fatal(err)
	}
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
	ports, err := choosePorts(map[string]int{plane.EtcdPort: taken}, 0)
	if err != nil || ports[plane.EtcdPort] == taken {
		t.Errorf("a taken port of the last run: got %d, %v", ports[plane.EtcdPort], err)
	}
	_, err = choosePorts(nil, taken)
	if err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("a taken port that was asked for: %v, want an error that says what to do", err)
	}
}

func TestAWantedPortIsTaken(t *testing.T) {
	free, err := choosePorts(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := choosePorts(map[string]int{plane.APIPort: free[plane.EtcdPort]}, free[plane.APIPort])
	if err != nil || ports[plane.APIPort] != free[plane.APIPort] {
		t.Errorf("asked for %d, got %d, %v", free[plane.APIPort], ports[plane.APIPort], err)
	}
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

// TestMain lets this test binary play a program that has a lifeline.
func TestMain(m *testing.M) {
	if os.Getenv(LifelineEnv) != "" {
		FollowLifeline()
		os.Stdout.WriteString("here\n")
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestProgramsEndWithTheirSupervisor(t *testing.T) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), LifelineEnv+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err) // it lives
	}
	ours.Close() // as the end of the supervisor would
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		cmd.Process.Kill()
		t.Error("the program lives on without a supervisor")
	}
}

func TestBackoff(t *testing.T) {
	for inARow, want := range map[int]time.Duration{1: 500 * time.Millisecond, 2: time.Second, 3: 2 * time.Second, 7: 30 * time.Second, 99: 30 * time.Second} {
		if got := backoff(inARow); got != want {
			t.Errorf("after %d ends in a row: %s, want %s", inARow, got, want)
		}
	}
}
