package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

// useCommitments makes the question count on CommitmentDiscounts that are in force for certain. It prints why each
// other one does not count. The savings command (propose) bills all of them instead.
func (p *planFlags) useCommitments(env Env, objects []*v1alpha1.CommitmentDiscount, in *engine.Question) {
	if p.propose { // bills all of them, whatever their share
		p.commitments = objects
		return
	}
	var catalogs []*cloud.Catalog
	for i := range in.Pools {
		catalogs = append(catalogs, in.Pools[i].Catalog)
	}
	books := commitment.Read(objects, in.Snap, catalogs, in.Now)
	p.books = books
	if books == nil {
		return
	}
	in.Commitments = books.Certain
	for i := range books.Verdicts {
		if v := &books.Verdicts[i]; v.State != commitment.Certain {
			fmt.Fprintf(env.Err, "CommitmentDiscount %q does not count: %s\n", v.Object.Name, sentence.Commitment(v))
		}
	}
}

// readCommitments reads the CommitmentDiscounts of a file, and refuses documents of any other kind.
func readCommitments(file string) ([]*v1alpha1.CommitmentDiscount, error) {
	text, err := readRegular(file)
	if err != nil {
		return nil, err
	}
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var out []*v1alpha1.CommitmentDiscount
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		d := &v1alpha1.CommitmentDiscount{}
		if err = errors.Join(err, yaml.UnmarshalStrict(doc, d)); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", file, n, err)
		}
		switch {
		case d.Kind == "" && d.Spec.Type == "": // an empty document
		case d.Kind != "CommitmentDiscount" || !strings.HasPrefix(d.APIVersion, v1alpha1.GroupVersion.Group+"/"):
			return nil, fmt.Errorf("%s, document %d: kind %q of %q: write CommitmentDiscount of %s", file, n, d.Kind, d.APIVersion,
				v1alpha1.GroupVersion)
		default:
			out = append(out, d)
		}
	}
}

// activeCommitments returns the commitments that are active at now, and an error for two with the same ID. market
// lists the prices by which commitments are read.
func activeCommitments(objects []*v1alpha1.CommitmentDiscount, market []tariff.Line, now time.Time) ([]tariff.Commitment, error) {
	var out []tariff.Commitment
	ids := map[string]bool{}
	for _, d := range objects {
		got, err := tariff.FromObject(d, market)
		switch {
		case err != nil:
			return nil, fmt.Errorf("CommitmentDiscount %q: %w", d.CommitmentID(), err)
		case ids[got.ID]:
			return nil, fmt.Errorf("commitment %q is there twice", got.ID)
		}
		ids[got.ID] = true
		if tariff.Active(d, now) {
			out = append(out, got)
		}
	}
	return out, nil
}
