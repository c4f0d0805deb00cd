package provision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bindfail"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/scenario"
)

const (
	// storyEvery is the least time between two scenarios, storyBytes the size of one at most, storiesKept how many are kept.
	storyEvery  = time.Hour
	storyBytes  = 1 << 20
	storiesKept = 24
)

// record writes a scenario of the question in which pods lost their places, for a report of a bug, if Settings.Stories is set. It
// writes only at the first loss of a pod, and at most one in storyEvery. A failure is only logged.
func (l *Loop) record(ctx context.Context, in engine.Question, lost []bindfail.Held) {
	if l.settings.Stories == "" || len(lost) == 0 || in.Now.Sub(l.recorded) < storyEvery || !slices.ContainsFunc(lost, l.spurned.Begins) {
		return
	}
	l.recorded = in.Now
	file, err := l.writeStory(in, lost)
	if err != nil {
		telemetry.Log(ctx).Error("could not write the scenario of a pod that is not bound", "error", err)
		return
	}
	telemetry.Log(ctx).Info("wrote the scenario of a pod that is not bound, without names", "file", file)
}

// writeStory writes the scenario to a file, with the pods that lost their places first, and returns the file's name.
func (l *Loop) writeStory(in engine.Question, lost []bindfail.Held) (file string, err error) {
	defer bug.Catch(&err, "telling a story")
	first := make(map[*cluster.Pod]bool, len(lost))
	var nodes []string
	pods := make([]*cluster.Pod, 0, len(in.Pods))
	for _, h := range lost {
		first[h.Pod] = true
		pods, nodes = append(pods, h.Pod), append(nodes, h.Node)
	}
	for _, p := range in.Pods {
		if !first[p] {
			pods = append(pods, p)
		}
	}
	in.Pods = pods
	slices.Sort(nodes)
	text := scenario.Write("Pods fit a node that is ready, and their scheduler does not bind them: pod-1 and perhaps "+
		"others, node-1.", in, slices.Compact(nodes), storyBytes)
	file = filepath.Join(l.settings.Stories, fmt.Sprintf("unbound-%s.txtar", in.Now.UTC().Format("20060102T150405Z")))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	return file, forgetStories(l.settings.Stories)
}

// forgetStories removes the oldest files of a folder beyond storiesKept, so that they do not fill a disk.
func forgetStories(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "unbound-*.txtar")) // sorted, and named by time
	for i := 0; err == nil && i < len(files)-storiesKept; i++ {
		err = os.Remove(files[i])
	}
	return err
}
