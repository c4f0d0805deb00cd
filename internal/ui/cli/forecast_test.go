package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAForecastIsShown(t *testing.T) {
	const served = `[{"object":{"kind":"NodePool","name":"default"},"days":15,"bytes":1692,"offUntil":"2026-11-30T00:00:00Z","lastDays":{"expected":241,"came":236,"wrong":14},
		"unusedDollars":0.31,"savedDollars":0.62,"hours":[
		{"at":"2026-11-27T08:00:00Z","pods":"shop/web","expected":40,"came":38,"over":true,"learnedFrom":{"came":9,"of":10,"days":"weekday"}},
		{"at":"2026-11-27T09:00:00Z","pods":"shop/web","expected":60,"came":0,"over":false,"learnedFrom":{"came":10,"of":10,"days":"weekday"}}]}]`
	const want = `NodePool default: 15 day(s) in 1692 bytes; 241 pods expected of late, 236 came, 6 % wrong; room unused $0.31, waiting saved $0.62
NodePool default: no room is kept until 2026-11-30T00:00:00Z: it cost more than it brought

OBJECT            HOUR          PODS OF   EXPECTED  CAME  ERROR  LEARNED FROM
NodePool default  27 Nov 08:00  shop/web  40        38    +2     9 of the last 10 weekdays
NodePool default  27 Nov 09:00  shop/web  60        -     -      10 of the last 10 weekdays
`
	text, asked := served, ""
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		fmt.Fprintln(w, text)
	}))
	defer controller.Close()
	var out, trouble bytes.Buffer
	run := func(code int, args ...string) {
		t.Helper()
		out.Reset()
		trouble.Reset()
		if got := Run(t.Context(), Env{Out: &out, Err: &trouble}, append([]string{"forecast"}, args...)); got != code {
			t.Fatalf("%q: code %d: %s", args, got, &trouble)
		}
	}
	if run(exitFine, "--journal", controller.URL); out.String() != want || asked != "/forecast?hours=6" {
		t.Errorf("of %s is shown:\n%s", asked, &out)
	}
	if run(exitFine, "--journal", controller.URL, "-o", "json", "--hours", "24"); asked != "/forecast?hours=24" || !strings.Contains(out.String(), `"expected": 60`) {
		t.Errorf("of %s is shown:\n%s", asked, &out)
	}
	text = strings.Replace(served, `"offUntil":"2026-11-30T00:00:00Z"`, `"todayDollars":{"bill":4,"unused":0.12},"spent":true`, 1)
	if run(exitFine, "--journal", controller.URL); !strings.Contains(out.String(), "no room is kept until midnight: today $0.12 of it was not used") {
		t.Errorf("of a day's bill that is spent is shown:\n%s", &out)
	}
	text = "[]"
	if run(exitNothing, "--journal", controller.URL); !strings.Contains(trouble.String(), "nothing learns") {
		t.Errorf("nothing is explained by %s", &trouble)
	}
	text = "torn"
	for _, args := range [][]string{{"--journal", controller.URL}, {"--journal", "http://127.0.0.1:1"}, {"default"}, {"-o", "yaml"}, {"--hours", "25"}, {"--hours", "0"}} {
		run(exitBadInput, args...)
	}
}
