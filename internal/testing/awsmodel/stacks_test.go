package awsmodel

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
)

// asks sends a request in the form of a service, without the SDK.
func asks(t *testing.T, c *Cloud, service, body string, header http.Header) (int, http.Header, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header = header.Clone()
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, w.Header(), string(text)
}

func TestAServiceThatTheModelLacksRefusesInTheProtocolThatWasAsked(t *testing.T) {
	c, err := New(Config{Cluster: demo})
	if err != nil {
		t.Fatal(err)
	}
	const code = "UnknownOperationException"
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	for name, tc := range map[string]struct {
		service, body string
		header        http.Header
		kind          string
		want          string
	}{
		"query":    {"autoscaling", "Action=DescribeAutoScalingGroups&Version=2011-01-01", form, "text/xml", "<Code>" + code + "</Code><Message>the model of AWS has no service &#34;autoscaling&#34;"},
		"JSON 1.0": {"dynamodb", "{}", http.Header{"X-Amz-Target": {"DynamoDB_20120810.ListTables"}, "Content-Type": {"application/x-amz-json-1.0"}}, "application/x-amz-json-1.0", `{"__type":"` + code + `","message":"the model`},
		"JSON 1.1": {"logs", "{}", http.Header{"X-Amz-Target": {"Logs_20140328.DescribeLogGroups"}, "Content-Type": {"application/x-amz-json-1.1"}}, "application/x-amz-json-1.1", `{"__type":"` + code + `","message":"the model`},
		"CBOR":     {"monitoring", "", http.Header{"Smithy-Protocol": {"rpc-v2-cbor"}, "Content-Type": {"application/cbor"}}, "application/cbor", "\xa2\x79\x00\x06__type\x79\x00\x19" + code + "\x79\x00\x07message\x79\x00"},
		"REST":     {"lambda", "", http.Header{}, "application/json", `{"message":"the model`},
		"REST XML": {"s3", "", http.Header{}, "text/xml", "<Code>" + code + "</Code>"},
	} {
		t.Run(name, func(t *testing.T) {
			status, header, text := asks(t, c, tc.service, tc.body, tc.header)
			if status != http.StatusNotFound || !strings.HasPrefix(header.Get("Content-Type"), tc.kind) || !strings.Contains(text, tc.want) {
				t.Errorf("status %d, %s: %q; want %q", status, header.Get("Content-Type"), text, tc.want)
			}
			if got := header.Get("x-amzn-ErrorType"); name == "REST" && got != code {
				t.Errorf("the error is called %q", got)
			}
			if got := header.Get("Smithy-Protocol"); name == "CBOR" && got != "rpc-v2-cbor" {
				t.Errorf("the protocol is %q", got)
			}
		})
	}
}

