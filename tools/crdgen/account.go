package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	gotemplate "text/template"
)

// Where the policies are, and what is made of them.
const (
	policyFolder    = "internal/aws/policy"
	accountFolder   = policyFolder + "/account"
	templatePath    = "install/aws/karpenter-cloudformation.yaml"
	terraformFolder = "install/aws/terraform/policies"
)

//go:embed cloudformation.yaml.tmpl
var cloudFormation string

// subPlaces say what CloudFormation calls the places to fill in that have other names there.
var subPlaces = strings.NewReplacer(
	"${Partition}", "${AWS::Partition}", "${Region}", "${AWS::Region}", "${AccountID}", "${AWS::AccountId}",
	"${DNSSuffix}", "${AWS::URLSuffix}",
	"${NodeRole}", "${KarpenterNodeRole}", "${Queue}", "${KarpenterInterruptionQueue.QueueName}",
)

// account is what the template is made from.
type account struct {
	documents map[string]string // by file name without its ending
	Policies  []controllerPolicy
	Rules     []eventRule
}

// A controllerPolicy is one of the controller's policies, made only under the condition Optional where that is not empty.
type controllerPolicy struct{ ID, File, Optional string }

// optional are the policies that not each cluster needs, with the condition of the template.
var optional = map[string]string{"commitments": "CommitmentsAreImported"}

type eventRule struct{ ID, Source, Kind string }

// Document is a policy document, indented.
func (a account) Document(name string, indent int) (string, error) {
	text, ok := a.documents[name]
	if !ok {
		return "", fmt.Errorf("there is no document %s", name)
	}
	margin := strings.Repeat(" ", indent)
	return margin + strings.ReplaceAll(strings.TrimSuffix(subPlaces.Replace(text), "\n"), "\n", "\n"+margin), nil
}

// accountFiles makes the CloudFormation template, and the copies of the policies that the Terraform module reads.
func accountFiles() (map[string][]byte, error) {
	a := account{documents: map[string]string{}}
	out := map[string][]byte{}
	for _, pattern := range []string{policyFolder, accountFolder} {
		paths, err := filepath.Glob(pattern + "/*.json")
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			name := strings.TrimSuffix(filepath.Base(path), ".json")
			a.documents[name] = string(text)
			if pattern == policyFolder {
				a.Policies = append(a.Policies, controllerPolicy{ID: logicalID(name), File: name, Optional: optional[name]})
			}
			out[terraformFolder+"/"+filepath.Base(path)] = text
		}
	}
	if err := a.readRules(); err != nil {
		return nil, err
	}
	t, err := gotemplate.New("cloudformation").Parse(cloudFormation)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	if err := t.Execute(&text, a); err != nil {
		return nil, err
	}
	out[templatePath] = []byte(text.String())
	return out, nil
}

func (a *account) readRules() error {
	var rules map[string]struct {
		Source []string
		Kind   []string `json:"detail-type"`
	}
	if err := json.Unmarshal([]byte(a.documents["rules"]), &rules); err != nil {
		return fmt.Errorf("rules.json: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(rules)) {
		a.Rules = append(a.Rules, eventRule{id, strings.Join(rules[id].Source, ", "), strings.Join(rules[id].Kind, ", ")})
	}
	return nil
}

// logicalID is the name of a policy in the template: IAMIntegrationPolicy for iam-integration.
func logicalID(file string) string {
	var id strings.Builder
	for word := range strings.SplitSeq(file, "-") {
		switch word {
		case "iam", "eks":
			id.WriteString(strings.ToUpper(word))
		default:
			id.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return id.String() + "Policy"
}
