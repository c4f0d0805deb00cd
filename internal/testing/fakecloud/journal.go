package fakecloud

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// A journal is a file with one line of JSON for each change of a machine. The last line of a machine is its state; a line
// cut short by a crash was never a fact and is dropped.
type journal struct{ file *os.File }

func openJournal(name string) ([]*machine, *journal, error) {
	machines, size, err := readJournal(name)
	if err != nil {
		return nil, nil, fmt.Errorf("read journal of machines: %w", err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(f.Truncate(size), seekEnd(f)); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return machines, &journal{f}, nil
}

func seekEnd(f *os.File) error {
	_, err := f.Seek(0, 2)
	return err
}

// readJournal returns the machines in the order in which they were launched, and the length of the part that is whole.
func readJournal(name string) ([]*machine, int64, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	var order []string
	last := map[string]*machine{}
	var size int64
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err != nil { // the end, or a line that was cut short
			break
		}
		m := &machine{}
		if err := json.Unmarshal(line, m); err != nil {
			return nil, 0, fmt.Errorf("after %d bytes: %w", size, err)
		}
		size += int64(len(line))
		if last[m.ProviderID] == nil {
			order = append(order, m.ProviderID)
		}
		last[m.ProviderID] = m
	}
	machines := make([]*machine, 0, len(order))
	for _, id := range order {
		machines = append(machines, last[id])
	}
	return slices.Clip(machines), size, nil
}

// append writes one line. The cloud holds its lock, so lines never mix.
func (j *journal) append(m *machine) {
	line, err := json.Marshal(m)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		bug.Reportf("journal of machines: %v", err)
	}
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return j.file.Close()
}
