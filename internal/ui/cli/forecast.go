package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"karpenter.sh/karpenter/internal/core/forecast"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

const forecastHelp = `usage: karpenter forecast [--hours N] [-o table|json] [--journal ADDRESS] [--kubeconfig FILE]

Shows which pods are expected in the next hours because they came at these times on earlier days, what was expected and came in the
last three hours, and what that cost and brought: of each NodePool and CapacityBuffer with the annotation karpenter.sh/learn.

Exit code: 0 something learns, 1 nothing does, 2 the input is wrong or the controller cannot be asked.

`

// runForecast runs "karpenter forecast": it asks the controller what it learned, and prints it.
func runForecast(ctx context.Context, env Env, args []string) (int, error) {
	var j journalFlags
	fs := flag.NewFlagSet("forecast", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, forecastHelp); fs.PrintDefaults() }
	j.bind(fs)
	kubeconfig := fs.String("kubeconfig", "", "cluster of the controller; that of $KUBECONFIG or ~/.kube/config if empty")
	output := fs.String("o", "table", "table or json")
	hours := fs.Int("hours", 6, "how many hours ahead, 24 at most")
	switch words, err := parseMixed(fs, args); {
	case err != nil:
		return exitBadInput, err
	case len(words) > 0:
		return exitBadInput, fmt.Errorf("%s: karpenter forecast takes flags only", words[0])
	case *output != "table" && *output != "json":
		return exitBadInput, fmt.Errorf("-o %s: use table or json", *output)
	case *hours < 1 || *hours > 24:
		return exitBadInput, fmt.Errorf("--hours %d: give 1 to 24", *hours)
	}
	if *kubeconfig == "" && j.from == "" {
		*kubeconfig = clientcmd.NewDefaultClientConfigLoadingRules().GetDefaultFilename()
	}
	text, err := j.ask(ctx, *kubeconfig, "forecast", url.Values{"hours": {strconv.Itoa(*hours)}})
	if err != nil {
		return exitBadInput, err
	}
	var all []forecast.Report
	if err := json.Unmarshal(text, &all); err != nil {
		return exitBadInput, fmt.Errorf("the forecast cannot be read: %w", err)
	}
	if *output == "json" {
		err = writeJSON(env.Out, all)
	} else {
		err = writeForecast(env.Out, all)
	}
	switch {
	case err != nil:
		return exitBadInput, err
	case len(all) == 0:
		fmt.Fprintln(env.Err,
			`nothing learns: annotate a NodePool or CapacityBuffer with karpenter.sh/learn: "true", see docs/foresight.md`)
		return exitNothing, nil
	}
	return exitFine, nil
}

// writeForecast prints one line on what each object learned, and below them all hours as a table.
func writeForecast(out io.Writer, all []forecast.Report) error {
	hours := 0
	for i := range all {
		r := &all[i]
		wrong := "nothing came yet"
		if r.Score.Came > 0 {
			wrong = fmt.Sprintf("%.0f pods expected of late, %.0f came, %.0f %% wrong", r.Score.Expected, r.Score.Came,
				100*r.Score.Wrong/r.Score.Came)
		}
		fmt.Fprintf(out, "%s: %d day(s) in %d bytes; %s; room unused $%.2f, waiting saved $%.2f\n", r.Object, r.Days, r.Bytes, wrong,
			r.Unused, r.Saved)
		switch {
		case !r.Off.IsZero():
			fmt.Fprintf(out, "%s: no room is kept until %s: it cost more than it brought\n", r.Object, r.Off.Format(time.RFC3339))
		case r.Spent:
			fmt.Fprintf(out, "%s: no room is kept until midnight: today $%.2f of it was not used, the most that a day's bill allows\n",
				r.Object, r.Today.Unused)
		}
		hours += len(r.Hours)
	}
	if hours == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "OBJECT\tHOUR\tPODS OF\tEXPECTED\tCAME\tERROR\tLEARNED FROM")
	for i := range all {
		for _, h := range all[i].Hours {
			came, wrong, from := "-", "-", "-"
			if h.Over || h.Came > 0 {
				came = strconv.Itoa(h.Came)
			}
			if h.Over {
				wrong = fmt.Sprintf("%+d", h.Expected-h.Came)
			}
			if h.From != nil {
				from = sentence.LearnedFrom(*h.From)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", all[i].Object, h.At.Format("02 Jan 15:04"), h.Pods, h.Expected,
				came, wrong, from)
		}
	}
	return t.Flush()
}
