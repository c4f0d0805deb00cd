package command

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"karpenter.sh/karpenter/local/home"
)

// stopWithin is how long the supervisor may take to stop everything before it is ended the hard way.
const stopWithin = 30 * time.Second

func down(args []string) error {
	dir, err := existingWithout(args)
	if errors.Is(err, errNoCluster) {
		fmt.Println("There is no cluster here.")
		return nil
	}
	if err != nil {
		return err
	}
	return stop(dir)
}

// stop ends the cluster and returns when nothing of it runs.
func stop(dir home.Dir) error {
	pid, err := dir.Holder()
	if err != nil {
		return err
	}
	if pid == 0 {
		fmt.Println("The cluster does not run.")
		return nil
	}
	begin := time.Now()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop the supervisor, process %d: %w", pid, err)
	}
	if !waitUntilFree(dir, stopWithin) {
		fmt.Println("The supervisor does not answer; ending it.")
		syscall.Kill(pid, syscall.SIGKILL) // the others follow it
		if !waitUntilFree(dir, 5*time.Second) {
			return fmt.Errorf("process %d does not end", pid)
		}
	}
	fmt.Printf("The cluster is stopped (%.1fs). Its state is kept in %s.\n", time.Since(begin).Seconds(), dir)
	return nil
}

func waitUntilFree(dir home.Dir, patience time.Duration) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if pid, err := dir.Holder(); err == nil && pid == 0 {
			return true
		}
	}
	return false
}

func clean(args []string) error {
	dir, err := existingWithout(args)
	if errors.Is(err, errNoCluster) {
		fmt.Println("There is nothing to forget.")
		return nil
	}
	if err != nil {
		return err
	}
	if pid, err := dir.Holder(); err != nil {
		fmt.Fprintln(os.Stderr, oneLine(err)) // that is what we are here for
	} else if pid != 0 {
		if err := stop(dir); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(string(dir)); err != nil {
		return err
	}
	fmt.Printf("%s is forgotten.\n", dir)
	return nil
}
