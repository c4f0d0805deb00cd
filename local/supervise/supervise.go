// Package supervise runs a cluster: it starts the programs in order, keeps them running, and ends them all.
//
// It holds the state folder's lock for as long as anything runs. Every program ends with the supervisor, even if the
// supervisor is killed, because each follows a pipe that closes then.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"karpenter.sh/karpenter/local/egress"
	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/minor"
	"karpenter.sh/karpenter/local/pki"
	"karpenter.sh/karpenter/local/plane"
)

// Options are what was said when the cluster was started.
type Options struct {
	Settings home.Settings
	Now      bool // that includes values of the charts
}

// Now is the flag by which programs hear of Options.Now.
const Now = "now"

type supervisor struct {
	dir       home.Dir
	now       bool
	install   home.Install
	plane     plane.Plane
	authority *pki.Authority
	processes []*process
	failed    chan error

	mu       sync.Mutex
	run      home.Run
	starting bool
}

// Run brings the cluster up, reports each step to say, calls ready, and keeps the cluster up until ctx ends. When it
// returns, no process is left.
func Run(ctx context.Context, dir home.Dir, o Options, say func(format string, args ...any), ready func()) error {
	lock, err := dir.Lock()
	if err != nil {
		return err
	}
	defer lock.Release()
	last, err := dir.Read()
	if err != nil {
		return err
	}
	ports, err := choosePorts(last.Ports, o.Settings.Port)
	if err != nil {
		return err
	}
	defer ports.release()
	s, err := prepare(dir, o, ports.numbers())
	if err != nil {
		return err
	}
	defer s.stopAll()
	if err := s.bringUp(ctx, say); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return nil
}

func prepare(dir home.Dir, o Options, ports map[string]int) (*supervisor, error) {
	if err := dir.CheckRoom(); err != nil {
		return nil, err
	}
	install, err := dir.ReadInstall()
	if err != nil {
		return nil, err
	}
	kubernetes, err := minor.Find(o.Settings.Kubernetes)
	if err != nil {
		return nil, err
	}
	s := &supervisor{
		dir:      dir,
		now:      o.Now,
		install:  install,
		plane:    plane.Plane{Dir: dir, Ports: ports, Settings: o.Settings, Name: install.Name, Kubernetes: kubernetes},
		failed:   make(chan error, 1),
		starting: true,
	}
	s.run = home.Run{
		PID: os.Getpid(), Started: time.Now(), Server: s.plane.Server(), Ports: ports, Settings: o.Settings,
	}
	if err := s.writeKeys(); err != nil {
		return nil, err
	}
	if err := freshLogs(dir); err != nil {
		return nil, err
	}
	return s, dir.Write(s.run)
}

