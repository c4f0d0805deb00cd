package sentence

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

func TestLifecycle(t *testing.T) {
	last := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	one, two := lifecycle.Trouble{Failures: 1, Last: last}, lifecycle.Trouble{Failures: 2, Last: last}
	for name, tc := range map[string]struct{ got, want string }{
		"no node":         {Lack(lifecycle.Lack{Reason: v1.ReasonNodeNotFound}), "no node with the claim's provider id has joined the cluster"},
		"a hook":          {Lack(lifecycle.Lack{Reason: v1.ReasonRegistrationHookPending, Name: "cni"}), "the provider is not done with the node: cni"},
		"several":         {Lack(lifecycle.Lack{Reason: v1.ReasonMultipleNodesFound, Nodes: 2}), "2 nodes have the claim's provider id"},
		"not ready":       {Lack(lifecycle.Lack{Reason: v1.ReasonNodeNotReady, Name: "n"}), "node n is not ready"},
		"a startup taint": {Lack(lifecycle.Lack{Reason: v1.ReasonStartupTaintsExist, Name: "a=b:NoSchedule"}), `startup taint "a=b:NoSchedule" is still on the node`},
		"a taint":         {Lack(lifecycle.Lack{Reason: v1.ReasonKnownEphemeralTaintsExist, Name: "a:NoSchedule"}), `taint "a:NoSchedule" is still on the node`},
		"devices":         {Lack(lifecycle.Lack{Reason: v1.ReasonDRADriverPoolsNotPublished, Name: "gpu.example"}), "not all devices of the node are published by gpu.example"},
		"a resource":      {Lack(lifecycle.Lack{Reason: v1.ReasonResourceNotRegistered, Name: "gpu"}), `the node does not offer resource "gpu" yet`},
		"one failure":     {Failing(lifecycle.Failing{Trouble: one, Claim: "c"}), "1 machine(s) in a row ran for their whole time without becoming ready nodes, the last of them NodeClaim c: it did not join the cluster"},
		"two have consequences": {Failing(lifecycle.Failing{Trouble: two, Claim: "c", Joined: true}), "2 machine(s) in a row ran for their whole time without becoming ready nodes, the last of them NodeClaim c: its node was not initialized" +
			"; until one does, one machine is tried at a time, at most two an hour, and nodes that work are not replaced at first"},
		"what a claim says":  {Failing(lifecycle.Failing{Trouble: one, Claim: "c", Joined: true, Lacks: "node n is not ready"}), "1 machine(s) in a row ran for their whole time without becoming ready nodes, the last of them NodeClaim c: node n is not ready"},
		"one is tried":       {Hold(&lifecycle.Hold{Pool: "p", Trouble: two, Tried: "c"}), `the last 2 machines of pool "p" did not get ready, and NodeClaim c is tried first`},
		"one will be tried":  {Hold(&lifecycle.Hold{Pool: "p", Trouble: two}), `the last 2 machines of pool "p" did not get ready, the next is tried at 12:20:00`},
		"less than promised": {Inconsistency(lifecycle.Inconsistency{Resource: "memory", Have: resource.MustParse("7Gi"), Expected: resource.MustParse("8Gi")}), "the node has 7Gi of resource memory where 8Gi was expected (87.5%)"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got  %q\nwant %q", tc.got, tc.want)
			}
		})
	}
}
