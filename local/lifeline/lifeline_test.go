package lifeline

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestMain lets this test binary play a program that has a lifeline.
func TestMain(m *testing.M) {
	if os.Getenv(variable) != "" {
		Follow()
		os.Stdout.WriteString("here\n")
		time.Sleep(time.Hour)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestProgramsEndWithTheirStarter(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = os.Environ()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	line, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err) // it lives
	}
	line.Close() // as the end of the starter would
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		cmd.Process.Kill()
		t.Error("the program lives on without its starter")
	}
}

func TestBackoff(t *testing.T) {
	for inARow, want := range map[int]time.Duration{1: 500 * time.Millisecond, 2: time.Second, 3: 2 * time.Second, 7: 30 * time.Second, 99: 30 * time.Second} {
		if got := Backoff(inARow); got != want {
			t.Errorf("after %d ends in a row: %s, want %s", inARow, got, want)
		}
	}
}
