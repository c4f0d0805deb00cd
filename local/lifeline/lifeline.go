// Package lifeline ends programs together with their parent, however it ended.
//
// Each inherits a pipe to which nothing is ever written: it closes when the starter is gone.
package lifeline

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// descriptor is that of the pipe in a program that has one.
const descriptor = 3

// variable tells a program that it has a lifeline.
const variable = "KARPENTER_LOCAL_LIFELINE"

// Follow ends this process as soon as its parent is gone. It does nothing in a process that was started by
// hand.
func Follow() {
	if os.Getenv(variable) == "" {
		return
	}
	os.Unsetenv(variable) // not for the children of this process
	syscall.CloseOnExec(descriptor)
	pipe := os.NewFile(descriptor, "lifeline")
	go func() {
		pipe.Read(make([]byte, 1))
		os.Exit(1)
	}()
}

// Start starts a program that calls Follow. It ends at the latest when what is returned is closed.
func Start(cmd *exec.Cmd) (io.Closer, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.Env = append(cmd.Env, variable+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// Stable is how long a program must have run for its end to be no consequence of its start.
const Stable = 10 * time.Second

// Backoff is how long a program that ended so many times in a row waits for its next start: at first hardly at all, because
// a user is waiting.
func Backoff(inARow int) time.Duration {
	return min(500*time.Millisecond<<min(inARow-1, 6), 30*time.Second)
}
