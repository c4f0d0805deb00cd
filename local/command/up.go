package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/minor"
	"karpenter.sh/karpenter/local/release"
	"karpenter.sh/karpenter/local/runtime"
	"karpenter.sh/karpenter/local/supervise"
)

const superviseName = "supervise"

// progressFD is where a detached supervisor reports its progress.
const progressFD = 3

// A report is one line of progress, or the end of it.
type report struct {
	Text string `json:",omitempty"`
	Err  string `json:",omitempty"`
	// Damaged says that only forgetting the state would help.
	Damaged bool `json:",omitempty"`
	Ready   bool `json:",omitempty"`
}

func settingsFlags(name string) (*flag.FlagSet, *home.Settings) {
	flags := flag.NewFlagSet("karpenter-local "+name, flag.ContinueOnError)
	s := &home.Settings{}
	flags.IntVar(&s.Port, "port", 0, "port of the API server; 0 takes the last one or any that is free")
	flags.DurationVar(&s.BootDelay, "boot-delay", 2*time.Second, "time from a machine's start until its node joins")
	flags.DurationVar(&s.BootSpread, "boot-spread", time.Second, "by how much the boot delay differs at most from machine to machine")
	flags.StringVar(&s.Kubernetes, "kubernetes", "",
		"minor of the control plane, such as 1.34; empty takes the last one, at first the newest that EKS sells")
	return flags, s
}

// settingsArgs are settings as flags.
func settingsArgs(s home.Settings) []string {
	return []string{fmt.Sprintf("--port=%d", s.Port), fmt.Sprintf("--boot-delay=%s", s.BootDelay),
		fmt.Sprintf("--boot-spread=%s", s.BootSpread), "--kubernetes=" + s.Kubernetes}
}

func up(args []string) error {
	flags, settings := settingsFlags("up")
	foreground := flags.Bool("foreground", false, "stay until Ctrl-C, and stop the cluster then")
	wish := wishFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is one argument too many", flags.Arg(0))
	}
	if err := settings.Validate(); err != nil {
		return err
	}
	dir, err := home.Open(statePath())
	if err != nil {
		return err
	}
	wanted, now, err := wish.of(dir)
	if err != nil {
		return err
	}
	if err := built(wanted.Provider); err != nil {
		return err
	}
	pid, err := dir.Holder()
	if err != nil {
		return err
	}
	own, err := minor.Find("")
	if err != nil {
		return err
	}
	if err := chooseMinor(dir, settings, minor.Minor(own.Version), pid != 0); err != nil {
		return err
	}
	if _, err := minor.Find(settings.Kubernetes); err != nil {
		return err
	}
	if pid != 0 {
		if now {
			return change(dir, wanted)
		}
		return sayRunning(dir)
	}
	if err := dir.WriteInstall(wanted); err != nil {
		return err
	}
	if *foreground {
		return stay(dir, *settings, now)
	}
	args = settingsArgs(*settings)
	if now {
		args = append(args, "--"+supervise.Now)
	}
	return detach(dir, args)
}

// built reports an error if the executable of a provider's controller is missing. AWS, "", needs none.
func built(provider string) error {
	if provider == "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(self), "karpenter-"+provider)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there is no %s: `make up ARGS=\"--provider %s\"` builds it, which takes minutes", path, provider)
	}
	return nil
}

// chooseMinor sets the minor that the cluster runs, "" for this executable's. A cluster that runs already keeps its own.
func chooseMinor(dir home.Dir, settings *home.Settings, own string, running bool) error {
	last, err := dir.Read()
	if err != nil {
		return err
	}
	state := minor.State{New: last.Server == "", Minor: last.Settings.Kubernetes}
	if settings.Kubernetes, err = minor.Choose(settings.Kubernetes, own, state); err != nil {
		return err
	}
	if running && settings.Kubernetes != state.Minor {
		return errors.New("the cluster runs already, with another Kubernetes; `karpenter-local down` stops it")
	}
	return nil
}

