package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/local/runtime"
)

func status(args []string) error {
	dir, err := existingWithout(args)
	if err != nil {
		return err
	}
	pid, err := dir.Holder()
	if err != nil {
		return err
	}
	run, err := dir.Read()
	if err != nil {
		return err
	}
	if pid == 0 {
		fmt.Printf("The cluster does not run; its state is in %s.\n", dir)
		return quietError{}
	}
	state := "ready"
	if !run.Ready {
		state = "starting"
	}
	fmt.Printf("%s, since %s (%s)\nAPI server  %s\nkubeconfig  %s\n\n",
		state, run.Started.Format(time.TimeOnly), time.Since(run.Started).Round(time.Second), run.Server, dir.Kubeconfig())
	nodes, pods, err := ask(dir)
	controllers := runtime.Processes(dir, pods)
	printPrograms(run, controllers)
	printPages(controllers)
	if err != nil {
		fmt.Printf("\nThe API server does not answer: %v\n", err)
		return quietError{}
	}
	return printNodes(plane.Plane{Dir: dir, Ports: run.Ports}, nodes, pods)
}

// ask asks the API server what there is.
func ask(dir home.Dir) ([]corev1.Node, []corev1.Pod, error) {
	client, err := clientOf(dir)
	if err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	return nodes.Items, pods.Items, nil
}

func table() *tabwriter.Writer { return tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0) }

// printPrograms lists the processes. Memory that they share, that of the binary itself, counts once, spread over them all.
// The controller's are those of its pods.
func printPrograms(run home.Run, controllers []runtime.Process) {
	w := table()
	fmt.Fprintln(w, "PROGRAM\tPID\tUP\tRESTARTS\tPORTS\tMEMORY")
	var total int
	programs := append([]home.Program{{Name: superviseName, PID: run.PID, Started: run.Started}}, run.Programs...)
	for _, p := range programs {
		if p.PID == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t%d\t-\t-\n", p.Name, p.Restarts)
			continue
		}
		memory := resident(p.PID)
		total += memory
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%d MB\n", p.Name, p.PID,
			time.Since(p.Started).Round(time.Second), p.Restarts, portsOf(p.Name, run.Ports), memory>>10)
	}
	for _, c := range controllers {
		memory := resident(c.PID)
		total += memory
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%d MB\n", c.Pod, c.PID,
			time.Since(c.Started).Round(time.Second), c.Restarts, cmp.Or(c.Ports, "-"), memory>>10)
	}
	fmt.Fprintf(w, "\t\t\t\t\t%d MB\n", total>>10)
	w.Flush()
}

// printPages says where the controller's page is.
func printPages(controllers []runtime.Process) {
	for _, c := range controllers {
		if c.Page != "" {
			fmt.Printf("\nPage        http://127.0.0.1:%s/ (%s)\n", c.Page, c.Pod)
		}
	}
}

// resident asks how many kilobytes of a process are in memory. Where the system tells, shared ones are spread over those
// who share them.
func resident(pid int) int {
	if rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)); err == nil {
		for line := range strings.Lines(string(rollup)) {
			if value, found := strings.CutPrefix(line, "Pss:"); found {
				kilobytes, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
				return kilobytes
			}
		}
	}
	out, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0
	}
	kilobytes, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	return kilobytes
}

func portsOf(program string, ports map[string]int) string {
	names := map[string][]string{
		plane.Etcd:              {plane.EtcdPort, plane.EtcdPeerPort},
		plane.APIServer:         {plane.APIPort},
		plane.Scheduler:         {plane.SchedulerPort},
		plane.ControllerManager: {plane.ControllerManagerPort},
		plane.AWS:               {plane.AWSPort},
		plane.Kubelets:          {plane.EgressPort, plane.UsagePort},
	}[program]
	var numbers []string
	for _, name := range names {
		numbers = append(numbers, strconv.Itoa(ports[name]))
	}
	if len(numbers) == 0 {
		return "-"
	}
	return strings.Join(numbers, ",")
}

// patience is how long status waits for the API server and for AWS.
const patience = 5 * time.Second

// printNodes lists the nodes. Those of the control plane are there always, and they cost nothing.
func printNodes(p plane.Plane, nodes []corev1.Node, pods []corev1.Pod) error {
	nodes = slices.DeleteFunc(nodes, func(n corev1.Node) bool { return slices.Contains(plane.ControlNodes(), n.Name) })
	if len(nodes) > 0 {
		ctx, stop := context.WithTimeout(context.Background(), patience)
		prices, err := prices(ctx, market(p), nodes)
		stop()
		if err := nodeTable(nodes, pods, prices); err != nil {
			return err
		}
		if err != nil {
			fmt.Printf("\nAWS does not tell what spot machines cost: %s\n", oneLine(err))
		}
	}
	fmt.Printf("\n%s, %s\n", sentence.Count(len(nodes), "node"), countPods(pods))
	return nil
}

func nodeTable(nodes []corev1.Node, pods []corev1.Pod, prices map[string]cloud.NanoUSD) error {
	bound := map[string]int{}
	for _, p := range pods {
		bound[p.Spec.NodeName]++
	}
	fmt.Println()
	w := table()
	fmt.Fprintln(w, "NODE\tTYPE\tZONE\tCAPACITY\tSTATE\tPODS\tAGE\t$/H")
	var total cloud.NanoUSD
	for _, n := range nodes {
		price := "-"
		if dollars, known := prices[n.Name]; known {
			price = fmt.Sprintf("%.4f", dollars.Dollars())
			total += dollars
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", n.Name, n.Labels[corev1.LabelInstanceTypeStable],
			n.Labels[corev1.LabelTopologyZone], n.Labels[v1.CapacityTypeLabelKey], nodeState(&n), bound[n.Name],
			time.Since(n.CreationTimestamp.Time).Round(time.Second), price)
	}
	fmt.Fprintf(w, "\t\t\t\t\t\t\t%.4f\n", total.Dollars())
	return w.Flush()
}

func nodeState(n *corev1.Node) string {
	var words []string
	if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		words = append(words, "ready")
	} else {
		words = append(words, "not ready")
	}
	if n.Spec.Unschedulable || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1.DisruptedTaintKey }) {
		words = append(words, "draining")
	}
	if n.DeletionTimestamp != nil {
		words = append(words, "deleting")
	}
	return strings.Join(words, ", ")
}

func countPods(pods []corev1.Pod) string {
	var running, waiting int
	for _, p := range pods {
		switch {
		case p.Status.Phase == corev1.PodRunning:
			running++
		case p.Spec.NodeName == "":
			waiting++
		}
	}
	return fmt.Sprintf("%s running, %d waiting for a node", sentence.Count(running, "pod"), waiting)
}