// freshLogs keeps the logs of one earlier run.
func freshLogs(dir home.Dir) error {
	for _, program := range []string{plane.Etcd, plane.APIServer, plane.Scheduler, plane.ControllerManager,
		plane.Kubelets, plane.AWS, Installer} {
		err := os.Rename(dir.Log(program), dir.Log(program)+".old")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Installer is the program that puts the charts and the first objects into the cluster, and ends.
const Installer = "install"

// bringUp starts everything in order.
func (s *supervisor) bringUp(ctx context.Context, say func(string, ...any)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.failed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	err := s.steps(ctx, say)
	if cause := context.Cause(ctx); cause != nil {
		return cause // what broke explains more than what was waiting for it
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting, s.run.Ready = false, true
	return s.dir.Write(s.run)
}

func (s *supervisor) steps(ctx context.Context, say func(string, ...any)) error {
	say("etcd and kube-apiserver %s are starting on %s", s.plane.Kubernetes.Version, s.plane.Server())
	s.start(plane.Etcd)
	s.start(plane.APIServer)
	if err := s.waitForServer(ctx); err != nil {
		return err
	}
	say("API server ready; kube-scheduler, kube-controller-manager and kubelets are starting")
	if err := s.furnish(ctx); err != nil {
		return err
	}
	s.start(plane.ControllerManager)
	s.start(plane.Scheduler)
	s.start(plane.Kubelets)
	s.start(plane.AWS)
	if s.install.Empty {
		say("nothing is installed; AWS is on %s", s.plane.AWSEndpoint())
		return s.waitForAWS(ctx)
	}
	if err := s.runInstaller(ctx); err != nil {
		return err
	}
	if err := s.waitForAWS(ctx); err != nil {
		return err
	}
	say("charts, RBAC and the first objects are installed; AWS is on %s", s.plane.AWSEndpoint())
	if err := s.waitForController(ctx); err != nil {
		return err
	}
	say("controller ready, as service account %s/%s", plane.Namespace, plane.ServiceAccount)
	return nil
}

// runInstaller runs the installer to its end.
func (s *supervisor) runInstaller(ctx context.Context) error {
	args := []string{"--kubeconfig=" + s.dir.Kubeconfig(), "--dir=" + string(s.dir), fmt.Sprintf("--%s=%t", Now, s.now)}
	cmd, line, err := command(s.dir, "", Installer, args, nil)
	if err != nil {
		return err
	}
	defer line.Close()
	if err := once(ctx, cmd, time.Second); err != nil {
		return fmt.Errorf("install the charts (%w): %s", err, lastWords(s.dir.Log(Installer)))
	}
	return ctx.Err()
}

func (s *supervisor) stopAll() {
	s.stop(plane.Kubelets) // and with them the controller, which gives its lease back
	s.stop(plane.AWS, plane.Scheduler, plane.ControllerManager)
	s.stop(plane.APIServer)
	s.stop(plane.Etcd)
}

// note records what became of a program.
func (s *supervisor) note(p home.Program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.run.Programs, func(old home.Program) bool { return old.Name == p.Name })
	if i < 0 {
		s.run.Programs = append(s.run.Programs, p)
	} else {
		s.run.Programs[i] = p
	}
	if err := s.dir.Write(s.run); err != nil {
		fmt.Fprintln(os.Stderr, "write the state of the cluster:", err) // the cluster itself runs on
	}
}

func (s *supervisor) isStarting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starting
}

// fail reports the first failure of the start; later ones are its consequences.
func (s *supervisor) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// writeKeys makes keys, certificates and kubeconfigs for everyone.
func (s *supervisor) writeKeys() error {
	authority, err := pki.Load(s.dir.PKI())
	if err != nil {
		return &home.DamagedError{Path: s.dir.PKI(), Err: err}
	}
	s.authority = authority
	if err := pki.TokenKey(s.dir.Key("tokens.key")); err != nil {
		return &home.DamagedError{Path: s.dir.Key("tokens.key"), Err: err}
	}
	serving := map[string][]string{
		"etcd":     nil,
		"api":      {"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		"kubelets": nil,
		"usage":    {plane.UsageService + "." + plane.Namespace + ".svc"},
	}
	for name, dns := range serving {
		pair, err := authority.Server(name, dns, net.ParseIP(plane.ServiceIP))
		if err != nil {
			return err
		}
		if err := pair.Write(s.dir.PKI(), name); err != nil {
			return err
		}
	}
	if err := s.writeFrontProxy(); err != nil {
		return err
	}
	return s.writeClients()
}

// writeFrontProxy makes what the API server shows when it speaks for others. Its authority is separate: a program that holds
// a certificate of it is believed to be anybody.
func (s *supervisor) writeFrontProxy() error {
	authority, err := pki.Load(s.dir.FrontProxy())
	if err != nil {
		return &home.DamagedError{Path: s.dir.FrontProxy(), Err: err}
	}
	pair, err := authority.Client(plane.FrontProxy)
	if err != nil {
		return err
	}
	return pair.Write(s.dir.FrontProxy(), "client")
}

func (s *supervisor) writeClients() error {
	for file, user := range map[string]string{"etcd-client": plane.APIServer, "egress": egress.Client} {
		pair, err := s.authority.Client(user)
		if err != nil {
			return err
		}
		if err := pair.Write(s.dir.PKI(), file); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		path, user string
		groups     []string
	}{
		{s.dir.Kubeconfig(), "admin", []string{"system:masters"}},
		{s.dir.KubeconfigOf(plane.Scheduler), "system:kube-scheduler", nil},
		{s.dir.KubeconfigOf(plane.ControllerManager), "system:kube-controller-manager", nil},
		{s.dir.KubeconfigOf(plane.Kubelets), "karpenter-local:kubelets", nil},
	} {
		pair, err := s.authority.Client(c.user, c.groups...)
		if err != nil {
			return err
		}
		if err := s.authority.Kubeconfig(c.path, s.plane.Server(), pair); err != nil {
			return err
		}
	}
	return os.WriteFile(s.dir.File(plane.EgressFile), []byte(s.plane.Egress()), 0o600)
}