// change upgrades the release of a cluster that runs.
func change(dir home.Dir, wanted home.Install) error {
	if wanted.Empty {
		return errors.New("the cluster runs already; `karpenter-local helm uninstall` takes charts away")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say := printer()
	before, err := dir.ReadInstall()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if err := release.Install(ctx, dir.Kubeconfig(), wishOf(wanted, true), log); err != nil {
		return err
	}
	if before.Empty || before.Provider != wanted.Provider {
		if err := release.Objects(ctx, dir.Kubeconfig(), wishOf(wanted, true), log); err != nil {
			return err
		}
	}
	if err := dir.WriteInstall(wanted); err != nil { // now that the chart took them
		return err
	}
	say("the charts have the new values; the controller's pods are being replaced where that changes them")
	if err := supervise.WaitForRollout(ctx, dir); err != nil {
		return err
	}
	say("controller ready")
	return nil
}

func sayRunning(dir home.Dir) error {
	run, err := dir.Read()
	if err != nil {
		return err
	}
	fmt.Printf("The cluster runs already, since %s, on %s.\n", run.Started.Format(time.TimeOnly), run.Server)
	printNext(dir)
	return nil
}

// printer prints progress with the time that passed.
func printer() func(format string, args ...any) {
	begin := time.Now()
	return func(format string, args ...any) {
		fmt.Printf("%5.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
}

// stay runs the cluster in this process.
func stay(dir home.Dir, settings home.Settings, now bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say := printer()
	return supervise.Run(ctx, dir, supervise.Options{Settings: settings, Now: now}, say, func() {
		printNext(dir)
		fmt.Println("\nCtrl-C stops the cluster.")
	})
}

// detach starts a supervisor of its own session and shows its progress until the cluster is ready. Ctrl-C stops it.
func detach(dir home.Dir, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(dir.Log(superviseName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	cmd := exec.Command(self, append([]string{superviseName}, args...)...)
	cmd.Env = append(os.Environ(), DirEnv+"="+string(dir))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return err
	}
	theirs.Close()
	go func() {
		<-interrupted
		fmt.Println("\nstopping …")
		cmd.Process.Signal(syscall.SIGTERM)
	}()
	return follow(dir, cmd, ours)
}

// follow prints the supervisor's reports until it is ready or has ended.
func follow(dir home.Dir, cmd *exec.Cmd, reports io.Reader) error {
	say := printer()
	lines := bufio.NewScanner(reports)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("understand the supervisor: %w", err)
		}
		switch {
		case r.Ready:
			printNext(dir)
			return nil
		case r.Err != "":
			cmd.Wait() // it has stopped everything when it returns
			if r.Damaged {
				return &home.DamagedError{Path: string(dir), Err: errors.New(r.Err)}
			}
			return errors.New(r.Err)
		default:
			say("%s", r.Text)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the supervisor ended (%w); its log is %s", err, dir.Log(superviseName))
	}
	return quietError{} // it was stopped
}

// printNext prints what people may type now. Whatever shell they have, each line does what it says as it stands.
func printNext(dir home.Dir) {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0] // what was typed
	}
	if _, pods, err := ask(dir); err == nil { // without an answer, status says it later
		printPages(runtime.Processes(dir, pods))
	}
	fmt.Println()
	for _, line := range next(dir, quoted(self)) {
		fmt.Println(" ", line)
	}
}

// next is what people may type, wherever they are: without the first line the binary looks for the cluster from the folder in which it is
// started.
func next(dir home.Dir, self string) []string {
	return []string{
		"export " + DirEnv + "=" + quoted(string(dir)),
		"export KUBECONFIG=" + quoted(dir.Kubeconfig()),
		"alias kubectl=" + quoted(self+" kubectl"), // that of the binary, for those who have none
		"kubectl scale deployment inflate --replicas=10",
		"kubectl get nodeclaims,nodes,pods",
		self + " status",
	}
}

// quoted is a word for a shell.
func quoted(word string) string {
	if strings.IndexFunc(word, special) < 0 && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// special reports whether a shell may take a character for something else than itself.
func special(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-./:=,+@%", r))
}

// superviseMain is the detached supervisor.
func superviseMain(args []string) error {
	flags, settings := settingsFlags(superviseName)
	now := flags.Bool(supervise.Now, false, "the values of the charts were just given")
	if err := flags.Parse(args); err != nil {
		return err
	}
	syscall.CloseOnExec(progressFD)
	progress := os.NewFile(progressFD, "progress")
	out := json.NewEncoder(progress)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := home.Open(statePath())
	if err == nil {
		err = supervise.Run(ctx, dir, supervise.Options{Settings: *settings, Now: *now},
			func(format string, args ...any) { out.Encode(report{Text: fmt.Sprintf(format, args...)}) },
			func() {
				out.Encode(report{Ready: true})
				progress.Close()
			})
	}
	if err != nil && ctx.Err() == nil {
		out.Encode(report{Err: err.Error(), Damaged: errors.As(err, new(*home.DamagedError))})
		return err
	}
	return nil
}

// install puts charts and first objects into the cluster.
func install(args []string) error {
	flags := flag.NewFlagSet(supervise.Installer, flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	path := flags.String("dir", "", "the cluster's folder")
	now := flags.Bool(supervise.Now, false, "the values of the charts were just given")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := home.Dir(*path).ReadInstall()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := release.Install(context.Background(), *kubeconfig, wishOf(wanted, *now), log); err != nil {
		return err
	}
	return release.Objects(context.Background(), *kubeconfig, wishOf(wanted, *now), log)
}
