// Command gen rebuilds the data of package awsdata from a real account: DescribeInstanceTypes and
// DescribeInstanceTypeOfferings of each region, the price list, and the table of branch interfaces that the Go module
// github.com/aws/amazon-vpc-resource-controller-k8s ships.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"

	"karpenter.sh/karpenter/internal/aws/price"
)

func main() {
	log.SetFlags(0)
	out := flag.String("out", ".", "folder of the files")
	regions := flag.String("regions", "us-east-1,us-west-2,eu-west-2,eu-central-1,ap-northeast-1", "regions whose offerings are kept")
	prices := flag.String("prices", "us-east-1", "regions whose prices are kept")
	flag.Parse()
	if err := run(context.Background(), *out, strings.Split(*regions, ","), strings.Split(*prices, ",")); err != nil {
		log.Fatal(err)
	}
}

// run reads everything from AWS and writes the files.
func run(ctx context.Context, out string, regions, priced []string) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	types := map[string]map[string]any{}
	offerings := map[string]map[string][]string{}
	for _, region := range regions {
		client := ec2.NewFromConfig(cfg, func(o *ec2.Options) { o.Region = region })
		if err := readTypes(ctx, client, types); err != nil {
			return fmt.Errorf("instance types of %s: %w", region, err)
		}
		if offerings[region], err = readOfferings(ctx, client); err != nil {
			return fmt.Errorf("offerings of %s: %w", region, err)
		}
	}
	onDemand := map[string]map[string]float64{}
	client := pricing.NewFromConfig(cfg, func(o *pricing.Options) { o.Region = "us-east-1" })
	for _, region := range priced {
		if onDemand[region], err = readPrices(ctx, client, region); err != nil {
			return fmt.Errorf("prices of %s: %w", region, err)
		}
	}
	branches, err := readBranches(ctx)
	if err != nil {
		return fmt.Errorf("branch interfaces: %w", err)
	}
	list := slices.SortedFunc(maps.Values(types), func(a, b map[string]any) int {
		return cmp.Compare(a["InstanceType"].(string), b["InstanceType"].(string))
	})
	for name, data := range map[string]any{
		"instance-types": list, "offerings-by-zone": offerings, "on-demand-prices": onDemand, "branch-interfaces": branches,
	} {
		if err := write(filepath.Join(out, name+".json.gz"), data); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(out, "made.txt"), []byte(time.Now().UTC().Format(time.DateOnly)+"\n"), 0o644); err != nil {
		return err
	}
	return nil
}

// readTypes adds the types of a region as EC2 describes them, without fields that are not set.
func readTypes(ctx context.Context, client *ec2.Client, into map[string]map[string]any) error {
	pages := ec2.NewDescribeInstanceTypesPaginator(client, &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(100)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, info := range page.InstanceTypes {
			text, err := json.Marshal(info)
			if err != nil {
				return err
			}
			var plain map[string]any
			if err := json.Unmarshal(text, &plain); err != nil {
				return err
			}
			into[string(info.InstanceType)] = withoutEmpty(plain).(map[string]any)
		}
	}
	return nil
}

// withoutEmpty removes null values, empty texts and empty lists from decoded JSON.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value = withoutEmpty(value); value == nil || value == "" {
				delete(v, key)
			} else {
				v[key] = value
			}
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
	}
	return v
}

// readOfferings returns the types that each zone of a region offers, sorted.
func readOfferings(ctx context.Context, client *ec2.Client) (map[string][]string, error) {
	out := map[string][]string{}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(client, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range page.InstanceTypeOfferings {
			zone := aws.ToString(o.Location)
			out[zone] = append(out[zone], string(o.InstanceType))
		}
	}
	for _, types := range out {
		slices.Sort(types)
	}
	return out, nil
}

// readPrices returns the on-demand prices of a region in dollars.
func readPrices(ctx context.Context, client *pricing.Client, region string) (map[string]float64, error) {
	out := map[string]float64{}
	for tenancy, family := range map[string]string{"Shared": "Compute Instance", "Dedicated": "Compute Instance (bare metal)"} {
		pages := pricing.NewGetProductsPaginator(client, price.ProductsQuery(region, tenancy, family))
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, text := range page.PriceList {
				if name, p, ok := price.ReadProduct(text, "USD"); ok {
					out[name] = p.Dollars()
				}
			}
		}
	}
	return out, nil
}

var (
	limitsPattern = regexp.MustCompile(`(?s)\n\t"([a-z0-9.-]+)": \{(.*?)\n\t\},`)
	trunkPattern  = regexp.MustCompile(`IsTrunkingCompatible:\s+true`)
	branchPattern = regexp.MustCompile(`BranchInterface:\s+(\d+)`)
)

// readBranches reads from the module's source how many branch interfaces each type has that can trunk.
func readBranches(ctx context.Context) (map[string]int, error) {
	text, err := exec.CommandContext(ctx, "go", "mod", "download", "-json",
		"github.com/aws/amazon-vpc-resource-controller-k8s@latest").Output()
	if err != nil {
		return nil, err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(text, &module); err != nil {
		return nil, err
	}
	source, err := os.ReadFile(filepath.Join(module.Dir, "pkg", "aws", "vpc", "limits.go"))
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, m := range limitsPattern.FindAllSubmatch(source, -1) {
		if n := branchPattern.FindSubmatch(m[2]); n != nil && trunkPattern.Match(m[2]) {
			if out[string(m[1])], err = strconv.Atoi(string(n[1])); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// write writes data as compressed JSON, without a date, so that equal data gives an equal file.
func write(path string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
