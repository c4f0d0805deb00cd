package awsmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// A parameter is one SSM parameter.
type parameter struct {
	Value   string
	Version int64
	Changed time.Time
}

func (st *state) put(name, value string, at time.Time) {
	p := st.Parameters[name]
	st.Parameters[name] = parameter{value, p.Version + 1, at}
}

// PutParameter sets an SSM parameter.
func (c *Cloud) PutParameter(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.world.st.put(name, value, time.Now())
	c.world.changed()
}

func tellParameter(c *call, name string) (ssmtypes.Parameter, bool) {
	asked := name
	if strings.HasPrefix(name, "arn:") { // arn:aws:ssm:region:account:parameter/name
		_, name, _ = strings.Cut(name, ":parameter")
	}
	p, ok := c.world.st.Parameters[name]
	if !ok {
		return ssmtypes.Parameter{}, false
	}
	account := c.world.cfg.Account
	if strings.HasPrefix(name, "/aws/service/") {
		account = ""
	}
	return ssmtypes.Parameter{
		Name: &asked, Value: &p.Value, Type: ssmtypes.ParameterTypeString, Version: p.Version, DataType: aws.String("text"),
		LastModifiedDate: aws.Time(p.Changed), ARN: aws.String("arn:aws:ssm:" + c.world.cfg.Region + ":" + account + ":parameter" + name),
	}, true
}

func getParameter(c *call, in *ssm.GetParameterInput) (*ssm.GetParameterOutput, error) {
	p, ok := tellParameter(c, aws.ToString(in.Name))
	if !ok {
		return nil, refuse("ParameterNotFound", "")
	}
	return &ssm.GetParameterOutput{Parameter: &p}, nil
}

func getParameters(c *call, in *ssm.GetParametersInput) (*ssm.GetParametersOutput, error) {
	if n := len(in.Names); n < 1 || n > 10 {
		return nil, refuse("ValidationException", "Names has %d members, between 1 and 10 are allowed", n)
	}
	out := &ssm.GetParametersOutput{Parameters: []ssmtypes.Parameter{}, InvalidParameters: []string{}}
	for _, name := range in.Names {
		if p, ok := tellParameter(c, name); ok {
			out.Parameters = append(out.Parameters, p)
		} else {
			out.InvalidParameters = append(out.InvalidParameters, name)
		}
	}
	return out, nil
}

func getParametersByPath(c *call, in *ssm.GetParametersByPathInput) (*ssm.GetParametersByPathOutput, error) {
	path := strings.TrimSuffix(aws.ToString(in.Path), "/") + "/"
	var all []ssmtypes.Parameter
	for name := range c.world.st.Parameters {
		rest, ok := strings.CutPrefix(name, path)
		if ok && (aws.ToBool(in.Recursive) || !strings.Contains(rest, "/")) {
			p, _ := tellParameter(c, name)
			all = append(all, p)
		}
	}
	out, next, err := page(all, in.MaxResults, in.NextToken, 1, 10, func(p ssmtypes.Parameter) string { return *p.Name })
	return &ssm.GetParametersByPathOutput{Parameters: out, NextToken: next}, err
}

func putParameter(c *call, in *ssm.PutParameterInput) (*ssm.PutParameterOutput, error) {
	name := aws.ToString(in.Name)
	if _, ok := c.world.st.Parameters[name]; ok && !aws.ToBool(in.Overwrite) {
		return nil, refuse("ParameterAlreadyExists",
			"The parameter already exists. To overwrite this value, set the overwrite option in the request to true.")
	}
	c.world.st.put(name, aws.ToString(in.Value), c.now)
	return &ssm.PutParameterOutput{Version: c.world.st.Parameters[name].Version}, nil
}

// getProducts lists the on-demand prices of EC2 as the price list does: one product with one term for each type.
func getProducts(c *call, in *pricing.GetProductsInput) (*pricing.GetProductsOutput, error) {
	if aws.ToString(in.ServiceCode) != "AmazonEC2" {
		return nil, refuse("NotFoundException", "The model has only the prices of AmazonEC2, not of %s", aws.ToString(in.ServiceCode))
	}
	if n := aws.ToInt32(in.MaxResults); n > 100 {
		return nil, refuse("InvalidParameterException", "MaxResults is %d, at most 100 are allowed", n)
	}
	var all []product
	for _, p := range c.world.data.products() {
		if offers(p, in.Filters) {
			all = append(all, p)
		}
	}
	out, next, err := page(all, in.MaxResults, in.NextToken, 1, 100, func(p product) string { return p.SKU })
	if err != nil {
		return nil, err
	}
	lists := []string{}
	for _, p := range out {
		text, err := p.text(c.now)
		if err != nil {
			return nil, err
		}
		lists = append(lists, text)
	}
	return &pricing.GetProductsOutput{PriceList: lists, FormatVersion: aws.String("aws_v1"), NextToken: next}, nil
}

// A product is one line of the price list.
type product struct {
	SKU        string
	Family     string
	Attributes map[string]string
	price      float64
	fields     map[string]string // what filters look at, by lower-case name
}

// priceList makes the lines of every priced type: shared and dedicated tenancy for most. Bare metal machines are sold under
// a family of their own, and count as dedicated.
func (c *catalogue) priceList() []product {
	var out []product
	for _, t := range slices.Sorted(maps.Keys(c.prices)) {
		f := c.facts[t]
		if f != nil && f.BareMetal {
			out = append(out, c.product(t, "Dedicated", "Compute Instance (bare metal)", c.prices[t]))
			continue
		}
		out = append(out, c.product(t, "Shared", "Compute Instance", c.prices[t]),
			c.product(t, "Dedicated", "Compute Instance", c.prices[t]*dedicatedSurcharge))
	}
	return append(out, c.localPrices()...)
}

