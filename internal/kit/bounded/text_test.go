package bounded

import (
	"strings"
	"testing"
	"time"
)

func TestTextsOfUsersAreParsedInLittleTime(t *testing.T) {
	begin := time.Now()
	for text, ok := range map[string]bool{
		"500m": true, "1e3": true, "1e-9": true, "1e40000000": true, "1e-40000000": false, "1e4000000000": false, "-.5E-30000000": false, "ten": false,
		strings.Repeat("9", 1_000_000): false,
	} {
		if _, err := ParseQuantity(text); (err == nil) != ok {
			t.Errorf("ParseQuantity(%.20s) = %v", text, err)
		}
	}
	for schedule, ok := range map[string]bool{
		"0 9 * * 1-5": true, "@daily": true, "TZ=Mars 0 9 * * *": false, "0 9 * *": false, strings.Repeat("0,", 500_000) + "0 9 * * *": false,
	} {
		if _, err := ParseSchedule(schedule, "Europe/Berlin"); (err == nil) != ok {
			t.Errorf("ParseSchedule(%.20s) = %v", schedule, err)
		}
	}
	if _, err := ParseSchedule("0 9 * * *", "UTC 0"); err == nil {
		t.Error("a zone with a blank is taken")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestObjectsWithAbsurdNumbers(t *testing.T) {
	for object, ok := range map[string]bool{
		`{"limits":{"cpu":"1e3"}}`: true, `{"limits":{"cpu":"1e40000000"}}`: true, `{"limits":{"cpu":"1e-40000000"}}`: false, `{"limits":{"cpu":"-.1E4000000000"}}`: false,
		`{"uid":"9f8e-1e-40000000"}`: true, `{"name":"web-1e-40000000"}`: true,
	} {
		if err := JSON([]byte(object)); (err == nil) != ok {
			t.Errorf("JSON(%s) = %v", object, err)
		}
	}
}
