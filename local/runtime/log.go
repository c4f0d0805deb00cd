package runtime

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/local/home"
)

// A logFile is the log of one life of a container, in the format of kubelets: each line has its time and its stream, so that
// it can be asked for by them.
type logFile struct {
	mu   sync.Mutex
	file *os.File
}

// podLogs is the folder of a pod's logs below that of all, where each container has a folder with a file for each life.
func podLogs(logs string, p *corev1.Pod) string {
	return filepath.Join(logs, "pods", fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID))
}

// keep is how many pods' logs are kept after their pods are gone.
const keep = 10

// prune removes the logs of all but the last pods that are gone.
func prune(logs string, there []string) error {
	folders, err := filepath.Glob(filepath.Join(logs, "pods", "*"))
	if err != nil {
		return err
	}
	folders = slices.DeleteFunc(folders, func(f string) bool { return slices.Contains(there, f) })
	if len(folders) <= keep {
		return nil
	}
	age := map[string]time.Time{}
	for _, f := range folders {
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		age[f] = info.ModTime()
	}
	slices.SortFunc(folders, func(a, b string) int { return age[b].Compare(age[a]) })
	for _, f := range folders[keep:] {
		if err := os.RemoveAll(f); err != nil {
			return err
		}
	}
	return nil
}

// A Log is what a container said in one of its lives.
type Log struct{ Path, Pod string }

// Logs are those of all containers that run or ran here, in the order in which they were begun.
func Logs(dir home.Dir) ([]Log, error) {
	paths, err := filepath.Glob(filepath.Join(dir.Logs(), "pods", "*", "*", "*.log"))
	if err != nil {
		return nil, err
	}
	begun := map[string]time.Time{}
	var all []Log
	for _, path := range paths {
		line, err := firstLine(path)
		if err != nil {
			return nil, err
		}
		stamp, _, _ := strings.Cut(line, " ")
		begun[path], _ = time.Parse(time.RFC3339Nano, stamp) // at the front if it said nothing
		_, pod, _ := strings.Cut(filepath.Base(filepath.Dir(filepath.Dir(path))), "_")
		pod, _, _ = strings.Cut(pod, "_")
		all = append(all, Log{Path: path, Pod: pod})
	}
	slices.SortStableFunc(all, func(a, b Log) int { return begun[a.Path].Compare(begun[b.Path]) })
	return all, nil
}

func firstLine(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	line, err := bufio.NewReader(file).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}

// Said is a line of a log without its time and its stream.
func Said(line string) string {
	parts := strings.SplitN(line, " ", 4)
	return parts[len(parts)-1]
}

func logPath(folder, container string, life int32) string {
	return filepath.Join(folder, container, fmt.Sprintf("%d.log", life))
}

func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &logFile{file: file}, nil
}

func (l *logFile) Close() error { return l.file.Close() }

// A stream takes what a process writes to one of its outputs.
type stream struct {
	log  *logFile
	name string
	rest []byte // of a line that has not ended
}

var _ io.Writer = (*stream)(nil)

func (s *stream) Write(text []byte) (int, error) {
	var out bytes.Buffer
	s.rest = append(s.rest, text...)
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for {
		line, rest, ended := bytes.Cut(s.rest, []byte("\n"))
		if !ended {
			break
		}
		fmt.Fprintf(&out, "%s %s F %s\n", now, s.name, line)
		s.rest = rest
	}
	s.rest = bytes.Clone(s.rest)
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if _, err := s.log.file.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// flush ends the last line.
func (s *stream) flush() {
	if len(s.rest) > 0 {
		s.Write([]byte("\n"))
	}
}
