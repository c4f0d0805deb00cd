package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

type logKey struct{}

// WithLog returns a context that carries a logger.
func WithLog(ctx context.Context, l *slog.Logger) context.Context {
	return context.WithValue(ctx, logKey{}, l)
}

// With returns a context whose logger adds these pairs to each line.
func With(ctx context.Context, pairs ...any) context.Context {
	return WithLog(ctx, Log(ctx).With(pairs...))
}

// Log returns the logger of a context, a silent one if it has none.
func Log(ctx context.Context) *slog.Logger {
	if l, ok := ctx.Value(logKey{}).(*slog.Logger); ok {
		return l
	}
	return slog.New(slog.DiscardHandler)
}

type controllerKey struct{}

// WithController returns a context for the loop of this name: calls to the cloud are counted for it, and log lines name it.
func WithController(ctx context.Context, name string) context.Context {
	return With(context.WithValue(ctx, controllerKey{}, name), "controller", name)
}

// Controller returns the name of the loop that a context belongs to, "" if none.
func Controller(ctx context.Context) string {
	name, _ := ctx.Value(controllerKey{}).(string)
	return name
}

// LogSettings say what is logged, and where.
type LogSettings struct {
	Level      string   // debug, info, error, or empty for info
	Paths      []string // files, stdout or stderr
	ErrorPaths []string // where trouble with logging itself is reported
}

// Validate returns what is wrong with the settings.
func (s LogSettings) Validate() error {
	switch s.Level {
	case "", "debug", "info", "error":
		return nil
	}
	return fmt.Errorf("log level %q is none of debug, info, error", s.Level)
}

// NewLog opens the log, and returns a logger and a function that closes its files.
func NewLog(s LogSettings, commit string) (*slog.Logger, func(), error) {
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	out, closeOut, err := open(s.Paths)
	if err != nil {
		return nil, nil, err
	}
	trouble, closeTrouble, err := open(s.ErrorPaths)
	if err != nil {
		closeOut()
		return nil, nil, err
	}
	level := slog.LevelInfo
	switch s.Level {
	case "debug":
		level = slog.LevelDebug
	case "error":
		level = slog.LevelError
	}
	h := NewHandler(reporting{out, trouble}, level)
	return slog.New(h).With("logger", "controller", "commit", commit), func() { closeOut(); closeTrouble() }, nil
}

// reporting writes to out, and writes failures of that to trouble.
type reporting struct{ out, trouble io.Writer }

func (w reporting) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	if err != nil {
		fmt.Fprintf(w.trouble, "cannot write the log: %v\n", err)
	}
	return n, err
}

// open returns one writer for several paths.
func open(paths []string) (io.Writer, func(), error) {
	var out []io.Writer
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			f.Close() // the file was only appended to, and each line has been written already
		}
	}
	for _, p := range paths {
		switch p {
		case "stdout":
			out = append(out, os.Stdout)
		case "stderr":
			out = append(out, os.Stderr)
		default:
			f, err := os.OpenFile(p, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err != nil {
				closeAll()
				return nil, nil, fmt.Errorf("open log: %w", err)
			}
			files, out = append(files, f), append(out, f)
		}
	}
	return io.MultiWriter(out...), closeAll, nil
}

// NewHandler returns the handler that formats log lines. A line is JSON with level, time and message under the names that users search
// for. Durations are text, objects are {"name": …}, and a pod, given as namespace/name, is {"namespace": …, "name": …}. Each key is
// there once, with its newest value. The caller is there at debug level only. Of equal messages in a second the first hundred are
// written, then every hundredth.
func NewHandler(w io.Writer, level slog.Level) slog.Handler {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level:       level,
		AddSource:   level <= slog.LevelDebug,
		ReplaceAttr: rename,
	})
	return &sampler{next: h, state: &sampleState{}}
}

// rename changes keys and values of a line as NewHandler describes.
func rename(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch a.Key {
		case slog.TimeKey:
			return slog.String("time", a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
		case slog.MessageKey:
			return slog.Attr{Key: "message", Value: a.Value}
		case slog.SourceKey:
			if src, ok := a.Value.Any().(*slog.Source); ok {
				return slog.String("caller", fmt.Sprintf("%s:%d", shortFile(src.File), src.Line))
			}
		case "NodeClaim", "NodePool", "Node", "EC2NodeClass":
			return slog.Group(a.Key, "name", a.Value.Resolve().String())
		case "Pod":
			namespace, name, _ := strings.Cut(a.Value.Resolve().String(), "/")
			return slog.Group(a.Key, "namespace", namespace, "name", name)
		}
	}
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindDuration:
		return slog.String(a.Key, v.Duration().String())
	case slog.KindAny:
		if d, ok := v.Any().(error); ok {
			return slog.String(a.Key, d.Error())
		}
	}
	return a
}

// shortFile keeps the last two elements of a path.
func shortFile(path string) string {
	parts := strings.Split(path, "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

// sampler is a handler that drops most lines of a message that is logged too often, and all values of a key but the newest.
type sampler struct {
	next  slog.Handler
	attrs []slog.Attr // of the logger; no two have the same key
	state *sampleState
}

// A sampled identifies equal lines.
type sampled struct {
	level   slog.Level
	message string
}

// sampleState is shared by all loggers that were made from one.
type sampleState struct {
	mu     sync.Mutex
	second int64           // the present second
	seen   map[sampled]int // lines in that second
}

// In each second the first sampleFirst equal lines are written, and then every sampleEvery-th.
const (
	sampleFirst = 100
	sampleEvery = 100
)

// take counts a line, and reports whether it is to be written.
func (s *sampleState) take(message string, level slog.Level, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := at.Unix(); now != s.second || s.seen == nil {
		s.second, s.seen = now, map[sampled]int{}
	}
	key := sampled{level, message}
	s.seen[key]++
	n := s.seen[key]
	return n <= sampleFirst || (n-sampleFirst)%sampleEvery == 0
}

func (s *sampler) Enabled(ctx context.Context, l slog.Level) bool { return s.next.Enabled(ctx, l) }

// Handle writes a line, unless its message was logged too often in this second. A key of the line replaces the same key of the logger.
func (s *sampler) Handle(ctx context.Context, r slog.Record) error {
	if !s.state.take(r.Message, r.Level, r.Time) {
		return nil
	}
	attrs := slices.Clone(s.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = replace(attrs, a)
		return true
	})
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	line.AddAttrs(attrs...)
	return s.next.Handle(ctx, line)
}

func (s *sampler) WithAttrs(attrs []slog.Attr) slog.Handler {
	all := slices.Clone(s.attrs)
	for _, a := range attrs {
		all = replace(all, a)
	}
	return &sampler{s.next, all, s.state}
}

// replace replaces the attribute with the same key, or appends a. It may change attrs in place.
func replace(attrs []slog.Attr, a slog.Attr) []slog.Attr {
	if i := slices.IndexFunc(attrs, func(b slog.Attr) bool { return b.Key == a.Key }); i >= 0 {
		attrs[i] = a
		return attrs
	}
	return append(attrs, a)
}

func (s *sampler) WithGroup(name string) slog.Handler {
	return &sampler{s.next.WithAttrs(s.attrs).WithGroup(name), nil, s.state}
}

// HasLog reports whether a context carries a logger.
func HasLog(ctx context.Context) bool {
	_, ok := ctx.Value(logKey{}).(*slog.Logger)
	return ok
}
