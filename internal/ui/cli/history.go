package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/journal"
)

const historyHelp = `usage: karpenter history [pod|node|nodeclaim|nodepool NAME] [-n NAMESPACE] [--since 2h] [--act ACT] [--reason REASON]
                         [--last N] [-o table|json] [--journal FOLDER_OR_ADDRESS] [--kubeconfig FILE]

Lists what the controller decided: plans, nodes that were opened, pods that were placed or refused, steps that were begun or held
back, evictions, launches, what the cloud refused, repairs. The controller has the last 10,000 in memory; with --journal-dir it
writes them to a folder, which --journal reads.

Exit code: 0 there were decisions to list, 1 there were none, 2 the input is wrong or the journal cannot be read.

`

// exitNothing says that nothing was found.
const exitNothing = 1

// historyFlags are the flags of "karpenter history".
type historyFlags struct {
	journalFlags
	kubeconfig, output, namespace string
	since                         time.Duration
	query                         journal.Query
}

// objectKinds are the kinds of objects as people write them.
var objectKinds = map[string]string{
	"pod": "Pod", "pods": "Pod", "po": "Pod", "node": "Node", "nodes": "Node", "no": "Node",
	"nodeclaim": "NodeClaim", "nodeclaims": "NodeClaim", "nodepool": "NodePool", "nodepools": "NodePool",
}

// parseHistory reads the flags of history and the object that is asked about, as "node NAME", "node/NAME" or "pod
// NAMESPACE/NAME".
func parseHistory(env Env, args []string) (historyFlags, error) {
	h := historyFlags{}
	fs := flag.NewFlagSet("history", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, historyHelp); fs.PrintDefaults() }
	h.bind(fs)
	act := ""
	fs.StringVar(&h.kubeconfig, "kubeconfig", "", "cluster of the controller; that of $KUBECONFIG or ~/.kube/config if empty")
	fs.StringVar(&h.output, "o", "table", "table or json")
	fs.StringVar(&h.namespace, "n", "", "namespace of the pod; any if empty")
	fs.StringVar(&h.namespace, "namespace", "", "the same as -n")
	fs.DurationVar(&h.since, "since", 0, "how far back, such as 2h; 0: as far as there is")
	fs.StringVar(&act, "act", "", "only acts of this kind: "+strings.Join(actNames(), ", "))
	fs.StringVar(&h.query.Reason, "reason", "", "only acts for this reason, such as PoolLimit or Underutilized")
	fs.IntVar(&h.query.Last, "last", 100, "at most so many, the newest; 0 for all")
	words, err := parseMixed(fs, args)
	if err != nil {
		return h, err
	}
	if len(words) == 1 && strings.Contains(words[0], "/") {
		words = strings.SplitN(words[0], "/", 2)
	}
	h.query.Act = journal.Act(act)
	switch {
	case h.output != "table" && h.output != "json":
		return h, fmt.Errorf("-o %s: use table or json", h.output)
	case act != "" && !slices.Contains(journal.Acts(), h.query.Act):
		return h, fmt.Errorf("--act %s: use %s", act, strings.Join(actNames(), ", "))
	case len(words) == 2:
		kind := objectKinds[strings.ToLower(words[0])]
		if kind == "" {
			return h, fmt.Errorf("%s: ask about a pod, node, nodeclaim or nodepool", words[0])
		}
		name := words[1]
		if namespace, rest, ok := strings.Cut(name, "/"); ok {
			h.namespace, name = namespace, rest
		}
		h.query.Object = &journal.Object{Kind: kind, Namespace: h.namespace, Name: name}
	case len(words) != 0:
		return h, fmt.Errorf(`say what about, such as "karpenter history node ip-10-0-0-1", or nothing`)
	}
	if h.kubeconfig == "" && h.from == "" {
		h.kubeconfig = clientcmd.NewDefaultClientConfigLoadingRules().GetDefaultFilename()
	}
	return h, nil
}

func actNames() []string {
	var out []string
	for _, a := range journal.Acts() {
		out = append(out, string(a))
	}
	return out
}

// history runs "karpenter history": it reads the journal, selects records and prints them.
func history(ctx context.Context, env Env, args []string) (int, error) {
	h, err := parseHistory(env, args)
	if err != nil {
		return exitBadInput, err
	}
	all, torn, err := h.read(ctx, h.kubeconfig)
	if err != nil {
		return exitBadInput, err
	}
	if torn > 0 {
		fmt.Fprintf(env.Err, "%d line(s) of the journal are torn and left out\n", torn)
	}
	if h.since > 0 {
		h.query.Since = time.Now().Add(-h.since)
	}
	found := h.query.Select(all)
	if h.output == "json" {
		err = writeRecordsJSON(env.Out, found)
	} else {
		err = writeRecords(env.Out, found)
	}
	switch {
	case err != nil:
		return exitBadInput, err
	case len(found) == 0:
		fmt.Fprintf(env.Err, "nothing of this kind among %s\n", sentence.Count(len(all), "decision"))
		return exitNothing, nil
	}
	return exitFine, nil
}

// writeRecordsJSON prints records as JSON, [] if there are none.
func writeRecordsJSON(w io.Writer, records []journal.Record) error {
	if records == nil {
		records = []journal.Record{}
	}
	return writeJSON(w, records)
}

// writeRecords prints one line for each decision.
func writeRecords(w io.Writer, records []journal.Record) error {
	if len(records) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHEN\tACT\tREASON\tABOUT\t$/H\tWHAT")
	for i := range records {
		r := &records[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.At.UTC().Format(time.RFC3339), r.Act, dash(r.Reason),
			r.Subject(), r.Money(), dash(r.Text))
	}
	return t.Flush()
}

// dash returns "-" for an empty text.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
