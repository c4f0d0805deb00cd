package awsmodel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"karpenter.sh/karpenter/internal/testing/awsmodel/boot"
)

// An image is one AMI and what it does when it boots.
type image struct {
	Image      ec2types.Image
	Family     boot.Family
	Build      string // of Windows, such as 10.0.20348
	Kubernetes string // minor of the kubelet inside; "" for none
}

// A release is one edition of all the images that Amazon publishes for EKS.
type release struct {
	date         string // of the Amazon Linux images, such as 20260818
	bottlerocket string
}

// releases are the editions that a new world has, the oldest first. The last one is what "recommended" and "latest" name.
var releases = []release{{"20260715", "1.45.0"}, {"20260818", "1.46.0"}}

// minors are the Kubernetes minors that images exist for.
var minors = []string{"1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"}

const (
	amazonLinuxOwner  = "602401143452" // the account of EKS's images in most regions
	bottlerocketOwner = "092701018921"
	windowsOwner      = "801119661308"
)

// publish adds a release's images, and points the public parameters at them.
func publish(w *world, st *state, r release, at time.Time) {
	for _, minor := range minors {
		if minor <= "1.32" { // the last minor with Amazon Linux 2
			publishAL2(w, st, r, minor, at)
		}
		publishAL2023(w, st, r, minor, at)
		publishBottlerocket(w, st, r, minor, at)
		publishWindows(w, st, r, minor, at)
	}
}

func publishAL2(w *world, st *state, r release, minor string, at time.Time) {
	for _, v := range []struct{ node, path, arch string }{
		{"amazon-eks-node", "amazon-linux-2", "x86_64"},
		{"amazon-eks-arm64-node", "amazon-linux-2-arm64", "arm64"},
		{"amazon-eks-gpu-node", "amazon-linux-2-gpu", "x86_64"},
	} {
		name := fmt.Sprintf("%s-%s-v%s", v.node, minor, r.date)
		id := w.addImage(st, name, v.arch, amazonLinuxOwner, "/dev/xvda", 20, image{Family: boot.AL2, Kubernetes: minor}, at)
		root := fmt.Sprintf("/aws/service/eks/optimized-ami/%s/%s/", minor, v.path)
		st.put(root+"recommended/image_id", id, at)
		st.put(root+name+"/image_id", id, at)
	}
}

func publishAL2023(w *world, st *state, r release, minor string, at time.Time) {
	for _, v := range []struct{ arch, variant string }{
		{"x86_64", "standard"}, {"arm64", "standard"}, {"x86_64", "nvidia"}, {"arm64", "nvidia"}, {"x86_64", "neuron"},
	} {
		name := fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-v%s", v.arch, v.variant, minor, r.date)
		id := w.addImage(st, name, v.arch, amazonLinuxOwner, "/dev/xvda", 20, image{Family: boot.AL2023, Kubernetes: minor}, at)
		root := fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2023/%s/%s/", minor, v.arch, v.variant)
		st.put(root+"recommended/image_id", id, at)
		st.put(root+name+"/image_id", id, at)
	}
}

func publishBottlerocket(w *world, st *state, r release, minor string, at time.Time) {
	for _, flavour := range []string{"", "-nvidia"} {
		for _, arch := range []string{"x86_64", "arm64"} {
			variant := "aws-k8s-" + minor + flavour
			name := fmt.Sprintf("bottlerocket-%s-%s-v%s-%08x", variant, arch, r.bottlerocket, uint32(hash(variant+arch+r.bottlerocket)))
			id := w.addImage(st, name, arch, bottlerocketOwner, "/dev/xvda", 2, image{Family: boot.Bottlerocket, Kubernetes: minor}, at)
			root := fmt.Sprintf("/aws/service/bottlerocket/%s/%s/", variant, arch)
			st.put(root+"latest/image_id", id, at)
			st.put(root+r.bottlerocket+"/image_id", id, at)
		}
	}
}

