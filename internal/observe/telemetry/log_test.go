package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestLogLines(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(NewHandler(&b, slog.LevelInfo)).With("logger", "controller", "commit", "abc")
	ctx := WithController(WithLog(t.Context(), log), "provisioner")
	Log(ctx).Info("created nodeclaim", "NodePool", "default", "Pod", "web/a", "duration", 1500*time.Millisecond, "error", errors.New("trouble"))
	Log(ctx).Debug("not shown")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatalf("%v in %q", err, b.String())
	}
	for key, want := range map[string]any{
		"level": "INFO", "message": "created nodeclaim", "logger": "controller", "commit": "abc", "controller": "provisioner",
		"duration": "1.5s", "error": "trouble",
		"NodePool": map[string]any{"name": "default"}, "Pod": map[string]any{"namespace": "web", "name": "a"},
	} {
		if !reflect.DeepEqual(line[key], want) {
			t.Errorf("%s = %v, want %v", key, line[key], want)
		}
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", line["time"].(string)); err != nil {
		t.Errorf("time = %v: %v", line["time"], err)
	}
	if _, shown := line["caller"]; shown {
		t.Error("the caller is shown at level info")
	}
	if got := Controller(ctx); got != "provisioner" {
		t.Errorf("controller = %q", got)
	}
}

// Strict JSON parsers refuse an object with a key twice, or drop one of its values.
func TestALogLineHasEachKeyOnce(t *testing.T) {
	var b bytes.Buffer
	ctx := WithController(WithLog(t.Context(), slog.New(NewHandler(&b, slog.LevelInfo))), "outer")
	ctx = With(WithController(ctx, "inner"), "NodeClaim", "a", "zone", "z")
	Log(ctx).Info("text", "NodeClaim", "b")
	for key, want := range map[string]string{
		"controller": `"controller":"inner"`, "NodeClaim": `"NodeClaim":{"name":"b"}`, "zone": `"zone":"z"`,
	} {
		if n := strings.Count(b.String(), `"`+key+`":`); n != 1 || !strings.Contains(b.String(), want) {
			t.Errorf("%s %d times in %s, want once with the newest value", key, n, b.String())
		}
	}
}

func TestDebugLinesNameTheCaller(t *testing.T) {
	var b bytes.Buffer
	slog.New(NewHandler(&b, slog.LevelDebug)).Debug("text")
	if !strings.Contains(b.String(), `"caller":"telemetry/log_test.go:`) {
		t.Errorf("line = %s", b.String())
	}
}

func TestLogIsSampled(t *testing.T) {
	var b bytes.Buffer
	h := NewHandler(&b, slog.LevelInfo)
	at := time.Unix(1000, 0)
	for i := range 1000 {
		for _, message := range []string{"often", "rare"} {
			if message == "rare" && i%100 != 0 {
				continue
			}
			if err := h.Handle(t.Context(), slog.NewRecord(at, slog.LevelInfo, message, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	often, rare := strings.Count(b.String(), `"often"`), strings.Count(b.String(), `"rare"`)
	if often != 109 || rare != 10 {
		t.Errorf("%d and %d lines, want the first 100 and every 100th, and all 10", often, rare)
	}
	h.Handle(t.Context(), slog.NewRecord(at.Add(time.Second), slog.LevelInfo, "often", 0))
	if got := strings.Count(b.String(), `"often"`); got != 110 {
		t.Errorf("%d lines, want one more in the next second", got)
	}
}

func TestNewLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for name, tc := range map[string]struct {
		settings LogSettings
		fails    bool
	}{
		"a file":                  {LogSettings{Paths: []string{file}, ErrorPaths: []string{"stderr"}}, false},
		"an unknown level":        {LogSettings{Level: "loud", Paths: []string{file}}, true},
		"a path that cannot be":   {LogSettings{Paths: []string{filepath.Join(file, "below")}}, true},
		"the empty level is info": {LogSettings{Level: "", Paths: []string{file}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			log, done, err := NewLog(tc.settings, "")
			if (err != nil) != tc.fails {
				t.Fatalf("error = %v, want one: %v", err, tc.fails)
			}
			if err == nil {
				log.Info("text")
				done()
			}
		})
	}
}
