package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/ui/top"
)

const decideUsage = `Usage: karpenter %s [--note TEXT] [flags] [NAME...]

Says %s to DisruptionPlans: steps that NodePools with the annotation karpenter.sh/disruption-approval=manual wait for. Without a name it
lists those that wait. It writes spec.decision, as "kubectl patch" does; who may do that is a matter of roles.

%s

`

const (
	approveMeans = `What was approved is confirmed once more. Where it is still the same, it is carried out within
seconds; where other nodes would go, other machines
come, more pods move or much less be saved, the plan is superseded and another one asks.`
	denyMeans = `The nodes of the plan are left alone until it expires.`
)

// approve runs "karpenter approve": it writes Approved into DisruptionPlans, or lists the plans that wait.
func approve(ctx context.Context, env Env, args []string) (int, error) {
	return decideOn(ctx, env, args, verdict{"approve", "yes", approveMeans, v1alpha1.DisruptionApproved})
}

// deny runs "karpenter deny": it writes Denied into DisruptionPlans, or lists the plans that wait.
func deny(ctx context.Context, env Env, args []string) (int, error) {
	return decideOn(ctx, env, args, verdict{"deny", "no", denyMeans, v1alpha1.DisruptionDenied})
}

// A verdict is the command, approve or deny, with its words in the help and the decision that it writes.
type verdict struct {
	command, word, means string
	decision             v1alpha1.DisruptionDecision
}

// decideOn runs approve and deny. With names it writes the decision into each of these plans and returns the errors
// of all; without names it lists the plans that wait.
func decideOn(ctx context.Context, env Env, args []string, v verdict) (int, error) {
	flags := flag.NewFlagSet(v.command, flag.ContinueOnError)
	flags.SetOutput(env.Err)
	note := flags.String("note", "", "why; kept with the plan")
	kubeconfig := clusterFlag(flags)
	flags.Usage = func() {
		fmt.Fprintf(env.Err, decideUsage, v.command, v.word, v.means)
		flags.PrintDefaults()
	}
	names, err := parseMixed(flags, args)
	if err != nil {
		return exitBadInput, err
	}
	c, err := env.cluster(*kubeconfig)
	if err != nil {
		return exitBadInput, err
	}
	if len(names) == 0 {
		return exitFine, listPlans(ctx, env.Out, c)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, v.write(ctx, env.Out, c, name, *note))
	}
	return exitFine, errors.Join(errs...)
}

// write writes the decision into one plan. The patch carries the resourceVersion that was read, so it fails if the
// plan changed in the meantime: the user has not seen that version.
func (v verdict) write(ctx context.Context, out io.Writer, c client.Client, name, note string) error {
	var plan v1alpha1.DisruptionPlan
	if err := c.Get(ctx, types.NamespacedName{Name: name}, &plan); err != nil {
		return fmt.Errorf("read plan %s: %w; without a name those that wait are listed", name, err)
	}
	if !plan.Open() {
		return fmt.Errorf("plan %s does not wait any more: %s", name,
			strings.TrimSpace(top.Plain(string(plan.Status.Phase)+" "+plan.Status.Message)))
	}
	spec := map[string]any{"decision": v.decision}
	if note != "" {
		spec["note"] = note
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": plan.ResourceVersion}, "spec": spec})
	if err != nil {
		return err
	}
	if err := c.Patch(ctx, &plan, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("decide on plan %s: %w", name, err)
	}
	fmt.Fprintf(out, "%s: %s\n", name, v.decision)
	return nil
}

// listPlans prints the plans that wait for a decision, with the nodes that would go and come.
func listPlans(ctx context.Context, out io.Writer, c client.Reader) error {
	var plans v1alpha1.DisruptionPlanList
	if err := c.List(ctx, &plans); err != nil {
		return fmt.Errorf("read plans: %w", err)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PLAN\tREASON\tGOES\tCOMES\tSAVES\tPODS\tEXPIRES\tDECIDED")
	for i := range plans.Items {
		p := &plans.Items[i]
		if !p.Open() {
			continue
		}
		s := p.Status.Step
		var goes, comes []string
		for _, n := range s.Remove {
			goes = append(goes, fmt.Sprintf("%s (%s)", n.Node, n.InstanceType))
		}
		for _, n := range s.Open {
			comes = append(comes, n.InstanceType)
		}
		decided := string(p.Spec.Decision)
		if p.Status.Rule != "" {
			decided = "by rule"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", p.Name, s.Reason, strings.Join(goes, ", "),
			strings.Join(comes, ", "), strings.Replace("$"+s.Saves+"/h", "$-", "-$", 1), s.Pods,
			p.Status.ExpiresAt.UTC().Format(time.RFC3339), decided)
	}
	return w.Flush()
}
