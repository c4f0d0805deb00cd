package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"karpenter.sh/karpenter/internal/kit/version"
)

// licence is the project's own.
const licence = "Apache-2.0"

const nothingSaid = "NOASSERTION"

// An spdxDocument lists what a program consists of, as SPDX 2.3 has it.
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string         `json:"SPDXID"`
	Name      string         `json:"name"`
	Version   string         `json:"versionInfo"`
	Location  string         `json:"downloadLocation"`
	Analyzed  bool           `json:"filesAnalyzed"`
	Concluded string         `json:"licenseConcluded"`
	Declared  string         `json:"licenseDeclared"`
	Copyright string         `json:"copyrightText"`
	Purpose   string         `json:"primaryPackagePurpose"`
	Checksums []spdxChecksum `json:"checksums,omitempty"`
	Refs      []spdxRef      `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-karpenter"
)

// contents lists the modules that are linked into the program, as the program itself lists them, so that nothing is listed
// that is not inside, and nothing is inside that is not listed. Licences are those that were found for the modules.
func contents(p program, licences map[string]string) ([]byte, error) {
	d := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: documentID, Name: p.name(),
		Namespace: "https://" + p.info.Main.Path + "/spdx/" + p.name() + "-" + sum(p.text),
		Creation:  spdxCreation{p.made().Format(time.RFC3339), []string{"Tool: " + p.info.Main.Path + "/ship-" + version.Number()}},
		Packages: []spdxPackage{{
			ID: programID, Name: "karpenter", Version: version.Number(), Location: nothingSaid, Concluded: licence, Declared: licence,
			Copyright: nothingSaid, Purpose: "APPLICATION", Checksums: []spdxChecksum{{"SHA256", sum(p.text)}},
			Refs: []spdxRef{purl(debug.Module{Path: p.info.Main.Path, Version: version.Number()})},
		}},
		Relationships: []spdxRelationship{{documentID, "DESCRIBES", programID}},
	}
	licences["stdlib"] = licences["Go's standard library"]
	for i, m := range linked(p) {
		id := fmt.Sprintf("SPDXRef-module-%d", i+1)
		d.Packages = append(d.Packages, spdxPackage{
			ID: id, Name: m.Path, Version: m.Version, Location: nothingSaid, Concluded: nothingSaid,
			Declared: cmp.Or(licences[m.Path], nothingSaid), Copyright: nothingSaid,
			Purpose: "LIBRARY", Refs: []spdxRef{purl(m)},
		})
		d.Relationships = append(d.Relationships, spdxRelationship{programID, "CONTAINS", id})
	}
	return paper(d)
}

// linked are the standard library and the modules in the program.
func linked(p program) []debug.Module {
	all := []debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(p.info.GoVersion, "go")}}
	for _, m := range p.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, *m)
	}
	return all
}

func purl(m debug.Module) spdxRef {
	return spdxRef{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")}
}

// A statement says how things were made: an in-toto statement with SLSA's provenance.
type statement struct {
	Type          string     `json:"_type"`
	Subjects      []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	Definition struct {
		BuildType    string         `json:"buildType"`
		External     map[string]any `json:"externalParameters"`
		Internal     map[string]any `json:"internalParameters"`
		Dependencies []resource     `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	Run struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// origin says what the image and the programs were made from, and how. It names no time and no machine: a repeated build gets
// the same statement, and signing it says who vouches for it.
func origin(programs []program, all v1.Hash, images []v1.Hash) ([]byte, error) {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	s.Subjects = append(s.Subjects, resource{Name: "karpenter:" + version.Number(), Digest: map[string]string{all.Algorithm: all.Hex}})
	var targets []string
	for i, p := range programs {
		targets = append(targets, called(p.platform))
		s.Subjects = append(s.Subjects,
			resource{Name: "karpenter:" + version.Number() + " for " + called(p.platform),
				Digest: map[string]string{images[i].Algorithm: images[i].Hex}},
			resource{Name: p.name(), Digest: map[string]string{"sha256": sum(p.text)}})
	}
	module := programs[0].info.Main.Path
	def := &s.Predicate.Definition
	def.BuildType = "https://" + module + "/ship/v1"
	def.External = map[string]any{"version": version.Number(), "platforms": targets}
	def.Internal = map[string]any{"go": programs[0].info.GoVersion, "flags": goFlags, "environment": goEnv}
	source := resource{Name: module}
	if commit := version.CommitOf(programs[0].info); commit != "" {
		source.Digest = map[string]string{"gitCommit": strings.TrimSuffix(commit, "-modified")}
		def.Internal["modified"] = strings.HasSuffix(commit, "-modified")
	}
	deps, err := dependencies(programs)
	if err != nil {
		return nil, err
	}
	def.Dependencies = append([]resource{source}, deps...)
	s.Predicate.Run.Builder.ID = "https://" + module + "/ship"
	return paper(s)
}

// dependencies are the modules of all programs, each once, with the checksum that Go verified.
func dependencies(programs []program) ([]resource, error) {
	var all []resource
	seen := map[string]bool{}
	for _, p := range programs {
		for _, m := range linked(p) {
			uri := purl(m).Locator
			if seen[uri] {
				continue
			}
			seen[uri] = true
			r := resource{URI: uri}
			if m.Sum != "" {
				raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
				if err != nil {
					return nil, fmt.Errorf("checksum of %s: %w", m.Path, err)
				}
				r.Digest = map[string]string{"dirHash": hex.EncodeToString(raw)}
			}
			all = append(all, r)
		}
	}
	return all, nil
}

func paper(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}

func sum(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:])
}
