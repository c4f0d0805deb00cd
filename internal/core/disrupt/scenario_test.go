package disrupt

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/selector"
)

var update = flag.Bool("update", false, "write the answers of the scenarios")

const scenarios = "../../../scenarios/disrupt"

// TestScenarios plays the stories of scenarios/disrupt; their README says how they are written. With -update it writes the answers
// down instead of comparing them.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(scenarios, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			story := txtar.Parse(data)
			if strings.TrimSpace(string(story.Comment)) == "" {
				t.Fatal("a scenario begins with its story")
			}
			got, want := answerOf(tell(t, story).propose(t)), ""
			for i, section := range story.Files {
				if section.Name == "want" {
					want = string(section.Data)
					story.Files[i].Data = []byte(got)
				}
			}
			if got != want && *update {
				if err := os.WriteFile(file, txtar.Format(story), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("the answer is\n%swant\n%s", got, want)
			}
		})
	}
}

// answerOf says what is proposed, which nodes are blocked, and which pools' budgets are exhausted, for which reasons.
func answerOf(p *Proposal) string {
	lines := say(p)
	for _, b := range p.Blocks {
		line := fmt.Sprintf("blocked %s: %s", strings.TrimPrefix(b.Claim, "claim-"), b.Code)
		for _, s := range b.Stuck {
			for _, why := range s.Why {
				if why.Code == reason.DeviceInvalid {
					line += fmt.Sprintf(", claim %s: %s %s", why.Key, why.Flaw.Name(), why.Detail)
				}
			}
		}
		lines = append(lines, line)
	}
	for pool, reasons := range p.Budgets {
		lines = append(lines, fmt.Sprintf("exhausted %s: %v", pool, reasons))
	}
	slices.Sort(lines)
	if len(lines) == 0 {
		return "nothing\n"
	}
	return strings.Join(lines, "\n") + "\n"
}

// tell builds the world of a story.
func tell(t *testing.T, story *txtar.Archive) *fixture {
	t.Helper()
	rows := map[string][][]string{}
	for _, section := range story.Files {
		if !slices.Contains([]string{"settings", "types", "pools", "nodes", "pods", "buffers", "pdbs", "want"}, section.Name) {
			t.Fatalf("unknown section %q", section.Name)
		}
		for line := range strings.Lines(string(section.Data)) {
			if fields := strings.Fields(line); len(fields) > 0 {
				rows[section.Name] = append(rows[section.Name], fields)
			}
		}
	}
	r := &reader{T: t}
	f := newFixture()
	for _, row := range rows["types"] {
		it := shape(row[0], int(r.number(row[1])), int(r.number(row[2])), r.number(row[3]), r.number(row[4]))
		r.machine(it, row[5:])
		f.types = append(f.types, it)
	}
	slices.SortFunc(f.types, func(a, b *cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	for _, row := range rows["pools"] {
		f.pool(row[0], func(p *v1.NodePool) { r.pool(p, row[1:]) })
	}
	for _, row := range rows["nodes"] {
		r.node(f, row)
	}
	for _, row := range rows["pods"] {
		f.pods(row[0], row[1], int(r.number(row[2])), row[3], row[4], func(p *corev1.Pod) { r.pod(p, row[5:]) })
	}
	for _, row := range rows["buffers"] {
		r.buffer(f, row)
	}
	for _, row := range rows["pdbs"] {
		f.pdb(row[0], int32(r.number(row[1])), func(b *policyv1.PodDisruptionBudget) { r.pdb(b, row[2:]) })
	}
	for _, row := range rows["settings"] {
		switch row[0] {
		case "spot-to-spot":
			f.set.SpotToSpot = true
		case "devices":
			f.terms.Selects = selector.Selects
			f.putDevices()
		default:
			t.Fatalf("unknown setting %q", row[0])
		}
	}
	return f
}

// A reader reads the words of a story; a word that it does not know fails the test.
type reader struct{ *testing.T }

func (r *reader) number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

func (r *reader) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		r.Fatal(err)
	}
	return d
}

func (r *reader) pool(p *v1.NodePool, words []string) {
	d := &p.Spec.Disruption
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "budgets": // nodes/reason+reason/schedule_with_underscores/duration, comma between budgets
			d.Budgets = nil
			for _, text := range strings.Split(value, ",") {
				d.Budgets = append(d.Budgets, r.budget(text))
			}
		case "after":
			d.ConsolidateAfter = v1.MustParseNillableDuration(value)
		case "policy":
			d.ConsolidationPolicy = v1.ConsolidationPolicy(value)
		case "only":
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
				Key: v1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
		case "static":
			p.Spec.Replicas = new(int64(r.number(value)))
		case "nodes":
			p.Spec.Limits = v1.Limits{v1.ResourceNodes: resource.MustParse(value)}
		default:
			r.Fatalf("unknown word %q of a pool", word)
		}
	}
}

