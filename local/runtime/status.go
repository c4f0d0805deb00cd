package runtime

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/local/home"
)

// processes begin the ids of containers that are processes of this machine.
const processes = "process://"

// ProcessID is the id of a container that is a process.
func ProcessID(pid int) string { return processes + strconv.Itoa(pid) }

// PID is the process that a container is while it runs; there may be none.
func PID(s *corev1.ContainerStatus) (int, bool) {
	text, found := strings.CutPrefix(s.ContainerID, processes)
	pid, err := strconv.Atoi(text)
	return pid, found && err == nil && s.State.Running != nil
}

// mapping writes ports as the controller reads them.
func mapping(ports map[int32]int) string {
	var all []string
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		all = append(all, fmt.Sprintf("%d:%d", port, ports[port]))
	}
	return strings.Join(all, ",")
}

// portsFile is where people can read it.
const portsFile = "ports"

// A Process stands for a container.
type Process struct {
	Pod, Ports string // as 8080:53211,8081:53212, the first of each pair being the pod's
	Page       string // the port of this machine where it shows the cluster, "" if it does not
	PID        int
	Started    time.Time
	Restarts   int
}

// Processes are those of the given pods.
func Processes(dir home.Dir, pods []corev1.Pod) []Process {
	var all []Process
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			if pid, runs := PID(&s); runs {
				ports, _ := os.ReadFile(filepath.Join(dir.PodFolder(string(p.UID)), portsFile)) // it may end at this very moment
				all = append(all, Process{
					Pod: p.Name, Ports: string(ports), Page: portNamed(&p, s.Name, pagePort, string(ports)), PID: pid,
					Started: s.State.Running.StartedAt.Time, Restarts: int(s.RestartCount),
				})
			}
		}
	}
	return all
}

// pagePort is what the chart calls the port of the page.
const pagePort = "ui"

// portNamed is the port of this machine that a container calls by that name, "" if there is none.
func portNamed(p *corev1.Pod, container, name, mapping string) string {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if c.Name != container || port.Name != name {
				continue
			}
			for pair := range strings.SplitSeq(mapping, ",") {
				if at, found := strings.CutPrefix(pair, fmt.Sprintf("%d:", port.ContainerPort)); found {
					return at
				}
			}
		}
	}
	return ""
}

// summary is the status of a pod whose containers are in those states.
func summary(restart corev1.RestartPolicy, containers []corev1.ContainerStatus) (corev1.PodPhase, bool) {
	ready, running, failed := true, false, false
	for _, s := range containers {
		ready = ready && s.Ready
		if s.State.Terminated == nil || restart == corev1.RestartPolicyAlways {
			running = true
		} else if s.State.Terminated.ExitCode != 0 {
			failed = true
			running = running || restart == corev1.RestartPolicyOnFailure
		}
	}
	neverRan := func(s corev1.ContainerStatus) bool {
		return s.ContainerID == "" && s.RestartCount == 0 && s.State.Waiting != nil
	}
	switch {
	case slices.ContainsFunc(containers, neverRan):
		return corev1.PodPending, false
	case running:
		return corev1.PodRunning, ready
	case failed:
		return corev1.PodFailed, false
	}
	return corev1.PodSucceeded, false
}

// conditions are those that a kubelet writes. What did not change keeps its time.
func conditions(before []corev1.PodCondition, begun, ready bool, now metav1.Time) []corev1.PodCondition {
	var all []corev1.PodCondition
	for _, c := range []struct {
		kind corev1.PodConditionType
		is   bool
	}{
		{corev1.PodReadyToStartContainers, begun},
		{corev1.PodInitialized, true},
		{corev1.ContainersReady, ready},
		{corev1.PodReady, ready},
	} {
		next := corev1.PodCondition{Type: c.kind, Status: corev1.ConditionFalse, LastTransitionTime: now}
		if c.is {
			next.Status = corev1.ConditionTrue
		} else {
			next.Reason = "ContainersNotReady"
		}
		i := slices.IndexFunc(before, func(old corev1.PodCondition) bool { return old.Type == c.kind })
		if i >= 0 && before[i].Status == next.Status {
			next.LastTransitionTime = before[i].LastTransitionTime
		}
		all = append(all, next)
	}
	return all
}

// patch makes a status that of the pod: conditions of others stay, and nothing stays of what was said before.
func patch(uid types.UID, s corev1.PodStatus) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if err != nil {
		return nil, err
	}
	for _, list := range []string{"podIPs", "hostIPs"} {
		fields[list] = append([]any{map[string]any{"$patch": "replace"}}, fields[list].([]any)...)
	}
	for _, c := range fields["conditions"].([]any) {
		if c := c.(map[string]any); c["reason"] == nil {
			c["reason"] = nil // which takes away the previous one
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": fields})
}
