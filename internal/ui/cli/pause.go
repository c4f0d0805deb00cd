package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/paused"
)

const pauseUsage = `Usage: karpenter pause [DURATION] [--pool NAME]... [--reason TEXT] [flags]

Stops voluntary disruption of the whole cluster or of some NodePools, for a DURATION such as 2h or until "karpenter resume": Karpenter
chooses no more nodes because they are empty, drifted, under-used or broken. It takes back steps that have deleted nothing; nodes that are
being drained go. It launches machines for pods as ever. Spot interruptions, deletions by hand and expireAfter go on: the command names
the nodes that expire in the meantime.

It writes the annotation karpenter.sh/paused onto the NodePools, or onto the namespace kube-system, which stops all of them. "karpenter
resume" takes it off. Restarts of the controller change nothing.

`

const resumeUsage = `Usage: karpenter resume [--pool NAME]... [flags]

Ends what "karpenter pause" began: without --pool the pause of the whole cluster, with --pool those of NodePools. Without --pool it also
ends the pauses that the controller began itself, because too much of what is new did not get ready. Pauses that are left are named.

`

// names is a flag that may be given more than once.
type names []string

func (n *names) String() string     { return strings.Join(*n, ",") }
func (n *names) Set(s string) error { *n = append(*n, s); return nil }

// A pauseRequest is what "karpenter pause" was told.
type pauseRequest struct {
	pools  []string // none for the whole cluster
	length time.Duration
	reason string
}

// pause runs "karpenter pause". The duration comes first or is given by --for.
func pause(ctx context.Context, env Env, args []string) (int, error) {
	flags := flag.NewFlagSet("pause", flag.ContinueOnError)
	flags.SetOutput(env.Err)
	var s pauseRequest
	flags.Var((*names)(&s.pools), "pool", "name of a NodePool, may be given more than once; the whole cluster if none is")
	flags.DurationVar(&s.length, "for", 0, "the DURATION: for how long, such as 2h; until it is resumed if it is 0")
	flags.StringVar(&s.reason, "reason", "", "why, shown by status, top and the page")
	kubeconfig := clusterFlag(flags)
	flags.Usage = func() { fmt.Fprint(env.Err, pauseUsage); flags.PrintDefaults() }
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		length, err := time.ParseDuration(args[0])
		if err != nil {
			return exitBadInput, fmt.Errorf("%q is no duration such as 2h or 30m; NodePools are named with --pool", args[0])
		}
		s.length, args = length, args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return exitBadInput, err
	}
	switch {
	case flags.NArg() > 0:
		return exitBadInput, fmt.Errorf("what is %q? The duration comes first, and NodePools are named with --pool", flags.Arg(0))
	case s.length < 0:
		return exitBadInput, errors.New("a pause cannot have a negative duration")
	}
	c, err := env.cluster(*kubeconfig)
	if err != nil {
		return exitBadInput, err
	}
	return exitFine, s.write(ctx, env.Out, c, time.Now())
}

// write writes the annotations of the pause, and prints until when it lasts and which nodes go all the same.
func (s pauseRequest) write(ctx context.Context, out io.Writer, c client.Client, now time.Time) error {
	value, until := "true", time.Time{}
	if s.length > 0 {
		until = now.Add(s.length).UTC().Truncate(time.Second)
		value = until.Format(time.RFC3339)
	}
	annotations := map[string]any{v1.PausedAnnotationKey: value, v1.PausedReasonAnnotationKey: nil, v1.PausedByAnnotationKey: nil}
	if s.reason != "" {
		annotations[v1.PausedReasonAnnotationKey] = s.reason
	}
	for _, o := range switches(s.pools) {
		if err := writeAnnotations(ctx, c, o, annotations); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: no node is removed voluntarily until %s\n", switchName(o),
			cmp.Or(timeText(until), "karpenter resume ends it"))
	}
	return s.tellExceptions(ctx, out, c, until)
}

// timeText returns a time as text, "" for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// switches returns the objects that carry the annotation of a pause: the named NodePools, or the namespace
// kube-system for the cluster.
func switches(pools []string) []client.Object {
	if len(pools) == 0 {
		ns := &corev1.Namespace{}
		ns.Name = v1.PausedNamespace
		return []client.Object{ns}
	}
	var out []client.Object
	for _, name := range pools {
		p := &v1.NodePool{}
		p.Name = name
		out = append(out, p)
	}
	return out
}

// switchName returns how messages name what a switch is for.
func switchName(o client.Object) string {
	if _, ok := o.(*v1.NodePool); ok {
		return "NodePool " + o.GetName()
	}
	return "the whole cluster"
}

