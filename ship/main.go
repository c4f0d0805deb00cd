// Command ship makes what a release consists of: the program for each platform, the image, what is said about both (a list of what is
// inside, and how it was made), the charts, custom resource definitions, policies and templates, and checksums over all of it.
//
// It needs Go and the checkout, neither Docker nor a shell in the image. The same commit, built by the same release of Go, gives the
// same bytes, on every machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// platforms are what the image runs on.
var platforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64", Variant: "v8"}}

// A job is what the command was told.
type job struct {
	root      string // of the checkout
	out       string // folder that gets everything
	image     string // repository of the image, if it is known yet
	charts    string // what charts are pushed below, if anything
	platforms []v1.Platform
	say       io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ship:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, say io.Writer) error {
	words := map[string]func(job, context.Context) error{"image": job.makeImage, "release": job.makeRelease,
		"push": job.push, "licences": job.makeLicences}
	if len(args) == 0 || words[args[0]] == nil {
		return errors.New("say one of: image, release, push, licences")
	}
	j := job{platforms: platforms, say: say}
	flags := flag.NewFlagSet("ship "+args[0], flag.ContinueOnError)
	flags.StringVar(&j.root, "root", "..", "root of the checkout")
	flags.StringVar(&j.out, "out", "../dist", "folder that gets everything")
	flags.StringVar(&j.image, "image", os.Getenv("IMAGE"), "repository of the image, with a tag or without")
	flags.StringVar(&j.charts, "charts", os.Getenv("CHARTS"), "what the charts are pushed below; nothing pushes none")
	only := flags.String("platform", "", "build for this platform alone, as in linux/amd64")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q?", flags.Arg(0))
	}
	if *only != "" {
		if err := j.restrict(*only); err != nil {
			return err
		}
	}
	return words[args[0]](j, ctx)
}

// restrict leaves one platform.
func (j *job) restrict(name string) error {
	var all []string
	for _, p := range platforms {
		if called(p) == name {
			j.platforms = []v1.Platform{p}
			return nil
		}
		all = append(all, called(p))
	}
	return fmt.Errorf("there is no platform %s, only %s", name, strings.Join(all, " and "))
}

// called is a platform as people write it.
func called(p v1.Platform) string { return p.OS + "/" + p.Architecture }
