package ec2api

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/logging"
)

// TestQuickLongAnswersAreReadToTheEnd asks a server that answers before the client has noticed that its request has ended.
func TestQuickLongAnswersAreReadToTheEnd(t *testing.T) {
	const calls, kinds = 50, 2000
	var page bytes.Buffer
	page.WriteString(`<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><instanceTypeSet>`)
	for i := range kinds {
		page.WriteString("<item><instanceType>")
		if err := xml.EscapeText(&page, fmt.Append(nil, "m5.", i)); err != nil {
			t.Fatal(err)
		}
		page.WriteString("</instanceType><vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo></item>")
	}
	page.WriteString("</instanceTypeSet></DescribeInstanceTypesResponse>")
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++ // calls come one after the other
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/xml")
		_, _ = w.Write(page.Bytes())
	}))
	defer server.Close()
	var said strings.Builder
	api := New(aws.Config{
		Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		Logger: logging.NewStandardLogger(&said),
	}, "test", Observer{}).EC2
	for range calls {
		out, err := api.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{})
		if err != nil || len(out.InstanceTypes) != kinds {
			t.Fatalf("%d types, error %v", len(out.InstanceTypes), err)
		}
	}
	if served != calls || said.String() != "" {
		t.Errorf("%d calls were served %d times; the SDK said %q", calls, served, said.String())
	}
}
