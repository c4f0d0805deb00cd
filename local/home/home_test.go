package home

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T) Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOneHolderAtATime(t *testing.T) {
	d := open(t)
	if pid, err := d.Holder(); pid != 0 || err != nil {
		t.Fatalf("a new folder is held by %d, %v", pid, err)
	}
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); !errors.Is(err, ErrRunning) {
		t.Errorf("the second lock: %v, want ErrRunning", err)
	}
	if pid, err := d.Holder(); pid != os.Getpid() || err != nil {
		t.Errorf("holder = %d, %v, want this process", pid, err)
	}
	lock.Release()
	if pid, err := d.Holder(); pid != 0 || err != nil {
		t.Errorf("after the release it is held by %d, %v", pid, err)
	}
}

func TestRunsAreRemembered(t *testing.T) {
	d := open(t)
	if r, err := d.Read(); err != nil || r.PID != 0 {
		t.Fatalf("a new folder remembers %+v, %v", r, err)
	}
	want := Run{PID: 7, Server: "https://x", Ports: map[string]int{"api": 1}, Settings: Settings{BootDelay: time.Second}}
	if err := d.Write(want); err != nil {
		t.Fatal(err)
	}
	got, err := d.Read()
	if err != nil || got.PID != 7 || got.Ports["api"] != 1 || got.Settings.BootDelay != time.Second {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestADamagedRunIsSaid(t *testing.T) {
	d := open(t)
	if err := os.WriteFile(d.File("run.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	if _, err := d.Read(); !errors.As(err, &damaged) || !strings.HasSuffix(damaged.Path, "run.json") {
		t.Errorf("error = %v, want one that names the file", err)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		settings Settings
		want     string
	}{
		"defaults are good":                   {Settings{BootDelay: 2 * time.Second, BootSpread: time.Second}, ""},
		"no delay is good":                    {Settings{}, ""},
		"a port beyond the last":              {Settings{Port: 65536}, "port 65536"},
		"a negative delay":                    {Settings{BootDelay: -1}, "negative"},
		"a spread larger than the delay":      {Settings{BootDelay: 1, BootSpread: 2}, "exceeds"},
		"a spread as large as the delay goes": {Settings{BootDelay: 2, BootSpread: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.settings.Validate()
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Validate = %v, want %q", err, tc.want)
			}
		})
	}
}
