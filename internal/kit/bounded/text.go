package bounded

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/resource"
)

// absurd matches numbers for which the parser of Kubernetes computes millions of digits: 1e-40000000 takes a minute. API servers
// check quantities of custom resources by a pattern only, which lets them through.
var absurd = regexp.MustCompile(`[0-9.][eE](-[0-9]{4,}|[+]?[0-9]{10,})\b`)

// AbsurdNumber returns the place in text of a number that takes long to parse, nil if there is none. No sensible quantity is such a
// number.
func AbsurdNumber(text []byte) []int { return absurd.FindIndex(text) }

// absurdValue matches such a number only as a whole JSON string, so that it does not match a part of a name or an ID.
var absurdValue = regexp.MustCompile(`"[-+]?[0-9.]+[eE](-[0-9]{4,}|[+]?[0-9]{10,})"`)

// JSON returns an error if an object, as API servers write it, has a number that takes long to parse.
func JSON(object []byte) error {
	if at := absurdValue.FindIndex(object); at != nil {
		return fmt.Errorf("the number %s has too large an exponent; write a quantity such as 500m or 2Gi", short(object[at[0]:at[1]]))
	}
	return nil
}

func short(text []byte) string { return string(text[:min(len(text), 40)]) }

// mostText is the greatest length of a quantity or schedule. No sensible text is longer.
const mostText = 1000

// ParseQuantity parses a quantity that a user wrote, and refuses a quantity whose parsing would take long. The result may be outside of
// the limits of Object.
func ParseQuantity(text string) (resource.Quantity, error) {
	if len(text) > mostText || absurd.MatchString(text) {
		return resource.Quantity{}, resource.ErrFormatWrong
	}
	return resource.ParseQuantity(text)
}

// ParseSchedule parses a schedule of cron in a time zone.
func ParseSchedule(schedule, zone string) (cron.Schedule, error) {
	if len(schedule) > mostText || strings.Contains(schedule, "TZ=") || strings.ContainsAny(zone, " \t\n") {
		return nil, fmt.Errorf("schedule or time zone is not of the form of cron: five fields, and a zone such as Europe/Berlin")
	}
	return cron.ParseStandard("CRON_TZ=" + zone + " " + schedule)
}
