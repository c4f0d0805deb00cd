package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// containEnv makes this test binary turn itself into a process in a container: it names the container's root.
const containEnv = "KARPENTER_E2E_CONTAIN"

// contained is a command that runs in a container of its own, with nothing but the given environment.
func contained(t *testing.T, root string, command, env []string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, command...)
	cmd.Env = append([]string{containEnv + "=" + root}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		const mount, chroot = 21, 18 // CAP_SYS_ADMIN, CAP_SYS_CHROOT
		a := cmd.SysProcAttr
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getgid(), Size: 1}}
		a.AmbientCaps = []uintptr{mount, chroot}
	}
	return cmd
}

// onlyTry is the command of a container that ends as soon as it is one.
const onlyTry = "try"

// containersAllowed says why this machine lets nobody like us make containers, nil if it does.
func containersAllowed(t *testing.T) error {
	t.Helper()
	said, err := contained(t, t.TempDir(), []string{onlyTry}, nil).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// contain is what the process does before it becomes the command.
func contain(root string, command []string) error {
	runtime.LockOSThread() // prctl is about a thread, and this one goes on
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"keep mounts to itself", func() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") }},
		{"mount the root", func() error { return syscall.Mount(root, root, "", syscall.MS_BIND, "") }},
		{"mount it for reading", func() error {
			const flags = syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV
			return syscall.Mount("", root, "", flags, "")
		}},
		{"enter it", func() error { return syscall.Chroot(root) }},
		{"enter its folder", func() error { return syscall.Chdir("/") }},
		{"become nobody", becomeNobody},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if command[0] == onlyTry {
		os.Exit(0)
	}
	return syscall.Exec(command[0], command, without(containEnv))
}

// becomeNobody gives up every right, for good.
func becomeNobody() error {
	if syscall.Getuid() == 0 {
		for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)} {
			if err != nil {
				return err
			}
		}
	}
	const ambient, clearAll, noNewPrivileges = 47, 4, 38
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, ambient, clearAll, 0); err != 0 {
		return err
	}
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, noNewPrivileges, 1, 0); err != 0 {
		return err
	}
	return nil
}

func without(name string) []string {
	os.Unsetenv(name)
	return os.Environ()
}
