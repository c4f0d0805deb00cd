package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/local/plane"
)

// A machineFault is what the simulated EC2 can do to one machine.
type machineFault struct {
	flag, help string
	path       string // of the model's switch
	event      string // the code of the maintenance, if it is one
	doneFormat string // what is printed, with the node's name
}

// retireAfter is when announced maintenance begins.
const retireAfter = 10 * time.Minute

var machineFaults = []machineFault{
	{"interrupt", "EC2 takes the spot machine back in two minutes", "interrupt", "", "EC2 takes %s back in two minutes."},
	{"rebalance", "EC2 recommends to leave the spot machine", "rebalance", "", "EC2 recommends to leave %s."},
	{"retire", "EC2 announces, by AWS Health too, that the machine is retired in ten minutes", "schedule", "instance-retirement",
		"EC2 retires %s in ten minutes."},
	{"freeze", "the machine hangs: its status check fails and its kubelet is silent", "impair", "",
		"%[1]s hangs; karpenter-local mend %[1]s wakes it."},
	{"kill", "EC2 ends the machine at once", "kill", "", "EC2 has ended %s."},
}

// faultFlags are the flags of break that concern the simulated AWS.
type faultFlags struct {
	machine           map[string]*bool
	soldOut, zoneDown *string
	slow              *time.Duration
}

// addFaultFlags adds the flags of break that concern the simulated AWS.
func addFaultFlags(flags *flag.FlagSet) faultFlags {
	f := faultFlags{machine: map[string]*bool{}}
	for _, m := range machineFaults {
		f.machine[m.flag] = flags.Bool(m.flag, false, m.help)
	}
	f.soldOut = flags.String("sold-out", "", "EC2 has none of these `machines`, as capacity-type/instance-type/zone: "+
		"spot/m5.*/us-east-1a, */*/us-east-1b")
	f.zoneDown = flags.String("zone-down", "", "this `zone` launches nothing and its machines are silent")
	f.slow = flags.Duration("slow", 0, "AWS takes this long for each answer, give or take half")
	return f
}

// chosen returns the one fault of a machine that was asked for.
func (f faultFlags) chosen() (one *machineFault, err error) {
	for i, m := range machineFaults {
		if *f.machine[m.flag] {
			if one != nil {
				return nil, fmt.Errorf("--%s and --%s: name one", one.flag, m.flag)
			}
			one = &machineFaults[i]
		}
	}
	return one, nil
}

// wholeAWS reports whether a fault of AWS as a whole was asked for.
func (f faultFlags) wholeAWS() bool { return *f.soldOut != "" || *f.zoneDown != "" || *f.slow != 0 }

// apply adds the faults of AWS as a whole to those that are there.
func (f faultFlags) apply(faults *awsmodel.Faults) {
	if *f.soldOut != "" {
		faults.Pools = append(faults.Pools, awsmodel.PoolRule{Match: *f.soldOut})
	}
	if *f.zoneDown != "" {
		faults.ZonesDown = append(faults.ZonesDown, *f.zoneDown)
	}
	if *f.slow != 0 {
		faults.LatencyMillis = int(f.slow.Milliseconds())
	}
}

// breakAWS adds faults of AWS as a whole.
func breakAWS(f faultFlags) error {
	if *f.slow < 0 {
		return errors.New("--slow: a time that is not negative")
	}
	if *f.soldOut != "" && strings.Count(*f.soldOut, "/") != 2 {
		return fmt.Errorf("--sold-out %s: write capacity-type/instance-type/zone, with * where any will do, such as spot/m5.*/us-east-1a",
			*f.soldOut)
	}
	var faults awsmodel.Faults
	if err := modelCall(http.MethodGet, "faults", nil, &faults); err != nil {
		return err
	}
	f.apply(&faults)
	if err := modelCall(http.MethodPut, "faults", faults, nil); err != nil {
		return err
	}
	fmt.Println("Done; karpenter-local mend --aws undoes it.")
	return nil
}

// mendAWS takes back the faults of AWS as a whole.
func mendAWS() error {
	if err := modelCall(http.MethodPut, "faults", awsmodel.Faults{}, nil); err != nil {
		return err
	}
	fmt.Println("AWS has no faults any more.")
	return nil
}

// breakMachine lets EC2 do something to the machine of a node.
func breakMachine(node string, m *machineFault) error {
	id, err := instanceOf(node)
	if err != nil {
		return err
	}
	body := map[string]any{"ids": []string{id}}
	if m.event != "" {
		body["event"], body["inSeconds"] = m.event, int(retireAfter.Seconds())
	}
	if err := modelCall(http.MethodPost, m.path, body, nil); err != nil {
		return err
	}
	fmt.Printf(m.doneFormat+"\n", node)
	return nil
}

// instanceOf is the EC2 instance of a node.
func instanceOf(node string) (string, error) {
	client, err := clientHere()
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	id := n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:]
	if !strings.HasPrefix(id, "i-") {
		return "", fmt.Errorf("node %s is no EC2 instance: its provider ID is %q", node, n.Spec.ProviderID)
	}
	return id, nil
}

// modelCall turns a switch of the simulated AWS.
func modelCall(method, path string, body, out any) error {
	dir, err := running()
	if err != nil {
		return err
	}
	run, err := dir.Read()
	if err != nil {
		return err
	}
	return modelCallAt(plane.Plane{Ports: run.Ports}.AWSEndpoint(), method, path, body, out)
}

func modelCallAt(endpoint, method, path string, body, out any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, method, endpoint+"/_model/"+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
