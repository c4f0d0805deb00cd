package awsmodel

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/eks"

	"karpenter.sh/karpenter/internal/testing/awsmodel/wire"
)

// A scope is what a request's signature says about it.
type scope struct {
	key, region, service string
}

// scopeOf reads the credential scope of a request, from its header or, for presigned ones, from its query.
func scopeOf(r *http.Request) scope {
	credential := r.URL.Query().Get("X-Amz-Credential")
	if _, after, ok := strings.Cut(r.Header.Get("Authorization"), "Credential="); ok {
		credential, _, _ = strings.Cut(after, ",")
	}
	parts := strings.Split(strings.TrimSpace(credential), "/")
	if len(parts) < 5 {
		return scope{}
	}
	n := len(parts)
	return scope{key: strings.Join(parts[:n-4], "/"), region: parts[n-3], service: parts[n-2]}
}

// regional reports whether a service can be reached under a region. IAM and STS are everywhere, the price list has regions of its own.
func (c *Cloud) regional(s scope) bool {
	switch s.service {
	case "ec2", "ssm", "sqs", "eks", "arc-zonal-shift", "cloudformation":
		return s.region == c.world.cfg.Region
	}
	return true
}

// A protocol reads the requests and writes the answers of one service.
type protocol struct {
	service string
	decode  func(r *http.Request, body []byte) (name string, in any, err error)
	answer  func(w http.ResponseWriter, id, name string, out any) error
	fail    func(w http.ResponseWriter, id string, f *fault)
}

func (p *protocol) operation(name string) *operation { return operations[p.service+":"+name] }

// protocolFor finds the service that a request is for. The signature's scope says so; requests without a signature
// (some of STS) are known by their API version, target or path.
func protocolFor(service string, r *http.Request, body []byte) (*protocol, bool) {
	if service == "" {
		service = guess(r, body)
	}
	switch service {
	case "ec2":
		return ec2Protocol(), true
	case "iam", "sts", "cloudformation":
		return queryProtocol(service, wire.Query), true
	case "sqs":
		if r.Header.Get("X-Amz-Target") == "" {
			return queryProtocol(service, wire.Queue), true
		}
		return jsonProtocol(service), true
	case "ssm", "pricing", "servicequotas":
		return jsonProtocol(service), true
	case "eks":
		return restProtocol(service, decodeEKS), true
	case "arc-zonal-shift":
		return restProtocol(service, decodeShift), true
	case "savingsplans":
		return restProtocol(service, decodePlans), true
	}
	return nil, false
}

// asked returns the protocol in which a service that the model lacks was asked, to refuse the request in it.
func asked(service string, r *http.Request, body []byte) *protocol {
	form, err := params(r, body)
	target, kind := r.Header.Get("X-Amz-Target"), r.Header.Get("Content-Type")
	switch {
	case r.Header.Get("Smithy-Protocol") == "rpc-v2-cbor":
		return &protocol{service: service, fail: failCBOR}
	case target != "":
		p := jsonProtocol(service)
		p.fail = failJSON(kind)
		return p
	case service == "ec2":
		return ec2Protocol()
	case err == nil && form.Get("Action") != "":
		return queryProtocol(service, wire.Query)
	case slices.Contains([]string{"s3", "s3control", "route53", "cloudfront"}, service): // the ones that answer REST in XML
		return queryProtocol(service, wire.Query)
	}
	return restProtocol(service, nil)
}

// failJSON refuses a request in JSON 1.0 or 1.1, whichever was asked.
func failJSON(kind string) func(http.ResponseWriter, string, *fault) {
	return func(w http.ResponseWriter, id string, f *fault) {
		w.Header().Set("x-amzn-RequestId", id)
		write(w, kind, f.status, fmt.Sprintf(`{"__type":%s,"message":%s}`, quote(f.code), quote(f.message)))
	}
}

// failCBOR refuses a request in CBOR: a map of two texts.
func failCBOR(w http.ResponseWriter, id string, f *fault) {
	w.Header().Set("x-amzn-RequestId", id)
	w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
	body := []byte{0xa2}
	for _, text := range []string{"__type", f.code, "message", f.message} {
		body = append(binary.BigEndian.AppendUint16(append(body, 0x79), uint16(len(text))), text...)
	}
	write(w, "application/cbor", f.status, string(body))
}

