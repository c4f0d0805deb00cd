package conversion

import (
	"bytes"
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const somewhere = "karpenter-conversion.kube-system.svc"

func anybody([]byte) bool { return true }
func nobody([]byte) bool  { return false }

// verify checks what a replica serves with against what an API server trusts.
func verify(t *testing.T, data map[string][]byte, bundle []byte, now time.Time) {
	t.Helper()
	c, err := pair{data[certKey], data[keyKey]}.usable(somewhere, now)
	if err != nil {
		t.Fatalf("%v: %v", now, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: somewhere, Roots: roots, CurrentTime: now}); err != nil {
		t.Fatalf("%v: %v", now, err)
	}
}

// Three years pass. API servers learn of a definition six hours late, one replica reads the Secret six hours late, and at no time is what any
// of them serves with not trusted.
func TestRenewalLeavesNobodyWithoutTrust(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, err := renewed(nil, somewhere, now, nobody)
	if err != nil {
		t.Fatal(err)
	}
	trusts, late := data[bundleKey], data
	made := map[string]bool{}
	for range 3 * 365 * 4 {
		now = now.Add(6 * time.Hour)
		next, err := renewed(data, somewhere, now, func(cert []byte) bool { return bytes.Contains(trusts, cert) })
		if err != nil {
			t.Fatal(err)
		}
		if again, err := renewed(next, somewhere, now, nobody); err != nil || !maps.EqualFunc(again, next, bytes.Equal) {
			t.Fatalf("%v: the next replica would write again", now)
		}
		verify(t, next, trusts, now)
		verify(t, late, trusts, now)
		made[string(next[certKey])] = true
		if n := bytes.Count(next[bundleKey], []byte("BEGIN")); n > 3 {
			t.Fatalf("%v: %d certificates are trusted", now, n)
		}
		trusts, late, data = next[bundleKey], data, next
	}
	if len(made) != 4 {
		t.Errorf("%d certificates in three years, want 4", len(made))
	}
}

func TestRenewed(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	made := func(host string, at time.Time) map[string][]byte {
		data, err := renewed(nil, host, at, nobody)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	fresh := made(somewhere, now)
	aged := made(somewhere, now.Add(-300*24*time.Hour))
	withNext, err := renewed(aged, somewhere, now, nobody)
	if err != nil || withNext[nextCertKey] == nil {
		t.Fatal("an old certificate got no successor", err)
	}
	expired := made(somewhere, now.Add(-366*24*time.Hour))
	both := maps.Clone(withNext)
	both[certKey], both[keyKey] = expired[certKey], expired[keyKey]
	otherKey := maps.Clone(fresh)
	otherKey[keyKey] = aged[keyKey]
	later := now.Add(trustFor)

	same := func(before, after map[string][]byte) bool { return maps.EqualFunc(before, after, bytes.Equal) }
	replaced := func(before, after map[string][]byte) bool {
		return !bytes.Equal(before[certKey], after[certKey]) && after[nextCertKey] == nil && bytes.HasPrefix(after[bundleKey], after[certKey])
	}
	promoted := func(before, after map[string][]byte) bool {
		return replaced(before, after) && bytes.Equal(before[nextCertKey], after[certKey])
	}
	for name, tc := range map[string]struct {
		data    map[string][]byte
		host    string
		now     time.Time
		trusted func([]byte) bool
		want    func(before, after map[string][]byte) bool
	}{
		"a fresh certificate stays":                      {fresh, somewhere, now, nobody, same},
		"nothing gets something":                         {nil, somewhere, now, nobody, replaced},
		"rubbish is replaced":                            {map[string][]byte{certKey: []byte("x"), keyKey: []byte("y")}, somewhere, now, nobody, replaced},
		"a key of another certificate is replaced":       {otherKey, somewhere, now, nobody, replaced},
		"one that has expired is replaced at once":       {expired, somewhere, now, nobody, replaced},
		"one for another name is replaced at once":       {fresh, "karpenter-conversion.karpenter.svc", now, nobody, replaced},
		"one of the future is replaced":                  {made(somewhere, now.Add(48*time.Hour)), somewhere, now, nobody, replaced},
		"a clock that is an hour late does no harm":      {made(somewhere, now.Add(59*time.Minute)), somewhere, now, nobody, same},
		"a successor waits until it is trusted":          {withNext, somewhere, later, nobody, same},
		"and until every API server knows":               {withNext, somewhere, later.Add(-time.Second), anybody, same},
		"then it takes its turn, and the old one counts": {withNext, somewhere, later, anybody, promoted},
		"when nothing else is left it does at once":      {both, somewhere, now, nobody, promoted},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := renewed(tc.data, tc.host, tc.now, tc.trusted)
			if err != nil {
				t.Fatal(err)
			}
			if !tc.want(tc.data, after) {
				t.Errorf("the Secret has become another:\n%s", cmp.Diff(tc.data, after))
			}
		})
	}
}

// A flood of certificates does not make the definitions grow without end.
func TestABundleHoldsFewCertificates(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var data map[string][]byte
	for i := range 9 {
		var err error
		if data, err = renewed(data, somewhere[i:], now, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if n := bytes.Count(data[bundleKey], []byte("BEGIN")); n != mostTrusted {
		t.Errorf("%d certificates, want %d", n, mostTrusted)
	}
}
