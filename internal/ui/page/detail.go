package page

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/view"
	"karpenter.sh/karpenter/internal/history/journal"
)

// A nodeDetail is what the page shows of one node when a viewer opens it.
type nodeDetail struct {
	Name       string           `json:"name"`
	Claim      string           `json:"claim"`
	Created    time.Time        `json:"created"`
	Expires    *time.Time       `json:"expires,omitempty"`
	Stays      []string         `json:"stays"` // why it is not removed, the reasons that users can change first
	Conditions []shownCondition `json:"conditions"`
	Pods       []shownPod       `json:"pods"`
	More       int              `json:"more,omitempty"` // pods that are not listed
	Decisions  []decision       `json:"decisions"`      // about the node or its claim, the newest first
}

// A shownCondition is a condition of the claim that is not True, or Drifted.
type shownCondition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Since   time.Time `json:"since"`
	Message string    `json:"message,omitempty"`
}

// A shownPod is a pod on a node.
type shownPod struct {
	Name   string  `json:"name"`
	Owner  string  `json:"owner"`
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"` // in GiB
	Since  int64   `json:"since"`  // created, in seconds since 1970
}

// Limits of what is listed of one node.
const (
	mostPods  = 250
	mostAbout = 30
)

// detail serves the details of one node: /picture?node=NAME, or /picture?pod=NAMESPACE/NAME for the node of that pod.
func (s *Service) detail(w http.ResponseWriter, r *http.Request) {
	snap := s.Store.Snapshot()
	name := r.URL.Query().Get("node")
	if pod := r.URL.Query().Get("pod"); pod != "" {
		namespace, of, _ := strings.Cut(pod, "/")
		if p := snap.Pod(cluster.PodKey{Namespace: namespace, Name: of}); p != nil {
			name = p.NodeName
		}
	}
	n := snap.Target(name)
	if n == nil {
		n = snap.Node(name)
	}
	if name == "" || n == nil || n.Claim == nil {
		http.Error(w, "there is no such node of Karpenter's", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(describe(n, s.Verdicts.View().Kept, s.Journal)))
}

// describe collects what is known of a node. Reasons that users can change come first, decisions newest first.
func describe(n *cluster.Node, kept []disrupt.Refusal, j *journal.Journal) nodeDetail {
	d := nodeDetail{Name: n.Name, Claim: n.Claim.Name, Created: n.Claim.CreationTimestamp.Time,
		Stays: []string{}, Conditions: []shownCondition{}, Pods: []shownPod{}, Decisions: []decision{}}
	if at, ok := lifecycle.Expiry(n.Claim); ok {
		d.Expires = &at
	}
	var last []string
	for i := range kept {
		switch r := &kept[i]; {
		case r.Claim != n.Claim.Name:
		case view.Holds(r):
			d.Stays = append(d.Stays, sentence.Refusal(*r))
		default:
			last = append(last, sentence.Refusal(*r))
		}
	}
	d.Stays = append(d.Stays, last...)
	for _, c := range n.Claim.Status.Conditions {
		if c.Status != "True" || c.Type == v1.ConditionTypeDrifted {
			d.Conditions = append(d.Conditions, shownCondition{c.Type, string(c.Status), c.LastTransitionTime.Time, c.Message})
		}
	}
	d.More = max(0, len(n.Pods)-mostPods)
	for _, p := range n.Pods[:len(n.Pods)-d.More] {
		list := podclass.Requests(p.Class.Spec)
		d.Pods = append(d.Pods, shownPod{p.Namespace + "/" + p.Name, view.Owner(p), round(list.Cpu().AsApproximateFloat64()),
			round(list.Memory().AsApproximateFloat64() / gib), p.Created.Unix()})
	}
	for _, kind := range []journal.Object{{Kind: "NodeClaim", Name: n.Claim.Name}, {Kind: "Node", Name: n.Name}} {
		for _, x := range decisions(j.Select(journal.Query{Object: &kind, Last: mostAbout})) {
			if !slices.ContainsFunc(d.Decisions, func(y decision) bool { return y.Seq == x.Seq }) {
				d.Decisions = append(d.Decisions, x)
			}
		}
	}
	slices.SortFunc(d.Decisions, func(a, b decision) int { return cmp.Compare(b.Seq, a.Seq) })
	return d
}