// writeAnnotations writes annotations onto an object, and removes those whose value is nil.
func writeAnnotations(ctx context.Context, c client.Client, o client.Object, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	err = c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
	if _, isPool := o.(*v1.NodePool); !isPool && apierrors.IsForbidden(err) {
		return fmt.Errorf("pausing the whole cluster needs the right to patch the namespace %s; --pool needs the right "+
			"to patch NodePools: %w", v1.PausedNamespace, err)
	}
	if err != nil {
		return fmt.Errorf("annotate %s: %w", switchName(o), err)
	}
	return nil
}

// tellExceptions prints the nodes that go in spite of the pause: those that are being drained, and those that expire
// before until.
func (s pauseRequest) tellExceptions(ctx context.Context, out io.Writer, c client.Reader, until time.Time) error {
	var claims v1.NodeClaimList
	if err := c.List(ctx, &claims); err != nil {
		return fmt.Errorf("it is paused, but which nodes go all the same could not be read: %w", err)
	}
	var drained, expiring []string
	for i := range claims.Items {
		claim := &claims.Items[i]
		if pool := claim.Labels[v1.NodePoolLabelKey]; len(s.pools) > 0 && !slices.Contains(s.pools, pool) {
			continue
		}
		name := cmp.Or(claim.Status.NodeName, claim.Name)
		life := claim.Spec.ExpireAfter.Duration
		switch {
		case claim.DeletionTimestamp != nil:
			drained = append(drained, name)
		case life != nil && !until.IsZero() && claim.CreationTimestamp.Add(*life).Before(until):
			expiring = append(expiring, name+" at "+claim.CreationTimestamp.Add(*life).UTC().Format(time.RFC3339))
		}
	}
	if len(drained) > 0 {
		fmt.Fprintf(out, "being drained already, and go: %s\n", firstFew(drained))
	}
	if len(expiring) > 0 {
		fmt.Fprintf(out, "reach their expireAfter before that, and go then: %s\n", firstFew(expiring))
	}
	return nil
}

// resume runs "karpenter resume".
func resume(ctx context.Context, env Env, args []string) (int, error) {
	flags := flag.NewFlagSet("resume", flag.ContinueOnError)
	flags.SetOutput(env.Err)
	var pools names
	flags.Var(&pools, "pool", "name of a NodePool, may be given more than once; the pause of the whole cluster if none is")
	kubeconfig := clusterFlag(flags)
	flags.Usage = func() { fmt.Fprint(env.Err, resumeUsage); flags.PrintDefaults() }
	if err := flags.Parse(args); err != nil {
		return exitBadInput, err
	}
	if flags.NArg() > 0 {
		return exitBadInput, fmt.Errorf("what is %q? NodePools are named with --pool", flags.Arg(0))
	}
	c, err := env.cluster(*kubeconfig)
	if err != nil {
		return exitBadInput, err
	}
	return exitFine, removePauses(ctx, env.Out, c, pools)
}

// removePauses removes the pauses of pools. Without pools it removes the pause of the whole cluster, and those that
// the controller itself began. It prints the pauses that are left.
func removePauses(ctx context.Context, out io.Writer, c client.Client, pools []string) error {
	ended := switches(pools)
	if len(pools) == 0 {
		var all v1.NodePoolList
		if err := c.List(ctx, &all); err != nil {
			return fmt.Errorf("read NodePools: %w", err)
		}
		for i := range all.Items {
			if all.Items[i].Annotations[v1.PausedByAnnotationKey] != "" {
				ended = append(ended, &all.Items[i])
			}
		}
	}
	for _, o := range ended {
		if err := writeAnnotations(ctx, c, o, map[string]any{v1.PausedAnnotationKey: nil, v1.PausedReasonAnnotationKey: nil,
			v1.PausedByAnnotationKey: nil}); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: not paused any more\n", switchName(o))
	}
	var left v1.NodePoolList
	if err := c.List(ctx, &left); err != nil {
		return fmt.Errorf("read NodePools: %w", err)
	}
	all := switches(nil)
	if err := c.Get(ctx, client.ObjectKeyFromObject(all[0]), all[0]); err == nil { // the user may lack the right to read namespaces
		tellPaused(out, all[0])
	}
	for i := range left.Items {
		tellPaused(out, &left.Items[i])
	}
	return nil
}

// tellPaused prints a line if the annotations of an object still pause something.
func tellPaused(out io.Writer, o client.Object) {
	if h, halted := paused.Read(o.GetAnnotations(), time.Now()); halted {
		fmt.Fprintf(out, "%s is still paused until %s\n", switchName(o), cmp.Or(timeText(h.Until), "karpenter resume ends it"))
	}
}
