package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"karpenter.sh/karpenter/internal/ui/top"
)

// showAndPanic is a top whose fleet cannot be told of: opening a node panics.
func showAndPanic() {
	p := &top.Picture{Nodes: make([]top.Node, 1), Open: func(string) top.Detail { panic("a mistake of ours") }}
	p.Nodes[0].Name = "n1"
	err := top.New(p, "name", top.Source{Every: time.Hour}).Show(context.Background(), top.Terminal{In: os.Stdin, Out: os.Stdout, Name: os.Getenv("TERM")})
	if err != nil {
		fmt.Fprintln(os.Stderr, "it ended:", err)
		os.Exit(exitBadInput)
	}
}

// A terminal is a real one, with a program in it.
type terminal struct {
	ours, theirs *os.File
	program      *exec.Cmd
	before       unix.Termios

	mu     sync.Mutex
	drawn  bytes.Buffer
	gone   chan struct{} // closed when nothing more is drawn
	exited chan error
}

// openTerminal runs a command of this test's program in a new terminal of 24 lines of 100 columns.
func openTerminal(t *testing.T, kind string, args ...string) *terminal {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	fd := int(ours.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &terminal{ours: ours, theirs: theirs, gone: make(chan struct{}), exited: make(chan error, 1)}
	w.resize(t, 24, 100)
	w.before = w.mode(t)
	w.program = &exec.Cmd{Path: self, Args: args, Stdin: theirs, Stdout: theirs, Stderr: theirs,
		Env:         append(os.Environ(), "TERM="+kind, "TERM_PROGRAM=none", "SSH_TTY=none"), // of which nothing is asked
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true}}
	if err := w.program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.program.Process.Kill() })
	go func() { w.exited <- w.program.Wait() }()
	go w.watch()
	return w
}

func (w *terminal) watch() {
	defer close(w.gone)
	buf := make([]byte, 1<<14)
	for {
		n, err := w.ours.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.drawn.Write(buf[:n])
		w.mu.Unlock()
	}
}

func (w *terminal) resize(t *testing.T, lines, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(w.ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns}); err != nil {
		t.Fatal(err)
	}
}

func (w *terminal) mode(t *testing.T) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(w.theirs.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

// patience is how long the program may take on a machine that does other things, too.
const patience = 5 * time.Minute

// until waits for a text to be drawn after what was drawn before, and returns all that was.
func (w *terminal) until(t *testing.T, text string) string {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		drawn := w.drawn.String()
		if at := strings.Index(drawn, text); at >= 0 {
			w.drawn.Next(at + len(text))
			w.mu.Unlock()
			return drawn
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Fatalf("%q was not drawn, but %q", text, w.drawn.String())
	return ""
}

func (w *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := w.ours.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// end waits for the program and returns its exit code and what it drew last.
func (w *terminal) end(t *testing.T) (int, string) {
	t.Helper()
	select {
	case <-w.exited:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if after := w.mode(t); after != w.before {
		t.Errorf("the terminal's mode is %+v, was %+v", after, w.before)
	}
	_ = w.theirs.Close()
	<-w.gone
	return w.program.ProcessState.ExitCode(), w.drawn.String()
}

// What turns the other screen on and off, and the cursor.
const (
	otherScreen, firstScreen = "\x1b[?1049h", "\x1b[?1049l"
	cursorOn                 = "\x1b[?25h"
)

// However top ends, the terminal is as it was.
func TestTopInATerminal(t *testing.T) {
	for name, tc := range map[string]struct {
		program string
		leave   func(t *testing.T, w *terminal)
		code    int
		says    string
	}{
		"q leaves":                       {"karpenter", func(t *testing.T, w *terminal) { w.press(t, "q") }, exitFine, ""},
		"so does ctrl-c":                 {"karpenter", func(t *testing.T, w *terminal) { w.press(t, "\x03") }, exitFine, ""},
		"and while somebody types":       {"karpenter", func(t *testing.T, w *terminal) { w.press(t, "/q"); w.until(t, "/q_"); w.press(t, "\x03") }, exitFine, ""},
		"a signal ends it":               {"karpenter", func(_ *testing.T, w *terminal) { _ = w.program.Process.Signal(syscall.SIGTERM) }, exitFine, ""},
		"so does one that hangs up":      {"karpenter", func(_ *testing.T, w *terminal) { _ = w.program.Process.Signal(syscall.SIGHUP) }, exitFine, ""},
		"a mistake of ours is told last": {"panics", func(t *testing.T, w *terminal) { w.press(t, "\r") }, exitBadInput, "a mistake of ours"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := openTerminal(t, "xterm-256color", tc.program, "top", "--sort", "name", "-f", world(t))
			w.until(t, otherScreen)
			w.until(t, "n1")
			w.until(t, "q quit")
			if w.mode(t) == w.before {
				t.Error("keys are not read one by one")
			}
			tc.leave(t, w)
			code, last := w.end(t)
			if code != tc.code || !strings.Contains(last, firstScreen) || !strings.Contains(last, cursorOn) || !strings.Contains(last, tc.says) {
				t.Errorf("code %d, want %d; it drew last %q", code, tc.code, last)
			}
		})
	}
}

// Keys are heard, a window that gets another size is drawn anew, and what was drawn is not drawn again.
func TestTopFollowsKeysAndSizes(t *testing.T) {
	w := openTerminal(t, "xterm-256color", "karpenter", "top", "--sort", "name", "-f", world(t))
	w.until(t, "q quit")
	w.press(t, "\x1b[B") // down
	if drawn := w.until(t, "n2"); strings.Contains(drawn, "Savings Plans") || strings.Contains(drawn, "n4") {
		t.Errorf("all was drawn again: %q", drawn)
	}
	w.press(t, "\r")
	w.until(t, "n2]  Esc closes it") // "[node" stands there already
	w.until(t, "It is in a step.")
	w.until(t, "web2")
	w.press(t, "\x1b[D") // left
	w.until(t, "s 4]")
	w.resize(t, 8, 40)
	w.until(t, "instances and d…")
	w.press(t, "q")
	w.end(t)
}

func TestTopInATerminalThatCannotDraw(t *testing.T) {
	for _, kind := range []string{"dumb", ""} {
		w := openTerminal(t, kind, "karpenter", "top", "-f", world(t))
		code, drawn := w.end(t)
		if code != exitFine || strings.Contains(drawn, "\x1b") || !strings.Contains(drawn, "4 nodes, $1.6000 an hour") {
			t.Errorf("TERM=%q: code %d and %q", kind, code, drawn)
		}
	}
}