func guess(r *http.Request, body []byte) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		prefix, _, _ := strings.Cut(target, ".")
		return map[string]string{"AmazonSSM": "ssm", "AmazonSQS": "sqs", "AWSPriceListService": "pricing"}[prefix]
	}
	if form, err := params(r, body); err == nil {
		if s, ok := map[string]string{"2016-11-15": "ec2", "2010-05-08": "iam", "2011-06-15": "sts",
			"2012-11-05": "sqs", "2010-05-15": "cloudformation"}[form.Get("Version")]; ok {
			return s
		}
	}
	if strings.HasPrefix(r.URL.Path, "/clusters") {
		return "eks"
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(r.Host, "api."), ".")
	return first
}

func params(r *http.Request, body []byte) (url.Values, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, refuse("MalformedQueryString", "%v", err)
	}
	for k, v := range r.URL.Query() {
		if _, ok := form[k]; !ok {
			form[k] = v
		}
	}
	return form, nil
}

func decodeForm(service string, style wire.Style) func(*http.Request, []byte) (string, any, error) {
	return func(r *http.Request, body []byte) (string, any, error) {
		form, err := params(r, body)
		if err != nil {
			return "", nil, err
		}
		name := form.Get("Action")
		o, ok := operations[service+":"+name]
		if !ok {
			return "", nil, refuse("InvalidAction", "The action %s is not valid for this web service.", name)
		}
		in := reflect.New(o.input).Interface()
		return name, in, style.DecodeQuery(form, in)
	}
}

func write(w http.ResponseWriter, contentType string, status int, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // a client that went away needs no answer
}

const xmlHeader = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

func ec2Protocol() *protocol {
	return &protocol{
		service: "ec2", decode: decodeForm("ec2", wire.EC2),
		answer: func(w http.ResponseWriter, id, name string, out any) error {
			write(w, "text/xml;charset=UTF-8", http.StatusOK, fmt.Sprintf(
				`%s<%sResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>%s</requestId>%s</%sResponse>`,
				xmlHeader, name, id, ec2Body(out), name))
			return nil
		},
		fail: func(w http.ResponseWriter, id string, f *fault) {
			write(w, "text/xml;charset=UTF-8", f.status, fmt.Sprintf(
				`%s<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>%s</RequestID></Response>`,
				xmlHeader, html.EscapeString(f.code), html.EscapeString(f.message), id))
		},
	}
}

// ec2Body writes an answer; an answer that is large and always the same brings its own text.
func ec2Body(out any) []byte {
	if raw, ok := out.(rawXML); ok {
		return raw.xml()
	}
	return wire.EC2.XML(out)
}

// A rawXML answer is already spelled.
type rawXML interface{ xml() []byte }

func queryProtocol(service string, style wire.Style) *protocol {
	space := map[string]string{
		"iam": "https://iam.amazonaws.com/doc/2010-05-08/", "sts": "https://sts.amazonaws.com/doc/2011-06-15/",
		"sqs": "http://queue.amazonaws.com/doc/2012-11-05/", "cloudformation": "http://cloudformation.amazonaws.com/doc/2010-05-15/",
	}[service]
	return &protocol{
		service: service, decode: decodeForm(service, style),
		answer: func(w http.ResponseWriter, id, name string, out any) error {
			write(w, "text/xml", http.StatusOK, fmt.Sprintf(
				`%s<%sResponse xmlns="%s"><%sResult>%s</%sResult>`+
					`<ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata></%sResponse>`,
				xmlHeader, name, space, name, style.XML(out), name, id, name))
			return nil
		},
		fail: func(w http.ResponseWriter, id string, f *fault) {
			kind := "Sender"
			if f.status >= http.StatusInternalServerError {
				kind = "Receiver"
			}
			write(w, "text/xml", f.status, fmt.Sprintf(
				`%s<ErrorResponse xmlns="%s"><Error><Type>%s</Type>`+
					`<Code>%s</Code><Message>%s</Message></Error><RequestId>%s</RequestId></ErrorResponse>`,
				xmlHeader, space, kind, html.EscapeString(cmp.Or(f.query, f.code)), html.EscapeString(f.message), id))
		},
	}
}

