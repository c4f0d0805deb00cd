// Package home is the folder in which a local cluster lives: where its files are, who runs it, and what it needs to know
// of its last run.
//
// The process that runs the cluster holds a lock on the folder. The lock goes with its process, however that ends, so it cannot
// be left behind.
package home

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A Dir is the path of the folder, absolute.
type Dir string

// Open makes the folder with its sub-folders where they are missing.
func Open(path string) (Dir, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	d := Dir(absolute)
	for _, sub := range []string{d.PKI(), d.FrontProxy(), d.Logs(), d.Etcd()} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return "", fmt.Errorf("make the state folder: %w", err)
		}
	}
	return d, nil
}

func (d Dir) path(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// PKI is where keys and certificates are.
func (d Dir) PKI() string { return d.path("pki") }

// Key is the path of a file below PKI.
func (d Dir) Key(name string) string { return d.path("pki", name) }

// FrontProxy is where the keys are by which the API server speaks for others. Their authority signs nothing else.
func (d Dir) FrontProxy() string { return d.path("pki", "front-proxy") }

// FrontProxyKey is the path of a file below FrontProxy.
func (d Dir) FrontProxyKey(name string) string { return d.path("pki", "front-proxy", name) }

// Etcd is where etcd keeps its data.
func (d Dir) Etcd() string { return d.path("etcd") }

// Logs is where every program writes a log of its own.
func (d Dir) Logs() string { return d.path("logs") }

// Log is the log of one program.
func (d Dir) Log(program string) string { return d.path("logs", program+".log") }

// Kubeconfig is the administrator's.
func (d Dir) Kubeconfig() string { return d.path("kubeconfig") }

// KubeconfigOf is that of one component.
func (d Dir) KubeconfigOf(component string) string { return d.path("pki", component+".kubeconfig") }

// PodFolder is where a pod that runs as processes has its credentials.
func (d Dir) PodFolder(uid string) string { return d.path("pods", uid) }

// File is any other file of the folder.
func (d Dir) File(name string) string { return d.path(name) }

// ErrRunning says that a process runs the cluster.
var ErrRunning = errors.New("the cluster runs already")

// A Lock is held by the process that runs the cluster.
type Lock struct{ file *os.File }

// Lock takes the folder, or returns ErrRunning.
func (d Dir) Lock() (*Lock, error) {
	file, err := os.OpenFile(d.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrRunning
		}
		return nil, fmt.Errorf("lock the state folder: %w", err)
	}
	if err := sign(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("sign the lock: %w", err)
	}
	return &Lock{file}, nil
}

// sign writes into the lock who holds it.
func sign(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// Holder returns the process that runs the cluster, 0 if none does.
func (d Dir) Holder() (int, error) {
	file, err := os.Open(d.path("lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return 0, nil // closing the file gives the lock back
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid <= 0 {
		return 0, &DamagedError{Path: d.path("lock"), Err: fmt.Errorf("%q is no process id", text)}
	}
	return pid, nil
}

// Release gives the folder back.
func (l *Lock) Release() { l.file.Close() }

// A Run is what the supervisor tells everybody else about the cluster it runs.
type Run struct {
	PID      int
	Started  time.Time
	Server   string // URL of the API server
	Ports    map[string]int
	Settings Settings
	Ready    bool
	Programs []Program
}

// A Program is one process of the cluster.
type Program struct {
	Name     string
	PID      int // 0 while it does not run
	Started  time.Time
	Restarts int
}

// Settings are what the user chose.
type Settings struct {
	Port       int           // of the API server; 0 takes the last one or any that is free
	BootDelay  time.Duration // from a machine's start until its node joins
	BootSpread time.Duration // each machine's delay differs from BootDelay by at most this
	Kubernetes string        `json:",omitempty"` // minor of the control plane, such as 1.34; "" for karpenter-local's
}

// An Install says what is installed into the cluster.
type Install struct {
	Empty    bool           // nothing at all
	Provider string         `json:",omitempty"` // of machines; "" for AWS
	Name     string         `json:",omitempty"` // of the cluster; "" for plane.ClusterName
	Values   map[string]any // of the chart karpenter, beside those that the local cluster needs
}

// WriteInstall stores it for this run and all that follow.
func (d Dir) WriteInstall(i Install) error { return write(d.path("install.json"), i) }

// ReadInstall returns what was stored; the zero Install where nothing was.
func (d Dir) ReadInstall() (Install, error) {
	var i Install
	return i, read(d.path("install.json"), &i)
}

// Validate says what is wrong with the settings.
func (s Settings) Validate() error {
	switch {
	case s.Port < 0 || s.Port > 65535:
		return fmt.Errorf("port %d is not between 0 and 65535", s.Port)
	case s.BootDelay < 0 || s.BootSpread < 0:
		return errors.New("boot delay and its spread cannot be negative")
	case s.BootSpread > s.BootDelay:
		return fmt.Errorf("the spread of the boot delay (%s) exceeds the delay (%s)", s.BootSpread, s.BootDelay)
	}
	return nil
}

// Write stores the run.
func (d Dir) Write(r Run) error { return write(d.path("run.json"), r) }

// Read returns the last run; the zero Run where there was none.
func (d Dir) Read() (Run, error) {
	var r Run
	return r, read(d.path("run.json"), &r)
}

// write stores a value in a file, whole or not at all.
func write(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// read reads it again, and leaves the value alone where there is no such file.
func read(path string, into any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return &DamagedError{Path: path, Err: err}
	}
	return nil
}

// A DamagedError says that a file of the state folder cannot be understood.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("%s is damaged (%v)", e.Path, e.Err) }
func (e *DamagedError) Unwrap() error { return e.Err }

// roomNeeded is what etcd, its snapshots and the logs of a long session take.
const roomNeeded = 500 << 20

// CheckRoom refuses a disk on which the cluster would soon fail in less obvious ways.
func (d Dir) CheckRoom() error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(string(d), &stat); err != nil {
		return fmt.Errorf("look at the disk of %s: %w", d, err)
	}
	if free := stat.Bavail * uint64(stat.Bsize); free < roomNeeded {
		return fmt.Errorf("the disk of %s has %d MB left; the cluster needs %d MB", d, free>>20, roomNeeded>>20)
	}
	return nil
}
