package awsmodel

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestTheAWSCommand looks around with AWS's own command line tool, where there is one: another implementation of the protocols
// than the SDK for Go.
func TestTheAWSCommand(t *testing.T) {
	if out, err := exec.Command("aws", "--version").CombinedOutput(); err != nil {
		t.Logf("there is no aws command here, so nothing is known about it: %v %s", err, out)
		return
	}
	c, err := New(Config{Cluster: demo})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	aws := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("aws", append([]string{"--endpoint-url", server.URL, "--output", "text"}, args...)...)
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_PROFILE=") }), "AWS_DEFAULT_REGION=us-east-1", "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_SESSION_TOKEN=",
			"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_PAGER=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("aws %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("the answer is %q, want %q", got, want)
		}
	}
	want(aws("ec2", "describe-instance-types", "--page-size", "100", "--query", "length(InstanceTypes)", "--output", "json"),
		aws("ec2", "describe-instance-types", "--query", "length(InstanceTypes)", "--output", "json"))
	image := aws("ssm", "get-parameter", "--name", "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id", "--query", "Parameter.Value")
	subnet := aws("ec2", "describe-subnets", "--query", "Subnets[0].SubnetId")
	machine := aws("ec2", "run-instances", "--image-id", image, "--instance-type", "m5.large", "--subnet-id", subnet, "--query", "Instances[0].InstanceId")
	want(aws("ec2", "describe-instances", "--instance-ids", machine, "--query", "Reservations[0].Instances[0].[InstanceType,ImageId]"), "m5.large\t"+image)
	aws("ec2", "create-launch-template", "--launch-template-name", "one", "--launch-template-data", `{"ImageId":"`+image+`"}`)
	want(aws("ec2", "create-fleet", "--type", "instant",
		"--target-capacity-specification", "TotalTargetCapacity=2,DefaultTargetCapacityType=spot",
		"--launch-template-configs", "LaunchTemplateSpecification={LaunchTemplateName=one,Version=$Latest},Overrides=[{InstanceType=c5.large,SubnetId="+subnet+"}]",
		"--query", "length(Instances[].InstanceIds[])"), "2")
	want(aws("ec2", "terminate-instances", "--instance-ids", machine, "--query", "TerminatingInstances[0].CurrentState.Name"), "shutting-down")
	aws("sqs", "get-queue-url", "--queue-name", "demo")
	queue := server.URL + "/123456789012/demo"
	if text := aws("sqs", "receive-message", "--queue-url", queue, "--max-number-of-messages", "1", "--query", "Messages[0].Body"); !strings.Contains(text, "State-change") {
		t.Errorf("the first message is %q, want the launch of a machine", text)
	}
}
