package awsmodel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// An operation is one call of one service.
type operation struct {
	service, name string
	input         reflect.Type
	run           func(c *call, in any) (any, error)
	reads         []string // the request's members that the model acts on; others are refused
	reader        bool     // changes nothing
}

// op makes an operation of a function over the SDK's shapes; its name is that of the input shape.
func op[I, O any](service string, run func(*call, *I) (*O, error), reads ...string) operation {
	t := reflect.TypeFor[I]()
	name := strings.TrimSuffix(t.Name(), "Input")
	return operation{
		service: service, name: name, input: t, reads: append(reads, "DryRun"), reader: isReader(name),
		run: func(c *call, in any) (any, error) { return run(c, in.(*I)) },
	}
}

func isReader(name string) bool {
	for _, p := range []string{"Describe", "Get", "List", "Receive", "Search", "Assume"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func (o *operation) String() string { return o.service + ":" + o.name }

// A call is one request while it is carried out. The world is locked.
type call struct {
	cloud *Cloud
	world *world
	ctx   context.Context
	now   time.Time
	who   *principal
	op    *operation
}

// A CallRecord is one call that arrived, for tests and for people who look at what went on.
type CallRecord struct {
	At        time.Time
	Operation string // such as ec2:CreateFleet
	Caller    string
	Error     string // the code, if it was refused
	Lost      bool   // the answer was thrown away
}

// maxLog bounds the record of calls.
const maxLog = 20000

// Handler serves every service on one address. Which service a request is for follows from its signature's scope, its
// target header or its host.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	c.admin(mux)
	mux.HandleFunc("/", c.serve)
	return mux
}

// maxBody is more than any request of the modelled services may be.
const maxBody = 4 << 20

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "request too large", http.StatusRequestEntityTooLarge)
		return
	}
	id := scopeOf(r)
	p, ok := protocolFor(id.service, r, body)
	if !ok {
		p = asked(id.service, r, body)
		p.fail(w, c.requestID(), refuseWith(http.StatusNotFound, "UnknownOperationException",
			"the model of AWS has no service %q", id.service))
		return
	}
	if !c.regional(id) {
		p.fail(w, c.requestID(), refuseWith(http.StatusForbidden, "AuthFailure",
			"Credential should be scoped to a valid region, not '%s': this is %s.", id.region, c.world.cfg.Region))
		return
	}
	name, in, err := p.decode(r, body)
	if err != nil {
		p.fail(w, c.requestID(), asFault(err))
		return
	}
	out, err := c.do(r.Context(), p.operation(name), id.key, in)
	if errors.Is(err, errLost) {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	if err != nil {
		p.fail(w, c.requestID(), asFault(err))
		return
	}
	if err := p.answer(w, c.requestID(), name, out); err != nil {
		p.fail(w, c.requestID(), asFault(err))
	}
}

func (c *Cloud) requestID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.world.answers++
	x := mix(c.world.cfg.Seed + c.world.answers)
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", x>>32, x>>16&0xffff, x>>4&0xfff, x&0xfff, mix(x)&0xffffffffffff)
}

var errLost = errors.New("the answer is lost")

// do carries a call out: latency, rate limit, injected failure, permission, the act itself, and perhaps a lost answer.
func (c *Cloud) do(ctx context.Context, o *operation, key string, in any) (any, error) {
	if err := c.delay(ctx, o); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &call{cloud: c, world: c.world, ctx: ctx, now: time.Now(), who: c.world.principal(key), op: o}
	c.world.advance(k.now)
	out, err := k.act(in)
	record := CallRecord{At: k.now, Operation: o.String(), Caller: k.who.arn}
	if err != nil {
		record.Error = asFault(err).code
	} else if c.loses(o) {
		record.Lost, err = true, errLost
	}
	c.calls[o.String()]++
	if len(c.log) >= maxLog {
		c.log = slices.Delete(c.log, 0, maxLog/2)
	}
	c.log = append(c.log, record)
	return out, err
}

