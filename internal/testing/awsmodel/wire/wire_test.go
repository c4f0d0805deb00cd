package wire_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"karpenter.sh/karpenter/internal/testing/awsmodel/wire"
)

// A filler gives every member of a shape a value that no other member has.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value, depth int) {
	f.n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth)
	case reflect.String:
		v.SetString(fmt.Sprintf("text<%d>", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Float64, reflect.Float32:
		v.SetFloat(float64(f.n) + 0.5)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(fmt.Sprint("bytes", f.n)))
			return
		}
		if depth > 9 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0), depth+1)
		f.fill(v.Index(1), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		f.fill(value, depth+1)
		key := reflect.New(v.Type().Key()).Elem()
		key.SetString(fmt.Sprint("key", f.n))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 8, 21, 12, f.n%60, f.n/60%60, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if t := v.Type().Field(i); t.IsExported() && t.Name != "ResultMetadata" {
				f.fill(v.Field(i), depth+1)
			}
		}
	}
}

// A far answers one call with what it is given, and keeps the request.
type far struct {
	contentType, answer string
	query               url.Values
	body                []byte
}

func (f *far) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		f.body, _ = io.ReadAll(r.Body)
	}
	f.query, _ = url.ParseQuery(string(f.body))
	return &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", Header: http.Header{"Content-Type": {f.contentType}}, Request: r,
		Body: io.NopCloser(strings.NewReader(f.answer)), ContentLength: int64(len(f.answer)),
	}, nil
}

func config(f *far) aws.Config {
	return aws.Config{
		Region: "us-east-1", HTTPClient: f, BaseEndpoint: aws.String("http://far"), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	}
}

// alike compares shapes, without what the SDK adds.
var alike = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".ResultMetadata" || strings.Contains(p.Last().String(), "oSmithyDocumentSerde")
	}, cmp.Ignore()),
}

// call invokes a client's operation by name and returns its output.
func call(client any, name string, in reflect.Value) (reflect.Value, error) {
	out := reflect.ValueOf(client).MethodByName(name).Call([]reflect.Value{reflect.ValueOf(context.Background()), in})
	err, _ := out[1].Interface().(error)
	return out[0], err
}

// TestEveryMemberSurvivesTheWayToAndFromTheSDK sends each operation through the SDK's own client with every member set, and
// answers with every member set: what arrives on either side must be what was sent.
func TestEveryMemberSurvivesTheWayToAndFromTheSDK(t *testing.T) {
	type service struct {
		name   string
		client func(*far) any
		style  wire.Style
		kind   string
		wrap   func(op string, body []byte) string
		json   bool
		ops    string
	}
	plain := func(op string, b []byte) string { return fmt.Sprintf("<%sResponse>%s</%sResponse>", op, b, op) }
	result := func(op string, b []byte) string {
		return fmt.Sprintf("<%sResponse><%sResult>%s</%sResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></%sResponse>", op, op, b, op, op)
	}
	raw := func(_ string, b []byte) string { return string(b) }
	for _, s := range []service{
		{"ec2", func(f *far) any { return ec2.NewFromConfig(config(f)) }, wire.EC2, "text/xml", plain, false, `CreateFleet CreateLaunchTemplate
			CreateLaunchTemplateVersion DescribeLaunchTemplates DescribeLaunchTemplateVersions DeleteLaunchTemplate RunInstances DescribeInstances
			TerminateInstances StopInstances StartInstances DescribeInstanceStatus GetConsoleOutput DescribeVolumes DescribeNetworkInterfaces
			DescribeSpotInstanceRequests CreateTags DeleteTags DescribeInstanceTypes DescribeInstanceTypeOfferings DescribeSpotPriceHistory
			DescribeSubnets DescribeSecurityGroups DescribeVpcs DescribeAvailabilityZones DescribeRegions DescribeImages
			DescribeCapacityReservations CreateCapacityReservation CancelCapacityReservation DescribePlacementGroups CreatePlacementGroup DescribeReservedInstances`},
		{"iam", func(f *far) any { return iam.NewFromConfig(config(f)) }, wire.Query, "text/xml", result, false, `CreateInstanceProfile GetInstanceProfile
			ListInstanceProfiles ListInstanceProfileTags TagInstanceProfile AddRoleToInstanceProfile RemoveRoleFromInstanceProfile DeleteInstanceProfile GetRole CreateRole ListRoles`},
		{"sts", func(f *far) any { return sts.NewFromConfig(config(f)) }, wire.Query, "text/xml", result, false, `GetCallerIdentity AssumeRole AssumeRoleWithWebIdentity`},
		{"ssm", func(f *far) any { return ssm.NewFromConfig(config(f)) }, wire.JSON, "application/x-amz-json-1.1", raw, true, `GetParameter GetParameters GetParametersByPath PutParameter`},
		{"sqs", func(f *far) any { return sqs.NewFromConfig(config(f)) }, wire.JSON, "application/x-amz-json-1.0", raw, true, `GetQueueUrl ListQueues CreateQueue DeleteQueue PurgeQueue DeleteMessage GetQueueAttributes`},
		{"pricing", func(f *far) any { return pricing.NewFromConfig(config(f)) }, wire.JSON, "application/x-amz-json-1.1", raw, true, `GetProducts`},
		{"eks", func(f *far) any { return eks.NewFromConfig(config(f)) }, wire.REST, "application/json", raw, true, `DescribeCluster ListClusters`},
		{"savingsplans", func(f *far) any { return savingsplans.NewFromConfig(config(f)) }, wire.REST, "application/json", raw, true, `DescribeSavingsPlans DescribeSavingsPlanRates`},
	} {
		for _, op := range strings.Fields(s.ops) {
			t.Run(s.name+" "+op, func(t *testing.T) {
				f := &far{contentType: s.kind}
				client := s.client(f)
				method := reflect.ValueOf(client).MethodByName(op)
				in := reflect.New(method.Type().In(1).Elem())
				(&filler{}).fill(in.Elem(), 0)
				want := reflect.New(method.Type().Out(0).Elem())
				(&filler{}).fill(want.Elem(), 0)
				f.answer = s.wrap(op, s.style.XML(want.Interface()))
				if s.json {
					body, err := s.style.JSON(want.Interface())
					if err != nil {
						t.Fatal(err)
					}
					f.answer = string(body)
				}
				got, err := call(client, op, in)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want.Interface(), got.Interface(), alike); diff != "" {
					t.Errorf("the answer that arrived differs (-sent +arrived):\n%s", diff)
				}
				if s.name == "eks" {
					return // its requests are all in the path
				}
				back := reflect.New(in.Type().Elem())
				if s.json {
					err = s.style.DecodeJSON(f.body, back.Interface())
				} else {
					err = s.style.DecodeQuery(f.query, back.Interface())
				}
				if err != nil {
					t.Fatalf("the request is not understood: %v\n%s", err, f.body)
				}
				if diff := cmp.Diff(in.Interface(), back.Interface(), alike); diff != "" {
					t.Errorf("the request that arrived differs (-sent +arrived):\n%s", diff)
				}
			})
		}
	}
}