const dedicatedSurcharge = 1.06

// product is one line. Filters may name attributes in any case, so they are kept a second time in lower case.
func (c *catalogue) product(name, tenancy, family string, price float64) product {
	a := map[string]string{
		"instanceType": name, "regionCode": c.region, "location": c.region, "locationType": "AWS Region",
		"servicecode": "AmazonEC2", "servicename": "Amazon Elastic Compute Cloud",
		"tenancy": tenancy, "operatingSystem": "Linux", "preInstalledSw": "NA", "capacitystatus": "Used",
		"marketoption": "OnDemand", "licenseModel": "No License required",
		"operation": "RunInstances",
	}
	if f := c.facts[name]; f != nil {
		a["vcpu"] = strconv.Itoa(f.VCPU.Default)
		a["memory"] = fmt.Sprintf("%g GiB", float64(f.Memory.MiB)/1024)
	}
	p := product{SKU: strings.ToUpper(fmt.Sprintf("%016x", hash(c.region+name+tenancy))), Family: family,
		Attributes: a, price: price, fields: map[string]string{"productfamily": family}}
	for k, v := range a {
		p.fields[strings.ToLower(k)] = v
	}
	return p
}

// offers reports whether a line passes the filters.
func offers(p product, want []pricingtypes.Filter) bool {
	return !slices.ContainsFunc(want, func(f pricingtypes.Filter) bool {
		return p.fields[strings.ToLower(aws.ToString(f.Field))] != aws.ToString(f.Value)
	})
}

func (p product) text(now time.Time) (string, error) {
	type m = map[string]any
	term, rate := p.SKU+".JRTCKXETXF", p.SKU+".JRTCKXETXF.6YS6EN2CT7"
	raw, err := json.Marshal(m{
		"product":     m{"productFamily": p.Family, "attributes": p.Attributes, "sku": p.SKU},
		"serviceCode": "AmazonEC2",
		"terms": m{"OnDemand": m{term: m{
			"priceDimensions": m{rate: m{
				"unit": "Hrs", "endRange": "Inf", "beginRange": "0", "rateCode": rate, "appliesTo": []string{},
				"description":  fmt.Sprintf("$%g per On Demand Linux %s Instance Hour", p.price, p.Attributes["instanceType"]),
				"pricePerUnit": m{"USD": strconv.FormatFloat(p.price, 'f', 10, 64)},
			}},
			"sku": p.SKU, "effectiveDate": now.UTC().Format("2006-01-02T00:00:00Z"), "offerTermCode": "JRTCKXETXF", "termAttributes": m{},
		}}},
		"version": now.UTC().Format("20060102000000"), "publicationDate": now.UTC().Format(time.RFC3339),
	})
	return string(raw), err
}

func describeCluster(c *call, in *eks.DescribeClusterInput) (*eks.DescribeClusterOutput, error) {
	k := c.world.boot
	if aws.ToString(in.Name) != k.Name {
		return nil, refuseWith(http.StatusNotFound, "ResourceNotFoundException", "No cluster found for name: %s.", aws.ToString(in.Name))
	}
	var subnets []string
	for _, s := range c.world.st.Subnets {
		subnets = append(subnets, *s.Subnet.SubnetId)
	}
	network := &ekstypes.KubernetesNetworkConfigResponse{ServiceIpv4Cidr: &k.ServiceCIDR, IpFamily: ekstypes.IpFamilyIpv4}
	if c.world.cfg.ipv6() {
		network = &ekstypes.KubernetesNetworkConfigResponse{ServiceIpv6Cidr: &k.ServiceCIDR, IpFamily: ekstypes.IpFamilyIpv6}
	}
	return &eks.DescribeClusterOutput{Cluster: &ekstypes.Cluster{
		Name: &k.Name, Arn: aws.String(c.world.cfg.arn("eks", "cluster/"+k.Name)), Version: &k.Version,
		Endpoint: &k.Endpoint, Status: ekstypes.ClusterStatusActive,
		CertificateAuthority: &ekstypes.Certificate{Data: &k.CA}, CreatedAt: aws.Time(c.world.started),
		PlatformVersion:         aws.String("eks.1"),
		KubernetesNetworkConfig: network,
		Identity: &ekstypes.Identity{Oidc: &ekstypes.OIDC{Issuer: aws.String("https://oidc.eks." +
			c.world.cfg.Region + ".amazonaws.com/id/" + k.Name)}},
		ResourcesVpcConfig: &ekstypes.VpcConfigResponse{
			VpcId: c.world.st.Vpcs[0].VpcId, SubnetIds: subnets, ClusterSecurityGroupId: aws.String(nameID("sg", k.Name)),
			EndpointPublicAccess: true,
		},
		RoleArn: aws.String(c.world.cfg.arn("iam", "role/eks-"+k.Name)), Tags: map[string]string{},
	}}, nil
}

func listClusters(c *call, _ *eks.ListClustersInput) (*eks.ListClustersOutput, error) {
	return &eks.ListClustersOutput{Clusters: []string{c.world.boot.Name}}, nil
}

// SetCluster changes what the cluster is, as an upgrade of its control plane does.
func (c *Cloud) SetCluster(change func(*Cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.world.boot)
	c.world.changed()
}

func parsePool(text string) pool {
	parts := append(strings.SplitN(text, "/", 3), "", "", "")
	return pool{parts[0], parts[1], parts[2]}
}
