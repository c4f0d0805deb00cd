package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/history/journal"
)

const whyHelp = `usage: karpenter why pod NAME [-n NAMESPACE] [--kubeconfig FILE] [-f FILE_OR_DIR_OR_-…] [-o text|json]
       karpenter why node|nodeclaim|nodepool NAME [--kubeconfig FILE] [-f FILE_OR_DIR_OR_-…] [-o text|json]

Says why a pod waits, and the smallest change that would give it a place: a limit raised, a zone allowed, a taint tolerated, a
spread dropped. Each change that it names was planned with, so it helps; where no single one does, up to three together are
tried. Of a node it says what keeps it: pods, budgets, annotations, prices; what it costs, and what would become of it without
each; or the step in which it goes, and where its pods go. Nothing is changed, and no access to the controller is needed: it is
the same engine on the same objects.

Without --kubeconfig and -f the cluster of $KUBECONFIG, or of ~/.kube/config, is read. It is only listed. Where the controller's
journal is to be had (see karpenter history), the answer ends with what was decided before.

Exit code: 0 the pod runs or has a place, nothing keeps the node; 1 the pod waits, the node stays; 2 the input is wrong.

`

// whyFlags are the flags of "karpenter why", and what is sold out.
type whyFlags struct {
	planFlags
	journal               journalFlags
	kind, name, namespace string

	soldOut map[soldOutKey]bool                                               // as the controller found it; see readSoldOut
	listed  func(m Market, class *awsv1.EC2NodeClass) (*cloud.Catalog, error) // Env.Catalog, in which soldOut is still on sale
}

// parseWhy reads the flags of why and the object that is asked about, as "pod NAME", "pod/NAME" or "pod
// NAMESPACE/NAME".
func parseWhy(env Env, args []string) (whyFlags, error) {
	w := whyFlags{}
	w.journal.leader = env.Leader
	fs := flag.NewFlagSet("why", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, whyHelp); fs.PrintDefaults() }
	w.worldFlags(fs)
	w.journal.bind(fs)
	fs.StringVar(&w.output, "o", "text", "text or json")
	fs.StringVar(&w.namespace, "n", "default", "namespace of the pod")
	fs.StringVar(&w.namespace, "namespace", "default", "the same as -n")
	words, err := parseMixed(fs, args)
	switch {
	case err != nil:
		return w, err
	case w.output != "text" && w.output != "json":
		return w, fmt.Errorf("-o %s: use text or json", w.output)
	}
	if len(words) == 1 && strings.Contains(words[0], "/") { // pod/web-1
		words = strings.SplitN(words[0], "/", 2)
	}
	if len(words) != 2 {
		return w, errors.New(`say what about, such as "karpenter why pod web-1 -n shop"`)
	}
	w.kind, w.name = words[0], words[1]
	if namespace, name, ok := strings.Cut(w.name, "/"); ok { // shop/web-1, as Karpenter writes it
		w.namespace, w.name = namespace, name
	}
	return w, w.checkWorld()
}

// parseMixed parses flags that stand before, between and after words, and returns the words. Package flag stops at
// the first word.
func parseMixed(fs *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return words, nil
		}
		words, args = append(words, fs.Arg(0)), fs.Args()[1:]
	}
}

// whyKinds are what can be asked about.
var whyKinds = []struct {
	names []string
	run   func(ctx context.Context, env Env, w whyFlags) (int, error)
}{
	{[]string{"pod", "pods", "po"}, whyPod},
	{[]string{"node", "nodes", "no"}, whyNode},
	{[]string{"nodeclaim", "nodeclaims"}, whyNode},
	{[]string{"nodepool", "nodepools"}, whyPool},
}

// decided returns the latest records of the journal about an object. Where the journal cannot be read it prints why
// and returns nil: the answer does not depend on it.
func (w *whyFlags) decided(ctx context.Context, env Env, about journal.Object) []journal.Record {
	if w.journal.from == "" && w.kubeconfig == "" {
		return nil
	}
	all, _, err := w.journal.read(ctx, w.kubeconfig)
	if err != nil {
		fmt.Fprintf(env.Err, "without what was decided before: %v\n", err)
	}
	const lately = 10
	q := journal.Query{Object: &about, Last: lately}
	return q.Select(all)
}

// writeDecided prints what the controller decided; nothing if there are no records.
func writeDecided(w io.Writer, records []journal.Record) error {
	if len(records) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nWhat the controller decided:")
	return writeRecords(w, records)
}

// askWhy runs "karpenter why": it calls the function for the kind of object that is asked about.
func askWhy(ctx context.Context, env Env, args []string) (int, error) {
	w, err := parseWhy(env, args)
	if err != nil {
		return exitBadInput, err
	}
	for _, k := range whyKinds {
		if slices.Contains(k.names, strings.ToLower(w.kind)) {
			return k.run(ctx, env, w)
		}
	}
	var known []string
	for _, k := range whyKinds {
		known = append(known, k.names[0])
	}
	return exitBadInput, fmt.Errorf("%s: ask about a %s", w.kind, strings.Join(known, ", "))
}