func (r *reader) budget(text string) v1.Budget {
	parts := strings.Split(text, "/")
	b := v1.Budget{Nodes: parts[0]}
	if len(parts) > 1 && parts[1] != "" {
		for _, reason := range strings.Split(parts[1], "+") {
			b.Reasons = append(b.Reasons, v1.DisruptionReason(reason))
		}
	}
	if len(parts) > 3 {
		b.Schedule, b.Duration = new(strings.ReplaceAll(parts[2], "_", " ")), &metav1.Duration{Duration: r.duration(parts[3])}
	}
	return b
}

func (r *reader) machine(it *cloud.InstanceType, words []string) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if key != "gpus" {
			r.Fatalf("unknown word %q of a type", word)
		}
		it.Devices = []cloud.DeviceSlice{{Driver: gpuDriver, Devices: gpus(int(r.number(value)))}}
	}
}

func (r *reader) node(f *fixture, row []string) {
	name := row[0]
	f.node(name, row[1], row[2], row[3], func(n *corev1.Node, c *v1.NodeClaim) {
		for _, word := range row[4:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "quiet":
				quiet(n, c)
			case "drifted":
				drift(-r.duration(value))(n, c)
			case "grace":
				c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: r.duration(value)}
			case "do-not-disrupt":
				n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: value}
			case "do-not-consolidate":
				n.Annotations = map[string]string{v1.DoNotConsolidateAnnotationKey: value}
			case "uninitialized":
				delete(n.Labels, v1.NodeInitializedLabelKey)
			case "unready":
				n.Status.Conditions[0].Status = corev1.ConditionFalse
			case "deleting":
				c.DeletionTimestamp, c.Finalizers = new(metav1.NewTime(noon)), []string{v1.TerminationFinalizer}
			case "stopping":
				condition.SetTrue(c, v1.ConditionTypeInstanceTerminating, noon)
			case "unlabelled":
				delete(n.Labels, value)
			case "vacant":
				f.vacant[c.UID] = noon.Add(-r.duration(value))
			case "gpus":
				f.publish(name, int(r.number(value)))
			case "nominated", "marked":
			default:
				r.Fatalf("unknown word %q of a node", word)
			}
		}
	})
	if slices.Contains(row, "nominated") {
		f.promise(name, noon)
	}
	if slices.Contains(row, "marked") {
		f.store.Update(func(d *cluster.Draft) { d.MarkForRemoval(name) })
	}
}

func (r *reader) pod(p *corev1.Pod, words []string) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "do-not-disrupt":
			p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: value}
		case "owner":
			p.OwnerReferences[0].Kind = value
			if value == "Node" {
				p.OwnerReferences[0].APIVersion = "v1"
			}
		case "ownerless":
			p.OwnerReferences = nil
		case "ended":
			p.Status.Phase = corev1.PodSucceeded
		case "stopping":
			stopping(p)
		case "stays":
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		case "unready":
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		case "zone":
			p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: value}
		case "apart":
			apart(p.Labels["app"])(p)
		case "waits":
			waits(p)
		case "gpu":
			wantsGPU(p, value)
		default:
			r.Fatalf("unknown word %q of a pod", word)
		}
	}
}

// buffer adds a buffer whose pods all have their room on one node; none has on the node -.
func (r *reader) buffer(f *fixture, row []string) {
	n := int(r.number(row[2]))
	pods, at := make([]*corev1.Pod, n), make([]string, n)
	for i := range pods {
		pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("capacity-buffer:%s-%d", row[1], i+1), UID: types.UID(fmt.Sprintf("%s-%d", row[1], i+1)), Labels: map[string]string{"app": row[1]}}}
		pods[i].Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(row[3]), corev1.ResourceMemory: resource.MustParse(row[4])}}}}
		r.pod(pods[i], row[5:])
		at[i] = strings.TrimPrefix(row[0], "-")
	}
	f.store.Update(func(d *cluster.Draft) {
		d.PutSpares("default", row[1], pods)
		d.PlaceSpares("default", row[1], at)
	})
}

func (r *reader) pdb(b *policyv1.PodDisruptionBudget, words []string) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "full":
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, new(intstr.FromInt32(0))
		case "always":
			b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
		case "namespace":
			b.Namespace = value
		case "name":
			b.Name = value
		default:
			r.Fatalf("unknown word %q of a PodDisruptionBudget", word)
		}
	}
}
