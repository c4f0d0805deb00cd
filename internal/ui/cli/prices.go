package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

const pricesHelp = `usage: karpenter prices fetch [--region REGION] [-o FILE]

Asks AWS, with your own credentials, for the on-demand and spot prices of a region, its zones and what they offer, and writes them to a
file: for "karpenter plan --prices FILE", and for the controller's setting price-file where it cannot reach the price list.

`

// fetchPrices runs "karpenter prices fetch": it asks AWS for the prices of a region and writes them as JSON.
func fetchPrices(ctx context.Context, env Env, args []string) (int, error) {
	fs := flag.NewFlagSet("prices", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, pricesHelp); fs.PrintDefaults() }
	region := fs.String("region", "", "region of the prices; that of your AWS configuration if empty")
	file := fs.String("o", "-", "file to write, - for standard output")
	words, err := parseMixed(fs, args)
	switch {
	case err != nil:
		return exitBadInput, err
	case len(words) != 1 || words[0] != "fetch":
		return exitBadInput, errors.New("say karpenter prices fetch")
	}
	table, err := env.FetchPrices(ctx, *region)
	if err != nil {
		return exitBadInput, err
	}
	text, err := json.Marshal(table)
	if err != nil {
		return exitBadInput, err
	}
	text = append(text, '\n')
	if *file == "-" {
		_, err = env.Out.Write(text)
	} else {
		err = os.WriteFile(*file, text, 0o644)
	}
	if err != nil {
		return exitBadInput, err
	}
	fmt.Fprintf(env.Err, "%d types in %d zones of %s\n", len(table.OnDemand), len(table.Zones), table.Region)
	return exitFine, nil
}

// foreign reports whether the prices are those of another region than the plan's.
func (p *planFlags) foreign() bool {
	return p.source.Region != "" && p.source.Region != p.market.Region
}

// tellSource finds out whose prices are used, and takes the region of a price file. It prints if prices are another
// region's, and which types pools or pods ask for that EC2 lists no more.
func (p *planFlags) tellSource(env Env, pools []*v1.NodePool, pods []*cluster.Pod) error {
	if env.Source == nil {
		return nil
	}
	var err error
	if p.source, err = env.Source(p.market); err != nil {
		return err
	}
	if p.market.Prices != "" {
		p.market.Region = p.source.Region
	}
	if p.foreign() && !p.quiet {
		fmt.Fprintf(env.Err, "prices are those of %s (%s), because none of %s ship with Karpenter: karpenter prices fetch --region %[3]s "+
			"-o FILE reads them with your credentials, and --prices FILE uses them\n", p.source.Region, p.source.Made, p.market.Region)
	}
	for _, gone := range unlisted(p.source.Unlisted, pools, pods) {
		fmt.Fprintln(env.Err, gone)
	}
	return nil
}

// unlisted returns a sentence for each pool and pod that asks by name for a type, or for a family with a type, that
// EC2 lists no more.
func unlisted(gone []string, pools []*v1.NodePool, pods []*cluster.Pod) []string {
	var out []string
	note := func(object, key string, values []string) {
		var found []string
		for _, value := range values {
			for _, name := range gone {
				family, _, _ := strings.Cut(name, ".")
				if key == corev1.LabelInstanceTypeStable && name == value || key == awsv1.LabelInstanceFamily && family == value {
					found = append(found, name)
				}
			}
		}
		text := fmt.Sprintf("%s asks for %s, which EC2 lists no more: it has a price, but nothing can launch it",
			object, strings.Join(found, ", "))
		if len(found) > 0 && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, p := range pools {
		for _, q := range p.Spec.Template.Spec.Requirements {
			if q.Operator == corev1.NodeSelectorOpIn {
				note("NodePool "+p.Name, q.Key, q.Values)
			}
		}
	}
	for _, p := range pods {
		for _, key := range []string{corev1.LabelInstanceTypeStable, awsv1.LabelInstanceFamily} {
			if value, ok := p.Class.Spec.NodeSelector[key]; ok {
				note("Pod "+podName(p), key, []string{value})
			}
		}
	}
	return out
}
