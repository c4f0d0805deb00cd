package awsmodel

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// load reads the snapshot; false without an error means that there is none.
func (w *world) load() (bool, error) {
	if w.cfg.Snapshot == "" {
		return false, nil
	}
	raw, err := os.ReadFile(w.cfg.Snapshot)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	st := newState()
	if err := json.Unmarshal(raw, st); err != nil {
		return false, err
	}
	w.st = st
	return true, nil
}

// saveEvery bounds how often a busy world is written.
const saveEvery = time.Second

// save writes the snapshot if something changed and, unless it is the last one, if the previous one is not too young.
// The file is replaced as a whole, so that a crash leaves the old or the new one.
func (c *Cloud) save(last bool) error {
	if c.world.cfg.Snapshot == "" {
		return nil
	}
	c.mu.Lock()
	if !c.world.dirty || !last && time.Since(c.saved) < saveEvery {
		c.mu.Unlock()
		return nil
	}
	raw, err := json.Marshal(c.world.st)
	c.world.dirty, c.saved = false, time.Now()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(c.world.cfg.Snapshot), ".snapshot-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(raw); err != nil {
		_ = tmp.Close() // the write's error is the one to tell
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), c.world.cfg.Snapshot)
}
