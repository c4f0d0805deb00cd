package supervise

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/lifeline"
	"karpenter.sh/karpenter/local/plane"
)

// A process is one program of the cluster as the supervisor sees it.
type process struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended for good
}

// command starts the named program, which is in the given executable, "" for this process's.
func command(dir home.Dir, executable, name string, args, env []string) (*exec.Cmd, io.Closer, error) {
	if executable == "" {
		var err error
		if executable, err = os.Executable(); err != nil {
			return nil, nil, err
		}
	}
	log, err := os.OpenFile(dir.Log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command(executable, append([]string{name}, args...)...)
	cmd.Dir = string(dir)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	line, err := lifeline.Start(cmd)
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	return cmd, line, nil
}

// once runs the program until it ends or ctx does; then it is asked to end, and made to after a while.
func once(ctx context.Context, cmd *exec.Cmd, patience time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(patience):
		cmd.Process.Kill()
		<-ended
	}
	return nil
}

// start runs the named program and starts it again whenever it ends. While the cluster is coming up, an end is a failure
// that is reported instead.
func (s *supervisor) start(name string) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{name: name, cancel: cancel, done: make(chan struct{})}
	s.processes = append(s.processes, p)
	go func() {
		defer close(p.done)
		inARow := 0
		for restarts := 0; ctx.Err() == nil; restarts++ {
			begin := time.Now()
			err := s.turn(ctx, name, restarts)
			s.note(home.Program{Name: name, Restarts: restarts})
			if ctx.Err() != nil {
				return
			}
			if s.isStarting() {
				s.fail(fmt.Errorf("%s ended at its start (%s): %s", name, describe(err), lastWords(s.dir.Log(name))))
				return
			}
			if inARow++; time.Since(begin) > lifeline.Stable {
				inARow = 1
			}
			pause(ctx, lifeline.Backoff(inARow))
		}
	}()
}

// turn is one life of a program.
func (s *supervisor) turn(ctx context.Context, name string, restarts int) error {
	cmd, line, err := command(s.dir, s.plane.Executable(name), name, s.plane.Args(name), s.plane.Env(name))
	if err != nil {
		return err
	}
	defer line.Close()
	s.note(home.Program{Name: name, PID: cmd.Process.Pid, Started: time.Now(), Restarts: restarts})
	return once(ctx, cmd, plane.StopWithin(name))
}

// stop ends the named programs, all at once, and waits for them.
func (s *supervisor) stop(names ...string) {
	var ending []*process
	for _, p := range s.processes {
		for _, name := range names {
			if p.name == name {
				p.cancel()
				ending = append(ending, p)
			}
		}
	}
	for _, p := range ending {
		<-p.done
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func describe(err error) string {
	if err == nil {
		return "without an error"
	}
	return err.Error()
}

// lastWords finds what a program said before it ended, in one line: the last line of its log that speaks of an error, or
// else the last line.
func lastWords(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "it left no log"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	for i := len(lines) - 1; i >= max(0, len(lines)-40); i-- {
		if speaksOfError(lines[i]) {
			last = lines[i]
			break
		}
	}
	if len(last) > 400 {
		last = last[:400] + "…"
	}
	return fmt.Sprintf("%s (log: %s)", last, path)
}

func speaksOfError(line string) bool {
	lower := strings.ToLower(line)
	for _, word := range []string{"error", "fatal", "panic", "no space left", "address already in use", "corrupt"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return false
}
