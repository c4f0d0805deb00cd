// Package policy holds the IAM policies of the controller: what it may do in AWS, and not more.
//
// There are several, because a managed policy may not be longer than 6,144 characters. They allow what this version of
// Karpenter calls; a test runs the provider under them. The one called commitments is optional: it is for the import of Reserved Instances
// and Savings Plans.
package policy

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.json
var files embed.FS

// Names of what the policies are about.
type Names struct {
	Partition, Region, AccountID string
	ClusterName                  string
	NodeRole                     string // name of the role of nodes, with its path
	Queue                        string // of interruption messages
}

// Documents returns the policies by name, filled in.
func Documents(n Names) (map[string][]byte, error) {
	fill := strings.NewReplacer("${Partition}", n.Partition, "${Region}", n.Region, "${AccountID}", n.AccountID,
		"${ClusterName}", n.ClusterName, "${NodeRole}", n.NodeRole, "${Queue}", n.Queue)
	out := map[string][]byte{}
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		document := []byte(fill.Replace(string(text)))
		if !json.Valid(document) {
			return nil, fmt.Errorf("policy %s is not valid JSON once filled in", name)
		}
		out[strings.TrimSuffix(name, ".json")] = document
	}
	return out, nil
}
