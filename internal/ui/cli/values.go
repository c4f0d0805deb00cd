package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"karpenter.sh/karpenter/internal/compat/generations"
)

// renamedValues are the values of older charts that have another name now.
var renamedValues = []struct{ from, to string }{
	{"settings.aws.clusterName", "settings.clusterName"},
	{"settings.aws.clusterEndpoint", "settings.clusterEndpoint"},
	{"settings.aws.clusterCABundle", "settings.clusterCABundle"},
	{"settings.aws.interruptionQueueName", "settings.interruptionQueue"},
	{"settings.aws.isolatedVPC", "settings.isolatedVPC"},
	{"settings.aws.vmMemoryOverheadPercent", "settings.vmMemoryOverheadPercent"},
	{"settings.aws.reservedENIs", "settings.reservedENIs"},
	{"clusterName", "settings.clusterName"},
	{"clusterEndpoint", "settings.clusterEndpoint"},
	{"controller.clusterName", "settings.clusterName"},
	{"controller.clusterEndpoint", "settings.clusterEndpoint"},
	{"controller.logLevel", "logLevel"},
	{"controller.outputPaths", "logOutputPaths"},
	{"controller.errorOutputPaths", "logErrorOutputPaths"},
	{"controller.batchMaxDuration", "settings.batchMaxDuration"},
	{"controller.batchIdleDuration", "settings.batchIdleDuration"},
	{"logConfig.logLevel.controller", "logLevel"},
	{"logConfig.outputPaths", "logOutputPaths"},
	{"logConfig.errorOutputPaths", "logErrorOutputPaths"},
}

// goneValues are those that have no equal: what to do instead, and the value with which there is nothing to do.
var goneValues = []struct{ from, say, harmless string }{ // harmless "*": any value is
	{"settings.aws.defaultInstanceProfile", "there is no default instance profile any more; write it as " +
		"spec.instanceProfile, or better spec.role, in each EC2NodeClass", ""},
	{"aws.defaultInstanceProfile", "there is no default instance profile any more; write it as spec.instanceProfile, " +
		"or better spec.role, in each EC2NodeClass", ""},
	{"settings.aws.tags", "write spec.tags in each EC2NodeClass", "map[]"},
	{"settings.aws.enableENILimitedPodDensity", "write spec.kubelet.maxPods in each EC2NodeClass", "true"},
	{"settings.aws.enablePodENI", "the resource is always counted", "true"},
	{"settings.aws.enableInterruptionHandling", "interruptions are handled where settings.interruptionQueue names a queue", "true"},
	{"settings.aws.nodeNameConvention", "nodes are found by their provider ID, whatever their name", "ip-name"},
	{"settings.aws.assumeRoleARN", "give the role to the service account, by serviceAccount.annotations or pod identity", ""},
	{"settings.aws.assumeRoleDuration", "it went with assumeRoleARN", "15m"},
	{"settings.assumeRoleARN", "give the role to the service account, by serviceAccount.annotations or pod identity", ""},
	{"settings.assumeRoleDuration", "it went with assumeRoleARN", "15m"},
	{"settings.featureGates.drift", "drift cannot be switched off; give each NodePool a budget of nodes \"0\" with the " +
		"reason Drifted", "true"},
	{"settings.featureGates.driftEnabled", "drift cannot be switched off; give each NodePool a budget of nodes \"0\" " +
		"with the reason Drifted", "true"},
	{"logEncoding", "the log is JSON", "json"},
	{"logConfig", "the log is JSON; logLevel, logOutputPaths and logErrorOutputPaths are what can be set", "map[]"},
	{"webhook", "there is nothing to set: the API server checks objects", "*"},
	{"postInstallHook", "the chart needs none", "*"},
	{"extraObjects", "keep these objects beside the chart", "[]"},
	{"settings.aws", "the chart does not know it", "map[]"},
}

