package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"karpenter.sh/karpenter/internal/history/journal"
)

// journalFlags say where the journal of a controller is.
type journalFlags struct {
	from, tokenFile string
	port            int
	leader          func(ctx context.Context, kubeconfig, what string, query url.Values) (io.ReadCloser, error) // of Env
}

// bind adds the flags to a command.
func (j *journalFlags) bind(fs *flag.FlagSet) {
	fs.StringVar(&j.from, "journal", "", "folder that a controller writes with --journal-dir, or address of /journal "+
		"on its metrics port; if empty, the controller that leads is asked through the API server")
	fs.StringVar(&j.tokenFile, "journal-token-file", "",
		"file with the bearer token for an address that asks for one (--metrics-authentication)")
	fs.IntVar(&j.port, "journal-port", 8080, "metrics port of the controller, where it is asked through the API server")
}

// answerTime bounds how long a journal is waited for.
const answerTime = 30 * time.Second

// read returns the records, the oldest first, and how many lines were torn (could not be read). They come from the
// leader, from an address or from a folder, as --journal says.
func (j *journalFlags) read(ctx context.Context, kubeconfig string) (records []journal.Record, torn int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	switch {
	case j.from == "":
		return j.readLeader(ctx, kubeconfig)
	case strings.HasPrefix(j.from, "http://"), strings.HasPrefix(j.from, "https://"):
		return j.readAddress(ctx)
	}
	if info, err := os.Stat(j.from); err != nil {
		return nil, 0, fmt.Errorf("--journal: %w", err)
	} else if !info.IsDir() {
		return nil, 0, fmt.Errorf("--journal %s: give the folder, not a file of it", j.from)
	}
	records, torn, err = journal.ReadFolder(j.from)
	if err == nil && len(records)+torn == 0 {
		err = fmt.Errorf("--journal %s: there is no journal in this folder; a controller writes journal-*.jsonl into "+
			"the one of its --journal-dir", j.from)
	}
	return records, torn, err
}

// controllerSnapshot returns the last question of the controller's planner, as a snapshot.
func (j *journalFlags) controllerSnapshot(ctx context.Context, kubeconfig string, anonymous bool) ([]byte, error) {
	query := url.Values{}
	if anonymous {
		query.Set("anonymous", "true")
	}
	return j.ask(ctx, kubeconfig, "snapshot", query)
}

// ask returns what the controller serves under a path (what).
func (j *journalFlags) ask(ctx context.Context, kubeconfig, what string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var body io.ReadCloser
	var err error
	if j.from == "" {
		body, err = j.askLeader(ctx, kubeconfig, what, query)
	} else {
		body, err = j.askAddress(ctx, what, query)
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// readAddress reads the journal of a controller that is asked directly.
func (j *journalFlags) readAddress(ctx context.Context) ([]journal.Record, int, error) {
	body, err := j.askAddress(ctx, "journal", nil)
	if err != nil {
		return nil, 0, err
	}
	defer body.Close()
	return journal.Read(body)
}

// askAddress asks the controller at the address of --journal. The controller's certificate is self-signed, so it is
// not checked; the token is sent to that address only, because redirects are refused.
func (j *journalFlags) askAddress(ctx context.Context, what string, query url.Values) (io.ReadCloser, error) {
	at, err := url.Parse(j.from)
	if err != nil {
		return nil, fmt.Errorf("--journal: %w", err)
	}
	if at.Path == "" || at.Path == "/" || what != "journal" {
		at.Path = "/" + what
	}
	if query != nil {
		at.RawQuery = query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("--journal: %w", err)
	}
	if j.tokenFile != "" {
		token, err := os.ReadFile(j.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--journal-token-file: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	c := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // see above
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it leads elsewhere") },
	}
	answer, err := c.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for the %s: %w", what, err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return nil, fmt.Errorf("ask for the %s: %s: %s", what, answer.Status, strings.TrimSpace(string(text)))
	}
	return answer.Body, nil
}

// lease is the name of the Lease by which the replicas elect a leader.
const lease = "karpenter-leader-election"

// readLeader reads the journal of the replica that leads.
func (j *journalFlags) readLeader(ctx context.Context, kubeconfig string) ([]journal.Record, int, error) {
	body, err := j.askLeader(ctx, kubeconfig, "journal", nil)
	if err != nil {
		return nil, 0, err
	}
	defer body.Close()
	return journal.Read(body)
}

// askLeader asks the replica that leads, through the API server's proxy for pods: only the leader decides anything.
func (j *journalFlags) askLeader(ctx context.Context, kubeconfig, what string, query url.Values) (io.ReadCloser, error) {
	if j.leader != nil {
		return j.leader(ctx, kubeconfig, what, query)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	leases, err := c.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + lease})
	if err != nil {
		return nil, fmt.Errorf("look for the controller that leads: %w", err)
	}
	namespace, pod := holder(leases.Items)
	if pod == "" {
		return nil, fmt.Errorf("no controller leads: no process holds the lease %s", lease)
	}
	parameters := map[string]string{}
	for key := range query {
		parameters[key] = query.Get(key)
	}
	body, err := c.CoreV1().Pods(namespace).ProxyGet("http", pod, fmt.Sprint(j.port), what, parameters).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask pod %s/%s for the %s: %w; a controller that is no pod, or that has "+
			"--metrics-authentication, is reached with --journal ADDRESS", namespace, pod, what, err)
	}
	return body, nil
}

// holder returns the pod that holds one of the leases, "" if none does.
func holder(leases []coordinationv1.Lease) (namespace, pod string) {
	for i := range leases {
		if id := leases[i].Spec.HolderIdentity; id != nil && *id != "" {
			pod, _, _ = strings.Cut(*id, "_")
			return leases[i].Namespace, pod
		}
	}
	return "", ""
}
