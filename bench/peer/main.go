// Peer measures Karpenter's own scheduler and this project's engine side by side, on this machine: the same pods, instance types, prices
// and pools. Each measurement is a process of its own, so that neither heats the other's heap.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	full := flag.Bool("full", os.Getenv("FULL") != "", "measure the large rows too")
	runs := flag.Int("runs", 3, "how often each row is measured; the median counts")
	only := flag.String("rows", "", "only rows whose name contains this")
	page := flag.String("page", "", "a file that the tables are written to as well")
	child := flag.String("measure", "", "measure one row of one side, by their names with a slash between, and print it as JSON (for this program itself)")
	flag.Parse()
	if err := run(*full, *runs, *only, *page, *child); err != nil {
		fmt.Fprintln(os.Stderr, "bench-peer:", err)
		os.Exit(1)
	}
}

func run(full bool, runs int, only, page, child string) error {
	if child != "" {
		side, name, _ := strings.Cut(child, "/")
		m, err := measure(side, name)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(m)
	}
	begun := time.Now()
	var done []compared
	chosen := slices.DeleteFunc(rows(), func(r row) bool { return r.large && !full || !strings.Contains(r.name, only) })
	for i, r := range chosen {
		fmt.Fprintf(os.Stderr, "%4.0fs  row %d of %d: %s\n", time.Since(begun).Seconds(), i+1, len(chosen), r.name)
		c := compared{row: r}
		for _, side := range []struct {
			name string
			to   *measured
		}{{ours, &c.ours}, {theirs, &c.theirs}} {
			m, err := median(side.name, r.name, runs)
			if err != nil {
				return err
			}
			*side.to = m
		}
		done = append(done, c)
	}
	text := report(done, runs, time.Since(begun))
	fmt.Print(text)
	if page == "" {
		return nil
	}
	return os.WriteFile(filepath.Clean(page), []byte(text), 0o644)
}

// long is how long a run may take to be measured more than once.
const long = 10 * time.Second

// median measures one side of a row some times, each in a process of its own, and returns the run with the median time. A long run is
// measured once.
func median(side, name string, runs int) (measured, error) {
	var all []measured
	for len(all) < runs {
		m, err := alone(side, name)
		if err != nil {
			return m, fmt.Errorf("%s of %s: %w", name, side, err)
		}
		all = append(all, m)
		if m.Took > long {
			break
		}
	}
	slices.SortFunc(all, func(a, b measured) int { return cmp.Compare(a.Took, b.Took) })
	return all[len(all)/2], nil
}

// alone measures in a process of its own.
func alone(side, name string) (measured, error) {
	var m measured
	cmd := exec.Command(os.Args[0], "-measure", side+"/"+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(out, &m)
}
