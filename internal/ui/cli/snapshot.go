package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/scenario"
)

const snapshotHelp = `usage: karpenter snapshot -o FILE_OR_- [--anonymous] [--kubeconfig FILE] [-f FILE_OR_DIR_OR_-…]
       karpenter snapshot -o FILE_OR_- --controller [--anonymous] [--kubeconfig FILE] [--journal ADDRESS]

Writes all that a plan rests on into one file: pools, instance types with prices and what is sold out, nodes, pods, volumes,
settings. "karpenter plan --snapshot FILE" gives the same plan, on any machine, and the file is a story that Karpenter's own tests
read: with it a report of a bug is a failing test. What containers are started with, their environment, secrets, user data and
annotations are not in it. With --controller it is what the controller that leads was last asked, with what its engine remembered and
the work that it may do: the plan of the file is the one that the controller made. With --anonymous everything that
users named has a new name; the plan then has the same price.

Exit code: 0 it is written, 2 the input is wrong.

`

// snapshotFlags are the flags of "karpenter snapshot".
type snapshotFlags struct {
	planFlags
	journalFlags
	file       string
	controller bool
	anonymous  bool
}

// parseSnapshot reads the flags and arguments of snapshot.
func parseSnapshot(env Env, args []string) (snapshotFlags, error) {
	s := snapshotFlags{}
	fs := flag.NewFlagSet("snapshot", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, snapshotHelp); fs.PrintDefaults() }
	s.worldFlags(fs)
	fs.StringVar(&s.file, "o", "", "file to write, - for standard output")
	s.bind(fs)
	fs.BoolVar(&s.controller, "controller", false,
		"what the controller was last asked, and what it remembered then; it is found as its journal is")
	fs.BoolVar(&s.anonymous, "anonymous", false, "give everything that users named a new name")
	words, err := parseMixed(fs, args)
	s.files = append(s.files, words...)
	switch {
	case err != nil:
		return s, err
	case s.file == "":
		return s, errors.New("give the file to write with -o; - is standard output")
	case s.controller && (len(s.files) > 0 || s.snapshot != ""):
		return s, errors.New("--controller asks the controller; give it without -f and --snapshot")
	case s.from != "" && !s.controller:
		return s, errors.New("--journal says where the controller is; give it with --controller")
	}
	return s, s.checkWorld()
}

// snapshot runs "karpenter snapshot": it writes the question of a plan into a file.
func snapshot(ctx context.Context, env Env, args []string) (int, error) {
	s, err := parseSnapshot(env, args)
	if err != nil {
		return exitBadInput, err
	}
	text, err := s.text(ctx, env)
	if err != nil {
		return exitBadInput, err
	}
	if s.file == "-" {
		_, err = env.Out.Write(text)
	} else {
		err = os.WriteFile(s.file, text, 0o600)
	}
	if err != nil {
		return exitBadInput, fmt.Errorf("write the snapshot: %w", err)
	}
	if s.file != "-" {
		fmt.Fprintf(env.Err, "wrote %s (%d kB); karpenter plan --snapshot %[1]s plans from it\n", s.file, (len(text)+1023)/1024)
	}
	return exitFine, nil
}

// text returns the snapshot: the controller's own with --controller, else one of files and cluster.
func (s *snapshotFlags) text(ctx context.Context, env Env) ([]byte, error) {
	if s.controller {
		return s.controllerSnapshot(ctx, s.kubeconfig, s.anonymous)
	}
	input, err := s.question(ctx, env)
	if err != nil {
		return nil, err
	}
	story := fmt.Sprintf("%d pod(s) wait, %d node(s) are there, %d pool(s) may open more, on %s.", len(input.Pods),
		input.Snap.NodeCount(), len(input.Pools),
		time.Now().UTC().Format(time.RFC3339))
	return scenario.Snapshot(story, withSpares(input), s.anonymous), nil
}

// readSnapshot returns the question that a snapshot was made of, and what the engine remembered, nil if that is not in it.
func readSnapshot(file string) (engine.Question, *engine.Memory, error) {
	w, err := readWorld(file)
	if err != nil {
		return engine.Question{}, nil, err
	}
	return questionOf(w), w.Memory, nil
}

// questionOf returns the question of a snapshot's world. Where the engine remembered nothing, the pods are those that wait.
func questionOf(w *scenario.World) engine.Question {
	in := w.Input()
	if w.Memory == nil {
		in.Pods = in.Snap.Provisionable()
	}
	return in
}

// snapshotObjects returns the objects of a snapshot's world.
func snapshotObjects(w *scenario.World) *objects {
	o := &objects{}
	for _, obj := range w.Objects {
		o.add(obj)
	}
	return o
}

// readStory reads and parses the file of a snapshot.
func readStory(file string) (*scenario.Scenario, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--snapshot: %w", err)
	}
	if !bytes.Contains(text, []byte("\n-- objects --\n")) {
		return nil, fmt.Errorf("--snapshot %s: this is no snapshot; karpenter snapshot writes one", file)
	}
	story, err := scenario.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--snapshot %s: %w", file, err)
	}
	return story, nil
}

// readWorld returns the world of a snapshot.
func readWorld(file string) (*scenario.World, error) {
	story, err := readStory(file)
	if err != nil {
		return nil, err
	}
	w, err := story.World()
	if err == nil {
		err = w.Enter(story, 1)
	}
	if err != nil {
		return nil, fmt.Errorf("--snapshot %s: %w", file, err)
	}
	return w, nil
}
