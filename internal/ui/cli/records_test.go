package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A controller with its own certificate gets the token, and nobody to whom it leads.
func TestAControllerIsAskedForItsJournal(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked somebody else") }))
	defer elsewhere.Close()
	controller := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/elsewhere":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/journal":
			http.Error(w, "who are you", http.StatusUnauthorized)
		default:
			w.Write([]byte(`{"seq":1,"act":"opened"}` + "\n"))
		}
	}))
	defer controller.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		flags journalFlags
		want  string // "" if it is answered
	}{
		"with the token":    {journalFlags{from: controller.URL, tokenFile: file}, ""},
		"with the path":     {journalFlags{from: controller.URL + "/journal", tokenFile: file}, ""},
		"without token":     {journalFlags{from: controller.URL}, "401"},
		"leading elsewhere": {journalFlags{from: controller.URL + "/elsewhere", tokenFile: file}, "leads elsewhere"},
		"without the file":  {journalFlags{from: controller.URL, tokenFile: file + "x"}, "no such file"},
		"nobody there":      {journalFlags{from: "http://127.0.0.1:1"}, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			records, _, err := tc.flags.read(t.Context(), "")
			if tc.want == "" && (err != nil || len(records) != 1) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, %d records, want %q", err, len(records), tc.want)
			}
		})
	}
}

func TestHolder(t *testing.T) {
	held := func(namespace, id string) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &id}}
	}
	if ns, pod := holder([]coordinationv1.Lease{{}, held("a", ""), held("kube-system", "karpenter-0_uuid")}); ns != "kube-system" || pod != "karpenter-0" {
		t.Errorf("%s/%s", ns, pod)
	}
	if _, pod := holder(nil); pod != "" {
		t.Error(pod)
	}
}