func publishWindows(w *world, st *state, r release, minor string, at time.Time) {
	for _, e := range []struct{ year, build string }{{"2019", "10.0.17763"}, {"2022", "10.0.20348"}, {"2025", "10.0.26100"}} {
		if e.year == "2025" && minor < "1.35" {
			continue
		}
		base := fmt.Sprintf("Windows_Server-%s-English-Core-EKS_Optimized-%s", e.year, minor)
		name := fmt.Sprintf("%s-%s.%s.%s", base, r.date[:4], r.date[4:6], r.date[6:])
		id := w.addImage(st, name, "x86_64", windowsOwner, "/dev/sda1", 50,
			image{Family: boot.Windows, Build: e.build, Kubernetes: minor}, at)
		st.put("/aws/service/ami-windows-latest/"+base+"/image_id", id, at)
	}
}

func (w *world) addImage(st *state, name, arch, owner, root string, gib int32, img image, at time.Time) string {
	id := nameID("ami", w.cfg.Region+"/"+name)
	img.Image = ec2types.Image{
		ImageId: &id, Name: &name, Architecture: ec2types.ArchitectureValues(arch), OwnerId: &owner, ImageOwnerAlias: aws.String("amazon"),
		CreationDate: aws.String(at.UTC().Format("2006-01-02T15:04:05.000Z")), State: ec2types.ImageStateAvailable, Public: aws.Bool(true),
		Description: aws.String("image for Kubernetes " + img.Kubernetes), ImageType: ec2types.ImageTypeValuesMachine,
		DeprecationTime: aws.String(at.AddDate(2, 0, 0).UTC().Format("2006-01-02T15:04:05.000Z")),
		Hypervisor:      ec2types.HypervisorTypeXen, VirtualizationType: ec2types.VirtualizationTypeHvm, EnaSupport: aws.Bool(true),
		RootDeviceType: ec2types.DeviceTypeEbs, RootDeviceName: &root, PlatformDetails: aws.String("Linux/UNIX"),
		UsageOperation: aws.String("RunInstances"),
		BlockDeviceMappings: []ec2types.BlockDeviceMapping{{DeviceName: &root, Ebs: &ec2types.EbsBlockDevice{
			DeleteOnTermination: aws.Bool(true), SnapshotId: aws.String(nameID("snap", name)), VolumeSize: &gib,
			VolumeType: ec2types.VolumeTypeGp3, Encrypted: aws.Bool(false),
		}}},
	}
	if img.Family == boot.Bottlerocket {
		img.Image.BlockDeviceMappings = append(img.Image.BlockDeviceMappings,
			ec2types.BlockDeviceMapping{DeviceName: aws.String("/dev/xvdb"), Ebs: &ec2types.EbsBlockDevice{
				DeleteOnTermination: aws.Bool(true), SnapshotId: aws.String(nameID("snap", name+"/data")),
				VolumeSize: aws.Int32(20), VolumeType: ec2types.VolumeTypeGp3, Encrypted: aws.Bool(false),
			}})
	}
	if img.Family == boot.Windows {
		img.Image.Platform = ec2types.PlatformValuesWindows
		img.Image.PlatformDetails = aws.String("Windows")
		img.Image.UsageOperation = aws.String("RunInstances:0002")
	}
	st.Images = slices.DeleteFunc(st.Images, func(o image) bool { return *o.Image.ImageId == id })
	st.Images = append(st.Images, img)
	return id
}