// TestTheTemplateMakesAStack makes what install/aws lists, as "aws cloudformation deploy" does.
func TestTheTemplateMakesAStack(t *testing.T) {
	c, err := New(Config{Cluster: demo})
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile("../../../install/aws/karpenter-cloudformation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	roles := len(c.world.st.Roles)
	call := func(want int, action string, more ...string) string {
		t.Helper()
		form := url.Values{"Action": {action}, "Version": {"2010-05-15"}, "StackName": {"one"}}
		for i := 0; i < len(more); i += 2 {
			form.Set(more[i], more[i+1])
		}
		status, _, text := asks(t, c, "cloudformation", form.Encode(), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
		if status != want {
			t.Fatalf("%s: status %d\n%s", action, status, text)
		}
		return text
	}
	has := func(text string, wanted ...string) {
		t.Helper()
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
	}
	body := []string{"TemplateBody", string(template), "Parameters.member.1.ParameterKey", "ClusterName", "Parameters.member.1.ParameterValue", "shop"}
	can := append([]string{"Capabilities.member.1", "CAPABILITY_NAMED_IAM"}, body...)
	has(call(400, "DescribeStacks"), "ValidationError", "Stack with id one does not exist")
	has(call(400, "CreateChangeSet", append(body, "ChangeSetName", "next")...), "InsufficientCapabilitiesException")
	has(call(400, "CreateChangeSet", append(can[:4:4], "ChangeSetName", "next", "Parameters.member.1.ParameterKey", "ClusterName", "Parameters.member.1.ParameterValue", "a b")...), "must match pattern")
	has(call(400, "CreateChangeSet", append(can[:4:4], "ChangeSetName", "next")...), "Parameters: [ClusterName] must have values")
	has(call(400, "CreateChangeSet", append(can[:2:2], "ChangeSetName", "next", "TemplateBody", "Resources: {X: {Type: AWS::S3::Bucket}}")...), "Unrecognized resource types: [AWS::S3::Bucket]")
	call(200, "CreateChangeSet", append(can[:2:2], "ChangeSetName", "next", "TemplateBody", "Resources: {X: {Type: AWS::SQS::Queue, Properties: {QueueName: !GetAtt X.Arn}}}")...)
	has(call(400, "ExecuteChangeSet", "ChangeSetName", "next"), "needs itself")
	call(200, "CreateChangeSet", append(can[:2:2], "ChangeSetName", "next", "TemplateBody", "Resources: {X: {Type: AWS::SQS::Queue, Properties: {QueueName: !Join [a, b]}}}")...)
	has(call(400, "ExecuteChangeSet", "ChangeSetName", "next"), "does not know !Join")

	has(call(200, "CreateChangeSet", append(can, "ChangeSetName", "next", "ChangeSetType", "CREATE")...), ":changeSet/one/")
	has(call(200, "DescribeChangeSet", "ChangeSetName", "next"), "<Status>CREATE_COMPLETE</Status>")
	has(call(200, "DescribeStacks"), "REVIEW_IN_PROGRESS")
	call(200, "ExecuteChangeSet", "ChangeSetName", "next")
	has(call(404, "ExecuteChangeSet", "ChangeSetName", "next"), "ChangeSetNotFound")
	has(call(200, "DescribeStacks"), "CREATE_COMPLETE", "<OutputKey>ControllerRole</OutputKey><OutputValue>arn:aws:iam::123456789012:role/KarpenterControllerRole-shop<",
		"<OutputValue>KarpenterNodeRole-shop<", "<OutputKey>InterruptionQueue</OutputKey><OutputValue>shop<")
	has(call(200, "CreateChangeSet", "Capabilities.member.1", "CAPABILITY_NAMED_IAM", "TemplateBody", string(template), "ChangeSetName", "again",
		"Parameters.member.1.ParameterKey", "ClusterName", "Parameters.member.1.UsePreviousValue", "true",
		"Parameters.member.2.ParameterKey", "QueueName", "Parameters.member.2.ParameterValue", "other"), "<Id>")
	call(200, "ExecuteChangeSet", "ChangeSetName", "again")
	has(call(200, "DescribeStacks"), "UPDATE_COMPLETE", "<OutputKey>InterruptionQueue</OutputKey><OutputValue>other<", "<OutputValue>KarpenterNodeRole-shop<")
	profile := func() string {
		_, _, text := asks(t, c, "iam", "Action=GetInstanceProfile&Version=2010-05-08&InstanceProfileName=KarpenterNodeInstanceProfile-shop", http.Header{})
		return text
	}
	has(profile(), "<RoleName>KarpenterNodeRole-shop</RoleName>", "ec2.amazonaws.com")
	call(200, "DeleteStack")
	has(call(400, "DescribeStacks"), "does not exist")
	has(profile(), "NoSuchEntity")
	if n := len(c.world.st.Roles); n != roles {
		t.Errorf("%d roles are left, want the %d that there were", n, roles)
	}

	// What the account had before is not the stack's.
	own := bytes.ReplaceAll(template, []byte("${ClusterName}"), []byte(demo.Name))
	call(200, "CreateChangeSet", append(can[:2:2], "ChangeSetName", "own", "TemplateBody", string(own), "Parameters.member.1.ParameterKey", "ClusterName", "Parameters.member.1.ParameterValue", demo.Name)...)
	call(200, "ExecuteChangeSet", "ChangeSetName", "own")
	call(200, "DeleteStack")
	if _, kept := c.world.st.Roles["KarpenterNodeRole-"+demo.Name]; !kept || c.world.st.Queues[demo.Name] == nil {
		t.Error("the stack took away what it found")
	}
	if _, left := c.world.st.Roles["KarpenterControllerRole-"+demo.Name]; left {
		t.Error("the stack left its role behind")
	}
}