// convertValues runs "karpenter convert --values": it writes the values of an older chart as values of this one.
func convertValues(env Env, file string) (int, error) {
	text, err := readValues(env.In, file)
	if err != nil {
		return exitBadInput, err
	}
	if file == standardInput {
		file = "standard input"
	}
	d := &document{file: file, line: 1, text: text}
	decoded, err := fromYAML(text)
	if err != nil {
		return exitBadInput, fmt.Errorf("%s: not valid YAML: %w", file, err)
	}
	values, ok := decoded.(map[string]any)
	if !ok {
		return exitBadInput, fmt.Errorf("%s: no values of a chart; they are an object", file)
	}
	source, err := d.node()
	if err != nil {
		return exitBadInput, err
	}
	c := &generations.Converted{Object: values}
	if err := renameValues(c); err != nil {
		return exitBadInput, fmt.Errorf("%s: %w", file, err)
	}
	lost := dropValues(c)
	for _, n := range c.Notes {
		fmt.Fprintln(env.Err, d.at(d.lineOf(strings.Join(n.From, ".")), "%s%s", lostMark(n), n.Text))
	}
	out, err := writeTree(c, []*yaml.Node{source})
	if err != nil {
		return exitBadInput, err
	}
	if _, err := env.Out.Write(out); err != nil {
		return exitBadInput, err
	}
	if lost {
		return exitLost, nil
	}
	return exitFine, nil
}

// readValues returns the content of a file or of standard input.
func readValues(in io.Reader, file string) ([]byte, error) {
	if file == standardInput {
		return io.ReadAll(in)
	}
	return readRegular(file)
}

// renameValues moves values that have another name now. It is an error if both names are given with different values.
func renameValues(c *generations.Converted) error {
	var errs []error
	for _, r := range renamedValues {
		from, to := strings.Split(r.from, "."), strings.Split(r.to, ".")
		old, there, err := unstructured.NestedFieldNoCopy(c.Object, from...)
		if err != nil || !there || old == nil {
			continue
		}
		present, set, _ := unstructured.NestedFieldNoCopy(c.Object, to...)
		if set && present != nil && !reflect.DeepEqual(present, old) {
			errs = append(errs, fmt.Errorf("%s is %v and %s is %v; keep one", r.from, old, r.to, present))
			continue
		}
		remove(c.Object, from)
		if err := unstructured.SetNestedField(c.Object, old, to...); err != nil {
			errs = append(errs, err)
		}
		c.Moves = append(c.Moves, generations.Move{To: to, From: from})
	}
	return errors.Join(errs...)
}

// dropValues removes values that have no equal, and adds notes that say what to do. It reports whether anything was
// lost.
func dropValues(c *generations.Converted) bool {
	lost := false
	for _, g := range goneValues {
		from := strings.Split(g.from, ".")
		old, there, err := unstructured.NestedFieldNoCopy(c.Object, from...)
		if err != nil || !there {
			continue
		}
		remove(c.Object, from)
		if old == nil || fmt.Sprint(old) == g.harmless || fmt.Sprint(old) == "" {
			continue
		}
		n := generations.Note{From: from, At: from, Lost: g.harmless != "*", Text: fmt.Sprintf("%s=%s: %s", g.from, plainly(old), g.say)}
		c.Notes = append(c.Notes, n)
		lost = lost || n.Lost
	}
	if image, is := c.Object["controller"].(map[string]any); is {
		if old, isText := image["image"].(string); isText {
			remove(c.Object, []string{"controller", "image"})
			lost = true
			c.Notes = append(c.Notes, generations.Note{From: []string{"controller", "image"},
				At: []string{"controller", "image"}, Lost: true,
				Text: fmt.Sprintf("controller.image=%s: write controller.image.repository and controller.image.tag of "+
					"an image of this version", old)})
		}
	}
	return lost
}

// plainly writes a value on one line, a map with its keys sorted.
func plainly(value any) string {
	m, ok := value.(map[string]any)
	if !ok {
		return fmt.Sprint(value)
	}
	parts := []string{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s: %v", key, m[key]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// remove deletes a value, and then the maps above it that became empty.
func remove(values map[string]any, path []string) {
	unstructured.RemoveNestedField(values, path...)
	for n := len(path) - 1; n > 0; n-- {
		above, _, err := unstructured.NestedMap(values, path[:n]...)
		if err != nil || len(above) > 0 {
			return
		}
		unstructured.RemoveNestedField(values, path[:n]...)
	}
}