// PublishImages adds a new edition of every image, as Amazon does every few weeks: the recommended and latest parameters
// name it from now on. The date is that of the Amazon Linux images, such as 20260901; bottlerocket is a version.
func (c *Cloud) PublishImages(date, bottlerocket string) error {
	if _, err := time.Parse("20060102", date); err != nil {
		return fmt.Errorf("release date: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	publish(c.world, c.world.st, release{date, bottlerocket}, time.Now())
	c.world.changed()
	return nil
}

// AddImage adds an image of one's own, which boots as those of the family do. It returns the id.
func (c *Cloud) AddImage(name, arch string, family boot.Family, tags map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.world.addImage(c.world.st, name, arch, c.world.cfg.Account, "/dev/xvda", 20,
		image{Family: family, Kubernetes: c.world.cfg.Cluster.Version}, time.Now())
	for i := range c.world.st.Images {
		if img := &c.world.st.Images[i].Image; *img.ImageId == id {
			img.Public, img.ImageOwnerAlias, img.DeprecationTime = aws.Bool(false), nil, nil
			for k, v := range tags {
				img.Tags = withTags(img.Tags, tagList(k, v))
			}
		}
	}
	c.world.changed()
	return id
}

// DeprecateImage makes an image deprecated from now on.
func (c *Cloud) DeprecateImage(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.world.st.Images {
		if img := &c.world.st.Images[i].Image; *img.ImageId == id {
			img.DeprecationTime = aws.String(time.Now().UTC().Format("2006-01-02T15:04:05.000Z"))
			c.world.changed()
			return nil
		}
	}
	return fmt.Errorf("there is no image %s", id)
}

func (w *world) image(id string) (image, bool) {
	for _, i := range w.st.Images {
		if *i.Image.ImageId == id {
			return i, true
		}
	}
	return image{}, false
}

func describeImages(c *call, in *ec2.DescribeImagesInput) (*ec2.DescribeImagesOutput, error) {
	for _, id := range in.ImageIds {
		if !strings.HasPrefix(id, "ami-") {
			return nil, refuse("InvalidAMIID.Malformed", "Invalid id: %q (expecting \"ami-...\")", id)
		}
		if _, ok := c.world.image(id); !ok {
			return nil, refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
	}
	var out []ec2types.Image
	for _, i := range c.world.st.Images {
		img := i.Image
		if len(in.ImageIds) > 0 && !slices.Contains(in.ImageIds, *img.ImageId) {
			continue
		}
		if len(in.Owners) > 0 && !slices.ContainsFunc(in.Owners, func(o string) bool { return owns(c, o, img) }) {
			continue
		}
		if !aws.ToBool(in.IncludeDeprecated) && deprecated(c, img) && aws.ToString(img.OwnerId) != c.world.cfg.Account {
			continue
		}
		ok, err := matches(in.Filters, img, imageFilters, img.Tags)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, img)
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 1, 1000, func(i ec2types.Image) string { return *i.ImageId })
	return &ec2.DescribeImagesOutput{Images: out, NextToken: next}, err
}

func owns(c *call, owner string, img ec2types.Image) bool {
	switch owner {
	case "self":
		return aws.ToString(img.OwnerId) == c.world.cfg.Account
	case "amazon", "aws-marketplace", "aws-backup-vault":
		return aws.ToString(img.ImageOwnerAlias) == owner
	}
	return aws.ToString(img.OwnerId) == owner
}

func deprecated(c *call, img ec2types.Image) bool {
	at, err := time.Parse(time.RFC3339, aws.ToString(img.DeprecationTime))
	return err == nil && !at.After(c.now)
}

var imageFilters = filters[ec2types.Image]{
	"image-id":            func(i ec2types.Image) []string { return []string{aws.ToString(i.ImageId)} },
	"name":                func(i ec2types.Image) []string { return []string{aws.ToString(i.Name)} },
	"state":               func(i ec2types.Image) []string { return []string{string(i.State)} },
	"architecture":        func(i ec2types.Image) []string { return []string{string(i.Architecture)} },
	"owner-id":            func(i ec2types.Image) []string { return []string{aws.ToString(i.OwnerId)} },
	"owner-alias":         func(i ec2types.Image) []string { return []string{aws.ToString(i.ImageOwnerAlias)} },
	"platform":            func(i ec2types.Image) []string { return []string{string(i.Platform)} },
	"is-public":           func(i ec2types.Image) []string { return []string{fmt.Sprint(aws.ToBool(i.Public))} },
	"image-type":          func(i ec2types.Image) []string { return []string{string(i.ImageType)} },
	"root-device-type":    func(i ec2types.Image) []string { return []string{string(i.RootDeviceType)} },
	"virtualization-type": func(i ec2types.Image) []string { return []string{string(i.VirtualizationType)} },
	"description":         func(i ec2types.Image) []string { return []string{aws.ToString(i.Description)} },
	"creation-date":       func(i ec2types.Image) []string { return []string{aws.ToString(i.CreationDate)} },
}
