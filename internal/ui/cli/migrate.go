package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/internal/aws/nodegroup"
)

const migrateHelp = `usage: karpenter migrate -f FILE_OR_-… [--cluster-name NAME] [--widen]

Prints a NodePool and an EC2NodeClass that buy the machines of a node group, for those who come from managed node groups or from Cluster
Autoscaler. It reads files, makes no calls and changes nothing: each file is the output of aws eks describe-nodegroup or of aws autoscaling
describe-auto-scaling-groups, or a ClusterConfig of eksctl.

What has no equal, or is to be looked at, is said in a comment before the pool and on standard error. docs/autoscalers.md says how to move.

Exit code: 0 everything was said, 1 something has no equal or is to be filled in, 2 the input is wrong.

`

// migrate prints pools that buy what node groups buy.
func migrate(_ context.Context, env Env, args []string) (int, error) {
	var files []string
	var o nodegroup.Options
	fs := flag.NewFlagSet("migrate", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, migrateHelp); fs.PrintDefaults() }
	add := func(path string) error { files = append(files, path); return nil }
	fs.Func("f", "file with node groups, - for standard input; may be given several times", add)
	fs.Func("filename", "the same as -f", add)
	fs.StringVar(&o.Cluster, "cluster-name", "", "the cluster, for descriptions that do not name theirs")
	fs.BoolVar(&o.Widen, "widen", false, "allow all types of the same categories, of the same generation or younger, "+
		"instead of those that are listed")
	if err := fs.Parse(args); err != nil {
		return exitBadInput, err
	}
	files = append(files, fs.Args()...)
	if len(files) == 0 {
		return exitBadInput, errors.New("nothing to read; give files with -f: " + nodegroup.Accepted)
	}
	var groups []nodegroup.Group
	for _, path := range files {
		text, name, err := readFile(env.In, path)
		if err != nil {
			return exitBadInput, err
		}
		found, err := nodegroup.Read(text)
		if err != nil {
			return exitBadInput, fmt.Errorf("%s: %w", name, err)
		}
		groups = append(groups, found...)
	}
	return writePools(env, nodegroup.Pools(groups, o))
}

// readFile returns the content of a file or of standard input, and its name for messages.
func readFile(in io.Reader, path string) (text []byte, name string, err error) {
	if path == standardInput {
		text, err = io.ReadAll(in)
		return text, "standard input", err
	}
	text, err = readRegular(path)
	return text, path, err
}

// writePools prints the manifests of pools and their classes, with the notes as comments and on standard error. It
// returns exitLost if there are notes.
func writePools(env Env, pools []nodegroup.Pool) (int, error) {
	code := exitFine
	var parts [][]byte
	for _, p := range pools {
		var head strings.Builder
		fmt.Fprintf(&head, "# From node group %s.\n", oneLine(p.From))
		for _, note := range p.Notes {
			fmt.Fprintf(&head, "# - %s\n", oneLine(note))
			fmt.Fprintf(env.Err, "%s: %s\n", p.From, note)
			code = exitLost
		}
		pool, err := manifest(p.Pool)
		if err != nil {
			return exitBadInput, err
		}
		parts = append(parts, append([]byte(head.String()), pool...))
		if p.Class == nil {
			continue
		}
		class, err := manifest(p.Class)
		if err != nil {
			return exitBadInput, err
		}
		parts = append(parts, class)
	}
	_, err := env.Out.Write(bytes.Join(parts, []byte("---\n")))
	return code, err
}

// oneLine joins text from outside into one line, so that it cannot leave its comment.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// manifest writes an object as people write it: without status and other fields that are empty.
func manifest(object any) ([]byte, error) {
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	delete(tree, "status")
	prune(tree)
	return yaml.Marshal(tree)
}

// prune removes null values and empty maps from a tree of maps.
func prune(tree map[string]any) {
	for key, value := range tree {
		child, isMap := value.(map[string]any)
		if isMap {
			prune(child)
		}
		if value == nil || isMap && len(child) == 0 {
			delete(tree, key)
		}
	}
}