func TestQueryRefusesWhatTheShapeDoesNotHave(t *testing.T) {
	for name, tc := range map[string]struct{ query, code string }{
		"an unknown parameter":                 {"Action=DescribeInstances&Version=1&Nonsense=1", "UnknownParameter"},
		"an unknown member of a list":          {"Filter.1.Name=a&Filter.1.Nonsense=b", "UnknownParameter"},
		"a list under a word":                  {"InstanceId.first=i-1", "UnknownParameter"},
		"a number with leading zeros":          {"InstanceId.01=i-1", "UnknownParameter"},
		"a text where a number belongs":        {"MaxResults=many", "InvalidParameterValue"},
		"a truth that is none":                 {"DryRun=perhaps", "InvalidParameterValue"},
		"a scalar with members":                {"MaxResults.1=5", "UnknownParameter"},
		"a name nested beyond any shape":       {strings.Repeat("A.", 40) + "B=1", "InvalidParameter"},
		"lists keep their order, not the text": {"InstanceId.2=b&InstanceId.10=c&InstanceId.1=a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			form, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			var in ec2.DescribeInstancesInput
			err = wire.EC2.DecodeQuery(form, &in)
			got := ""
			if p, ok := err.(*wire.ParameterError); ok {
				got = p.Code
			}
			if got != tc.code {
				t.Errorf("error %v, want code %q", err, tc.code)
			}
			if tc.code == "" && !reflect.DeepEqual(in.InstanceIds, []string{"a", "b", "c"}) {
				t.Errorf("ids = %v", in.InstanceIds)
			}
		})
	}
}

// FuzzDecodeQuery looks for requests that make the decoder fail in another way than by an error, or that it accepts but
// reads as something that it would not read again.
func FuzzDecodeQuery(f *testing.F) {
	for _, seed := range []string{
		"Action=CreateFleet&Type=instant&LaunchTemplateConfigs.1.Overrides.1.InstanceType=m5.large",
		"TagSpecification.1.Tag.1.Key=a&TagSpecification.1.Tag.1.Value=b", "InstanceId.99999999999999999999=x", "ValidFrom=2026-01-01T00:00:00Z", "a..b=1", ".=1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		form, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		var one, two ec2.CreateFleetInput
		if wire.EC2.DecodeQuery(form, &one) != nil {
			return
		}
		if err := wire.EC2.DecodeQuery(form, &two); err != nil || !bytes.Equal(wire.EC2.XML(&one), wire.EC2.XML(&two)) {
			t.Errorf("%q is read in two ways (%v)", query, err)
		}
	})
}
