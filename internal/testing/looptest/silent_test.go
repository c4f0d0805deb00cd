package looptest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestAClassStaysReadyWhileItCannotBeTried lets every trial of a launch fail, for reasons that say nothing about the class, while launches
// work. The class is edited, and Karpenter starts anew: its pools buy all the same, and its condition says what EC2 answers. What EC2
// refuses makes the class unready.
func TestAClassStaysReadyWhileItCannotBeTried(t *testing.T) {
	for code, status := range map[string]int{"InternalError": 500, "RequestLimitExceeded": 503} {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, awsmodel.Config{Seed: 21, Types: []string{"m5.*"}})
				end := w.start()
				defer func() { end() }()
				w.eventually("the class is ready", time.Minute, w.says(awsv1.ConditionTypeReady, "True", ""))

				w.trialsFail(awsmodel.Failure{Code: code, Message: "try again", Status: status})
				memapi.Edit(w.API, "", "default", func(c *awsv1.EC2NodeClass) { c.Spec.Tags = map[string]string{"team": "a"} })
				w.eventually("what cannot be tried is said", 5*time.Minute, w.says(awsv1.ConditionTypeValidationSucceeded, "True", code))
				w.deploy(3, "1500m", "1Gi")
				w.eventually("pods run", 5*time.Minute, w.allRun(3))
				end()
				end = w.start()
				w.eventually("the class is ready after a restart", 5*time.Minute, w.says(awsv1.ConditionTypeReady, "True", ""))

				w.trialsFail(awsmodel.Failure{Code: "UnauthorizedOperation", Message: "not authorized to perform: ec2:RunInstances", Status: 403})
				w.eventually("a refusal counts", time.Hour, w.says(awsv1.ConditionTypeReady, "False", ""))
				w.trialsFail(awsmodel.Failure{Code: code, Message: "try again", Status: status})
				time.Sleep(2 * time.Hour)
				w.eventually("and is not taken back by silence", time.Minute, w.says(awsv1.ConditionTypeReady, "False", ""))
				w.faults(func(f *awsmodel.Faults) { f.Fail = nil })
				w.eventually("all is well, and nothing is said", time.Hour, w.says(awsv1.ConditionTypeValidationSucceeded, "True", ""))
			})
		})
	}
}

// trialsFail lets EC2 answer so to trials. Launches go by CreateFleet, so that nothing else asks for RunInstances.
func (w *world) trialsFail(as awsmodel.Failure) {
	w.t.Helper()
	w.faults(func(f *awsmodel.Faults) { f.Fail = map[string]awsmodel.Failure{"ec2:RunInstances": as} })
}

// says tells in how far a condition of the class, as it stands, is not what is wanted. An empty text is wanted as such of True.
func (w *world) says(of, status, text string) func() string {
	return func() string {
		nc := sim.Get[*awsv1.EC2NodeClass](w.t, w.World, "default")
		c := condition.Get(nc, of)
		switch {
		case c == nil || string(c.Status) != status || c.ObservedGeneration != nc.Generation:
		case !strings.Contains(c.Message, text) || text == "" && status == "True" && c.Message != "":
		default:
			return ""
		}
		return fmt.Sprintf("%s is %+v, of generation %d", of, c, nc.Generation)
	}
}
