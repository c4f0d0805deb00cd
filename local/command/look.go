package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/part"
	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/local/runtime"
)

// kubectl becomes kubectl with the administrator's kubeconfig.
func kubectl(args []string) error { return become(part.Kubectl, args) }

// helm becomes helm with it.
func helm(args []string) error { return become(part.Helm, args) }

func become(program string, args []string) error {
	dir, err := running()
	if err != nil {
		return err
	}
	if err := os.Setenv("KUBECONFIG", dir.Kubeconfig()); err != nil {
		return err
	}
	os.Args = append([]string{program}, args...)
	part.Run(program)
	return fmt.Errorf("this binary has no %s", program)
}

// env prints what a shell needs to reach the cluster and its AWS.
func env(args []string) error {
	dir, err := existingWithout(args)
	if err != nil {
		return err
	}
	run, err := dir.Read()
	if err != nil {
		return err
	}
	p := plane.Plane{Dir: dir, Ports: run.Ports}
	for _, variable := range append([]string{"KUBECONFIG=" + dir.Kubeconfig()}, p.AWSEnv(plane.PeopleKey)...) {
		name, value, _ := strings.Cut(variable, "=")
		if value == "" { // the aws command takes an empty profile for the name of one
			fmt.Println("unset", name)
			continue
		}
		fmt.Printf("export %s=%s\n", name, quoted(value))
	}
	// The aws command before 2.13 does not look at the variable, and would go to the real AWS.
	fmt.Printf("aws() { command aws --endpoint-url %s \"$@\"; }\n", quoted(p.AWSEndpoint()))
	return nil
}

// assets makes the folder that controller-runtime's envtest and others want.
func assets(args []string) error {
	if len(args) != 1 {
		return errors.New("name one folder")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	for _, name := range []string{"etcd", "kube-apiserver", part.Kubectl} {
		link := filepath.Join(args[0], name)
		if err := replaceLink(self, link); err != nil {
			return err
		}
	}
	absolute, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	fmt.Println(absolute)
	return nil
}

// replaceLink makes a link while others may be using the old one.
func replaceLink(target, link string) error {
	if old, err := os.Readlink(link); err == nil && old == target {
		return nil
	}
	temporary := fmt.Sprintf("%s.%d", link, os.Getpid())
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, link)
}

// logs prints what programs said.
func logs(args []string) error {
	flags := flag.NewFlagSet("karpenter-local logs", flag.ContinueOnError)
	keepOn := flags.Bool("f", false, "keep on printing until Ctrl-C")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := existing()
	if err != nil {
		return err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	known := map[string]*tail{}
	for {
		files, err := logFiles(dir, flags.Arg(0))
		if err != nil {
			return err
		}
		for _, f := range files {
			if known[f.path] == nil {
				known[f.path] = &tail{logFile: f}
			}
			t := known[f.path]
			if t.prefix = ""; len(files) > 1 {
				t.prefix = f.name + ": "
			}
			if err := t.print(os.Stdout); err != nil {
				return err
			}
		}
		if !*keepOn {
			return nil
		}
		select {
		case <-interrupted:
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// A logFile is what one program said in one of its lives.
type logFile struct {
	path, name string
	program    string // as people ask for it
	stamped    bool   // each line begins with its time and its stream
}

// logFiles are those of a program, or all if it has no name, in the order in which they were begun.
func logFiles(dir home.Dir, program string) ([]logFile, error) {
	all, err := allLogFiles(dir)
	if err != nil || program == "" {
		return all, err
	}
	var of []logFile
	var names []string
	for _, f := range all {
		if f.program == program {
			of = append(of, f)
		}
		names = append(names, f.program)
	}
	if of == nil {
		slices.Sort(names)
		return nil, fmt.Errorf("there is no log of %q; there are: %s", program, strings.Join(slices.Compact(names), ", "))
	}
	return of, nil
}

func allLogFiles(dir home.Dir) ([]logFile, error) {
	programs, err := filepath.Glob(dir.Log("*"))
	if err != nil {
		return nil, err
	}
	var all []logFile
	for _, path := range programs {
		name := strings.TrimSuffix(filepath.Base(path), ".log")
		all = append(all, logFile{path: path, name: name, program: name})
	}
	containers, err := runtime.Logs(dir)
	for _, c := range containers {
		all = append(all, logFile{path: c.Path, name: c.Pod, program: plane.Controller, stamped: true})
	}
	return all, err
}

// A tail prints what was added to a file since it was last asked.
type tail struct {
	logFile
	prefix string
	offset int64
	open   bool // the last line printed was not complete
}

func (t *tail) print(w io.Writer) error {
	file, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() < t.offset {
		t.offset, t.open = 0, false // a new run began
	}
	if _, err := file.Seek(t.offset, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	t.offset += int64(len(text))
	for line := range strings.Lines(string(text)) {
		if t.stamped {
			line = runtime.Said(line)
		}
		if !t.open {
			line = t.prefix + line
		}
		t.open = !strings.HasSuffix(line, "\n")
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}