func (k *call) act(in any) (any, error) {
	o := k.op
	if !k.cloud.admit(o.String(), isFiltered(in), k.now) {
		return nil, throttled(o.service)
	}
	if f := k.injected(); f != nil {
		return nil, f
	}
	if name := setOutside(in, o.reads); name != "" {
		return nil, refuse("UnsupportedOperation", "The model of %s does not act on parameter %s.", o, name)
	}
	if err := checkFilters(in); err != nil {
		return nil, err
	}
	if err := k.authorize(in); err != nil {
		return nil, err
	}
	if dryRun(in) && o.name != "RunInstances" && o.name != "CreateFleet" { // those two look further first
		return nil, dryRunSucceeded()
	}
	out, err := o.run(k, in)
	if err == nil && !o.reader {
		k.world.changed()
	}
	return out, err
}

func dryRunSucceeded() *fault {
	return refuseWith(http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

func dryRun(in any) bool {
	f := reflect.ValueOf(in).Elem().FieldByName("DryRun")
	return f.IsValid() && f.Kind() == reflect.Pointer && !f.IsNil() && f.Elem().Bool()
}

// isFiltered says that a describe call names filters, ids or a page size and so uses the larger bucket.
func isFiltered(in any) bool {
	v := reflect.ValueOf(in).Elem()
	for i := range v.NumField() {
		switch n := v.Type().Field(i).Name; {
		case n == "Filters" || n == "MaxResults" || strings.HasSuffix(n, "Ids"):
			if !v.Field(i).IsZero() {
				return true
			}
		}
	}
	return false
}

func (k *call) injected() *fault {
	for pattern, f := range k.world.faults.Fail {
		if match(pattern, k.op.String()) && (f.Share == 0 || k.world.chance("failure of "+k.op.String(), f.Share)) {
			return refuseWith(max(f.Status, http.StatusBadRequest), f.Code, "%s", f.Message)
		}
	}
	return nil
}

func (c *Cloud) loses(o *operation) bool {
	lossy := !o.reader
	if of := c.world.faults.LostAnswersOf; len(of) > 0 {
		lossy = slices.Contains(of, o.String())
	}
	return lossy && c.world.chance("answer to "+o.String(), c.world.faults.LostAnswers)
}

func (c *Cloud) delay(ctx context.Context, o *operation) error {
	c.mu.Lock()
	mean := c.world.faults.LatencyMillis
	wait := time.Duration(0)
	if mean > 0 {
		wait = time.Duration(float64(mean)*(0.5+c.world.draw("latency of "+o.String()))) * time.Millisecond
	}
	c.mu.Unlock()
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Calls returns how many calls of each operation arrived, such as "ec2:CreateFleet".
func (c *Cloud) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cloneMap(c.calls)
}

// Log returns the calls that arrived, oldest first; very old ones are forgotten.
func (c *Cloud) Log() []CallRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

// AWSConfig returns an SDK configuration for a caller without restrictions, whose client needs no network.
func (c *Cloud) AWSConfig() aws.Config { return c.AWSConfigFor("MODEL") }

// AWSConfigFor is AWSConfig for the caller with an access key id of Config.Identities.
func (c *Cloud) AWSConfigFor(accessKey string) aws.Config {
	return aws.Config{
		Region:       c.world.cfg.Region,
		Credentials:  credentials.NewStaticCredentialsProvider(accessKey, "secret", ""),
		HTTPClient:   inProcess{c.Handler()},
		BaseEndpoint: aws.String("http://aws.model"),
	}
}

// inProcess is an HTTP client that calls a handler.
type inProcess struct{ handler http.Handler }

func (p inProcess) Do(r *http.Request) (resp *http.Response, err error) {
	w := &answer{header: http.Header{}, status: http.StatusOK}
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer func() {
		if reason := recover(); reason != nil {
			if reason != http.ErrAbortHandler {
				panic(reason)
			}
			resp, err = nil, fmt.Errorf("%s: connection reset by peer: %w", r.URL.Host, io.ErrUnexpectedEOF)
		}
	}()
	p.handler.ServeHTTP(w, in)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.response(r), nil
}

// An answer collects what a handler writes.
type answer struct {
	header http.Header
	status int
	body   strings.Builder
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

func (a *answer) response(r *http.Request) *http.Response {
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(strings.NewReader(a.body.String())), ContentLength: int64(a.body.Len()), Request: r,
	}
}
