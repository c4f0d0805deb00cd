package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/kit/patch"
)

const orphansUsage = `Usage: karpenter orphans [adopt|terminate] [flags] [NODE...]

Lists the Nodes of Karpenter whose machine has no NodeClaim, or says what is to become of some: adopt makes a NodeClaim
for each from its NodePool, terminate drains and stops it. The controller does it within a minute.
`

// orphans runs "karpenter orphans": it lists Nodes without NodeClaim, or writes what the controller is to do with
// them as an annotation.
func orphans(ctx context.Context, env Env, args []string) (int, error) {
	flags := flag.NewFlagSet("orphans", flag.ContinueOnError)
	flags.SetOutput(env.Err)
	kubeconfig := clusterFlag(flags)
	all := flags.Bool("all", false, "all orphans instead of named ones")
	flags.Usage = func() { fmt.Fprint(env.Err, orphansUsage); flags.PrintDefaults() }
	names, err := parseMixed(flags, args)
	if err != nil {
		return exitBadInput, err
	}
	wish := ""
	if len(names) > 0 && (names[0] == v1.OrphanAdopt || names[0] == v1.OrphanTerminate) {
		wish, names = names[0], names[1:]
	}
	if (wish == "") == (*all || len(names) > 0) {
		return exitBadInput, errors.New("say adopt or terminate together with names of Nodes or --all, or nothing for a list")
	}
	c, err := env.cluster(*kubeconfig)
	if err != nil {
		return exitBadInput, err
	}
	found, err := findOrphans(ctx, c)
	if err != nil {
		return exitBadInput, err
	}
	if wish == "" {
		return exitFine, listOrphans(env, found)
	}
	return exitFine, annotateOrphans(ctx, env, c, found, decision{wish, *all, names})
}

// findOrphans returns the Nodes that carry a NodePool's label and whose machine no NodeClaim has.
func findOrphans(ctx context.Context, c client.Reader) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	var claims v1.NodeClaimList
	for _, list := range []client.ObjectList{&claims, &nodes} {
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("read the cluster: %w", err)
		}
	}
	claimed := map[string]bool{}
	for i := range claims.Items {
		claimed[claims.Items[i].Status.ProviderID] = true
	}
	return slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool {
		return n.Labels[v1.NodePoolLabelKey] == "" || n.Spec.ProviderID == "" || claimed[n.Spec.ProviderID]
	}), nil
}

// listOrphans prints the orphans, and what was decided about them.
func listOrphans(env Env, found []corev1.Node) error {
	w := tabwriter.NewWriter(env.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tNODEPOOL\tMACHINE\tDECIDED")
	for i := range found {
		n := &found[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.Name, n.Labels[v1.NodePoolLabelKey], n.Spec.ProviderID, n.Annotations[v1.OrphanAnnotationKey])
	}
	return w.Flush()
}

// A decision says what the controller is to do with which orphans.
type decision struct {
	wish  string
	all   bool
	names []string
}

// annotateOrphans writes the decision onto the Nodes that it names, or onto all orphans. It writes nothing if a name
// is no orphan.
func annotateOrphans(ctx context.Context, env Env, c client.Client, found []corev1.Node, d decision) error {
	for _, name := range d.names {
		if !slices.ContainsFunc(found, func(n corev1.Node) bool { return n.Name == name }) {
			return fmt.Errorf("node %s does not exist, is not of Karpenter, or has a NodeClaim", name)
		}
	}
	for i := range found {
		n := &found[i]
		if !d.all && !slices.Contains(d.names, n.Name) {
			continue
		}
		old := n.DeepCopy()
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1.OrphanAnnotationKey, d.wish)
		if err := c.Patch(ctx, n, patch.Over(old)); err != nil {
			return fmt.Errorf("annotate node %s: %w", n.Name, err)
		}
		fmt.Fprintf(env.Out, "node %s: %s\n", n.Name, d.wish)
	}
	return nil
}