func jsonProtocol(service string) *protocol {
	kind := "application/x-amz-json-1.1"
	if service == "sqs" {
		kind = "application/x-amz-json-1.0"
	}
	return &protocol{
		service: service,
		decode: func(r *http.Request, body []byte) (string, any, error) {
			_, name, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
			o, ok := operations[service+":"+name]
			if !ok {
				return "", nil, refuse("UnknownOperationException", "%s has no operation %q", service, name)
			}
			in := reflect.New(o.input).Interface()
			return name, in, wire.JSON.DecodeJSON(body, in)
		},
		answer: func(w http.ResponseWriter, id, _ string, out any) error {
			return writeJSON(w, kind, id, wire.JSON, out)
		},
		fail: func(w http.ResponseWriter, id string, f *fault) {
			w.Header().Set("x-amzn-RequestId", id)
			name := f.code
			if f.query != "" {
				w.Header().Set("x-amzn-query-error", f.query+";Sender")
			}
			if service == "sqs" {
				name = "com.amazonaws.sqs#" + name
			}
			write(w, kind, f.status, fmt.Sprintf(`{"__type":%s,"message":%s}`, quote(name), quote(f.message)))
		},
	}
}

func quote(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		return `""` // cannot happen: every string has a JSON form
	}
	return string(out)
}

func writeJSON(w http.ResponseWriter, kind, id string, style wire.Style, out any) error {
	body, err := style.JSON(out)
	if err != nil {
		return err
	}
	w.Header().Set("x-amzn-RequestId", id)
	write(w, kind, http.StatusOK, string(body))
	return nil
}

// decodeShift reads a request of ARC.
func decodeShift(r *http.Request, _ []byte) (string, any, error) {
	arn, ok := strings.CutPrefix(r.URL.Path, "/managedresources/")
	if r.Method != http.MethodGet || !ok {
		return "", nil, refuseWith(http.StatusNotFound, "UnknownOperationException", "the model of ARC cannot %s %s", r.Method, r.URL.Path)
	}
	return "GetManagedResource", &arczonalshift.GetManagedResourceInput{ResourceIdentifier: &arn}, nil
}

// restProtocol is that of EKS and ARC. Only reading is modelled, so the request is all in its path.
func restProtocol(service string, decode func(*http.Request, []byte) (string, any, error)) *protocol {
	return &protocol{
		service: service,
		decode:  decode,
		answer: func(w http.ResponseWriter, id, _ string, out any) error {
			return writeJSON(w, "application/json", id, wire.REST, out)
		},
		fail: func(w http.ResponseWriter, id string, f *fault) {
			w.Header().Set("x-amzn-RequestId", id)
			w.Header().Set("x-amzn-ErrorType", f.code)
			write(w, "application/json", f.status, fmt.Sprintf(`{"message":%s}`, quote(f.message)))
		},
	}
}

// decodeEKS reads a request of EKS: its subject is in its path.
func decodeEKS(r *http.Request, _ []byte) (string, any, error) {
	path, ok := strings.CutPrefix(r.URL.Path, "/clusters")
	name, rest, nested := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	entry, ofEntry := strings.CutPrefix(rest, "access-entries/")
	switch {
	case r.Method != http.MethodGet || !ok:
	case name == "":
		return "ListClusters", &eks.ListClustersInput{}, nil
	case !nested:
		return "DescribeCluster", &eks.DescribeClusterInput{Name: &name}, nil
	case ofEntry:
		return "DescribeAccessEntry", &eks.DescribeAccessEntryInput{ClusterName: &name, PrincipalArn: &entry}, nil
	case rest == "pod-identity-associations":
		q := r.URL.Query()
		return "ListPodIdentityAssociations", &eks.ListPodIdentityAssociationsInput{
			ClusterName: &name, Namespace: aws.String(q.Get("namespace")), ServiceAccount: aws.String(q.Get("serviceAccount")),
		}, nil
	}
	return "", nil, refuseWith(http.StatusNotFound, "UnknownOperationException", "the model of EKS cannot %s %s", r.Method, r.URL.Path)
}
